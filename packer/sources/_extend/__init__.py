"""What can be added to any source: files beside its samples, and lists that split them. No source itself."""
