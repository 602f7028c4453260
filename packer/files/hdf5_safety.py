"""HDF5 safety: checks before opening parts of an HDF5 file, for packs and for files of other tools.

A link can lead to another file, and so can the storage of an array (external files, virtual layouts). Callers refuse
both.
"""

from pathlib import Path
from typing import Any

import h5py

# exceptions of h5py for a damaged file, besides OSError
H5_ERRORS = (RuntimeError, ValueError, KeyError, TypeError, OverflowError)


def open_read_only(path: Path) -> Any:
    """Open a file read-only without a lock. Use a lock if HDF5 requires it: this process has the file open with one."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "file locking" not in str(error):  # h5py has no errno and no class for this
            raise
        return h5py.File(path, "r", locking=True)


def is_hard_link(group: Any, name: bytes) -> bool:
    """Return True if a name of a group is a hard link, which cannot lead to a path or another file."""
    return bool(group.links.get_info(name).type == h5py.h5l.TYPE_HARD)


def lies_elsewhere(options: Any) -> bool:
    """Return True if an array with these creation properties has its bytes in other files."""
    return bool(options.get_layout() == h5py.h5d.VIRTUAL or options.get_external_count())


def is_one_piece(options: Any) -> bool:
    """Return True if an array with these creation properties is stored unchanged in one piece of the file."""
    return bool(
        options.get_layout() == h5py.h5d.CONTIGUOUS and not options.get_nfilters() and not lies_elsewhere(options)
    )
