"""The journal of an interrupted conversion, when somebody else wrote it."""

import json
from pathlib import Path
from typing import Any

import pytest

from packer.conversion.journal import NAMES, Journal
from packer.errors import CorruptPack
from packer.files.work_folder import work_folder

SOUND: dict[str, Any] = {"bytes_in": 9, "bytes_out": 9, "skipped": [["a", "b"]], "incomplete": []}
PART: dict[str, Any] = {"name": "part-00000.lmdb", "samples": 2, "bytes": 4, "sha256": "0" * 64}


def begun(folder: Path, line: str) -> Journal:
    """A journal with that line for its one part, which is there."""
    with work_folder(folder / "work", NAMES) as work:
        for name in ("pack", "pieces"):
            (folder / "work" / name).mkdir()
            (folder / "work" / name / PART["name"]).write_bytes(b"1234")
        (folder / "work/journal").write_text(json.dumps({"fingerprint": "f"}) + "\n" + line + "\n")
        journal = Journal(work)
        journal.begin("f", restart=False)
    return journal


def test_a_sound_line_names_a_finished_part(tmp_path: Path) -> None:
    found = begun(tmp_path, json.dumps({"part": PART, **SOUND})).finished[PART["name"]]
    assert (found.part.bytes, found.bytes_in, found.skipped) == (4, 9, [["a", "b"]])


@pytest.mark.parametrize(
    "members",
    [
        *({"part": {**PART, "name": name}} for name in (5, None, [], "x" * 5000, "../journal", "a\0b", ".", "")),
        *({"part": {**PART, member: "4"}} for member in ("samples", "bytes", "sha256")),
        *({"part": part} for part in (None, [], "text", {})),
        *({name: "9"} for name in ("bytes_in", "bytes_out")),
        *({name: value} for name in ("skipped", "incomplete") for value in (None, "ab", ["ab"], [["a"]], [["a", 1]])),
    ],
    ids=str,
)
def test_a_line_that_packer_does_not_write_is_damage(tmp_path: Path, members: dict[str, Any]) -> None:
    with pytest.raises(CorruptPack, match="not the lines that packer writes; --restart"):
        begun(tmp_path, json.dumps({"part": PART, **SOUND, **members}))


@pytest.mark.parametrize("line", ["[" * 5000, '{"a":' * 5000, "1" * 5000, "5", "\ufeff{}"], ids=lambda line: line[:6])
def test_a_line_that_is_no_object_is_damage(tmp_path: Path, line: str) -> None:
    with pytest.raises(CorruptPack, match="not the lines that packer writes; --restart"):
        begun(tmp_path, line)
