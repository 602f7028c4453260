"""Staging: copies of packs in memory, one for all processes of a user on a machine.

Layout of the user's folder `<base>/packer-<uid>/`, mode 0700, base being /dev/shm or another file system:
    <digest>/           the copy of the pack whose packer.json has this sha256: index/, extras/, parts. A file is there
                        with its final name only when its sha256 was found to be the manifest's.
    <digest>/packer.json  put there last: with it the folder is a pack like any other; without, a part of one
    <digest>.origin     the path that the pack was copied from
    <digest>-ycc420/    a pack of its own: that pack with its images in codec ycc420; .origin as above
    .<digest>-ycc420.partial  that in the making; left by a process that was killed, the next one goes on with it
    made-by-packer-N    that packer made the folder, whose inode has the number N: see files/work_folder.py
    .work/              what a stager is about to finish, or a release to remove; left by a process that was killed

Whoever changes the folder holds the kernel's lock on it, so what lies in .work then is an orphan. Who reads a copy
holds a shared lock on `<digest>/`, its lease. All locks end with their process; none leaves a file behind.
"""
