"""Loading: batches of a pack, decoded by threads into memory that is used again."""
