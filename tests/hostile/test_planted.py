"""Something planted at every path that a command makes, renames or removes: a victim's files are never touched.

The paths are recorded, not listed: each command runs once, and every name that it opens for writing, makes, renames or
removes is noted. Then it runs again, once for each of these names and each thing that may lie there: a link to a folder
or a file with a victim's content, a link into nothing, a FIFO, a folder with a stranger's files. Work folders on the
way there are planted twice: bare, as an archive would bring them, and with the marker that packer gives them.
"""

import os
import shutil
import signal
import stat
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import lmdb
import pytest

from packer import formats, synthetic
from packer.errors import Interrupted
from packer.files import progress_bar
from packer.files.folder_handle import FolderHandle
from packer.files.work_folder import ANYTHING, work_folder
from packer.system.progress_callback import Progress
from tests.support import built_packs
from tests.support.command_runs import SCENES, load_everything
from tests.support.conversions import packed
from tests.support.fault_injection import in_one_thread, run
from tests.support.source_trees import photos

ENDS = (0, 2, 3, 4, 5)
BARE = ("folder link", "file link", "dangling link", "fifo", "foreign folder")
MARKED = ("folder link", "file link", "dangling link", "fifo")
SUFFIXES = (".partial", ".extract", ".index", ".save", ".synth")


class Command:
    """A command and what lies in `place` before it."""

    def __init__(self, folder: Path, format: str) -> None:
        self.folder, self.format = folder, format
        self.place = folder / "place"
        self.pack = folder / "pack"
        packed(photos(folder / "in", 6), self.pack, to=format, part_bytes=5000)

    @property
    def words(self) -> list[str | Path]:
        """The command."""
        raise AssertionError

    def begin(self) -> None:
        """What lies there before."""
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir()


class Stage(Command):
    @property
    def words(self) -> list[str | Path]:
        return ["stage", self.pack, "--to", self.place, "--leave-free", "0"]


class StageAgain(Stage):
    """A copy of an older pack of that name is there, and goes."""

    def begin(self) -> None:
        super().begin()
        aside = self.folder / "aside"
        self.pack.rename(aside)
        built_packs.make_pack(self.pack, 4, format=self.format)
        assert run(self.words, self.folder).code == 0
        shutil.rmtree(self.pack)
        aside.rename(self.pack)


class Release(Stage):
    @property
    def words(self) -> list[str | Path]:
        return [*super().words[:4], "--release"]

    def begin(self) -> None:
        super().begin()
        assert run(super().words, self.folder).code == 0


class Resume(Command):
    """A conversion that was interrupted after its first part."""

    @property
    def words(self) -> list[str | Path]:
        return ["convert", self.folder / "in", self.place / "out", "--to", self.format, "--part-size", "5000"]

    def begin(self) -> None:
        super().begin()

        def interrupt() -> None:
            in_one_thread()

            def stop(self: progress_bar.ProgressBar, now: Progress) -> None:
                if now.samples >= 5:
                    raise Interrupted(signal.SIGTERM)

            progress_bar.ProgressBar.__call__ = stop  # type: ignore[method-assign]

        assert run(self.words, self.folder, prepare=interrupt).code == 143


class View(Command):
    @property
    def words(self) -> list[str | Path]:
        return ["view", self.pack, "-n", "2", "-o", self.place / "a.html"]


class Stats(Command):
    @property
    def words(self) -> list[str | Path]:
        return ["stats", self.pack, "--output", self.place / "a.json", "--threads", "1"]


class Synth(Command):
    @property
    def words(self) -> list[str | Path]:
        return ["synth", "folder", self.place / "set", "--samples", "2", "--size", "16x16", "--threads", "1"]


class Profile(Command):
    @property
    def words(self) -> list[str | Path]:
        return ["profile", self.pack, "--output", self.place / "a.json"]


OWN: dict[str, Callable[[Path, str], Any]] = {
    "stage": Stage,
    "stage again": StageAgain,
    "release": Release,
    "resume": Resume,
    "view": View,
    "stats": Stats,
    "synth": Synth,
}
COMMANDS: dict[str, Callable[[Path, str], Any]] = {**SCENES, **OWN}


