"""Part cache: one download per machine, within the limit at each instant, and nothing left after a kill."""

import errno
import fcntl
import os
import random
import shutil
import signal
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from packer.copies.pack_files import PackFile, in_blocks
from packer.copies.part_cache import PartCache, cache_folder
from packer.errors import CorruptPack, InvalidRequest, StorageError, StoreError, UnsafePath
from packer.stores.store import Fetched
from packer.system.closed_after_fork import closed_after_fork
from packer.system.machine_limits import Machine, Mount
from tests.support import small_disks
from tests.support.stored_files import (
    DIGEST,
    FileSource,
    Watch,
    content,
    ended,
    in_processes,
    pack_file,
    part_cache,
    whole_files,
)

SIZE = 100_000
PARTS = [pack_file(number, SIZE) for number in range(8)]
BLOCKS = in_blocks(SIZE)


@pytest.fixture
def source(tmp_path: Path) -> FileSource:
    return FileSource(tmp_path / "log")


def closing_nothing() -> int:
    return 0


def read(cache: PartCache, part: PackFile) -> bytes:
    lease = cache.lease(part, close_unused=closing_nothing)
    try:
        return lease.path.read_bytes()
    finally:
        lease.close()


def test_a_part_is_fetched_once_and_is_what_the_manifest_says(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source)
    for _ in range(3):
        assert read(cache, PARTS[2]) == content(2, SIZE)
    assert source.fetches() == {"part-00002.pth": 1}
    assert whole_files(cache, PARTS) == ["part-00002.pth"]
    assert cache.used_bytes() == BLOCKS
    assert len(closed_after_fork) == 0


