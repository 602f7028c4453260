"""Staging under stress: many at once, killed at any moment, memory that is full."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import packer
from packer import formats
from packer.cli import registry
from packer.copies import capacity
from packer.copies.capacity import SpaceKept
from packer.copies.leased_folder import OwnedFolder
from packer.copies.staged_copies import StagedCopy, copies, open_staged
from packer.copies.stager import Hooks, StageOptions, stage
from packer.errors import InvalidRequest
from packer.files import work_folder
from packer.pack import manifest as manifests
from packer.pack.verification import problems
from tests.support import built_packs, fault_injection
from tests.support.child_processes import forked
from tests.support.command_line import run, run_here
from tests.support.command_runs import load_everything
from tests.support.conversions import digest, packed
from tests.support.small_disks import mounted, resize
from tests.support.source_trees import photos

needs_strace = pytest.mark.skipif(
    bool(fault_injection.why_no_strace()), reason=fault_injection.why_no_strace() or "strace works"
)
_STAGERS = 16


@pytest.fixture
def one_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers of one name, here and in forked children: strace finds the call that makes one by its path."""
    monkeypatch.setattr(work_folder, "marker_name", lambda folder: "made-by-packer-0")


def size_of(pack: Path) -> int:
    return sum(path.stat().st_size for path in pack.rglob("*") if path.is_file())


