"""Damaged parts end a process of their own, never that of a command: verify, extract, index, and packs as sources."""

import json
import multiprocessing
import random
import shutil
import socket
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from packer import formats
from packer.errors import CorruptPack, CrashingPart, StorageError
from packer.inspect.extraction import extract
from packer.pack import isolated_reader
from packer.pack.isolated_reader import ReaderProcess
from packer.pack.reader import Pack
from packer.pack.verification import Subset, problems
from tests.support import built_packs, fault_injection, part_damage
from tests.support import crashing_reader as fatal_rows
from tests.support.child_processes import child
from tests.support.command_runs import load_everything
from tests.support.conversions import packed
from tests.support.source_trees import photos

FORMAT = "lmdb"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `in`, 30 photos, and `pack`, of three parts: the first is damaged, so is a value of the last."""
    folder = tmp_path_factory.mktemp("fatal")
    packed(photos(folder / "in", 30), folder / "pack", to=FORMAT, part_bytes=16000)
    first, _, last = sorted((folder / "pack").glob("part-*"))
    built_packs.flip(
        first, 34
    )  # the map's size in a meta page, which a reader has no use for: but not the part's sha256
    data = last.read_bytes()
    built_packs.flip(last, data.index(b"\xff\xd8\xff") + 300)
    return folder


@pytest.fixture
def fatal(tmp_path: Path, original: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pack, and its files beside it; two rows of the first part end the process that reads them."""
    monkeypatch.setattr(isolated_reader, "serve", fatal_rows.serve)
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path / "pack"


def run(words: list[Any], folder: Path) -> fault_injection.Ended:
    """A command in a child, as it is."""
    load_everything()
    return fault_injection.run(words, folder, prepare=lambda: None)


def test_verify_names_the_part_and_goes_on_with_the_others(fatal: Path, tmp_path: Path) -> None:
    for words in (["--level", "full"], ["--subset", "2/2"], []):
        ended = run(["verify", fatal, *words], tmp_path)
        assert ended.code == 3, (words, ended)
        assert "part-00000.lmdb: reading " in ended.text, (words, ended)
        assert "ends the process with SIGBUS" in ended.text
    assert "part-00001" not in ended.text
    assert "part-00002.lmdb sample" in ended.text or "part-00002.lmdb (sample" in ended.text, ended.text
    assert "damaged record: crc32" in ended.text
    assert "problems found: 4" in ended.text, ended.text


def test_extract_saves_what_can_be_read(fatal: Path, tmp_path: Path) -> None:
    assert run(["extract", fatal, tmp_path / "strict"], tmp_path).code == 3
    assert not (tmp_path / "strict").exists()
    ended = run(["extract", fatal, tmp_path / "saved", "--skip-bad"], tmp_path)
    assert ended.code == 3, ended
    assert "Traceback" not in ended.text
    saved = sorted(path.relative_to(tmp_path / "saved") for path in (tmp_path / "saved").rglob("*.jpg"))
    assert len(saved) == 30 - len(fatal_rows.ROWS) - 1
    for path in saved:
        assert (tmp_path / "saved" / path).read_bytes() == (tmp_path / "in" / path).read_bytes()


@pytest.mark.full
def test_a_pack_as_a_source_lists_what_cannot_be_read(fatal: Path, tmp_path: Path) -> None:
    ended = run(["convert", fatal, tmp_path / "strict"], tmp_path)
    assert ended.code == 3
    assert "ends the process with" in ended.text
    ended = run(["convert", fatal, tmp_path / "rest", "--on-error", "skip", "--threads", "3", "--json"], tmp_path)
    assert ended.code == 0, ended
    result = json.loads(ended.text)
    assert (result["samples"], len(result["skipped"])) == (27, 3)
    assert list(problems(tmp_path / "rest", level="full")) == []


@pytest.mark.full
def test_compared_with_its_files_too(fatal: Path, tmp_path: Path) -> None:
    ended = run(["verify", fatal, "--source", tmp_path / "in"], tmp_path)
    assert ended.code == 3
    assert "Traceback" not in ended.text


