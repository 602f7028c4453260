"""Arrays whose rows are samples. One source per file format."""
