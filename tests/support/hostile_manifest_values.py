"""Hostile values of packer.json."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from packer.errors import CorruptPack, InvalidRequest, PackerError
from packer.pack import manifest as manifests

SHA = "ab" * 32


def written(folder: Path, data: bytes) -> Path:
    """A folder with these bytes as its manifest."""
    (folder / manifests.NAME).write_bytes(data)
    return folder


Change = Callable[[dict[str, Any]], Any]


def setting(*path: str | int, to: Any) -> Change:
    """Change one member."""

    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def dropping(*path: str | int) -> Change:
    """Remove one member."""

    def change(data: dict[str, Any]) -> None:
        place: Any = data
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


HOSTILE: dict[str, tuple[Change, type[PackerError]]] = {
    "version 3": (setting("version", to=3), InvalidRequest),
    "version 2^80": (setting("version", to=1 << 80), InvalidRequest),
    "version 0": (setting("version", to=0), CorruptPack),
    "version -1": (setting("version", to=-1), CorruptPack),
    "version true": (setting("version", to=True), CorruptPack),
    "version 1.0": (setting("version", to=1.0), CorruptPack),
    "version text": (setting("version", to="1"), CorruptPack),
    "no version": (dropping("version"), CorruptPack),
    "other magic": (setting("magic", to="packed"), CorruptPack),
    "no magic": (dropping("magic"), CorruptPack),
    **{
        f"no {name}": (dropping(name), CorruptPack)
        for name in ("format", "samples", "schema", "source", "skipped", "incomplete", "written_by")
    },
    "a member more": (setting("more", to=1), CorruptPack),
    "format a number": (setting("format", to=3), CorruptPack),
    "samples negative": (setting("samples", to=-3), CorruptPack),
    "samples a fraction": (setting("samples", to=3.0), CorruptPack),
    "samples text": (setting("samples", to="3"), CorruptPack),
    "samples true": (setting("samples", to=True), CorruptPack),
    "samples 2^64": (setting("samples", to=1 << 64), CorruptPack),
    "samples do not add up": (setting("samples", to=4), CorruptPack),
    "part samples 2^64": (setting("parts", 0, "samples", to=1 << 64), CorruptPack),
    "part bytes negative": (setting("parts", 0, "bytes", to=-1), CorruptPack),
    "part sha256 too short": (setting("parts", 0, "sha256", to="ab"), CorruptPack),
    "part sha256 upper case": (setting("parts", 0, "sha256", to="AB" * 32), CorruptPack),
    "part with a member more": (setting("parts", 0, "more", to=1), CorruptPack),
    "part listed twice": (setting("parts", 1, "name", to="part-00000.lmdb"), CorruptPack),
    "index file listed twice": (
        setting("index", to=[{"name": "keys.npy", "bytes": 1, "crc32": 1, "sha256": SHA}] * 2),
        CorruptPack,
    ),
    "index crc32 negative": (setting("index", 0, "crc32", to=-1), CorruptPack),
    **{
        f"part name {name!r}": (setting("parts", 0, "name", to=name), CorruptPack)
        for name in (
            "",
            ".",
            "..",
            "../x",
            "/etc/passwd",
            "a/b",
            "a\\b",
            "a\0b",
            ".hidden",
            "x" * 200,
            "é",
            "a\n",
            "c:a",
        )
    },
    "index name with a folder": (setting("index", 0, "name", to="../packer.json"), CorruptPack),
    "schema a number": (setting("schema", to=1), CorruptPack),
    "schema text": (setting("schema", to="key"), CorruptPack),
    "schema an object": (setting("schema", to={}), CorruptPack),
    "schema of text": (setting("schema", to=["key"]), CorruptPack),
    "schema of nothing": (setting("schema", to=[None]), CorruptPack),
    "field twice": (setting("schema", 1, "name", to="key"), CorruptPack),
    "field of unknown kind": (setting("schema", 0, "kind", to="code"), CorruptPack),
    "field name a path": (setting("schema", 0, "name", to="../key"), CorruptPack),
    "field with a member more": (setting("schema", 0, "more", to=1), CorruptPack),
    "field with a default written out": (setting("schema", 0, "hidden", to=False), CorruptPack),
    "field shape beyond 64 bits": (setting("schema", 2, "shape", to=[1 << 40, 1 << 40]), CorruptPack),
    "options a list": (setting("options", to=[["to", "lmdb"]]), CorruptPack),
    "options text": (setting("options", to=""), CorruptPack),
    "source a list": (setting("source", to=[]), CorruptPack),
    "skipped of text": (setting("skipped", to=["ab"]), CorruptPack),
    "skipped of three": (setting("skipped", to=[["a", "b", "c"]]), CorruptPack),
    "skipped a number": (setting("skipped", to=[[1, "b"]]), CorruptPack),
    "written_by a number": (setting("written_by", to=1), CorruptPack),
}
