"""Hostile parts: pickles of every sort in .pth files, HDF5 that leads elsewhere, LMDB that is not what it says."""

import os
import pickle
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import torch

from tests.support import hostile_hdf5, hostile_lmdb, hostile_pth
from tests.support.hostile_packs import INSTEAD, Case, cases_of, in_part, instead, part_of, reseal

COMMAND = "echo evil > evil"


class Reduce:
    """Pickles as a call of whatever it was given."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def pickles() -> dict[str, bytes]:
    """Pickles that would run something, by what they are."""
    run = Reduce(os.system, COMMAND)
    found = {f"os.system, protocol {number}": pickle.dumps(run, number) for number in range(6)}
    found |= {f"nested, protocol {number}": pickle.dumps({"a": [({"b": run},)]}, number) for number in range(6)}
    found |= {
        "exec": pickle.dumps(Reduce(exec, "import os; os.system('echo evil > evil')")),
        "eval": pickle.dumps(Reduce(eval, "__import__('os').abort()")),
        "import": pickle.dumps(Reduce(__import__, "antigravity")),
        "getattr chain": pickle.dumps(Reduce(getattr, Reduce(__import__, "subprocess"), "Popen")),
        "written by hand": hostile_pth.EVIL,
        "persistent id": b"\x80\x02X\x04\x00\x00\x00evilQ.",
        "extension code": b"\x80\x02\x82\x01.",
        "build": b"\x80\x02cos\nenviron\n}(X\x01\x00\x00\x00aX\x01\x00\x00\x00bub.",
        "out of band": b"\x80\x05\x97.",
        "a frame of 8 EiB": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7f.",
        "memo of 4 GiB": b"\x80\x02r\xff\xff\xff\xff.",
        "no end": b"\x80\x02" + b"(" * 100_000,
        "torch storage elsewhere": pickle.dumps(Reduce(torch.hub.load_state_dict_from_url, "http://localhost/x.pth")),
    }
    return found


def as_torch_names_it(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Make the change on a file `a.pth`: torch calls the folder in an archive after the file."""

    def make(pack: Path) -> None:
        part = part_of(pack)
        named = part.rename(part.with_name("a.pth"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # zipfile's, of a name that stands there twice
            change(named)
        named.rename(part)
        reseal(pack)

    return make


def around(data: bytes) -> Callable[[Path], None]:
    """The sound archive with another data.pkl."""
    return hostile_pth.changed(**{"data.pkl": data})


def tar_archive(path: Path) -> None:
    """torch's format of 2016."""
    with tarfile.open(path, "w") as archive:
        for name in ("sys_info", "pickle", "tensors", "storages"):
            data = pickle.dumps(Reduce(os.system, COMMAND))
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, BytesIO(data))


def with_front(front: bytes) -> Callable[[Path], None]:
    """Bytes before a sound archive, whose offsets count from its own beginning."""

    def change(path: Path) -> None:
        path.write_bytes(front + path.read_bytes())

    return change


def tar_before_zip(path: Path) -> None:
    whole = path.read_bytes()
    tar_archive(path)
    path.write_bytes(path.read_bytes() + whole)


def two_archives(path: Path) -> None:
    """Which one counts depends on who reads."""
    whole = path.read_bytes()
    hostile_pth.changed(**{"data.pkl": hostile_pth.EVIL})(path)
    path.write_bytes(path.read_bytes() + whole)


def script(path: Path) -> None:
    """What torch.jit.save makes has these entries too."""
    entries = hostile_pth.entries(path)
    code = {"a/constants.pkl": hostile_pth.EVIL, "a/code/__torch__.py": b"import os\nos.abort()\n"}
    hostile_pth.zipped(path, [*entries.items(), *code.items()])


def linked(path: Path) -> None:
    """An entry that unzip makes a symbolic link of."""
    hostile_pth.zipped(path, list(hostile_pth.entries(path).items()))
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo("a/data/9")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")


PTH: dict[str, Callable[[Path], Any]] = {
    "a bare pickle": lambda path: path.write_bytes(pickle.dumps(Reduce(os.system, COMMAND))),
    "a bare pickle of protocol 0": lambda path: path.write_bytes(hostile_pth.EVIL),
    "the tar format": tar_archive,
    "a tar before the zip": tar_before_zip,
    "a pickle before the zip": with_front(hostile_pth.EVIL),
    "a program before the zip": with_front(b"#!/bin/sh\necho evil > evil\nexit\n"),
    "two archives": two_archives,
    "TorchScript": script,
    "an entry that is a link": linked,
    "an archive in an archive": lambda path: hostile_pth.zipped(path, [("a/data.pkl", path.read_bytes())]),
}


# ---- hdf5


def hdf5(change: Callable[[h5py.File], Any]) -> Callable[[Path], None]:
    """Change a sound file through h5py; `other.h5` and `secret` beside the part are FIFOs: who opens them hangs."""

    def make(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file)
        for name in ("other.h5", "secret"):
            beside = path.with_name(name)
            if not beside.exists():
                os.mkfifo(beside)

    return make


def references(file: h5py.File) -> None:
    del file["label"]
    file.create_dataset("label", data=np.asarray([file["blob"].ref] * 3, h5py.ref_dtype), dtype=h5py.ref_dtype)


def regions(file: h5py.File) -> None:
    region = file["pair"].regionref[:2]
    del file["label"]
    file.create_dataset("label", data=np.asarray([region] * 3, h5py.regionref_dtype), dtype=h5py.regionref_dtype)


def filtered(number: int) -> Callable[[h5py.File], None]:
    """A filter that a plugin would have to be loaded for; its chunk is never written."""

    def prepare(options: Any, _: h5py.File) -> None:
        options.set_chunk((3,))
        options.set_filter(number, h5py.h5z.FLAG_OPTIONAL, (1, 2, 3))

    return hostile_hdf5.low_level("label", (3,), prepare)


HDF5: dict[str, Callable[[h5py.File], Any]] = {
    "object references": references,
    "region references": regions,
    "a filter that is a plugin": filtered(32015),
    "a filter of no number known": filtered(511),
    "text of variable length": hostile_hdf5.replaced("label", data=["x"] * 3),
    "an enumeration": hostile_hdf5.replaced("label", data=np.zeros(3, h5py.enum_dtype({"A": 1}, "<i8"))),
    "an array type": hostile_hdf5.replaced("label", data=np.zeros(3, [("a", "<i4", (2,))])),
    "a link to its own group": lambda file: file["blob"].__setitem__("loop", file["blob"]),
    "a group that holds the root": lambda file: file.__setitem__("loop", file["/"]),
    "a huge number of dimensions": hostile_hdf5.replaced("label", data=np.zeros((1,) * 32, "<i8")),
    "a growing dataset": hostile_hdf5.replaced("label", maxshape=(None,)),
}


# ---- lmdb


def lmdb_again(change: Callable[[dict[bytes, bytes]], dict[bytes, bytes]], **options: Any) -> Callable[[Path], None]:
    """The part written anew by the bare library."""

    def make(path: Path) -> None:
        path.unlink()
        hostile_lmdb.by_hand(path, change(dict(hostile_lmdb.WHOLE)), **options)

    return make


def sub_database(path: Path) -> None:
    with lmdb.open(str(path), subdir=False, lock=False, max_dbs=2) as env:
        inner = env.open_db(b"inner")
        with env.begin(write=True) as transaction:
            transaction.put(b"a", b"b", db=inner)


LMDB: dict[str, Callable[[Path], Any]] = {
    "short keys": lmdb_again(lambda items: {key.lstrip(b"\0") or b"0": value for key, value in items.items()}),
    "little-endian keys": lmdb_again(
        lambda items: {key[::-1] if len(key) == 8 else key: value for key, value in items.items()}
    ),
    "negative keys": lmdb_again(
        lambda items: {b"\xff" + key[1:] if len(key) == 8 else key: value for key, value in items.items()}
    ),
    "longest keys": lmdb_again(lambda items: {key.ljust(511, b"\0"): value for key, value in items.items()}),
    "nothing": lmdb_again(lambda items: {}),
    "end record of many samples": lmdb_again(
        lambda items: items | {b"packer": b'{"fields": ["key"], "samples": 1e999}'}
    ),
    "end record with a member twice": lmdb_again(
        lambda items: items | {b"packer": items[b"packer"][:-1] + b', "samples": 4}'}
    ),
    "end record NaN": lmdb_again(lambda items: items | {b"packer": b"NaN"}),
    "a sub-database": sub_database,
    "no database": lambda path: path.write_bytes(bytes(8192)),
    "a text": lambda path: path.write_bytes(b"x" * 9000),
    "a link in its place": lambda path: (path.unlink(), path.symlink_to("/etc/passwd")),
}


def forged_values() -> dict[str, Callable[[Path], Any]]:
    """Values that differ from what the index says of them: a sound part of other content."""
    key = (1).to_bytes(8, "big")
    return {
        "another value": lmdb_again(lambda items: items | {key: b"\x00\x01"}),
        "a value of 1 MiB": lmdb_again(lambda items: items | {key: bytes(1 << 20)}),
        "an empty value": lmdb_again(lambda items: items | {(0).to_bytes(8, "big"): b""}),
        "a column's value of another size": lmdb_again(lambda items: items | {(2).to_bytes(8, "big"): b"123"}),
    }


def cases() -> list[Case]:
    """All of them."""
    members: dict[str, Any] = {"base": "pth"}
    found = cases_of("pth", {name: as_torch_names_it(make) for name, make in hostile_pth.HOSTILE.items()}, **members)
    found += cases_of("pth archive", {name: as_torch_names_it(make) for name, make in PTH.items()}, **members)
    same = {name: as_torch_names_it(around(data)) for name, data in pickles().items()}
    found += cases_of("pth pickle", same, expect="same", **members)
    for noun, table in (("hdf5", hostile_hdf5.HOSTILE), ("hdf5 file", HDF5)):
        found += cases_of(noun, {name: in_part(hdf5(make)) for name, make in table.items()}, base="hdf5")
    wrong = {name: lmdb_again(lambda _, entries=entries: entries) for name, entries in hostile_lmdb.WRONG.items()}
    for noun, lmdb_table in (("lmdb", wrong), ("lmdb file", LMDB), ("lmdb value", forged_values())):
        found += cases_of(noun, {name: in_part(make) for name, make in lmdb_table.items()})
    for name in ("lmdb", "hdf5", "pth"):
        elsewhere = {kind: instead("part-*", what) for kind, what in INSTEAD.items()}
        found += cases_of(f"{name} part", elsewhere, base=name)
    return found
