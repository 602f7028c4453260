"""Index rebuild: writes the index of a pack again from its parts, if the sha256 of each part is correct.

The version of the pack does not change, because it is part of the digest that identifies the pack.
"""

import re
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from packer.errors import BadInput, CorruptPack, CorruptRecord, InvalidRequest, PackerError
from packer.files.digest import file_bytes, file_sha256
from packer.files.folder_handle import FolderHandle
from packer.files.work_folder import ANYTHING, WorkFolder, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, Manifest, Part
from packer.pack.mostly_holes import check_mostly_holes
from packer.pack.part_readers import PartOpener
from packer.pack.sample_index import ColumnEntries, PartIndex, merge
from packer.pack.unlisted_files import check_digest
from packer.schema import KEY, MATRIX

NAMES = {INDEX: r"[^/]+\.npy", r"piece-[0-9]+": ANYTHING, re.escape(manifests.NAME): ANYTHING}  # in the work folder


def reindex(folder: Path, *, check: bool = False) -> list[str]:
    """Replace the index files that are missing or do not match the parts, and then the manifest if it changes.

    Args:
        folder: the pack.
        check: True only lists the files that would be replaced. False replaces them.

    Returns:
        The replaced files, such as `index/keys.npy` and `packer.json`; an empty list for an undamaged index.

    Raises:
        InvalidRequest: `folder` is not a pack.
        CorruptPack: the manifest or a part is damaged.
        StorageError, Locked: the files cannot be written, or another process writes them.
    """
    manifest = manifests.read_pack(folder)
    check_mostly_holes(folder, manifest)
    if (folder / INDEX).is_symlink():
        raise InvalidRequest(f"{folder / INDEX}: expected a folder, found a link; replace it by the folder it leads to")
    if check:
        with tempfile.TemporaryDirectory(prefix="packer-index-") as work:
            return _stale(folder, manifest, _rebuilt(folder, manifest, Path(work)))
    place = folder.resolve()  # `.` and links have no name for a work folder
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
    """Write a new index to `work`/index, and return a copy of the manifest with the new index files."""
    if KEY not in manifest.schema.names:
        raise CorruptPack(f"{folder}: its samples have no field 'key', so no index can be made; pack again")
    pieces = []
    for number, part in enumerate(manifest.parts):
        pieces.append(work / f"piece-{number}")
        _piece(folder / part.name, part, manifest).save(pieces[-1])
    try:
        index = merge(pieces, work, manifest.schema, listed=manifest.index_names)
    except BadInput as error:
        raise CorruptPack(f"{folder}: the parts contradict each other: {error}; pack again from the source") from error
    # keep the order of the manifest, so that an undamaged one keeps its bytes
    places = {file.name: place for place, file in enumerate(manifest.index)}
    ordered = sorted(index, key=lambda file: (places.get(file.name, len(places)), file.name))
    return replace(manifest, index=tuple(ordered)).sealed()


def _piece(path: Path, part: Part, manifest: Manifest) -> PartIndex:
    """Return the index entries of one part; raises CorruptPack for a damaged part."""
    check_digest(path, part, manifest)
    opener = PartOpener(manifest.format, manifest.schema)
    listed = manifest.index_names
    piece, columns = PartIndex(manifest.schema, listed), ColumnEntries(manifest.schema, listed)
    names = manifest.schema.names
    with opener.shared(path, part, opener.check(path, part)) as reader:
        for row in range(part.samples):
            record = reader.read(row, names)
            try:
                matrix = record.get(MATRIX.name, b"")
                entries = {
                    file: bytes(entry)
                    for name in names
                    for file, entry in columns.of(name, record[name], matrix).items()
                }
                piece.add([zlib.crc32(record[name]) for name in names], entries)
            except (BadInput, CorruptRecord, InvalidRequest) as error:
                raise CorruptPack(f"{path}: row {row}: {error}; pack again from the source") from error
    return piece


def _stale(folder: Path, manifest: Manifest, fresh: Manifest) -> list[str]:
    """Return the index files that differ from those of the new manifest `fresh`, and packer.json if it differs."""
    found = []
    for file in fresh.index:
        path = folder / INDEX / file.name
        try:
            is_sound = file_bytes(path) == file.bytes and file_sha256(path) == file.sha256
        except PackerError:  # missing, a link, or unreadable
            is_sound = False
        if not is_sound:
            found.append(f"{INDEX}/{file.name}")
    return found if fresh == manifest else [*found, manifests.NAME]


def _replace(folder: Path, fresh: Manifest, work: WorkFolder, stale: Sequence[str]) -> None:
    """Replace the files `stale` by renames, the manifest last. After a kill, the next run replaces the others."""
    with FolderHandle.at(folder) as pack, pack.make_folder(INDEX) as index, work.folder(INDEX) as made:
        for name in stale:
            if name == manifests.NAME:
                work.write_file(name, fresh.to_bytes())
                work.replace(name, pack, name)
            else:
                file = name.removeprefix(f"{INDEX}/")
                made.replace(file, index, file)
        pack.sync()
