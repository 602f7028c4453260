"""Hostile HDF5 parts: datasets of another type, shape, layout or place."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.support import built_packs

SCHEMA = built_packs.SCHEMA


NAMES = list(SCHEMA.names)


def layout(records: Sequence[built_packs.Record]) -> dict[str, Any]:
    """The documented layout, as arrays by name."""
    arrays: dict[str, Any] = {}
    for name in ("key", "blob"):
        values = [record[name] for record in records]
        arrays[f"{name}/data"] = np.frombuffer(b"".join(values), np.uint8)
        arrays[f"{name}/offsets"] = np.cumsum([0, *map(len, values)], dtype="<i8")
    arrays["label"] = np.frombuffer(b"".join(record["label"] for record in records), "<i8")
    arrays["pair"] = np.frombuffer(b"".join(record["pair"] for record in records), "<u2").reshape(-1, 2)
    return arrays


def end(samples: int, **members: Any) -> np.bytes_:
    """The attribute that comes last."""
    return np.bytes_(json.dumps({"fields": NAMES, "samples": samples, **members}))


def by_hand(path: Path, records: Sequence[built_packs.Record], **options: Any) -> None:
    """A part written by h5py alone."""
    with h5py.File(path, "w", **options) as file:
        for name, array in layout(records).items():
            file.create_dataset(name, data=array)
        file.attrs["packer"] = end(len(records))


def replaced(name: str, **options: Any) -> Callable[[h5py.File], None]:
    """Another dataset in the place of one of the layout's; options as of create_dataset, with a shape for no data."""

    def change(file: h5py.File) -> None:
        same = {} if options.keys() & {"data", "shape"} else {"data": file[name][()]}
        del file[name]
        file.create_dataset(name, **same, **options)

    return change


def linked(name: str, link: Any) -> Callable[[h5py.File], None]:
    """A link in the place of something of the layout."""

    def change(file: h5py.File) -> None:
        del file[name]
        file[name] = link

    return change


def external(options: Any, file: h5py.File) -> None:
    """The bytes are in another file."""
    options.set_external(os.fsencode(Path(file.filename).with_name("secret")), 0, h5py.h5f.UNLIMITED)


def low_level(
    name: str, shape: tuple[int, ...], prepare: Callable[[Any, h5py.File], None] = lambda options, file: None
) -> Callable[[h5py.File], None]:
    """A dataset made with properties that h5py does not name; its bytes are never written."""

    def change(file: h5py.File) -> None:
        del file[name]
        options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        prepare(options, file)
        kind = h5py.h5t.py_create(np.dtype("u1" if name.endswith("data") else "<i8"))
        h5py.h5d.create(file.id, name.encode(), kind, h5py.h5s.create_simple(shape), options)

    return change


def virtual(file: h5py.File) -> None:
    source = h5py.VirtualSource(Path(file.filename).with_name("other.h5"), "secret", shape=(3,))
    target = h5py.VirtualLayout(shape=(3,), dtype="<i8")
    target[:] = source
    del file["label"]
    file.create_virtual_dataset("label", target)


def attribute(value: Any) -> Callable[[h5py.File], None]:
    """Another end attribute."""
    return lambda file: file.attrs.__setitem__("packer", value)


def ends(*, key: Sequence[int]) -> Callable[[h5py.File], None]:
    """Other offsets of the keys, which have 12 bytes each."""
    return replaced("key/offsets", data=np.asarray(key, "<i8"))


HOSTILE: dict[str, Callable[[h5py.File], Any]] = {
    "no end": lambda file: file.attrs.__delitem__("packer"),
    "end of other samples": attribute(end(4)),
    "end of other fields": attribute(end(3, fields=NAMES[::-1])),
    "end no JSON": attribute(np.bytes_("{")),
    "end deep": attribute(np.bytes_("[" * 50_000)),
    "end long": attribute(np.bytes_(" " * 61_000)),
    "end of variable length": attribute('{"fields": []}'),
    "end a number": attribute(3),
    "end an array": attribute(np.asarray([end(3)] * 2)),
    "a name missing": lambda file: file.__delitem__("label"),
    "a name more": lambda file: file.create_dataset("more", data=[1]),
    "another name": lambda file: file.move("label", "labels"),
    "a name more in a group": lambda file: file.create_dataset("blob/more", data=[1]),
    "a group for values": lambda file: (file.__delitem__("label"), file.create_group("label")),
    "values for a group": replaced("key", data=np.zeros(3, "u1")),
    "a committed type": linked("label", np.dtype("<i8")),
    "external link": linked("label", h5py.ExternalLink("other.h5", "secret")),
    "external link for a group": linked("blob", h5py.ExternalLink("other.h5", "/")),
    "soft link": linked("label", h5py.SoftLink("/blob/offsets")),
    "soft link to itself": linked("label", h5py.SoftLink("/label")),
    "external storage": low_level("label", (3,), external),
    "external storage of data": low_level("blob/data", (96,), external),
    "virtual": virtual,
    "variable length": replaced("blob/data", shape=(3,), dtype=h5py.vlen_dtype(np.uint8)),
    "chunked": replaced("label", chunks=(3,)),
    "compressed": replaced("label", compression="gzip"),
    "checksummed": replaced("label", fletcher32=True),
    "signed for unsigned": replaced("pair", data=np.zeros((3, 2), "<i2")),
    "big-endian": replaced("label", data=np.zeros(3, ">i8")),
    "big-endian offsets": replaced("blob/offsets", data=np.zeros(4, ">i8")),
    "floats": replaced("label", data=np.zeros(3, "<f8")),
    "compound": replaced("label", data=np.zeros(3, [("a", "<i8")])),
    "text": replaced("label", data=np.zeros(3, "S8")),
    "another shape": replaced("pair", data=np.zeros((3, 3), "<u2")),
    "another order of lengths": replaced("pair", data=np.zeros((2, 3), "<u2")),
    "no dimension": replaced("label", data=np.int64(3)),
    "null space": replaced("label", data=h5py.Empty("<i8")),
    "data in two dimensions": replaced("blob/data", data=np.zeros((96, 1), "u1")),
    "a shape bomb": low_level("blob/data", (1 << 62,)),
    "bytes never written": low_level("blob/data", (96,)),
    "compact": low_level("label", (3,), lambda options, file: options.set_layout(h5py.h5d.COMPACT)),
    "offsets one short": ends(key=[0, 12, 24]),
    "offsets not from 0": ends(key=[1, 12, 24, 36]),
    "offsets falling": ends(key=[0, 24, 12, 36]),
    "offsets negative": ends(key=[0, -12, 24, 36]),
    "offsets beyond": ends(key=[0, 12, 24, 37]),
    "offsets of 2**63": ends(key=[0, 12, (1 << 63) - 1, 36]),
    "offsets before the end": ends(key=[0, 12, 24, 35]),
}
