"""Storage: whole files, locks that die with their holder, renames that never replace, errors with path and space."""

import ctypes
import errno
import os
import random
import re
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from packer.errors import CorruptPack, Locked, PackExists, StorageError, UnsafePath
from packer.files import folder_handle
from packer.files import work_folder as work_folders
from packer.files.folder_handle import FolderHandle, remove
from packer.files.fsync import make_folder, sync, write_file
from packer.files.safe_paths import open_file
from packer.files.storage_errors import failing, free_bytes
from packer.files.work_folder import ANYTHING, WorkFolder, work_folder
from packer.pack import manifest as manifests
from tests.support import built_packs
from tests.support.built_packs import publish, swap
from tests.support.child_processes import child, forked


def locked(path: Path) -> "AbstractContextManager[WorkFolder]":
    """A work folder in which anything may lie."""
    return work_folder(path, {ANYTHING: ANYTHING})


def fill(folder: Path, text: str) -> Path:
    """A folder with one file that says `text`."""
    folder.mkdir()
    (folder / "file").write_text(text)
    return folder


@pytest.fixture(params=["renameat2", "two renames"])
def each_rename(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with and without the system call."""
    if request.param == "two renames":
        monkeypatch.setattr(folder_handle, "_renameat2", lambda: None)


# ---- files


def test_a_file_is_written_once_and_whole(tmp_path: Path) -> None:
    write_file(tmp_path / "a", b"whole")
    assert (tmp_path / "a").read_bytes() == b"whole"
    with pytest.raises(StorageError, match="write: File exists"):
        write_file(tmp_path / "a", b"other")
    assert (tmp_path / "a").read_bytes() == b"whole"


def test_what_is_written_is_synced_before_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_file(tmp_path / "a", b"12345")
    inode = (tmp_path / "a").stat().st_ino
    assert synced == [(inode, 5)]
    staged = fill(tmp_path / "staged", "new")
    number = staged.stat().st_ino
    publish(staged, tmp_path / "target")
    assert [found for found, _ in synced[1:]] == [number, tmp_path.stat().st_ino]


def test_a_file_is_opened_only_if_it_is_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "fifo")
    with open_file(tmp_path / "file") as file:
        assert file.read() == b"x"
    for name, message in (("link", "found a link"), ("fifo", "device"), (".", "folder"), ("nothing", "missing")):
        with pytest.raises(CorruptPack, match=message):
            open_file(tmp_path / name)


def test_a_file_that_may_not_be_read_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StorageError, match="file: .*open: Permission denied"):
        open_file(tmp_path / "file")


def test_remove_takes_a_tree_a_file_a_link_or_nothing(tmp_path: Path) -> None:
    kept = fill(tmp_path / "kept", "kept")
    (tmp_path / "link").symlink_to(kept)
    (tmp_path / "broken").symlink_to("nowhere")
    fill(fill(tmp_path / "tree", "x") / "deeper", "y")
    for name in ("link", "broken", "tree", "nothing"):
        remove(tmp_path / name)
        assert not os.path.lexists(tmp_path / name)
    assert (kept / "file").read_text() == "kept"


def test_a_folder_may_exist_but_nothing_else_in_its_place(tmp_path: Path) -> None:
    make_folder(tmp_path / "a")
    make_folder(tmp_path / "a")
    (tmp_path / "b").write_bytes(b"")
    for path in (tmp_path / "b", tmp_path / "no" / "parent"):
        with pytest.raises(StorageError, match="make the folder"):
            make_folder(path)


def test_free_space_is_that_of_the_nearest_folder_that_exists(tmp_path: Path) -> None:
    assert abs(free_bytes(tmp_path / "not" / "yet") - shutil.disk_usage(tmp_path).free) < 1 << 30


# ---- publish and swap


@pytest.mark.usefixtures("each_rename")
def test_publish_puts_the_folder_in_its_place(tmp_path: Path) -> None:
    publish(fill(tmp_path / "staged", "new"), tmp_path / "target")
    assert (tmp_path / "target" / "file").read_text() == "new"
    assert not (tmp_path / "staged").exists()


@pytest.mark.usefixtures("each_rename")
@pytest.mark.parametrize("what", ["empty folder", "full folder", "file", "broken link"])
def test_publish_never_replaces_anything(tmp_path: Path, what: str) -> None:
    target = tmp_path / "target"
    makers: dict[str, Callable[[], Any]] = {
        "empty folder": target.mkdir,
        "full folder": lambda: fill(target, "old"),
        "file": lambda: target.write_bytes(b"old"),
        "broken link": lambda: target.symlink_to("nowhere"),
    }
    makers[what]()
    before = built_packs.snapshot(tmp_path)
    staged = fill(tmp_path / "staged", "new")
    with pytest.raises(PackExists, match="already there; --overwrite"):
        publish(staged, target)
    remove(staged)
    assert {name: entry[2] for name, entry in built_packs.snapshot(tmp_path).items()} == {
        name: entry[2] for name, entry in before.items()
    }


@pytest.mark.usefixtures("each_rename")
def test_swap_exchanges_the_two_folders(tmp_path: Path) -> None:
    staged, target = fill(tmp_path / "staged", "new"), fill(tmp_path / "target", "old")
    swap(staged, target)
    assert (target / "file").read_text() == "new"
    assert (staged / "file").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["staged", "target"]


@pytest.mark.usefixtures("each_rename")
@pytest.mark.parametrize("act", [publish, swap])
def test_a_rename_of_what_is_not_there_is_an_error(tmp_path: Path, act: Any) -> None:
    with pytest.raises(StorageError):
        act(tmp_path / "staged", tmp_path / "target")
    fill(tmp_path / "target", "old")
    with pytest.raises(StorageError):
        swap(tmp_path / "staged", tmp_path / "target")
    assert (tmp_path / "target" / "file").read_text() == "old"


@pytest.mark.parametrize(("code", "error"), [(errno.EIO, StorageError), (errno.EEXIST, PackExists)])
def test_an_error_of_the_system_call_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception]
) -> None:
    def failing_call(*_: Any) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(folder_handle, "_renameat2", lambda: failing_call)
    with pytest.raises(error, match="target: "):
        publish(fill(tmp_path / "staged", "new"), tmp_path / "target")
    assert (tmp_path / "staged").is_dir()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_without_the_system_call_gets_plain_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def unsupported(*_: Any) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(folder_handle, "_renameat2", lambda: unsupported)
    publish(fill(tmp_path / "staged", "new"), tmp_path / "target")
    swap(fill(tmp_path / "staged", "newer"), tmp_path / "target")
    assert (tmp_path / "target" / "file").read_text() == "newer"


def state(target: Path, records: list[dict[str, bytes]]) -> str:
    """What a reader finds: nothing, or a whole pack and whose."""
    if not target.exists():
        return "absent"
    return {len(records): "old", len(records) + 1: "new"}[len(built_packs.values(target))]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_kill_at_any_moment_leaves_nothing_or_a_whole_pack(tmp_path: Path, overwrite: bool) -> None:
    target, rng, seen = tmp_path / "target", random.Random(0), set()
    old = built_packs.records(3)

    def convert() -> None:
        built_packs.make_pack(tmp_path / "staged", 4)
        (swap if overwrite else publish)(tmp_path / "staged", target)
        time.sleep(10)

    for _ in range(12):
        for path in (target, tmp_path / "staged"):
            remove(path)
        if overwrite:
            built_packs.make_pack(target, old)
        pid = forked(convert)
        time.sleep(rng.random() * 0.05)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seen.add(state(target, old))
    assert seen <= ({"old", "new"} if overwrite else {"absent", "new"})


def test_a_target_is_whole_at_every_moment_of_a_swap(tmp_path: Path) -> None:
    target, end, seen = tmp_path / "target", threading.Event(), set()
    built_packs.make_pack(target, 3)
    built_packs.make_pack(tmp_path / "staged", 4)

    def watch() -> None:
        while not end.is_set():
            seen.add(manifests.read(target).samples)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(30):
        swap(tmp_path / "staged", target)
    end.set()
    watcher.join()
    assert seen <= {3, 4}
    assert seen


# ---- failures of the system


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["fsync", "open", "write", "mkdir", "rmdir", "rename"])
def test_a_failure_is_told_with_its_path_and_the_space_where_that_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    path = tmp_path / "a"
    staged = fill(tmp_path / "staged", "new")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(code, os.strerror(code))

    def write() -> None:
        with FolderHandle.at(tmp_path) as folder:
            folder.write_file("a.b", b"x")

    path.touch()
    acts: dict[str, tuple[Any, str, Callable[[], None]]] = {
        "fsync": (os, "fsync", lambda: write_file(tmp_path / "a.b", b"x")),
        "open": (os, "open", lambda: sync(path)),
        "write": (os, "fdopen", write),
        "mkdir": (Path, "mkdir", lambda: make_folder(path)),
        "rmdir": (os, "rmdir", lambda: remove(staged)),
        "rename": (os, "rename", lambda: publish(staged, tmp_path / "a.b")),
    }
    where, name, act = acts[call]
    with monkeypatch.context() as patch:
        patch.setattr(folder_handle, "_renameat2", lambda: None)
        patch.setattr(where, name, fail)
        with pytest.raises(StorageError) as caught:
            act()
    assert re.match(rf"{re.escape(str(tmp_path))}/(a|a\.b|staged): cannot ", str(caught.value))
    assert os.strerror(code) in str(caught.value)
    is_full = code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    assert bool(re.search(r"[0-9,]+ bytes are free", str(caught.value))) is is_full
    assert caught.value.exit_code == 4


def test_a_failed_sync_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def fail(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    for act in (lambda: write_file(tmp_path / "a", b"x"), lambda: sync(tmp_path), lambda: publish(tmp_path, tmp_path)):
        calls.clear()
        with pytest.raises(StorageError):
            act()
        assert len(calls) == 1


def test_a_full_disk_is_found_by_a_real_write(tmp_path: Path) -> None:
    def write() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        write_file(tmp_path / "a", bytes(5000))

    outcome = child(write)
    assert (outcome.error, outcome.exit_code) == ("StorageError", 4), outcome
    assert "bytes are free there" in outcome.message


def test_an_error_of_our_own_passes_unchanged(tmp_path: Path) -> None:
    for error in (PackExists("there"), Locked("busy"), StorageError("full")):  # all of them are OSErrors too
        with pytest.raises(type(error)) as caught, failing(tmp_path, "do it"):
            raise error
        assert caught.value is error


def test_space_that_cannot_be_asked_does_not_hide_the_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fail)
    with pytest.raises(StorageError, match="No space.*device$"), failing(tmp_path, "write"):
        raise OSError(errno.ENOSPC, "No space left on device")


# ---- locks


class Holder:
    """A child that holds a lock until it is killed."""

    def __init__(self, folder: Path) -> None:
        reading, writing = os.pipe()

        def hold() -> None:
            with locked(folder):
                os.write(writing, b"held")
                time.sleep(60)

        self.pid = forked(hold)
        os.close(writing)
        assert os.read(reading, 4) == b"held"
        os.close(reading)

    def kill(self) -> None:
        """End it as the kernel would."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[Holder]:
    """Another process that has locked tmp_path/lock."""
    found = Holder(tmp_path / "lock")
    yield found
    if os.path.isdir(f"/proc/{found.pid}"):
        found.kill()


def test_a_second_process_is_locked_out_until_the_first_dies(tmp_path: Path, holder: Holder) -> None:
    with (
        pytest.raises(Locked, match="lock: another process") as caught,
        locked(tmp_path / "lock"),
    ):
        pytest.fail("both have the lock")
    assert caught.value.exit_code == 5
    holder.kill()
    with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").is_dir()


def test_a_second_lock_of_the_same_process_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"), pytest.raises(Locked), locked(tmp_path / "lock"):
        pytest.fail("both have the lock")


def test_a_lock_leaves_no_folder_unless_something_was_put_into_it(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        pass
    assert os.listdir(tmp_path) == []
    with pytest.raises(ValueError, match="mine"), locked(tmp_path / "lock"):
        (tmp_path / "lock" / "work").write_bytes(b"")
        raise ValueError("mine")
    assert sorted(os.listdir(tmp_path / "lock")) == [f"made-by-packer-{(tmp_path / 'lock').stat().st_ino}", "work"]
    with locked(tmp_path / "lock"):
        remove(tmp_path / "lock")
    assert os.listdir(tmp_path) == []


def test_a_lock_on_a_folder_that_was_renamed_away_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder goes between open and flock, as when another process finishes; its successor is locked instead."""
    real, moved = work_folders._flock, []

    def flock(folder: FolderHandle, waiting: Callable[[], None] | None) -> None:
        if not moved:
            moved.append(folder.path.rename(tmp_path / "away"))
        real(folder, waiting)

    monkeypatch.setattr(work_folders, "_flock", flock)
    with locked(tmp_path / "lock"):
        assert child(lambda: locked(tmp_path / "lock").__enter__()).error == "Locked"
        assert child(lambda: bool(locked(tmp_path / "away").__enter__())).value is True


def test_a_folder_that_goes_before_it_is_opened_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, gone = os.mkdir, []

    def make(name: str, mode: int, *, dir_fd: int) -> None:
        real(name, mode, dir_fd=dir_fd)
        if not gone:
            gone.append(os.rmdir(name, dir_fd=dir_fd))

    monkeypatch.setattr(os, "mkdir", make)
    with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").is_dir()


def test_a_folder_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    with locked(tmp_path / "lock"):
        (tmp_path / "lock").rename(tmp_path / "away")
        (tmp_path / "lock").mkdir()
    assert sorted(os.listdir(tmp_path)) == ["away", "lock"]


def test_a_lock_under_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UnsafePath), locked(tmp_path / "file"):
        pytest.fail("locked a file")
    with pytest.raises(StorageError), locked(tmp_path / "file" / "lock"):
        pytest.fail("locked below a file")


def test_a_file_system_that_cannot_lock_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(work_folders.fcntl, "flock", fail)
    with (
        pytest.raises(StorageError, match="No locks.*local"),
        locked(tmp_path / "lock"),
    ):
        pytest.fail("locked without locks")


def test_of_many_processes_one_at_a_time_has_the_lock(tmp_path: Path) -> None:
    """Eight processes lock, add their line and remove the folder, as conversions do, over and over."""

    def work() -> None:
        done = 0
        while done < 15:
            try:
                with locked(tmp_path / "lock"):
                    descriptor = os.open(tmp_path / "alone", os.O_CREAT | os.O_EXCL)
                    os.close(descriptor)
                    os.unlink(tmp_path / "alone")
                    with (tmp_path / "log").open("ab") as log:
                        log.write(b"x\n")
                    remove(tmp_path / "lock")
                    done += 1
            except Locked:
                time.sleep(0.0005)

    pids = [forked(work) for _ in range(8)]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * 8
    assert (tmp_path / "log").read_bytes() == b"x\n" * 120
    assert not (tmp_path / "lock").exists()
