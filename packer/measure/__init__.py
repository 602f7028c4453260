"""Measure: where the time of loading goes, and which setting loads fastest here."""
