"""Copies: files of packs that packer keeps on this machine, in a folder of the user's own.

There are two kinds of copies:

* Staged copies, which `packer stage` makes in memory or in another folder. `staged_copies.py` documents their layout.
* The cache of a remote pack, which contains the parts that were read last. `part_cache.py` documents its layout.

Both use `OwnedFolder`: the folder belongs to the user alone, files arrive in it complete or not at all, and locks of
the kernel protect the files that are in use. These locks end with their process, so a killed process leaves none.
"""
