"""Packs built by hand, without a conversion: the same steps, and fields that cost nothing to encode."""

import hashlib
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from packer import codecs, formats
from packer.errors import PackerError
from packer.files.digest import part_bytes, part_sha256
from packer.files.folder_handle import FolderHandle, remove
from packer.files.fsync import make_folder, sync, write_file
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest, Part
from packer.pack.reader import Pack
from packer.pack.sample_index import ColumnEntries, PartIndex, file_forms, merge
from packer.schema import KEY, MATRIX, Buffer, Field, Schema

SCHEMA = codecs.described(
    Schema(
        (
            Field("key", "text", "text"),
            Field("blob", "bytes", "encoded", slot="image"),
            Field("label", "number", "number", dtype="int64", shape=(), classes=("cat", "dog"), slot="label"),
            Field("pair", "number", "number", dtype="uint16", shape=(2,), hidden=True),
        )
    )
)

Record = Mapping[str, bytes]


def record(number: int, *, key: str | None = None, blob: bytes | None = None) -> dict[str, bytes]:
    """The record of a sample under SCHEMA."""
    name = key if key is not None else f"sample-{number:05d}"
    return {
        "key": name.encode("utf-8", "surrogateescape"),
        "blob": blob if blob is not None else hashlib.sha256(b"%d" % number).digest() * (number % 7),
        "label": (number % 2).to_bytes(8, "little"),
        "pair": number.to_bytes(2, "little") + b"\x01\x00",
    }


def records(count: int) -> list[dict[str, bytes]]:
    """Records of samples 0 ... count - 1."""
    return [record(number) for number in range(count)]


def encoded(schema: Schema, sample: Mapping[str, Any]) -> dict[str, bytes]:
    """The record of a sample whose values are decoded."""
    return {field.name: codecs.make(field).encode(sample[field.name]) for field in schema}


def slotted(schema: Schema, format: str) -> Schema:
    """The schema with a field in each slot that the format needs: its first image, else its first value."""
    for slot in formats.load(format).Writer.slots:
        if slot.is_needed and schema.in_slot(slot.name) is None:
            others = [field for field in schema if field.name != KEY]
            chosen = next((field for field in others if slot.fits(field)), others[0])
            every = (replace(field, slot=slot.name) if field is chosen else field for field in schema)
            schema = Schema(tuple(every), schema.form_of)
    return schema


def write_records(
    path: Path, samples: Sequence[Record], format: str, schema: Schema = SCHEMA, *, payload_bytes: int = 0
) -> None:
    """A complete part without index entries."""
    with formats.load(format).Writer(path, codecs.described(schema), payload_bytes=payload_bytes) as writer:
        for sample in samples:
            writer.write(sample)
        writer.finish()


def read_records(path: Path, count: int, format: str, schema: Schema = SCHEMA) -> list[dict[str, bytes]]:
    """Every record of a part, copied."""
    with closing(formats.load(format).Reader(path, codecs.described(schema), samples=count)) as reader:
        return [{name: bytes(value) for name, value in reader.read(row, schema.names).items()} for row in range(count)]


def write_part(
    path: Path,
    samples: Sequence[Record],
    *,
    format: str = "lmdb",
    schema: Schema = SCHEMA,
    listed: Collection[str] | None = None,
) -> PartIndex:
    """A complete part; returns its index entries. listed: as in `file_forms`."""
    schema = slotted(schema, format)
    piece, columns = PartIndex(schema, listed), ColumnEntries(schema, listed)
    files = file_forms(schema, listed)
    write_records(path, samples, format, schema)
    for sample in samples:
        entries = {
            file: entry
            for name in (KEY, *schema.names)
            for file, entry in _entries(columns, files, name, sample).items()
        }
        piece.add([zlib.crc32(sample[name]) for name in schema.names], entries)
    return piece


def _entries(columns: ColumnEntries, files: Collection[str], name: str, sample: Record) -> Mapping[str, Buffer]:
    """The entries of a value in the columns; of a hostile one without a size or a count, zeros."""
    try:
        return columns.of(name, sample[name], sample.get(MATRIX.name, b""))
    except PackerError:
        sizes = {f"size-{name}": 8, f"count-{name}": 4, f"row_values-{name}": 0, f"box_size-{name}": 0}
        return {file: bytes(size) for file, size in sizes.items() if file in files}


def make_pack(
    folder: Path,
    samples: Sequence[Record] | int = 10,
    *,
    format: str = "lmdb",
    schema: Schema = SCHEMA,
    parts: int = 2,
    version: int = manifests.VERSION,
    **members: Any,
) -> Manifest:
    """A pack in the new folder `folder`; members: members of the manifest that shall differ."""
    given = records(samples) if isinstance(samples, int) else list(samples)
    schema = slotted(schema, format)
    make_folder(folder)
    listed = () if version == 1 else None
    written, pieces = [], []
    for number, chunk in enumerate(_chunks(given, parts)):
        path = folder / f"part-{number:05d}{formats.load(format).SUFFIX}"
        piece = write_part(path, chunk, format=format, schema=schema, listed=listed)
        pieces.append(folder / f"piece-{number}")
        piece.save(pieces[-1])
        written.append(Part(path.name, len(chunk), part_bytes(path), part_sha256(path)))
    index = merge(pieces, folder, schema, listed=listed)
    for path in pieces:
        remove(path)
    settled: dict[str, Any] = {
        "format": format,
        "samples": len(given),
        "schema": schema,
        "options": {},
        "source": {"kind": "test"},
        "parts": tuple(written),
        "index": index,
        "written_by": "packer test",
        "version": version,
    }
    manifest = Manifest(**{**settled, **members}).sealed()
    write_file(folder / manifests.NAME, manifest.to_bytes())
    sync(folder)
    return manifest


def _chunks(samples: Sequence[Record], parts: int) -> Iterator[list[Record]]:
    rest = iter(samples)
    for number in range(parts):
        yield list(islice(rest, len(samples) * (number + 1) // parts - len(samples) * number // parts))


def values(folder: Path, **options: Any) -> list[dict[str, bytes]]:
    """Every record of a pack, copied."""
    pack = Pack(folder, **options)
    try:
        found = []
        for index in range(len(pack)):
            with pack.record(index, pack.schema.names) as read:
                found.append({name: bytes(value) for name, value in read.items()})
        return found
    finally:
        pack.close()


def publish(staged: Path, target: Path) -> None:
    """Rename a folder to a name that is free."""
    with FolderHandle.at(staged.parent) as here, FolderHandle.at(target.parent) as there:
        here.publish(staged.name, there, target.name)


def swap(staged: Path, target: Path) -> None:
    """Exchange two folders."""
    with FolderHandle.at(staged.parent) as here, FolderHandle.at(target.parent) as there:
        here.swap(staged.name, there, target.name)


def snapshot(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Path -> size, modification time in ns and inode of everything in a folder, itself included."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        found[path.relative_to(folder).as_posix()] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def flip(path: Path, at: int, mask: int = 0xFF) -> None:
    """XOR one byte of a file in place."""
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))