def test_processes_and_threads_that_want_a_part_at_once_fetch_it_once(base: Path, source: FileSource) -> None:
    cache = part_cache(base, replace(source, seconds=0.05))

    def work(number: int) -> None:
        order = random.Random(number).sample(range(len(PARTS)), len(PARTS))

        def all_of_them() -> None:
            for part in order:
                assert read(cache, PARTS[part]) == content(part, SIZE)

        threads = [threading.Thread(target=all_of_them) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert ended(in_processes(4, work)) == [0] * 4
    assert source.fetches() == {part.name: 1 for part in PARTS}
    assert len(whole_files(cache, PARTS)) == len(PARTS)


def test_the_limit_holds_at_each_instant_with_several_processes(tmp_path: Path) -> None:
    """What the kernel says of a file system of its own: files without a name, and removed ones that are open, count."""
    disk = tmp_path / "disk"
    disk.mkdir()
    source = FileSource(tmp_path / "log", seconds=0.002)
    limit = 3 * BLOCKS + 100

    def on_disk() -> int:
        found = os.statvfs(disk)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def work() -> object:
        small_disks.resize(disk, 64 << 20)
        cache = part_cache(disk, source, limit=limit)
        before = on_disk()

        def reader(number: int) -> None:
            rng = random.Random(number)
            for _ in range(30):
                part = rng.randrange(len(PARTS))
                assert read(cache, PARTS[part]) == content(part, SIZE)

        with Watch(cache.used_bytes) as counted, Watch(lambda: on_disk() - before) as there:
            codes = ended(in_processes(3, reader))
        return {"codes": codes, "counted": counted.most, "there": there.most, "looks": there.looks}

    outcome = small_disks.mounted(disk, work)
    assert outcome.kind == "value", outcome
    found = outcome.value
    assert found["codes"] == [0] * 3
    assert found["looks"] > 20
    assert 2 * BLOCKS < found["there"] <= limit, found
    assert 2 * BLOCKS < found["counted"] <= limit, found
    assert sum(source.fetches().values()) > len(PARTS)  # it was too small for all of them


def test_a_removed_part_takes_no_room_however_long_one_waits_for_its_lock(base: Path, source: FileSource) -> None:
    """Who has opened a part and not locked it yet, since the one that removes it was quicker, keeps no bytes."""
    cache = part_cache(base, source, limit=2 * BLOCKS)
    read(cache, PARTS[0])
    with (cache.folder.folder / cache.digest / PARTS[0].name).open("rb") as waiting:
        assert os.fstat(waiting.fileno()).st_blocks > 0
        assert cache.evict(1) > 0
        assert os.fstat(waiting.fileno()).st_blocks == 0
    assert read(cache, PARTS[0]) == content(0, SIZE)


def test_a_killed_process_leaves_only_whole_parts(base: Path, source: FileSource) -> None:
    slow = replace(source, seconds=0.01)
    cache = part_cache(base, slow, limit=4 * BLOCKS)
    rng = random.Random(1)

    def reader(number: int) -> None:
        while True:
            read(cache, PARTS[rng.randrange(len(PARTS))])

    for kill in range(12):
        rng.seed(kill)
        (pid,) = in_processes(1, reader)
        time.sleep(0.005 * kill)
        os.kill(pid, signal.SIGKILL)
        assert ended([pid]) == [-signal.SIGKILL]
        names = whole_files(cache, PARTS)
        assert cache.used_bytes() == len(names) * BLOCKS
    for part in PARTS:  # no lock is left either
        read(cache, part)


def test_what_a_killed_process_left_is_removed(base: Path, source: FileSource) -> None:
    cache = part_cache(base, replace(source, seconds=60), limit=2 * BLOCKS)
    (pid,) = in_processes(1, lambda _: read(cache, PARTS[0]))
    while not cache.used_bytes():
        time.sleep(0.001)
    assert cache.used_bytes() == BLOCKS  # reserved, and in use
    (unfinished,) = cache.folder.folder.glob(".work/*")
    os.kill(pid, signal.SIGKILL)
    ended([pid])
    assert unfinished.exists()
    again = part_cache(base, source, limit=2 * BLOCKS)
    assert not unfinished.exists()
    assert again.used_bytes() == 0
    read(again, PARTS[0])
    assert whole_files(again, PARTS) == [PARTS[0].name]


def test_a_part_that_is_read_is_never_removed(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source, limit=3 * BLOCKS)
    kept = cache.lease(PARTS[0], close_unused=closing_nothing)
    for part in PARTS[1:] * 2:
        read(cache, part)
        assert kept.path.exists()
    kept.close()
    kept.close()
    for part in PARTS[1:4]:
        read(cache, part)
    assert not kept.path.exists()


def test_a_part_that_is_removed_while_it_is_opened_is_fetched_again(
    base: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = part_cache(base, source)
    read(cache, PARTS[0])
    lock = fcntl.flock
    removed = []

    def late(descriptor: int, operation: int) -> None:
        if not removed:
            removed.append(cache.path(PARTS[0]))
            removed[0].unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    lease = cache.lease(PARTS[0], close_unused=closing_nothing)
    assert removed == [lease.path]
    assert lease.path.read_bytes() == content(0, SIZE)
    lease.close()


def test_what_was_used_longest_ago_or_given_up_is_removed_first(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source, limit=3 * BLOCKS)
    for part in (0, 1, 2, 0):
        read(cache, PARTS[part])
    read(cache, PARTS[3])
    assert whole_files(cache, PARTS) == [PARTS[number].name for number in (0, 2, 3)]
    cache.give_up(PARTS[3])
    cache.give_up(PARTS[7])  # is not there
    read(cache, PARTS[4])
    assert whole_files(cache, PARTS) == [PARTS[number].name for number in (0, 2, 4)]


def test_parts_that_nobody_lets_go_of_are_an_error_after_the_patience(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source, limit=2 * BLOCKS, patience=0.2)
    kept = [cache.lease(part, close_unused=closing_nothing) for part in PARTS[:2]]
    with pytest.raises(StorageError, match="no room.*s3://b/x.pack/part-00002.pth: .*100,000 bytes"):
        cache.lease(PARTS[2], close_unused=closing_nothing)
    assert not cache.is_waited_for()
    # who keeps parts open that are not read closes them
    lease = cache.lease(PARTS[2], close_unused=kept[0].close)
    for each in (lease, kept[1]):
        each.close()


def test_another_process_sees_that_room_is_waited_for(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source, limit=2 * BLOCKS)
    kept = [cache.lease(part, close_unused=closing_nothing) for part in PARTS[:2]]
    (pid,) = in_processes(1, lambda _: read(cache, PARTS[2]))
    while not cache.is_waited_for():
        time.sleep(0.001)
    assert source.fetches()[PARTS[2].name] == 0
    kept[0].close()
    assert ended([pid]) == [0]
    assert not cache.is_waited_for()
    kept[1].close()


def test_fetching_ahead_takes_only_room_that_nobody_needs(base: Path, source: FileSource) -> None:
    other = part_cache(base, source, limit=3 * BLOCKS, digest="0" * 64)
    read(other, PARTS[6])
    cache = part_cache(base, source, limit=3 * BLOCKS)
    now = time.time_ns()
    # together, each while those before it are on their way; the last in the place of the other pack's
    fetches = [cache.reserve_ahead(part, since_ns=now) for part in PARTS[:3]]
    assert source.fetches()[PARTS[0].name] == 0
    for fetch in fetches:
        assert fetch is not None
        fetch()
    assert whole_files(cache, PARTS) == [PARTS[number].name for number in (0, 1, 2)]
    assert cache.reserve_ahead(PARTS[3], since_ns=now) is None
    # those of this pack are needed since they are
    assert cache.reserve_ahead(PARTS[3], since_ns=time.time_ns() + 1) is None
    cache.give_up(PARTS[1])
    fetch = cache.reserve_ahead(PARTS[3], since_ns=now)
    assert fetch is not None
    another = cache.reserve_ahead(PARTS[3], since_ns=now)  # while the first has it
    assert another is not None
    another()
    assert source.fetches()[PARTS[3].name] == 0
    fetch()
    assert whole_files(cache, PARTS) == [PARTS[number].name for number in (0, 2, 3)]
    again = cache.reserve_ahead(PARTS[3], since_ns=now)
    assert again is not None
    again()
    assert source.fetches()[PARTS[3].name] == 1


def test_a_part_that_stays_damaged_is_refused_with_both_sums_and_the_etag(base: Path, source: FileSource) -> None:
    cache = part_cache(base, replace(source, damaged=((PARTS[5].name, 9),)))
    with pytest.raises(CorruptPack, match=rf"s3://b/x.pack/part-00005.pth: .*sha256 {PARTS[5].sha256[:16]}.*\"etag\""):
        read(cache, PARTS[5])
    assert source.fetches() == {PARTS[5].name: 2}
    assert whole_files(cache, PARTS) == []
    assert cache.used_bytes() == 0


def test_who_waits_for_anothers_attempts_does_not_begin_to_count_anew(base: Path, source: FileSource) -> None:
    """Eight workers would otherwise wait for an outage one after the other."""
    patience: list[float | None] = []

    class Failing(FileSource):
        def fetch(self, file: PackFile, descriptor: int, *, patience_seconds: float | None = None) -> Fetched:
            patience.append(patience_seconds)
            time.sleep(0.3)
            raise StoreError("no answer")

    cache = part_cache(base, Failing(source.log), patience=0.2)
    failed = []

    def reader() -> None:
        try:
            read(cache, PARTS[0])
        except StoreError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == ["no answer"] * 4
    assert patience[0] > 0
    assert patience[1:] == [0.0] * 3


def test_a_file_of_another_size_in_the_cache_is_replaced(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source)
    read(cache, PARTS[0])
    path = cache.path(PARTS[0])
    path.write_bytes(b"cut")
    assert read(cache, PARTS[0]) == content(0, SIZE)
    assert source.fetches() == {PARTS[0].name: 2}


def test_a_fork_keeps_no_lock_of_its_parent(base: Path, source: FileSource) -> None:
    """A worker that is forked while a part is fetched or read lives on for hours."""
    cache = part_cache(base, source, limit=1 * BLOCKS)
    lease = cache.lease(PARTS[0], close_unused=closing_nothing)
    new = cache.folder.new_file("new")
    assert new is not None
    reading, writing = os.pipe()
    begun, begins = os.pipe()

    def sleep(_: int) -> None:
        os.write(begins, b".")
        os.close(writing)
        os.read(reading, 1)  # until the parent has closed it
        lease.close()  # which is not its own

    (pid,) = in_processes(1, sleep)
    os.read(begun, 1)
    lease.close()
    with new:
        assert cache.folder.new_file("new") is None
    again = cache.folder.new_file("new")
    assert again is not None
    with again:
        assert cache.folder.unfinished_bytes() == [0]
    assert read(cache, PARTS[1]) == content(1, SIZE)
    for descriptor in (writing, reading, begun, begins):
        os.close(descriptor)
    assert ended([pid]) == [0]


def test_a_full_disk_makes_room_and_is_an_error_only_when_all_is_in_use(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    source = FileSource(tmp_path / "log")

    def work() -> object:
        small_disks.resize(disk, 3 * BLOCKS + 8192)
        cache = part_cache(disk, source)
        for number in (*range(6), 0):
            assert read(cache, PARTS[number]) == content(number, SIZE)
        kept = [cache.lease(part, close_unused=closing_nothing) for part in PARTS[:3]]
        try:
            read(cache, PARTS[7])
        except StorageError as error:
            return str(error)
        finally:
            for lease in kept:
                lease.close()
        return None

    outcome = small_disks.mounted(disk, work)
    assert outcome.kind == "value", outcome
    assert f"part-00007.pth: cannot reserve {SIZE:,} bytes: No space left on device" in outcome.value
    assert "bytes are free there" in outcome.value


# ---- what a cache may be


def test_a_limit_that_cannot_hold_a_part_is_refused(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source, limit=2 * BLOCKS)
    cache.check_limit(PARTS[:1], PARTS)
    with pytest.raises(InvalidRequest, match=rf"cache_limit={2 * BLOCKS}: .* {3 * BLOCKS:,} bytes"):
        cache.check_limit(PARTS[:2], PARTS)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "lustre", "fuse.sshfs"])
def test_a_disk_of_the_network_is_refused(base: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "mount", lambda self, path: Mount(kind, frozenset()))
    with pytest.raises(InvalidRequest, match=f"{kind} file system"):
        cache_folder(base)


def test_a_folder_that_is_not_there_or_that_others_may_enter_is_refused(base: Path, source: FileSource) -> None:
    with pytest.raises(InvalidRequest, match="no such folder"):
        cache_folder(base / "none")
    cache = part_cache(base, source)
    cache.folder.folder.chmod(0o755)
    with pytest.raises(UnsafePath, match="mode is 755"):
        cache_folder(base)
    base.chmod(0o777)
    with pytest.raises(UnsafePath, match="may rename.*cache="):
        cache_folder(base)


def test_a_link_in_the_place_of_a_pack_is_not_followed(base: Path, source: FileSource, tmp_path: Path) -> None:
    cache = part_cache(base, source)
    (tmp_path / "elsewhere").mkdir()
    (cache.folder.folder / DIGEST).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UnsafePath, match="link or a file"):
        read(cache, PARTS[0])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_cache_that_is_removed_meanwhile_is_an_error(base: Path, source: FileSource) -> None:
    cache = part_cache(base, source)
    shutil.rmtree(cache.folder.folder)
    with pytest.raises(StorageError, match="packer-cache-"):
        read(cache, PARTS[0])


