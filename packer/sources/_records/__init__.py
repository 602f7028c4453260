"""What the sources share whose samples are records in large files."""