def flips(folder: Path, number: int, *, seed: int) -> Counter[str]:
    """What verify, in its process, says after flips in the first 400 bytes of pages."""
    part = part_damage.small_pack(folder, FORMAT)
    rng, found = random.Random(seed), Counter[str]()

    def verify() -> str:
        lines = list(problems(folder))
        assert lines, "not noticed"
        return "fatal" if any("ends the process" in line for line in lines) else "problems"

    for _ in range(number):
        at = rng.randrange(part.stat().st_size // 4096) * 4096 + rng.randrange(400)
        mask = rng.choice([0xFF, 1 << rng.randrange(8)])
        built_packs.flip(part, at, mask)
        outcome = child(verify)
        found[str(outcome.value) if outcome.kind == "value" else f"byte {at}, mask {mask}: {outcome}"] += 1
        built_packs.flip(part, at, mask)
    return found


@pytest.mark.parametrize("number", [2, pytest.param(300, marks=pytest.mark.full)])
def test_a_flip_in_a_page_header_is_a_problem_and_no_signal(tmp_path: Path, number: int) -> None:
    assert flips(tmp_path / "pack", number, seed=number) == {"problems": number}


# ---- the process itself


@pytest.mark.one_in(12)
@pytest.mark.parametrize("format", formats.names())
def test_what_is_read_apart_is_what_is_read_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    monkeypatch.setattr(socket, "socketpair", lambda *_: pytest.fail("a pack makes a socket"))
    manifest = built_packs.make_pack(tmp_path / "pack", 9, format=format, parts=2)
    here, there = built_packs.values(tmp_path / "pack"), []
    process = ReaderProcess(format, manifest.schema)
    for part in manifest.parts:
        reader = process.reader(tmp_path / "pack" / part.name, part.samples)
        there += [dict(reader.read(row, manifest.schema.names)) for row in range(len(reader))]
        reader.close()
    process.close()
    process.close()
    assert there == here
    assert multiprocessing.active_children() == []


def test_a_part_that_is_no_part_is_told_as_it_would_be_here(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(bytes(20000))
    process = ReaderProcess(FORMAT, built_packs.SCHEMA)
    with pytest.raises(CorruptPack, match="damaged LMDB file"):
        process.reader(tmp_path / "part", 3).check()
    process.close()


def test_what_the_machine_is_at_fault_of_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ReaderProcess(FORMAT, built_packs.SCHEMA)
    answers: list[Callable[[], bytes]] = [lambda: b'{"error": "StorageError", "message": "full"}']

    class Pipe:
        def send_bytes(self, data: bytes) -> None:
            assert json.loads(data)[0] == "part"

        def recv_bytes(self) -> bytes:
            return answers.pop()()

    monkeypatch.setattr(process, "_pipe", Pipe())
    with pytest.raises(StorageError, match="full"):
        process.values_of(Path("part"), 1, 0, ("key",))
    monkeypatch.setattr(process, "_pipe", None)


def test_a_part_that_ends_process_after_process_is_given_up(fatal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_reader, "_MOST_ENDS", 2)
    pack = Pack(fatal, isolate_damaged=True)
    ends = []
    for index in range(10):
        try:
            with pack.record(index, pack.schema.names) as record:
                assert all(zlib.crc32(value) for value in record.values())
        except CrashingPart as error:
            ends.append(str(error))
    pack.close()
    assert sum("ends the process" in text for text in ends) <= 2
    assert all("part-00000.lmdb" in text for text in ends)


def test_a_sound_pack_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReaderProcess, "_start", lambda self: pytest.fail("started"))
    packed(photos(tmp_path / "in", 6), tmp_path / "pack")
    assert list(problems(tmp_path / "pack", level="full")) == []
    assert list(problems(tmp_path / "pack")) == []
    extract(tmp_path / "pack", tmp_path / "out")
    packed(tmp_path / "pack", tmp_path / "again", kind="pack")


def test_a_subset_reads_the_parts_that_are_not_hashed_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built_packs.make_pack(tmp_path / "pack", 12, parts=3)
    asked = []
    real = ReaderProcess.values_of
    monkeypatch.setattr(
        ReaderProcess, "values_of", lambda self, path, *rest: (asked.append(path.name), real(self, path, *rest))[1]
    )
    assert list(problems(tmp_path / "pack", subset=Subset(1, 3))) == []
    assert set(asked) == {"part-00001.lmdb", "part-00002.lmdb"}
