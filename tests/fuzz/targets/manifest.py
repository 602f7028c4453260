"""packer.json: of any bytes, and of any JSON with its hashes made right."""

import json
from collections.abc import Iterator
from typing import Any

from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest, Part
from tests.fuzz import scratch, words
from tests.fuzz.target import Disagreement, refusable
from tests.support import built_packs, hostile_packs

TOKENS = (b'"magic":"packer"', b'"version":1', b'"version":2', b'"parts":[', b'"index":[', b'"extras":[', *words.JSON)
TOKENS += (b'"skipped":[["a","b"]]', b'"options":{', b'"source":{', b'"schema":[', b'"kind":"pack"', b'"shape":[')
TOKENS += (b'"dtype":"uint8"', b'"hidden":true', b'"invalid":0.5', b'"classes":["a"]', b"4611686018427387904")


def seeds() -> Iterator[bytes]:
    part = Part("part-00000.lmdb", 2, 9, "0" * 64)
    index = manifests.IndexFile("keys.npy", 3, 4, "1" * 64)
    members: dict[str, Any] = {"options": {"validate": "full"}, "source": {"kind": "folder", "bytes": 9}}
    sound = Manifest(
        "lmdb", 2, built_packs.SCHEMA, parts=(part,), index=(index,), written_by="packer 0", **members
    ).sealed()
    yield sound.to_bytes()
    yield (
        Manifest("pth", 0, built_packs.SCHEMA, {}, {}, (), (), "x", (("a", "b"),), (("c", "d"),), (index,))
        .sealed()
        .to_bytes()
    )


def check(data: bytes) -> None:
    for text in (data, _sealed(data)):
        with refusable():
            _read(text)


def _sealed(data: bytes) -> bytes:
    """With every hash right, as an attacker has it; as it is where it is no JSON object."""
    try:
        return hostile_packs.sealed({**json.loads(data)})
    except (ValueError, TypeError, RecursionError):
        return data


def _read(text: bytes) -> None:
    folder = scratch.folder()
    (folder / manifests.NAME).write_bytes(text)
    found = manifests.read(folder)
    if found.to_bytes() != text:
        raise Disagreement("a manifest is not what it is read as")
    if sum(part.samples for part in found.parts) != found.samples:
        raise Disagreement("samples")
    if any("/" in name.removeprefix("index/").removeprefix("extras/") or name.startswith(".") for name in found.files):
        raise Disagreement(f"names that lead elsewhere: {found.files}")
    _ = found.validated
