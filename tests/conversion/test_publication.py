"""The done-records of an interrupted conversion, when somebody else wrote them."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packer.conversion.options import ConversionOptions
from packer.conversion.publication import FolderPublication
from packer.conversion.work_folder_layout import NAMES
from packer.errors import CorruptPack, UnsafePath
from packer.files.work_folder import work_folder

PART: dict[str, Any] = {"name": "part-00000.lmdb", "samples": 2, "bytes": 4, "sha256": "0" * 64}
SOUND: dict[str, Any] = {"bytes_in": 9, "bytes_out": 9, "skipped": [["a", "b"]], "incomplete": [], "findings": {"f": 1}}
WHOLE = {"part": PART, **SOUND}
PARTS = {PART["name"]: 3, "part-00001.lmdb": 3}
_PLAN: Any = SimpleNamespace(
    fingerprint="f",
    has_part=lambda name, samples: PARTS.get(name) == samples,
    source=SimpleNamespace(resume_reason=None),
    options=ConversionOptions(),
)


def begun(folder: Path, record: str, *, name: str = "part-00000.json") -> FolderPublication:
    """The state of a conversion of two parts, with that record of the first, which is there."""
    with work_folder(folder / "work", NAMES) as work:
        for inner in ("pack", "pieces"):
            (folder / "work" / inner).mkdir()
            (folder / "work" / inner / PART["name"]).write_bytes(b"1234")
        (folder / "work/done").mkdir()
        (folder / "work/done" / name).write_text(record)
        (folder / "work/plan.json").write_text(json.dumps({"fingerprint": "f"}))
        records = FolderPublication(_PLAN, folder, work)
        records.begin(restart=False)
    return records


def test_a_sound_record_names_a_finished_part(tmp_path: Path) -> None:
    found = begun(tmp_path, json.dumps(WHOLE)).finished[PART["name"]]
    assert (found.part.bytes, found.bytes_in, found.skipped, found.findings) == (4, 9, [["a", "b"]], {"f": 1})


def test_a_record_that_was_being_written_does_not_count_and_goes(tmp_path: Path) -> None:
    record = json.dumps(WHOLE)
    assert not begun(tmp_path, record, name="part-00000.json.new").finished
    assert [path for name in ("pack", "pieces", "done") for path in (tmp_path / "work" / name).iterdir()] == []


@pytest.mark.parametrize(
    "members",
    [
        *({"part": {**PART, "name": name}} for name in (5, None, [], "x" * 5000, "../plan.json", "a\0b", ".", "")),
        *({"part": {**PART, "name": name}} for name in ("part-00001.lmdb", "part-00000.h5", "part-00002.lmdb")),
        *({"part": {**PART, member: "4"}} for member in ("samples", "bytes", "sha256")),
        *({"part": {**PART, "samples": samples}} for samples in (0, 1, 3, 1 << 40)),
        *({"part": part} for part in (None, [], "text", {})),
        *({name: "9"} for name in ("bytes_in", "bytes_out", "findings")),
        *({name: value} for name in ("skipped", "incomplete") for value in (None, "ab", ["ab"], [["a"]], [["a", 1]])),
    ],
    ids=str,
)
def test_a_record_that_packer_does_not_write_is_damage(tmp_path: Path, members: dict[str, Any]) -> None:
    with pytest.raises(CorruptPack, match=r"part-00000\.json: damaged.*--restart"):
        begun(tmp_path, json.dumps({**WHOLE, **members}))


LACKING = [{name: value for name, value in WHOLE.items() if name != lost} for lost in WHOLE]
NO_OBJECTS = ["", "[" * 5000, '{"a":' * 5000, "1" * 5000, "5", "\ufeff{}"]


@pytest.mark.parametrize("text", [*map(json.dumps, LACKING), *NO_OBJECTS], ids=lambda text: text[:6])
def test_a_record_that_lacks_something_or_is_no_object_is_damage(tmp_path: Path, text: str) -> None:
    with pytest.raises(CorruptPack, match="not what packer.*--restart"):
        begun(tmp_path, text)


def test_a_record_under_the_name_of_another_part_is_damage(tmp_path: Path) -> None:
    with pytest.raises(CorruptPack, match=r"part-00001\.json: damaged"):
        begun(tmp_path, json.dumps(WHOLE), name="part-00001.json")


@pytest.mark.parametrize("name", ["mine.txt", "part-00000.txt", "part-00000.json.old"])
def test_what_packer_does_not_make_among_the_records_is_refused(tmp_path: Path, name: str) -> None:
    begun(tmp_path, json.dumps(WHOLE))
    mine = tmp_path / "work/done" / name
    mine.write_bytes(b"mine")
    with pytest.raises(UnsafePath, match="did not make"), work_folder(tmp_path / "work", NAMES):
        pytest.fail("taken")
    assert mine.read_bytes() == b"mine"


@pytest.mark.parametrize("kind", ["link", "hard link", "folder"])
def test_a_record_is_read_from_a_file_of_one_name_alone(tmp_path: Path, kind: str) -> None:
    begun(tmp_path, json.dumps(WHOLE))
    record, mine = tmp_path / "work/done/part-00000.json", tmp_path / "mine"
    record.rename(mine)
    if kind == "link":
        record.symlink_to(mine)
    elif kind == "hard link":
        record.hardlink_to(mine)
    else:
        record.mkdir()
    before = mine.read_bytes()
    with (
        work_folder(tmp_path / "work", NAMES) as work,
        pytest.raises(UnsafePath, match=r"part-00000\.json: .*packer made"),
    ):
        FolderPublication(_PLAN, tmp_path, work).begin(restart=False)
    assert mine.read_bytes() == before
