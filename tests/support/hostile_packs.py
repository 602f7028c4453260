"""Hostile packs: a sound pack, then one thing in it that an attacker would change, its hashes made right again."""

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packer.files.digest import part_bytes, part_sha256
from packer.pack import manifest as manifests
from tests.support import built_packs

SECRET = b"secret bytes of this machine, which no pack may lead to\n" * 9


@dataclass(frozen=True)
class Case:
    """make: gets the pack's folder, beside which lies the file `secret`, and makes the pack there or changes it.

    base: format of the sound pack of three records that is there before, "" for none.
    expect: what reading all records does: "refused": raises; "same": gives the sound records; "any": either, or others.
    """

    name: str
    make: Callable[[Path], Any]
    base: str = "lmdb"
    expect: str = "refused"


def lay_out(root: Path, cases: list[Case]) -> Iterator[Path]:
    """One folder per case, with the pack in `pack`; the sound packs are made once and copied."""
    for number, case in enumerate(cases):
        place = root / f"{number:03d}"
        place.mkdir(parents=True)
        (place / "secret").write_bytes(SECRET)
        pack = place / "pack"
        if case.base:
            sound = root / f"sound-{case.base}"
            if not sound.exists():
                built_packs.make_pack(sound, 3, format=case.base, parts=1)
            shutil.copytree(sound, pack)
        case.make(pack)
        (place / "case.json").write_text(json.dumps({"name": case.name, "expect": case.expect}))
        yield place


def part_of(pack: Path) -> Path:
    """The one part."""
    (found,) = pack.glob("part-*")
    return found


def in_part(change: Callable[[Path], Any]) -> Callable[[Path], None]:
    """Change the part's file, then seal the pack again: nothing but the format's reader stands in the way."""

    def make(pack: Path) -> None:
        change(part_of(pack))
        reseal(pack)

    return make


def reseal(pack: Path) -> None:
    """Sizes and hashes of the files that are there, into the manifest, whatever else it says."""

    def change(data: dict[str, Any]) -> None:
        for entry in data["parts"]:
            path = pack / entry["name"]
            entry.update({"bytes": part_bytes(path), "sha256": part_sha256(path)} if path.is_dir() else described(path))
        for entry in data["index"]:
            entry.update(described(pack / "index" / entry["name"], crc32=True))

    in_manifest(change)(pack)


def described(path: Path, *, crc32: bool = False) -> dict[str, Any]:
    data = path.read_bytes()
    found: dict[str, Any] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return found | ({"crc32": zlib.crc32(data)} if crc32 else {})


def in_manifest(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change the manifest's members; its pack id and its own hash are right again afterwards."""

    def make(pack: Path) -> None:
        path = pack / manifests.NAME
        data = json.loads(path.read_bytes())
        change(data)
        path.write_bytes(sealed(data))

    return make


def sealed(data: dict[str, Any]) -> bytes:
    """A manifest with a fitting pack id, where that can be made, and a fitting hash."""
    try:
        files = [[file["name"], file["sha256"]] for file in (*data["parts"], *data["index"], *data.get("extras", ()))]
        pack_id = {"files": files, "options": data["options"]}
        if data.get("members"):
            pack_id["members"] = [[member["pack_id"], member["names"]] for member in data["members"]]
        data["pack_id"] = hashlib.sha256(manifests.canonical(pack_id)).hexdigest()
    except (KeyError, TypeError):
        pass  # the change made another shape of it
    return manifests.hashed(data)


def in_text(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Change the manifest's bytes, with no hash made right."""

    def make(pack: Path) -> None:
        path = pack / manifests.NAME
        path.write_bytes(change(path.read_bytes()))

    return make


# what may stand where a file was: what makes it, or the name of what lies beside the pack, to which it is a link
INSTEAD: dict[str, Callable[[Path], Any] | str] = {
    "fifo": os.mkfifo,
    "folder": os.mkdir,
    "link": "secret",
    "nothing": lambda path: None,
}


def instead(where: str, what: Callable[[Path], Any] | str) -> Callable[[Path], None]:
    """Something else in the place of a file of the pack, which goes to `elsewhere` beside it; all hashes stay."""

    def make(pack: Path) -> None:
        (path,) = pack.glob(where) if where else [pack]
        path.rename(pack.parent / "elsewhere")
        if isinstance(what, str):
            path.symlink_to(os.path.relpath(pack.parent / what, path.parent))
        else:
            what(path)

    return make


def in_index(name: str, data: bytes) -> Callable[[Path], None]:
    """Another file in the place of one of the index, its size and hashes right."""

    def make(pack: Path) -> None:
        (pack / "index" / name).write_bytes(data)
        reseal(pack)

    return make


def cases_of(prefix: str, table: Mapping[str, Callable[[Path], Any]], **members: Any) -> list[Case]:
    """A case per entry."""
    return [Case(f"{prefix}: {name}", make, **members) for name, make in table.items()]
