"""HDF5 safety: checks that an HDF5 file leads to no other file. Packs and files of other tools are checked.

A link can lead to another file. An array can have its bytes in other files (external files, virtual layouts). Refuse
both before you read.
"""

from pathlib import Path
from typing import Any

import h5py

# exceptions of h5py for a damaged file, besides OSError
H5_ERRORS = (RuntimeError, ValueError, KeyError, TypeError, OverflowError)


def open_read_only(path: Path) -> Any:
    """Open a file read-only, without a lock. If this process has it open with a lock, HDF5 requires one again."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "file locking" not in str(error):  # h5py has no errno and no class for this
            raise
        return h5py.File(path, "r", locking=True)


def is_hard_link(group: Any, name: bytes) -> bool:
    """Return True if a name in a group is a hard link. Other links may lead to another path or file."""
    return bool(group.links.get_info(name).type == h5py.h5l.TYPE_HARD)


def lies_elsewhere(options: Any) -> bool:
    """Return True if the array with these creation properties has its bytes in other files."""
    return bool(options.get_layout() == h5py.h5d.VIRTUAL or options.get_external_count())


def is_one_piece(options: Any) -> bool:
    """Return True if the array with these creation properties is stored in one piece of the file, without filters."""
    return bool(
        options.get_layout() == h5py.h5d.CONTIGUOUS and not options.get_nfilters() and not lies_elsewhere(options)
    )
