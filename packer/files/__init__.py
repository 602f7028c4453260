"""Files: safe paths, folders opened through descriptors, atomic publishing, hashing, and syncing to the disk."""
