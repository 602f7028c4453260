"""Hostile .pth parts: zip directories and pickles that an attacker wrote."""

import json
import struct
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.support import built_packs

SCHEMA = built_packs.SCHEMA


NAMES = list(SCHEMA.names)


ORDER = ["packer.json", "key.data", "key.offsets", "blob.data", "blob.offsets", "label", "pair"]


def layout(records: Sequence[built_packs.Record], **members: Any) -> dict[str, torch.Tensor]:
    """The documented layout, as tensors by name, in order; members: of the end record, that shall differ."""
    arrays: dict[str, Any] = {
        "packer.json": np.frombuffer(
            json.dumps({"fields": NAMES, "samples": len(records), **members}).encode(), np.uint8
        )
    }
    for name in ("key", "blob"):
        values = [record[name] for record in records]
        arrays[f"{name}.data"] = np.frombuffer(b"".join(values), np.uint8)
        arrays[f"{name}.offsets"] = np.cumsum([0, *map(len, values)], dtype=np.int64)
    arrays["label"] = np.frombuffer(b"".join(record["label"] for record in records), np.int64)
    arrays["pair"] = np.frombuffer(b"".join(record["pair"] for record in records), np.uint16).reshape(-1, 2)
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def entries(path: Path) -> dict[str, bytes]:
    """The archive of three records as torch saves it: name -> bytes."""
    torch.save(layout(built_packs.records(3)), path)
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def zipped(path: Path, items: Sequence[tuple[str, bytes]], *, method: int = zipfile.ZIP_STORED) -> None:
    """Another archive in its place; names may repeat."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in items:
            archive.writestr(zipfile.ZipInfo(name), data, method)


def changed(**changes: bytes | None) -> Callable[[Path], None]:
    """An entry with other bytes, or without it; `__` stands for `/`."""

    def change(path: Path) -> None:
        items = entries(path)
        for name, data in changes.items():
            items[f"a/{name.replace('__', '/')}"] = data or b""
            if data is None:
                del items[f"a/{name.replace('__', '/')}"]
        zipped(path, list(items.items()))

    return change


def added(name: str, data: bytes = b"x") -> Callable[[Path], None]:
    """One entry more, its name perhaps a second time."""
    return lambda path: zipped(path, [*entries(path).items(), (name, data)])


def renamed(folder: str) -> Callable[[Path], None]:
    """All entries in another folder."""

    def change(path: Path) -> None:
        zipped(path, [(folder + name.partition("/")[2], data) for name, data in entries(path).items()])

    return change


def patched(
    signature: bytes, offset: int, value: bytes, *, number: int = 5, before: Callable[[Path], None] | None = None
) -> Callable[[Path], None]:
    """Bytes of one header in the place of others; number: which one with that signature, data/1 by default."""

    def change(path: Path) -> None:
        (before or changed())(path)
        data = bytearray(path.read_bytes())
        at = -1
        for _ in range(number + 1):
            at = data.index(signature, at + 1)
        data[at + offset : at + offset + len(value)] = value
        path.write_bytes(data)

    return change


def saved(**changes: Any) -> Callable[[Path], None]:
    """What torch saves with other tensors."""

    def change(path: Path) -> None:
        tensors = layout(built_packs.records(3))
        torch.save({**tensors, **{name.replace("__", "."): value for name, value in changes.items()}}, path)

    return change


def far_directory(path: Path) -> None:
    """A zip64 end that claims a directory of 1 GiB."""
    torch.save(layout(built_packs.records(3)), path)
    data = bytearray(path.read_bytes())
    data[-58:-50] = struct.pack("<Q", 1 << 30)
    path.write_bytes(data)


LOCAL, CENTRAL, LAST = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


U32 = struct.Struct("<I").pack


HOSTILE: dict[str, Callable[[Path], Any]] = {
    "not a zip file": lambda path: path.write_bytes(bytes(5000)),
    "an empty zip file": lambda path: zipped(path, []),
    "compressed": lambda path: zipped(path, list(entries(path).items()), method=zipfile.ZIP_DEFLATED),
    "an entry twice": added("a/data/1", bytes(36)),
    "a storage more": added("a/data/7"),
    "a name of another kind": added("a/run.py"),
    "a name outside the folder": added("b/version"),
    "a name that leads out": added("a/../../x"),
    "an absolute name": added("/a/data/7"),
    "absolute names": renamed("/"),
    "names in the folder above": renamed("../"),
    "names of Windows": renamed("C:\\"),
    "names in this folder": renamed("./"),
    "no pickle": changed(**{"data.pkl": None}),
    "no byte order": changed(byteorder=None),
    "big-endian": changed(byteorder=b"big"),
    "a storage missing": changed(data__3=None),
    "a storage longer": changed(data__5=bytes(32)),
    "a storage shorter": changed(data__6=bytes(8)),
    "data longer than offsets say": changed(data__1=bytes(40)),
    "no end record": changed(data__0=b""),
    "a long end record": changed(data__0=b" " * 70_000),
    "a deep end record": changed(data__0=b"[" * 50_000),
    "offsets falling": changed(data__2=struct.pack("<4q", 0, 24, 12, 36)),
    "offsets negative": changed(data__2=struct.pack("<4q", 0, -12, 24, 36)),
    "offsets not from 0": changed(data__2=struct.pack("<4q", 1, 12, 24, 36)),
    "offsets beyond": changed(data__2=struct.pack("<4q", 0, 12, 24, 1 << 62)),
    "encrypted": patched(CENTRAL, 8, b"\x01\0"),
    "strongly encrypted": patched(CENTRAL, 8, b"\x41\0"),
    "another method": patched(CENTRAL, 10, b"\x63\0"),
    "sizes that differ": patched(CENTRAL, 20, U32(1)),
    "a size that reaches into the next entry": patched(CENTRAL, 20, U32(90) * 2),
    "a size that reaches there as its offsets do": patched(
        CENTRAL, 20, U32(90) * 2, before=changed(data__2=struct.pack("<4q", 0, 12, 24, 90))
    ),
    "a size beyond the file": patched(CENTRAL, 20, U32(1 << 30) * 2),
    "a header elsewhere": patched(CENTRAL, 42, U32(3)),
    "a header beyond the file": patched(CENTRAL, 42, U32(1 << 30)),
    "a header of another entry": patched(CENTRAL, 42, U32(0)),
    "a local name of another length": patched(LOCAL, 26, b"\xff\xff"),
    "a local extra field without end": patched(LOCAL, 28, b"\xff\xff"),
    "another local name": patched(LOCAL, 30, b"b"),
    "a directory of 4 GiB": patched(LAST, 12, U32(0xFFFFFFF0), number=0),
    "a directory of 1 GiB in 64 bits": far_directory,
    "a directory elsewhere": patched(LAST, 16, U32(1 << 30), number=0),
    "a comment": patched(LAST, 20, b"\1\0", number=0),
    "tensors in one storage": lambda path: torch.save(dict.fromkeys(ORDER, torch.zeros(3)), path),
    "a list of tensors": lambda path: torch.save([torch.zeros(3)], path),
    "a tensor more": saved(more=torch.zeros(3)),
    "another shape": saved(pair=torch.zeros(3, 3, dtype=torch.uint16)),
    "the format before zip": lambda path: torch.save(
        layout(built_packs.records(3)), path, _use_new_zipfile_serialization=False
    ),
    "other samples": lambda path: torch.save(layout(built_packs.records(3), samples=4), path),
    "other fields": lambda path: torch.save(layout(built_packs.records(3), fields=NAMES[::-1]), path),
}


EVIL = b"cos\nsystem\n(S'echo evil > evil'\ntR."
