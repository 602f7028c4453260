"""A pack may not be made of holes: what a few KB on the disk pass for would take hours to read and hash."""

from collections.abc import Callable
from pathlib import Path

import pytest

from packer import formats
from packer.copies import stager
from packer.errors import CorruptPack
from packer.pack import manifest, mostly_holes
from packer.pack.index_rebuild import reindex
from packer.pack.reader import Pack
from packer.pack.verification import problems
from tests.support import bomb_packs, built_packs
from tests.support.hostile_packs import Case, lay_out, part_of

GIB = 1 << 30
READERS: dict[str, Callable[[Path], object]] = {
    "a data set": Pack,
    "index": reindex,
    "stage": lambda pack: stager.stage(pack, stager.StageOptions(to=str(pack.parent)), stager.Hooks()),
    "warm": lambda pack: stager.warmed(pack, stager.StageOptions(), stager.Hooks()),
}


def forged(root: Path, name: str) -> Path:
    """The pack of a bomb."""
    (case,) = (case for case in bomb_packs.cases() if case.name == name)
    (place,) = lay_out(root, [case])
    return place / "pack"


@pytest.mark.one_in(12)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["bmp: a file of 3 GiB", "lmdb: 360,000 leaves", "index: a hole of a terabyte"])
def test_a_pack_of_holes_is_refused_before_it_is_read(tmp_path: Path, name: str, reader: str) -> None:
    pack = forged(tmp_path, name)
    with pytest.raises(CorruptPack, match=r"[\d,]+ of [\d,]+ bytes"):
        READERS[reader](pack)


def test_verify_says_so_and_reads_no_more_of_it(tmp_path: Path) -> None:
    (problem,) = problems(forged(tmp_path, "index: a hole of a terabyte"), level="full")
    assert "bytes are data, the others are holes" in problem


@pytest.mark.parametrize("format", formats.names())
def test_a_pack_of_data_is_none_of_holes(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mostly_holes, "MOST_BYTES", 0)
    built_packs.make_pack(tmp_path / "p", 6, format=format)
    mostly_holes.check_mostly_holes(tmp_path / "p", manifest.read(tmp_path / "p"))
    assert list(problems(tmp_path / "p")) == []


@pytest.mark.parametrize("format", formats.names())
def test_what_is_missing_is_no_hole(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file that has gone is named, as if nothing were looked for."""
    monkeypatch.setattr(mostly_holes, "MOST_BYTES", 0)
    built_packs.make_pack(tmp_path / "p", 6, format=format, parts=2)
    for part in sorted((tmp_path / "p").glob("part-*")):
        part.rename(tmp_path / part.name)
    found = list(problems(tmp_path / "p"))
    assert [line for line in found if "part is missing" in line] == found
    assert len(found) == 2


def test_a_staged_copy_counts_in_the_place_of_what_it_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mostly_holes, "MOST_BYTES", 0)
    made = built_packs.make_pack(tmp_path / "p", 6, parts=1)
    part = part_of(tmp_path / "p")
    copy = part.rename(tmp_path / part.name)
    with part.open("wb") as file:
        file.truncate(made.parts[0].bytes)
    monkeypatch.setattr(mostly_holes, "MOST_TIMES", 2)
    with pytest.raises(CorruptPack, match="holes"):
        mostly_holes.check_mostly_holes(tmp_path / "p", made)
    mostly_holes.check_mostly_holes(tmp_path / "p", made, copies={part.name: copy})


def test_data_between_holes_is_counted(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w+b") as file:
        for at in (0, 1 << 20, 1 << 22):
            file.seek(at)
            file.write(b"x" * 65536)
        file.truncate(GIB)
        file.flush()
        found = mostly_holes.data_bytes(file.fileno(), most=GIB)
        assert 3 * 65536 <= found <= 6 * 65536
        assert 65536 <= mostly_holes.data_bytes(file.fileno(), most=1) < found
        file.truncate(0)
        assert mostly_holes.data_bytes(file.fileno(), most=GIB) == 0


@pytest.mark.parametrize("name", bomb_packs.UNNAMED)
def test_a_file_that_has_grown_is_not_read(tmp_path: Path, name: str) -> None:
    """Its size says already that it is damaged; each of these would take an hour to hash."""
    (place,) = lay_out(tmp_path, [Case(name, bomb_packs.UNNAMED[name], base="bmp")])
    assert list(problems(place / "pack", expect="sha256:" + 64 * "0"))
