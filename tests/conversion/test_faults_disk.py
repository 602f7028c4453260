"""Disks that are full and limits on file sizes: exit code 4, what is needed and free, no target, nothing wasted."""

import json
import os
import resource
import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from packer import formats
from packer.conversion import pack_build
from packer.conversion.options import ConversionOptions
from packer.conversion.pack_build import estimate
from packer.conversion.plan import make_plan
from packer.errors import StorageError
from tests.support import fault_injection
from tests.support.child_processes import Outcome
from tests.support.command_runs import load_everything
from tests.support.conversions import digest, opened, packed
from tests.support.small_disks import MS_RDONLY, MS_REMOUNT, mounted, resize
from tests.support.source_trees import photos

_PART = 60_000
# LMDB makes one of the others of a write that was cut short
FULL = ("No space left on device", "File too large", "Input/output error")
each_format = pytest.mark.parametrize("format", formats.names())


def words(source: Path, target: Path, format: str) -> list[str | Path]:
    """A conversion into a few parts."""
    return ["convert", source, target, "--to", format, "--part-size", str(_PART), "--threads", "2"]


def leftovers(target: Path) -> tuple[set[str], set[str]]:
    """Names of what lies in the work folder's pack, and of the parts that have a done-record."""
    partial = target.with_name(f".{target.name}.partial")
    if not partial.exists():
        return set(), set()
    found = set(os.listdir(partial / "pack")) if (partial / "pack").exists() else set()
    return found, {json.loads(file.read_bytes())["part"]["name"] for file in (partial / "done").glob("*.json")}


def check_failure(ended: fault_injection.Ended, target: Path) -> None:
    """A clear end, no target, and the space of what was unfinished given back."""
    assert ended.code == 4, ended
    assert "Traceback" not in ended.text
    assert str(target.parent) in ended.text
    assert "bytes are still needed" in ended.text or "needed while packing" in ended.text, ended
    assert " are free" in ended.text
    assert not target.exists()
    found, finished = leftovers(target)
    assert found <= finished, ended


# ---- limits on file sizes