def recorded(command: Any) -> list[Path]:
    """Every name in `place` that the command writes to, makes, renames or removes; relative, sorted."""
    log = command.folder / "names"
    log.write_bytes(b"")
    command.begin()
    ended = run(command.words, command.folder, prepare=lambda: _started(log))
    assert ended.code == 0, ended
    found = {Path(os.path.normpath(os.fsdecode(line))) for line in log.read_bytes().split(b"\0") if line}
    inside = {path.relative_to(command.place) for path in found if command.place in path.parents}
    assert inside, found
    return sorted(inside)


def _started(log: Path) -> None:
    Recorder(log)


class Recorder:
    """Notes names in a file, in a child, from when it is made."""

    def __init__(self, log: Path) -> None:
        in_one_thread()
        self._out = os.open(log, os.O_WRONLY | os.O_APPEND)
        self._before(os, "open", self._opened)
        self._before(lmdb, "open", lambda path, **_: self._note(path))
        self._before(h5py, "File", lambda path, *_, **__: self._note(path))
        self._before(FolderHandle, "_rename", self._renamed)
        sys.addaudithook(self._event)

    def _note(self, path: Any, folder: int | None = None) -> None:
        if isinstance(path, int):
            return
        above = f"/proc/self/fd/{folder}" if folder is not None and folder >= 0 else ""
        whole = os.path.join(above, os.fsdecode(path))
        real = os.path.join(os.path.realpath(os.path.dirname(whole)), os.path.basename(whole))
        os.write(self._out, os.fsencode(real) + b"\0")

    def _before(self, module: Any, name: str, names: Callable[..., None]) -> None:
        real = getattr(module, name)

        def call(*given: Any, **named: Any) -> Any:
            names(*given, **named)
            return real(*given, **named)

        setattr(module, name, call)

    def _opened(self, path: Any, flags: int, *_: Any, dir_fd: int | None = None) -> None:
        is_writing = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if is_writing and flags & os.O_TMPFILE != os.O_TMPFILE:
            self._note(path, dir_fd)

    def _renamed(self, folder: FolderHandle, name: str, target: FolderHandle, new_name: str, flags: int) -> None:
        self._note(name, folder.descriptor)
        self._note(new_name, target.descriptor)

    def _event(self, name: str, given: tuple[Any, ...]) -> None:
        if name == "open" and given[1] is not None and set(given[1]) & set("wxa+"):
            self._note(given[0])
        elif name in ("os.mkdir", "os.remove", "os.rmdir"):
            self._note(given[0], given[-1])
        elif name in ("os.rename", "os.link"):
            self._note(given[0], given[2])
            self._note(given[1], given[3])


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of everything in a folder."""
    found = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        status = path.lstat()
        data = os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        found[path.relative_to(folder).as_posix()] = (stat.S_IMODE(status.st_mode), data)
    return found


def make_victim(folder: Path, wanted: list[Path]) -> Path:
    """A stranger's folder that has files under all the names that the command uses, at every depth."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in {part for path in wanted for part in path.parts} | {"mine.txt"}:
        for place in (folder / f"{name}.d", folder):
            place.mkdir(parents=True, exist_ok=True)
        for inner in ("pack", "pieces", "done", "tree", "index", "set", ".work"):
            (folder / inner).mkdir(exist_ok=True)
            if not (folder / inner / name).exists():
                (folder / inner / name).write_text("mine")
        if not (folder / name).exists():
            (folder / name).write_text("mine")
    (folder / "file").write_text("mine")
    return folder


