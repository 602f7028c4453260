"""Transforms: the geometries that users name, one kind per file. A file added here is found by its classes.

Users import them from packer.geometry.
"""
