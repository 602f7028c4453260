"""Files: safe paths, folders opened through descriptors, atomic writes, digests, and syncing to the disk."""
