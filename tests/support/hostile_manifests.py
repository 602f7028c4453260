"""Hostile manifests, index files and extras, and packs that are not the files that they should be."""

import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.pack import extra_files
from packer.pack import manifest as manifests
from tests.support import hostile_manifest_values, hostile_npy
from tests.support.hostile_packs import INSTEAD, Case, cases_of, described, in_index, in_manifest, in_text, instead
from tests.support.hostile_parts import COMMAND, Reduce
from tests.support.image_files import npy

NAMES = (
    "../secret",
    "../../secret",
    "/etc/passwd",
    "part-00000.lmdb/../../secret",
    "..",
    "a\0b",
    "C:x",
    "CON:",
    "a\nb",
)


def part_named(name: str) -> Callable[[Path], None]:
    """The manifest names another file, whose size and hash are right."""

    def make(pack: Path) -> None:
        target = pack / name if "\0" not in name and name != ".." else pack / "nothing"
        found = described(target) if target.is_file() else {}
        in_manifest(lambda data: data["parts"][0].update(name=name, **found))(pack)

    return make


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def with_options(value: Any) -> Callable[[Path], None]:
    return in_manifest(lambda data: data["options"].update(more=value))


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def inserted(text: bytes) -> Callable[[Path], None]:
    """A member more, as text, at the front."""
    return in_text(lambda raw: b"{" + text + b"," + raw[1:])


