"""Remote: packs behind URLs, read from a cache on this machine that brings each part when it is needed.

Layout of the cache, `<cache>/packer-cache-<uid>/`, mode 0700:
    <digest>/           of the pack whose packer.json has this sha256: packer.json, index/, parts. A file has its name
                        there only when its sha256 was found to be the manifest's.
    locks               an empty file: who holds which bytes of it is what several processes know of each other
    made-by-packer-N    that packer made the folder, whose inode has the number N: see files/work_folder.py
    .fetching-N         on file systems without unnamed files: what is being fetched, or was when its process was killed

A download is a file without a name until it is whole: whoever is killed leaves nothing. All locks are the kernel's and
end with their process.
"""
