"""Measuring: what limits reading on this machine, and what is wrong with it."""
