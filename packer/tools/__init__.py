"""Measuring: where the time of loading goes, what limits it on this machine, and what is wrong with it."""
