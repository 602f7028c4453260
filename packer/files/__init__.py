"""Files: safe paths, folders opened through descriptors, atomic publishing, hashing; what touches the disk."""
