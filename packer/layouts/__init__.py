"""Layouts: bytes as other tools lay them out in their files and records, read and written; a layout per file."""
