"""Target: the folder that a conversion makes, checked before anything is read or written."""

import os
from pathlib import Path

from packer import formats
from packer.errors import PackerError, PackExists, Refused
from packer.files.storage_errors import failing
from packer.pack import manifest as manifests
from packer.pack.foreign import check_whole

_FILES = (".zip", ".tar", ".tgz", ".gz", ".7z", ".npz", ".npy", ".pkl", ".tfrecord", ".db")  # of one file each
_FURTHER = {"h5": "hdf5", "pt": "pth"}  # suffixes that are not a format's name


def named_format(target: Path) -> str | None:
    """The format that the target's suffix says; None where it says none."""
    suffix = target.suffix.lower().removeprefix(".")
    said = _FURTHER.get(suffix, suffix)
    return said if said in formats.registry.names() else None


def format_of(target: Path, asked: str | None) -> str:
    """The format of a pack: as asked, else as the target's suffix says (out.h5, out.pth), else lmdb.

    Raises Refused where the two contradict each other, and for the suffix of a file of another kind without --to.
    """
    said = named_format(target)
    if said is None:
        if asked is None and target.suffix.lower() in _FILES:
            raise Refused(
                f"{target}: a pack is a folder, not a {target.suffix} file; give another name, such as "
                f"{target.stem}.pack, or say --to"
            )
        return asked or "lmdb"
    if asked is not None and asked != said:
        raise Refused(
            f"{target}: its name says {said}, --to says {asked}; leave --to out, or give another name, such as "
            f"{target.stem}.pack"
        )
    return said


def check_target(root: Path, target: Path, *, overwrite: bool) -> None:
    """Raise Refused where the pack cannot be put there, PackExists where something is there already.

    root: the folder of the source.
    """
    with failing(target, "ask for the folder"):  # links that change while they are followed
        source, place = root.resolve(), target.resolve()
    if place == source or source in place.parents:
        raise Refused(f"{target}: lies inside the source {root}; choose a folder beside it")
    if not os.path.lexists(target):
        if not target.parent.is_dir():
            raise Refused(f"{target}: its parent folder does not exist; make it first")
        return
    if target.is_symlink():
        raise Refused(f"{target}: is a link; give the folder itself, or another name")
    if not overwrite:
        hint = "--overwrite replaces it, or" if _is_pack(target) else "it is no pack, so it is never replaced;"
        raise PackExists(f"{target}: already there; {hint} choose another name")
    if not os.path.lexists(target / manifests.NAME):
        raise Refused(f"{target}: not a pack, and --overwrite replaces packs only; choose another name")
    check_whole(target)


def _is_pack(target: Path) -> bool:
    try:
        manifests.read(target)
    except PackerError:
        return os.path.lexists(target / manifests.NAME)  # a damaged one is told by --overwrite
    return True