def plant(command: Any, path: Path, kind: str, victim: Path, *, marked: bool) -> Path | None:
    """Put it there; returns the folder of a stranger that has to stay, if that is what was planted."""
    place = command.place
    target = place / path
    _make_way(command.place, path, marked=marked)
    if target.is_symlink() or target.is_file():
        target.unlink()
    elif target.is_dir():
        shutil.rmtree(target)
    if kind == "foreign folder":
        shutil.copytree(victim, target)
        # whatever lies in a folder that packer made and closed to others, under a name that it makes, is its own
        is_ours = any(name.startswith("made-by-packer") for above in path.parents for name in os.listdir(place / above))
        return None if is_ours else target
    if kind == "fifo":
        os.mkfifo(target)
    else:
        to = {"folder link": victim, "file link": victim / "file", "dangling link": victim.parent / "nowhere"}[kind]
        target.symlink_to(to)
    return None


def _make_way(place: Path, path: Path, *, marked: bool) -> None:
    """The folders above a path; with the marker of packer's where one of them is a work folder."""
    for above in reversed(path.parents[:-1]):
        folder = place / above
        if folder.is_dir():
            continue
        if folder.exists():
            folder.unlink()
        is_work = folder.name.startswith((".", "packer-")) and (
            folder.name.endswith(SUFFIXES) or folder.name.startswith("packer-")
        )
        if is_work and marked:
            with work_folder(folder, {ANYTHING: ANYTHING}) as work:
                work.write_file("held", b"")  # or it would be gone again
            (folder / "held").unlink()
        else:
            folder.mkdir()


def attack(command: Any, paths: list[Path], *, points: int | None = None) -> Counter[str]:
    """Plant and run, for every path and kind, or for some; counts how the command ended."""
    victim = make_victim(command.folder / "victim", paths)
    before, found = state(victim), Counter[str]()
    cases = [(path, kind, False) for path in paths for kind in BARE]
    cases += [(path, kind, True) for path in paths for kind in MARKED if len(path.parts) > 1]
    for path, kind, marked in cases[:: max(1, len(cases) // points) if points else 1]:
        command.begin()
        stranger = plant(command, path, kind, victim, marked=marked)
        mine = state(stranger) if stranger is not None else {}
        ended = run(command.words, command.folder)
        where = f"{kind} at {path}, {'marked' if marked else 'bare'}: {ended}"
        assert ended.code in ENDS, where
        assert "Traceback" not in ended.text, where
        assert state(victim) == before, where
        assert not (victim.parent / "nowhere").exists(), where
        if stranger is not None:
            left = state(stranger)
            # an index file of a pack is what `index` is there to replace, whoever wrote it
            mine = {name: value for name, value in mine.items() if path != Path("out/index") or ".npy" not in name}
            mine.pop(".", None)  # a sync may be all that happens to the folder itself
            assert {name: left.get(name) for name in mine} == mine, where
        found[f"{kind}: exit {ended.code}"] += 1
    return found


@pytest.mark.one_in(12)
@pytest.mark.parametrize("name", COMMANDS)
def test_something_planted_at_some_paths(tmp_path: Path, name: str) -> None:
    load_everything()
    command = COMMANDS[name](tmp_path, "lmdb")
    assert attack(command, recorded(command), points=4).total() >= 4


@pytest.mark.full
@pytest.mark.parametrize("name", [*COMMANDS, "profile"])
@pytest.mark.parametrize("format", formats.names())
def test_something_planted_at_every_path(tmp_path: Path, name: str, format: str) -> None:
    load_everything()
    command = {**COMMANDS, "profile": Profile}[name](tmp_path, format)
    paths = recorded(command)
    found = attack(command, paths)
    print(f"\n{format} {name}: {len(paths)} paths, {found.total()} runs: {dict(sorted(found.items()))}")  # noqa: T201


@pytest.mark.full
def test_the_recording_sees_what_libraries_in_c_make(tmp_path: Path) -> None:
    load_everything()
    for format in formats.names():
        (tmp_path / format).mkdir()
        command = SCENES["convert"](tmp_path / format, format)
        names = [path.as_posix() for path in recorded(command)]
        part = f".out.partial/pack/part-00001{formats.load(format).SUFFIX}"
        own = (".out.partial/plan.json", ".out.partial/done/part-00001.json", ".out.partial/pack/index/keys.npy", part)
        for wanted in ("out", ".out.partial", *own):
            assert wanted in names, (format, wanted, names)
    assert synthetic.names()
