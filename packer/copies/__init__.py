"""Copies: files of packs that packer keeps on this machine, in a folder that only its user can access.

There are two kinds of copies:

* Staged copies, which `packer stage` makes in memory or in another folder. `staged_copies.py` documents their layout.
* The cache of a remote pack, which contains the parts that were read last. `part_cache.py` documents its layout.

Both use `OwnedFolder`, a folder that belongs to the user alone. A file arrives in it complete or not at all. Locks of
the kernel protect the files that are in use, and end with their process.
"""
