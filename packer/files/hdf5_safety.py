"""HDF5 storage: which parts of an HDF5 file may be looked at, for packs and for files of others.

A link can lead to another file, and so can the storage of an array (external files, virtual layouts): nothing that
leaves the file is followed.
"""

from pathlib import Path
from typing import Any

import h5py

# what h5py raises for a file that is not as it should be, besides OSError
H5_ERRORS = (RuntimeError, ValueError, KeyError, TypeError, OverflowError)


def open_read_only(path: Path) -> Any:
    """The file, read-only and without a lock, unless this process has it open with one: HDF5 wants them equal."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError as error:
        if "file locking" not in str(error):  # h5py has neither an errno nor a class for it
            raise
        return h5py.File(path, "r", locking=True)


def is_hard_link(group: Any, name: bytes) -> bool:
    """Whether a name of a group leads to something in the same place, by no path and to no other file."""
    return bool(group.links.get_info(name).type == h5py.h5l.TYPE_HARD)


def lies_elsewhere(options: Any) -> bool:
    """Whether an array with these creation properties has its bytes in other files."""
    return bool(options.get_layout() == h5py.h5d.VIRTUAL or options.get_external_count())


def is_one_piece(options: Any) -> bool:
    """Whether an array with these creation properties is stored unchanged, in one piece of the file itself."""
    return bool(
        options.get_layout() == h5py.h5d.CONTIGUOUS and not options.get_nfilters() and not lies_elsewhere(options)
    )
