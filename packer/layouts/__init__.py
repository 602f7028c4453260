"""Layouts: read and write the bytes of files and records of other tools, one module per layout."""