def test_an_error_of_the_disk_is_named(base: Path, source: FileSource, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = part_cache(base, source)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "posix_fallocate", fail)
    with pytest.raises(StorageError, match=r"part-00000.pth: .*Input/output error"):
        read(cache, PARTS[0])
    assert len(closed_after_fork) == 0


def test_nothing_is_left_of_a_pack_that_has_made_room(base: Path, source: FileSource) -> None:
    index = PackFile("index/part-00009.npy", SIZE, pack_file(9, SIZE).sha256)

    class Indexed(FileSource):
        def fetch(self, file, descriptor, *, patience_seconds):  # type: ignore[no-untyped-def]
            return super().fetch(file._replace(name=file.name.removeprefix("index/")), descriptor, patience_seconds=1)

    old = part_cache(base, Indexed(source.log), limit=2 * BLOCKS, digest="1" * 64)
    read(old, index)
    assert (old.folder.folder / ("1" * 64) / "index").is_dir()
    cache = part_cache(base, source, limit=2 * BLOCKS)
    for part in PARTS[:2]:
        read(cache, part)
    assert not (cache.folder.folder / ("1" * 64)).exists()
    assert partial(whole_files, cache)(PARTS) == [part.name for part in PARTS[:2]]


def test_a_link_in_the_cache_is_refused_as_one(base: Path, source: FileSource, tmp_path: Path) -> None:
    """Also where it would have to make room."""
    cache = part_cache(base, source, limit=2 * 4096)
    cache.lease(pack_file(0, 4096), close_unused=lambda: None).close()
    path = cache.folder.folder / cache.digest / "part-00000.pth"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    for name, size in ((0, 4096), (1, 2 * 4096)):
        with pytest.raises(UnsafePath, match=r"part-00000.pth: .*link"):
            cache.lease(pack_file(name, size), close_unused=lambda: None)
    assert (tmp_path / "elsewhere").stat().st_size == 4096
