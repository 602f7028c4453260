"""Conversion of a source to a pack: plan the parts, build each part, publish all parts at once.

convert.py contains `packer.convert`, the function for users and for the command line.
"""