MANIFESTS: dict[str, Callable[[Path], Any]] = {
    **{f"part name {name!r}": part_named(name) for name in NAMES},
    **{f"manifest is a {kind}": instead(manifests.NAME, what) for kind, what in INSTEAD.items()},
    "manifest is a link to the same bytes": instead(manifests.NAME, "elsewhere"),
    "manifest is a device": instead(manifests.NAME, "/dev/zero"),
    "manifest is empty": instead(manifests.NAME, Path.touch),
    "manifest of 8 GiB": instead(manifests.NAME, lambda path: sparse(path, 1 << 33)),
    "part is a link": instead("part-*", "elsewhere"),
    "a member twice": inserted(b'"version":1'),
    "format twice": inserted(b'"format":"pth"'),
    "NaN": in_text(lambda raw: raw.replace(b'"samples":3', b'"samples":NaN')),
    "Infinity": in_text(lambda raw: raw.replace(b'"samples":3', b'"samples":-Infinity')),
    "1e999": in_text(lambda raw: raw.replace(b'"samples":3', b'"samples":1e999')),
    "a number of 5000 digits": in_text(lambda raw: raw.replace(b'"samples":3', b'"samples":' + b"9" * 5000)),
    "100,000 brackets": in_text(lambda raw: b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "100,000 braces": in_text(lambda raw: b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "100,000 open brackets": in_text(lambda raw: b"[" * 100_000),
    "text behind the end": in_text(lambda raw: raw + b"{}"),
    "a pickle": in_text(lambda raw: pickle.dumps(Reduce(os.system, COMMAND))),
    "a Python expression": in_text(lambda raw: b"__import__('os').abort()\n"),
    "UTF-16": in_text(lambda raw: raw.decode().encode("utf-16")),
    "a lone surrogate in the format": in_manifest(lambda data: data.update(format="\udc80")),
    **{
        f"format {name!r}": in_manifest(lambda data, name=name: data.update(format=name))
        for name in ("os", "base", "__init__", "../cli/main", "stacking", "stacking.spooling", "packer.cli", "", "LMDB")
    },
    "100,000 fields": in_manifest(
        lambda data: data.update(schema=[{"name": f"f{at}", "kind": "text", "codec": "text"} for at in range(100_000)])
    ),
    "samples beyond memory": in_manifest(
        lambda data: (data.update(samples=1 << 61), data["parts"][0].update(samples=1 << 61))
    ),
    "100,000 parts": in_manifest(lambda data: data.update(parts=many(data["parts"][0]))),
    "extras with a path": in_manifest(lambda data: data.update(extras=[{**data["index"][0], "name": "../../secret"}])),
    "a count of files below none": in_manifest(lambda data: data.update(source={"kind": "os", "files": -1})),
    "a text left behind": in_manifest(lambda data: data.update(source={"kind": "folder", "left_behind": "x"})),
    "a huge count left behind": in_manifest(
        lambda data: data.update(source={"left_behind": {"files": -(1 << 70), "bytes": None}})
    ),
    "a column too wide": in_manifest(lambda data: data["schema"][3].update(shape=[1 << 39])),
}


def many(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**part, "name": f"part-{at:05d}.lmdb", "samples": 0} for at in range(100_000)]


# what changes nothing that reading relies on
HARMLESS: dict[str, Callable[[Path], Any]] = {
    **{
        f"codec {name!r}": in_manifest(lambda data, name=name: data["schema"][1].update(codec=name))
        for name in ("os", "base", "__init__", "../formats/lmdb", "encoded:os", "raw:object", "jpeg:x", "", ":", "\0")
    },
    "extras that are the index": in_manifest(lambda data: data.update(extras=data["index"])),
    "modules with the names of libraries": lambda pack: [
        (pack / f"{name}.py").write_text("import os\nos.abort()\n")
        for name in ("lmdb", "h5py", "numpy", "json", "torch", "sitecustomize", "cp437", "packer", "encodings")
    ],
    "deep options": with_options(nested(200)),
    "options that name files": with_options({"source": "/etc/passwd", "path": "../secret"}),
    "a source that names a module": in_manifest(lambda data: data.update(source={"kind": "os", "files": 1})),
    "a source of text": in_manifest(lambda data: data.update(source={"kind": "\x1b[2J\udcff", "more": "x"})),
    "the pack is a link": instead("", "elsewhere"),
    "the index is a link": instead("index", "elsewhere"),
}


# ---- index


PICKLED = npy(np.asarray([Reduce(os.system, COMMAND)], object))  # an .npy file of objects
KEY_BYTES = 3 * len(b"sample-00000")
INDEX: dict[str, Callable[[Path], Any]] = {
    **{f"label {name}": in_index("number-label.npy", data) for name, data in hostile_npy.HOSTILE.items()},
    "objects with a pickle": in_index("number-label.npy", PICKLED),
    "keys of objects": in_index("keys.npy", PICKLED),
    "Fortran order": in_index("crc32.npy", npy(np.asfortranarray(np.zeros((3, 4), "<u4") + np.arange(4, dtype="<u4")))),
    "a zip": in_index("keys.npy", b"PK\x03\x04" + bytes(100)),
    "crc32 of other shape": in_index("crc32.npy", npy(np.zeros((4, 3), "<u4"))),
    "labels of another type": in_index("number-label.npy", npy(np.zeros(3, "<f8"))),
}
# the keys can no longer be told, or labels are other numbers: values stay what they are or raise
INDEX_ANY: dict[str, Callable[[Path], Any]] = {
    "key ends of 2**64": in_index("key_ends.npy", npy(np.asarray([12, 24, (1 << 64) - 1], "<u8"))),
    "key ends beyond": in_index("key_ends.npy", npy(np.asarray([12, 1 << 60, KEY_BYTES], "<u8"))),
    "key ends falling": in_index("key_ends.npy", npy(np.asarray([24, 12, KEY_BYTES], "<u8"))),
    "key order beyond": in_index("key_order.npy", npy(np.asarray([1 << 63, 9, 7], "<u8"))),
    "keys of hostile bytes": in_index("keys.npy", npy(np.frombuffer(b"../\0\xff\n\x1b[2J" * 4, "u1")[:KEY_BYTES])),
    "other labels": in_index("number-label.npy", npy(np.asarray([1 << 62, -1, 7], "<i8"))),
}


# ---- extras


def extra(*names: str) -> Callable[[Path], None]:
    """Files of no sample with these names."""

    def make(pack: Path) -> None:
        listed = extra_files.write_extras(pack, dict.fromkeys(names, 1), [b"x"] * len(names))
        manifest = replace(manifests.read(pack), extras=listed).sealed()
        (pack / manifests.NAME).write_bytes(manifest.to_bytes())

    return make


def linked_extras(pack: Path) -> None:
    extra("a.txt")(pack)
    instead("extras", "elsewhere")(pack)


EXTRAS = {f"named {name!r}": extra("fine.txt", name) for name in (*NAMES[:6], "", "a//b", "a\\..\\b", "x" * 300)}
EXTRAS |= {"a file as a folder": extra("a", "a/b"), "the same twice": extra("A.txt", "a.txt"), "a link": linked_extras}


def nothing(pack: Path) -> None:
    shutil.rmtree(pack)
    pack.mkdir()


def cases() -> list[Case]:
    """All of them."""
    sealed = {
        name: in_manifest(change)
        for name, (change, _) in hostile_manifest_values.HOSTILE.items()
        if name != "part listed twice"  # there is one
    }
    found = cases_of("manifest sealed", sealed)
    found += cases_of("manifest", MANIFESTS)
    found += cases_of("manifest", {"none": nothing, "an image": lambda pack: in_text(lambda raw: b"\xff\xd8")(pack)})
    found += cases_of("harmless", HARMLESS, expect="same")
    found += cases_of("index", INDEX) + cases_of("index", INDEX_ANY, expect="any")
    found += cases_of("index file is", {kind: instead("index/keys.npy", what) for kind, what in INSTEAD.items()})
    found += cases_of("extras", EXTRAS, expect="same")
    return found