def largest_file(folder: Path) -> int:
    """Size of the largest file of a pack."""
    return max(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def limited(folder: Path, format: str, count: int) -> list[int]:
    """Convert under `count` limits from almost none up to what the largest file needs; returns the exit codes."""
    load_everything()
    source, target = photos(folder / "in", 12, height=100, width=100), folder / "out"
    assert fault_injection.run(words(source, folder / "clean", format), folder, prepare=lambda: None).code == 0
    clean, most = digest(folder / "clean"), largest_file(folder / "clean")
    codes = []
    for number in range(count):
        limit = 60 + most * number // count

        def prepare(limit: int = limit) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        ended = fault_injection.run(words(source, target, format), folder, prepare=prepare)
        check_failure(ended, target)
        assert any(text in ended.text for text in FULL), ended
        codes.append(ended.code or 0)
        if number % 2:  # else the next one goes on with what this one leaves
            assert fault_injection.run(words(source, target, format), folder, prepare=lambda: None).code == 0
            assert digest(target) == clean
            shutil.rmtree(target)
    return codes


@pytest.mark.one_in(11)
@pytest.mark.parametrize("count", [3, pytest.param(40, marks=pytest.mark.full)])
@each_format
def test_limits_on_file_sizes(tmp_path: Path, format: str, count: int) -> None:
    assert limited(tmp_path, format, count) == [4] * count


# ---- a file system that is really full


def fill(folder: Path, format: str, shares: int) -> Outcome:
    """On disks of more and more room: refused at once, or full on the way when others take it; then whole."""
    source, disk = photos(folder / "in", 24, height=100, width=100), folder / "disk"
    disk.mkdir()
    assert fault_injection.run(words(source, folder / "clean", format), folder, prepare=lambda: None).code == 0
    clean = digest(folder / "clean")
    size = sum(path.stat().st_size for path in (folder / "clean").rglob("*") if path.is_file())
    target = disk / "out"

    def others_take_it() -> None:
        pack_build.free_bytes = lambda path: 1 << 40

    def work() -> dict[str, int]:
        found = {"refused": 0, "full": 0}
        for number in range(shares):
            resize(disk, 8192 + size * number // shares)
            ended = fault_injection.run(words(source, target, format), folder, prepare=lambda: None)
            check_failure(ended, target)
            assert "needed while packing" in ended.text, ended
            found["refused"] += 1
            if not number:
                assert os.listdir(disk) == []
            ended = fault_injection.run(words(source, target, format), folder, prepare=others_take_it)
            check_failure(ended, target)
            assert any(text in ended.text for text in FULL), ended
            found["full"] += 1
        resize(disk, 20 * size + (1 << 20))
        assert fault_injection.run(words(source, target, format), folder, prepare=lambda: None).code == 0
        assert digest(target) == clean
        assert os.listdir(disk) == ["out"]
        return found

    return mounted(disk, work)


@pytest.mark.one_in(11)
@pytest.mark.parametrize("shares", [2, pytest.param(25, marks=pytest.mark.full)])
@each_format
def test_disks_that_are_full(tmp_path: Path, format: str, shares: int) -> None:
    outcome = fill(tmp_path, format, shares)
    assert outcome.value == {"refused": shares, "full": shares}, outcome


# ---- a file system that turns read-only


def turn_read_only(disk: Path, after: int) -> None:
    """In this process: the disk is remounted read-only after so many syncs, as soon as no file is open for writing."""
    fault_injection.in_one_thread()
    sync, done = os.fsync, [0]

    def synced(descriptor: int) -> None:
        sync(descriptor)
        done[0] += 1
        if done[0] > after:
            with suppress(OSError):  # EBUSY: a file is open for writing; after the next one then
                resize(disk, 64 << 20, flags=MS_REMOUNT | MS_RDONLY)

    os.fsync = synced  # type: ignore[assignment]


def read_only(folder: Path, format: str, moments: int) -> dict[str, int]:
    """A conversion on a disk that turns read-only, at so many moments; the same command goes on when it is writable."""
    load_everything()
    source, disk = photos(folder / "in", 12, height=100, width=100), folder / "disk"
    disk.mkdir()
    assert (
        fault_injection.run(words(source, folder / "clean", format), folder, prepare=fault_injection.in_one_thread).code
        == 0
    )
    clean, target = digest(folder / "clean"), disk / "out"

    def work() -> dict[str, int]:
        found = {"failed": 0, "whole": 0}
        for moment in range(moments):
            resize(disk, 64 << 20)
            ended = fault_injection.run(
                words(source, target, format), folder, prepare=partial(turn_read_only, disk, moment)
            )
            assert "Traceback" not in ended.text, ended
            assert (ended.code, "Read-only file system" in ended.text) in ((4, True), (0, False)), ended
            resize(disk, 64 << 20)
            if ended.code:
                found["failed"] += 1
                assert str(disk) in ended.text, ended
                if target.exists():  # the rename came before the error
                    assert digest(target) == clean
                else:
                    again = fault_injection.run(
                        words(source, target, format), folder, prepare=fault_injection.in_one_thread
                    )
                    assert again.code == 0, again
            assert digest(target) == clean
            found["whole"] += 1
            for path in disk.iterdir():
                shutil.rmtree(path)
        return found

    outcome = mounted(disk, work)
    assert isinstance(outcome.value, dict), outcome
    return outcome.value


@pytest.mark.full
@each_format
def test_a_disk_that_turns_read_only_at_thirty_moments(tmp_path: Path, format: str) -> None:
    found = read_only(tmp_path, format, 30)
    print(f"\n{format}: {found}")  # noqa: T201  the figure
    assert found["whole"] == 30
    assert found["failed"] >= 8


# ---- what is counted before anything is written


@pytest.mark.one_in(3)
@each_format
def test_what_a_part_takes_while_it_is_packed_is_counted(
    tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for the pack alone is not enough for a format that spools; for one that does not, it is."""
    source = photos(tmp_path / "in", 12, height=100, width=100)
    guess = estimate(make_plan(opened(source), ConversionOptions(to=format, part_bytes=0)))
    largest = sum(path.stat().st_size for path in source.rglob("*.jpg"))
    spools = formats.load(format).Writer.scratch_bytes(largest) > 0
    assert guess.scratch_bytes == (largest if spools else 0)
    free = [guess.pack_bytes + largest // 2]
    monkeypatch.setattr(pack_build, "free_bytes", lambda path: free[0])
    if spools:
        with pytest.raises(StorageError, match="needed while packing"):
            packed(source, tmp_path / "out", to=format, part_bytes=0)
        free[0] = guess.pack_bytes + largest
    packed(source, tmp_path / "out", to=format, part_bytes=0)


def test_formats_that_spool_say_so() -> None:
    assert formats.load("lmdb").Writer.scratch_bytes(1000) == 0
    assert formats.load("hdf5").Writer.scratch_bytes(1000) == 1000
    assert formats.load("pth").Writer.scratch_bytes(1000) == 1000
