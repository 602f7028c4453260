"""Unlisted files: what lies in a pack's folder although its manifest does not list it.

Such a file is somebody else's: a pack that holds one is not replaced, and `packer verify` names it.
"""

import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from packer.errors import CorruptPack, InvalidRequest
from packer.files.digest import entries, part_sha256
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest, Part
from packer.pack.part_readers import PartOpener

# the names in the folder of a pack, finished or not
PACK_NAMES = rf"part-[0-9]+.*|{INDEX}|{EXTRAS}|{re.escape(manifests.NAME)}"


def check_whole(folder: Path) -> None:
    """Raise InvalidRequest unless `folder` is a pack and nothing else: what may be replaced, and so removed."""
    manifest = manifests.read(folder)
    inside = (foreign_in_part(folder / part.name, part, manifest) for part in manifest.parts)
    for path in chain(foreign_files(folder, manifest), *inside):
        raise InvalidRequest(f"{path}: packer did not write it, so {folder} is not replaced; move it away")


def check_replaceable(target: Path) -> None:
    """Raise InvalidRequest unless --overwrite may replace what is there: a folder that is a pack and nothing else."""
    if target.is_symlink():
        raise InvalidRequest(f"{target}: is a link; give the folder itself, or another name")
    if not os.path.lexists(target / manifests.NAME):
        raise InvalidRequest(f"{target}: not a pack, and --overwrite replaces packs only; choose another name")
    check_whole(target)


def foreign_files(folder: Path, manifest: Manifest) -> Iterator[Path]:
    """Everything that the manifest does not name, sorted; parts that are folders are not looked into."""
    is_folder = PartOpener(manifest.format, manifest.schema).is_folder
    parts = {part.name for part in manifest.parts}
    known = manifest.files
    folders = {INDEX, EXTRAS} if manifest.extras else {INDEX}
    for top in sorted(folder.iterdir()):
        if top.name in folders and top.is_dir():
            yield from (path for path in sorted(top.rglob("*")) if path.relative_to(folder).as_posix() not in known)
        elif top.name in parts and (is_folder or not top.is_dir()):
            continue
        else:
            yield from (
                path for path in (top, *sorted(top.rglob("*"))) if path.relative_to(folder).as_posix() not in known
            )


def foreign_in_part(path: Path, part: Part, manifest: Manifest) -> Iterator[Path]:
    """Everything in a part that is a folder which the part itself does not name; raises CorruptPack, StorageError."""
    for name in _foreign_names(path, part, manifest):
        yield path / os.fsdecode(name)


def sha256_of_listed(path: Path, part: Part, manifest: Manifest) -> str:
    """The sha256 of a part, in hex, whatever a tool left in it; raises CorruptPack, StorageError.

    Other files in it are looked for where there are more bytes than the manifest says, or others. Nothing is read of
    what is too much.
    """
    foreign: frozenset[bytes] = frozenset()
    try:
        found = part_sha256(path, most_bytes=part.bytes)
    except CorruptPack:
        foreign = frozenset(_foreign_names(path, part, manifest))
        if not foreign:
            raise
        found = ""
    if found != part.sha256:
        foreign = foreign or frozenset(_foreign_names(path, part, manifest))
        found = part_sha256(path, most_bytes=part.bytes, without=foreign) if foreign else found
    return found


def _foreign_names(path: Path, part: Part, manifest: Manifest) -> Iterator[bytes]:
    """As `foreign_in_part`, relative to the part."""
    opener = PartOpener(manifest.format, manifest.schema)
    if not opener.is_folder:
        return
    with opener.shared(path, part, opener.check(path, part)) as reader:
        known = set(reader.files())
    folders = {name.rpartition(b"/")[0] for name in known}
    for folder in list(folders):
        while folder := folder.rpartition(b"/")[0]:
            folders.add(folder)
    for name, size in entries(path):
        if name not in (folders if size is None else known):
            yield name
