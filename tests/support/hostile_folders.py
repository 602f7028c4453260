"""Hostile parts that are folders: links, devices, and a table that names files elsewhere or holds pickles."""

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from packer.formats._column_part import Array
from packer.formats._folder_part import header
from tests.support import hostile_npy
from tests.support.hostile_packs import INSTEAD, Case, cases_of, in_part, instead
from tests.support.hostile_parts import COMMAND, Reduce
from tests.support.hostile_pth import zipped
from tests.support.image_files import npy

FILE = "blob/sample-00001.bin"  # 32 bytes


def rewritten(**changes: Any) -> Callable[[Path], None]:
    """values.npz with other entries: arrays, bytes as they are, or None to leave one out; `__` stands for `/`."""

    def make(part: Path) -> None:
        table = part / "values.npz"
        with zipfile.ZipFile(table) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        for name, value in changes.items():
            name = name.replace("__", "/").replace("_data", ".data").replace("_offsets", ".offsets")
            name += "" if name == "packer.json" else ".npy"
            if value is None:
                del entries[name]
            else:
                entries[name] = value if isinstance(value, bytes) else saved(value)
        zipped(table, list(entries.items()))

    return make


def saved(array: Any) -> bytes:
    """As the writer has it, since any other header is refused; objects as NumPy saves them."""
    if array.dtype == object:
        return npy(array)
    return header(Array("any", "values", array.dtype, array.shape), 0) + bytes(array.tobytes())


def named(path: str) -> Callable[[Path], None]:
    """The table says that the second file is called so; the others keep their names."""
    raw = [b"sample-00000.bin", path.encode("utf-8", "surrogateescape"), b"sample-00002.bin"]
    ends = np.cumsum([0, *map(len, raw)], dtype="<i8")
    return rewritten(names__blob_data=np.frombuffer(b"".join(raw), "u1"), names__blob_offsets=ends)


def compressed(part: Path) -> None:
    with np.load(part / "values.npz") as found:
        arrays = dict(found)
    np.savez_compressed(part / "values.npz", **arrays)


PROGRAM = hostile_npy.header("__import__('os').abort()", data=b"")
OBJECT = np.asarray([Reduce(os.system, COMMAND)] * 3, object)
PATHS = ("../../../secret", "/etc/passwd", "..", "", "a/../../../../secret", "x" * 300, "sample\0", "/dev/zero")
TABLES: dict[str, Callable[[Path], Any]] = {
    "labels that are pickles": rewritten(label=OBJECT),
    "keys that are pickles": rewritten(key_data=OBJECT),
    "an end record that is a pickle": rewritten(**{"packer.json": saved(OBJECT)}),
    "an entry that is a bare pickle": rewritten(label=pickle.dumps(OBJECT[0])),
    "an entry that is a program": rewritten(label=PROGRAM),
    "an entry more": rewritten(more=np.zeros(3)),
    "an entry less": rewritten(label=None),
    "sizes negative": rewritten(sizes__blob=np.asarray([0, -32, 64], "<i8")),
    "sizes huge": rewritten(sizes__blob=np.asarray([0, 1 << 62, 64], "<i8")),
    "offsets falling": rewritten(names__blob_offsets=np.asarray([0, 32, 16, 48], "<i8")),
    "offsets beyond": rewritten(names__blob_offsets=np.asarray([0, 16, 1 << 62, 48], "<i8")),
    "compressed": compressed,
    "no zip": lambda part: (part / "values.npz").write_bytes(pickle.dumps(OBJECT[0])),
    **{f"a file named {path!r:.30}": named(path) for path in PATHS},
}
PLACES: dict[str, Callable[[Path], Any]] = {
    **{f"a file is a {kind}": instead(f"part-*/{FILE}", what) for kind, what in INSTEAD.items()},
    "a file is a link to the same bytes": instead(f"part-*/{FILE}", "elsewhere"),
    "a file is a device": instead(f"part-*/{FILE}", "/dev/zero"),
    "a folder is a link": instead("part-*/blob", "elsewhere"),
    "a folder is a file": instead("part-*/blob", Path.touch),
    "the table is a link": instead("part-*/values.npz", "elsewhere"),
    "the table is a FIFO": instead("part-*/values.npz", os.mkfifo),
    "the part is a link": instead("part-*", "elsewhere"),
    "the part is a FIFO": instead("part-*", os.mkfifo),
}


def cases() -> list[Case]:
    """All of them."""
    sound = {"written again": rewritten(), "named as it was": named("sample-00001.bin")}
    found = cases_of("bmp sound", {name: in_part(make) for name, make in sound.items()}, base="bmp", expect="same")
    found += cases_of("bmp", {name: in_part(make) for name, make in TABLES.items()}, base="bmp")
    return found + cases_of("bmp place", PLACES, base="bmp")
