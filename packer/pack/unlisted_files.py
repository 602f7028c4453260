"""Unlisted files: files in the folder of a pack that packer did not write.

The manifest lists the files of a pack, and a part that is a folder lists the files in it. `packer verify` reports all
files that are not listed, and `--overwrite` refuses a pack that contains them. The digest of a part ignores them.
"""

import os
import re
from collections.abc import Container, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from packer.errors import CorruptPack, InvalidRequest
from packer.files.digest import entries, part_bytes, part_sha256
from packer.pack import manifest as manifests
from packer.pack.manifest import EXTRAS, INDEX, Manifest, Part
from packer.pack.part_readers import PartOpener

# all names in the folder of a pack, also of an unfinished one
PACK_NAMES = rf"part-[0-9]+.*|{INDEX}|{EXTRAS}|{re.escape(manifests.NAME)}"


def check_whole(folder: Path) -> None:
    """Raise InvalidRequest if `folder` is not a pack, or contains an unlisted file, which must not be removed."""
    manifest = manifests.read(folder)
    inside = (foreign_in_part(folder / part.name, part, manifest) for part in manifest.parts)
    for path in chain(foreign_files(folder, manifest), *inside):
        raise InvalidRequest(f"{path}: packer did not write it, so {folder} is not replaced; move it away")


def check_replaceable(target: Path) -> None:
    """Raise InvalidRequest unless `target` is a pack that `--overwrite` may replace."""
    if target.is_symlink():
        raise InvalidRequest(f"{target}: is a link; give the folder itself, or another name")
    if not os.path.lexists(target / manifests.NAME):
        raise InvalidRequest(f"{target}: not a pack, and --overwrite replaces packs only; choose another name")
    check_whole(target)


def foreign_files(folder: Path, manifest: Manifest) -> Iterator[Path]:
    """Yield every path in the pack that the manifest does not list, sorted. Does not look into parts."""
    is_folder = bool(manifest.parts) and PartOpener(manifest.format, manifest.schema).is_folder
    parts = {part.name for part in manifest.parts}
    known, folders = manifest.files, {INDEX, EXTRAS} if manifest.extras else {INDEX}
    for top in sorted(folder.iterdir()):
        if top.name in parts and (is_folder or not top.is_dir()):
            continue
        inside = sorted(top.rglob("*"))
        for path in inside if top.name in folders and top.is_dir() else (top, *inside):
            if path.relative_to(folder).as_posix() not in known:
                yield path


def foreign_in_part(path: Path, part: Part, manifest: Manifest) -> Iterator[Path]:
    """Yield every path in a part that its list of files does not contain. Raises CorruptPack, StorageError.

    A part that is a file yields nothing.
    """
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
            yield path / os.fsdecode(name)


class PartState(NamedTuple):
    """A part compared with the manifest.

    Attributes:
        bytes: size of the part, without unlisted files.
        is_sound: True if size and sha256 are those of the manifest, False if not, None if the sha256 was not computed.
        foreign: unlisted files in the part.
    """

    bytes: int
    is_sound: bool | None
    foreign: tuple[Path, ...] = ()


def part_state(path: Path, part: Part, manifest: Manifest, *, hashed: bool = True) -> PartState:
    """Compare a part with the manifest; raises CorruptPack, StorageError.

    Args:
        hashed: True compares the size and, if it is equal, the sha256. False compares only the size.

    Returns:
        The state. `foreign` is empty if the part matches, because the search is not needed then.
    """
    PartOpener(manifest.format, manifest.schema).check(path, part)
    found = _state(path, part, hashed)
    if found.bytes == part.bytes and found.is_sound is not False:
        return found
    try:
        foreign = tuple(foreign_in_part(path, part, manifest))
    except CorruptPack:  # the list of its files is damaged
        return found
    without = {os.fsencode(extra.relative_to(path)) for extra in foreign}
    return (_state(path, part, hashed, without) if foreign else found)._replace(foreign=foreign)


def _state(path: Path, part: Part, hashed: bool, without: Container[bytes] = ()) -> PartState:
    found = part_bytes(path, without=without)
    if not hashed:
        return PartState(found, None)
    return PartState(found, found == part.bytes and part_sha256(path, without=without) == part.sha256)


def check_digest(path: Path, part: Part, manifest: Manifest) -> None:
    """Raise CorruptPack if the sha256 of a part differs from the manifest. Raises StorageError."""
    if not part_state(path, part, manifest).is_sound:
        raise CorruptPack(
            f"{path}: damaged part: its sha256 is not the manifest's; packer verify lists the damaged samples; "
            "copy or pack it again"
        )