def written_bytes() -> int:
    """Bytes that this process has given to write calls, as the kernel counts them."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


# ---- many at once


def staging_child(work: Callable[[], Any], answer: Path) -> int:
    """A child that writes what `work` returns to a file; returns its process id."""
    return forked(lambda: answer.write_text(json.dumps(work())))


@pytest.mark.one_in(11)
@pytest.mark.parametrize("format", formats.names())
@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="the kernel does not count what a process writes")
def test_sixteen_at_once_write_one_copy_and_get_one_path(tmp_path: Path, base: Path, format: str) -> None:
    pack = tmp_path / "pack"
    built_packs.make_pack(
        pack, [built_packs.record(number, blob=os.urandom(20_000)) for number in range(100)], format=format
    )
    load_everything()
    reading, writing = os.pipe()
    gate, opening = os.pipe()

    def waiting() -> None:
        os.write(writing, b"w")

    def work() -> list[Any]:
        hooks = Hooks(waiting=waiting)
        os.read(gate, 1)
        before = written_bytes()
        done = stage(pack, StageOptions(str(base), keep=SpaceKept()), hooks)
        return [str(done.path), done.how, done.copied_bytes, written_bytes() - before]

    answers = [tmp_path / f"{number}" for number in range(_STAGERS)]
    pids = [staging_child(work, answer) for answer in answers]  # before the lock is taken: they would inherit it
    with OwnedFolder(base).locked(None):  # so that all of them meet at it
        os.write(opening, b"g" * _STAGERS)
        for _ in range(_STAGERS):
            assert select.select([reading], [], [], 60)[0], "somebody does not wait"
            assert os.read(reading, 1) == b"w"
    assert {os.waitpid(pid, 0)[1] for pid in pids} == {0}
    for descriptor in (reading, writing, gate, opening):
        os.close(descriptor)
    found = [json.loads(answer.read_text()) for answer in answers]
    size = size_of(pack)
    assert {path for path, *_ in found} == {str(StagedCopy.of(OwnedFolder(base), manifests.read(pack)).folder)}
    assert sorted(how for _, how, *_ in found) == ["copied"] + ["there"] * (_STAGERS - 1)
    assert sum(copied for _, _, copied, _ in found) == size
    assert size <= sum(wrote for *_, wrote in found) <= size + 2000  # the origin, and a letter from each who waits
    assert digest(Path(found[0][0])) == digest(pack)


# ---- killed


def words(pack: Path, base: Path, codec: str | None = None) -> list[str | Path]:
    """The command. codec: of the images of the copy, None for those of the pack."""
    return ["stage", pack, "--to", base, "--leave-free", "0", *(["--as", codec] if codec else [])]


def killed(pack: Path, base: Path, moments: int, codec: str | None) -> None:
    """Kill the command at so many of its calls that write, then run it again."""
    load_everything()
    registry.load("stage")
    command = words(pack, base, codec)
    assert fault_injection.run(command, base.parent).code == 0
    (copy,) = copies(OwnedFolder(base))
    clean = digest(copy.folder)
    assert codec or clean == digest(pack)
    shutil.rmtree(copy.place.folder)
    calls = fault_injection.calls(command, base.parent)
    assert len(calls) >= 50
    for call in [calls[len(calls) * number // moments] for number in range(moments)]:
        shutil.rmtree(copy.place.folder)
        ended = fault_injection.run(command, base.parent, fault=fault_injection.Fault(call, "signal=KILL"))
        assert (ended.code, ended.signal) == (None, 9), (call, ended)
        check_half(pack, base, codec)
        again = fault_injection.run(command, base.parent)
        assert again.code == 0, (call, again)
        (copy,) = copies(OwnedFolder(base))
        assert digest(copy.folder) == clean, call
        left = [copy.folder.name, f"{copy.folder.name}.origin", "made-by-packer-0"]
        assert sorted(os.listdir(copy.place.folder)) == left, call
        assert copy.origin() == pack


def check_half(pack: Path, base: Path, codec: str | None) -> None:
    """What a killed stager leaves is read, and is never a pack that lacks something."""
    whole = [copy for copy in copies(OwnedFolder(base)) if (copy.folder / manifests.NAME).exists()]
    assert all(list(problems(copy.folder)) == [] for copy in whole)
    if codec is None:
        check_blobs(pack, base, [b"%d" % number * 900 for number in range(12)])
    elif not whole:
        with pytest.raises(InvalidRequest, match=f"no copy.*{codec}"):
            packer.open(pack, stage=base, stage_as=codec)


def check_blobs(pack: Path, base: Path, blobs: list[bytes]) -> None:
    """The blobs of a pack, read where it is staged, are these."""
    opened = open_staged(pack, stage=str(base), verify="always")
    with closing(opened):
        for index, blob in enumerate(blobs):
            with opened.record(index, opened.schema.names) as record:
                assert bytes(record["blob"]) == blob
        assert len(opened) == len(blobs)


FIFTY = [pytest.param(name, 50, marks=pytest.mark.full, id=f"{name}-fifty") for name in (*formats.names(), "recoded")]


@pytest.mark.one_in(2)
@pytest.mark.usefixtures("one_marker")
@needs_strace
@pytest.mark.parametrize(("format", "moments"), [("lmdb", 4), ("bmp", 4), ("recoded", 3), *FIFTY])
def test_after_a_kill_the_next_run_succeeds(tmp_path: Path, base: Path, format: str, moments: int) -> None:
    pack = tmp_path / "pack"
    if format == "recoded":
        packed(photos(tmp_path / "in", 12), pack, part_bytes=9000)
    else:
        blobs = [built_packs.record(number, blob=b"%d" % number * 900) for number in range(12)]
        built_packs.make_pack(pack, blobs, format=format, parts=3)
    killed(pack, base, moments, "ycc420" if format == "recoded" else None)


@pytest.mark.one_in(3)
@pytest.mark.usefixtures("one_marker")
@needs_strace
@pytest.mark.parametrize("number", [2, 5, 8])
def test_after_an_interrupt_what_was_finished_is_used(tmp_path: Path, base: Path, number: int) -> None:
    """SIGTERM while a file is written: exit code 143, finished files stay, nothing half done does."""
    load_everything()
    registry.load("stage")
    pack = tmp_path / "pack"
    built_packs.make_pack(pack, [built_packs.record(at, blob=b"%d" % at * 900) for at in range(12)], parts=3)
    fault = fault_injection.Fault(fault_injection.Call("fallocate", number, ""), "signal=TERM")
    ended = fault_injection.run(words(pack, base), tmp_path, fault=fault)
    assert ended.code == 143, ended
    assert "Traceback" not in ended.text
    folder = base / f"packer-{os.geteuid()}"
    assert not (folder / ".work").exists()
    check_half(pack, base, None)
    assert fault_injection.run(words(pack, base), tmp_path).code == 0
    (copy,) = copies(OwnedFolder(base))
    assert digest(copy.folder) == digest(pack)


# ---- a small tmpfs


def used(folder: Path) -> tuple[int, int]:
    found = os.statvfs(folder)
    return found.f_blocks - found.f_bfree, found.f_files - found.f_ffree


@pytest.mark.one_in(11)
@pytest.mark.parametrize("format", formats.names())
def test_a_tmpfs_of_2_mb(tmp_path: Path, format: str) -> None:
    small, large, disk = tmp_path / "small", tmp_path / "large", tmp_path / "disk"
    built_packs.make_pack(
        small, [built_packs.record(number, blob=b"s" * 10_000) for number in range(60)], format=format
    )
    built_packs.make_pack(
        large, [built_packs.record(number, blob=b"l" * 10_000) for number in range(240)], format=format
    )
    disk.mkdir()

    def words(pack: Path, keep: str = "0") -> list[str | Path]:
        return ["stage", pack, "--to", disk, "--leave-free", keep]

    def others_take_it() -> None:
        fault_injection.in_one_thread()
        capacity.check = lambda *_: None

    def work() -> dict[str, Any]:
        resize(disk, 2 << 20)
        before = used(disk)
        for pack, keep in ((large, "0"), (small, "1.9M"), (small, "90%")):
            ended = fault_injection.run(words(pack, keep), tmp_path)
            assert ended.code == 4, ended
            assert "nothing was written" in ended.text
            assert used(disk) == before
            assert os.listdir(disk) == []
        full = fault_injection.run(words(large), tmp_path, prepare=others_take_it)
        assert full.code == 4, full
        assert "No space left on device" in full.text
        assert (used(disk), os.listdir(disk)) == (before, [])
        assert fault_injection.run(words(small), tmp_path).code == 0
        (disk / "batches").write_bytes(b"b" * (os.statvfs(disk).f_bavail * 4096))  # now there is not a byte left
        ended = fault_injection.run(words(large), tmp_path)
        assert ended.code == 4, ended
        (copy,) = copies(OwnedFolder(disk))
        check_blobs(small, disk, [b"s" * 10_000] * 60)
        assert digest(copy.folder) == digest(small)
        (disk / "batches").unlink()
        released = fault_injection.run(["stage", small, "--to", disk, "--release"], tmp_path)
        return {"released": released.code, "used": used(disk) == before, "left": os.listdir(disk)}

    outcome = mounted(disk, work)
    assert outcome.value == {"released": 0, "used": True, "left": []}, outcome


# ---- the command and the script


def test_the_command_says_what_it_did_and_prints_the_folder_to_open(tmp_path: Path, base: Path) -> None:
    pack = tmp_path / "a.pack"
    built_packs.make_pack(pack, 10)
    to = ["--to", base, "--leave-free", "0"]
    first = run("stage", pack, *to)
    assert (first.returncode, first.stdout) == (0, f"{StagedCopy.of(OwnedFolder(base), manifests.read(pack)).folder}\n")
    assert "copied: 2 of 2 parts" in first.stderr
    data = json.loads(run_here("stage", pack, *to, "--json").stdout)
    assert (data["how"], data["copied_bytes"], data["path"], data["total_parts"]) == ("there", 0, first.stdout[:-1], 2)
    (listed,) = json.loads(run_here("stage", "--list", "--to", base, "--json").stdout)
    assert (listed["origin"], listed["whole"]) == (str(pack), True)
    line = run_here("stage", "--list", "--to", base).stdout
    assert line.startswith(first.stdout[:-1])
    assert line.endswith(f"whole, of {pack}\n")
    dataset = open_staged(pack, stage=str(base))
    busy = run_here("stage", pack, "--release", "--to", base)
    assert busy.returncode == 5
    assert "--force" in busy.stderr
    dataset.close()
    assert "released" in run_here("stage", pack, "--release", "--to", base).stdout
    assert json.loads(run_here("stage", pack, "--release", "--to", base, "--json").stdout) == {
        "bytes": 0,
        "released": 0,
    }
    warmed = run("stage", pack, "--warm", "--parts", "1", "--leave-free", "0%")
    assert warmed.stdout == f"{pack}\n"
    assert "warmed: 1 of 2 parts" in warmed.stderr
    assert os.listdir(base) == []


def test_wrong_words_exit_2(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "a.pack")
    cases: dict[tuple[object, ...], str] = {
        ("stage",): "Missing argument",
        ("stage", tmp_path / "a.pack", "--force"): "--force goes with --release",
        ("stage", tmp_path / "none"): "not a pack",
        ("stage", tmp_path / "a.pack", "--parts", "2-1"): "such as 0-9,12",
        ("stage", tmp_path / "a.pack", "--parts", "7"): "the pack has parts 0 to 1",
        ("stage", tmp_path / "a.pack", "--leave-free", "100%"): "a share such as 20%",
        ("stage", tmp_path / "a.pack", "--leave-free", "x%"): "a share such as 20%",
        ("stage", tmp_path / "a.pack", "--leave-free", "lots"): "expected a size",
        ("stage", tmp_path / "a.pack", "--to", tmp_path / "none"): "no such folder",
    }
    for words, text in cases.items():
        done = run_here(*words)
        assert done.returncode == 2, (words, done)
        assert text in done.stderr, (words, done)


SCRIPT = Path(__file__).parents[2] / "scripts/stage_tmpfs.sh"


def script(folder: Path, *words: object) -> "subprocess.CompletedProcess[str]":
    """The script, with this packer as the one that is installed."""
    stub = folder / "bin/packer"
    stub.parent.mkdir(exist_ok=True)
    stub.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m packer "$@"\n')
    stub.chmod(0o755)
    path = {**os.environ, "PATH": f"{stub.parent}:{os.environ['PATH']}", "PYTHONPATH": str(SCRIPT.parent.parent)}
    return subprocess.run(["sh", SCRIPT, *map(str, words)], env=path, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["stage_tmpfs.sh", "demo"])
def test_scripts_show_their_own_options(name: str) -> None:
    done = subprocess.run([SCRIPT.with_name(name), "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {"stage_tmpfs.sh": "[--mount DIR [--size SIZE]]", "demo": "scripts/demo [FOLDER]"}[name] in done.stdout


def test_the_script_mounts_where_nothing_is_mounted_and_stages(tmp_path: Path) -> None:
    pack, disk = tmp_path / "a.pack", tmp_path / "disk"
    built_packs.make_pack(pack, 10)
    disk.mkdir()

    def work() -> dict[str, Any]:
        first = script(tmp_path, "--mount", disk / "inner", "--size", "3m", pack, "--leave-free", "0")
        assert first.returncode == 0, first
        found = os.statvfs(disk / "inner")
        second = script(tmp_path, "--mount", disk / "inner", pack)
        mounts = Path("/proc/self/mounts").read_text().count(f"{disk}/inner ")
        third = script(tmp_path, "--mount", disk / "other")
        listed = os.listdir(disk / "other")
        return {
            "bytes": found.f_blocks * found.f_frsize,
            "same": first.stdout == second.stdout and first.stdout.startswith(f"{disk}/inner/packer-"),
            "there": "there: 2 of 2 parts" in second.stderr,
            "mounts": mounts,
            "only mounted": [third.returncode, listed],
        }

    expected = {"bytes": 3 << 20, "same": True, "there": True, "mounts": 1, "only mounted": [0, []]}
    outcome = mounted(disk, work)
    assert outcome.value == expected, outcome


def test_the_script_without_mount_is_the_command(tmp_path: Path) -> None:
    done = script(tmp_path, tmp_path / "none")
    assert done.returncode == 2
    assert "not a pack" in done.stderr
