"""Index rebuild: makes the index of a pack again from its parts.

The parts hold every field, so they say all that the index says; and the manifest says by their sha256 whether they are
what was packed. Where it does not fit, nothing is left to trust, and nothing is made.
"""

import re
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packer.errors import BadInput, CorruptPack, InvalidRequest, PackerError
from packer.files.digest import file_bytes, file_sha256
from packer.files.folder_handle import FolderHandle
from packer.files.work_folder import ANYTHING, WorkFolder, work_folder
from packer.pack import manifest as manifests
from packer.pack.index import PartIndex, merge
from packer.pack.manifest import INDEX, IndexFile, Manifest, Part
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import PartOpener
from packer.pack.unlisted_files import sha256_of_listed
from packer.schema import KEY

NAMES = {INDEX: r"[^/]+\.npy", r"piece-[0-9]+": ANYTHING, re.escape(manifests.NAME): ANYTHING}  # in the work folder


def reindex(folder: Path, *, check: bool = False) -> list[str]:
    """Make the index files again that are missing or differ from the parts, and the manifest where it names others.

    check: write nothing into the pack. Returns what was (or, with `check`, would be) replaced: `index/keys.npy`,
    `packer.json`; nothing for a sound pack, whose bytes stay as they are.
    Raises InvalidRequest where `folder` is no pack, CorruptPack where manifest or part is damaged, StorageError,
    Locked.
    """
    manifest = manifests.read(folder)
    check_mostly_holes(folder, manifest)
    if (folder / INDEX).is_symlink():
        raise InvalidRequest(f"{folder / INDEX}: expected a folder, found a link; replace it by the folder it leads to")
    if check:
        with tempfile.TemporaryDirectory(prefix="packer-index-") as work:
            return _stale(folder, manifest, _rebuilt(folder, manifest, Path(work)))
    place = folder.resolve()  # `.` and links have no name of their own
    with work_folder(place.with_name(f".{place.name}.index"), NAMES) as work:
        try:
            work.clear()
            fresh = _rebuilt(folder, manifest, work.inside)
            stale = _stale(folder, manifest, fresh)
            _replace(folder, fresh, work, stale)
        finally:
            work.clear()
    return stale


def _rebuilt(folder: Path, manifest: Manifest, work: Path) -> Manifest:
    """The index from the parts in `work`/index, and the manifest that names it."""
    pieces = []
    for number, part in enumerate(manifest.parts):
        path = folder / part.name
        piece = _piece(path, part, manifest)
        pieces.append(work / f"piece-{number}")
        piece.save(pieces[-1])
    try:
        index = merge(pieces, work, manifest.schema)
    except BadInput as error:
        raise CorruptPack(f"{folder}: the parts contradict each other: {error}; pack again from the source") from error
    return replace(manifest, index=_in_order(index, manifest.index)).sealed()


def _in_order(fresh: Sequence[IndexFile], old: Sequence[IndexFile]) -> tuple[IndexFile, ...]:
    """The files in the order in which the manifest had them, so that an undamaged one stays byte for byte."""
    places = {file.name: place for place, file in enumerate(old)}
    return tuple(sorted(fresh, key=lambda file: (places.get(file.name, len(places)), file.name)))


def _piece(path: Path, part: Part, manifest: Manifest) -> PartIndex:
    """The index entries of one part; raises CorruptPack where it is not the part that the manifest names."""
    opener = PartOpener(manifest.format, manifest.schema)
    key = opener.check(path, part)
    if sha256_of_listed(path, part, manifest) != part.sha256:
        raise CorruptPack(
            f"{path}: damaged part: its sha256 is not the manifest's, so no index can be made of it; "
            "copy it again, or pack again from the source"
        )

    piece = PartIndex(manifest.schema)
    names = manifest.schema.names
    if KEY not in names:
        raise CorruptPack(
            f"{path}: its samples have no field 'key', so no index can be made; pack again from the source"
        )
    with opener.shared(path, part, key) as reader:
        for row in range(part.samples):
            record = reader.read(row, names)
            numbers = {field.name: bytes(record[field.name]) for field in manifest.schema if field.is_column}
            try:
                piece.add(bytes(record["key"]), [zlib.crc32(record[name]) for name in names], numbers)
            except InvalidRequest as error:
                raise CorruptPack(f"{path}: row {row}: {error}; pack again from the source") from error
    return piece


def _stale(folder: Path, manifest: Manifest, fresh: Manifest) -> list[str]:
    """What on disk is not as the parts have it."""
    found = []
    for file in fresh.index:
        try:
            path = folder / INDEX / file.name
            sound = file_bytes(path) == file.bytes and file_sha256(path) == file.sha256
        except PackerError:  # missing, a link, unreadable: it is made again
            sound = False
        if not sound:
            found.append(f"{INDEX}/{file.name}")
    return found if fresh == manifest else [*found, manifests.NAME]


def _replace(folder: Path, fresh: Manifest, work: WorkFolder, stale: Sequence[str]) -> None:
    """Each file by one rename, the manifest last: a kill in between leaves what the next run mends."""
    with FolderHandle.at(folder) as pack, pack.make_folder(INDEX) as index, work.folder(INDEX) as made:
        for name in stale:
            if name == manifests.NAME:
                work.write_file(name, fresh.to_bytes())
                work.replace(name, pack, name)
            else:
                file = name.removeprefix(f"{INDEX}/")
                made.replace(file, index, file)
        pack.sync()
