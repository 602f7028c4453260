"""Python objects as a source: datasets, sequences and iterables that `packer.convert` accepts instead of a path."""
