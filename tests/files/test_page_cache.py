"""What of a file is in memory, and dropping it."""

import mmap
import os
from pathlib import Path

import pytest

from packer.errors import StorageError
from packer.files.page_cache import Residency, drop, residency

PAGE = mmap.PAGESIZE


def lies_in_memory(folder: Path) -> bool:
    """Whether the folder's file system is one in memory."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(place, kind) for place, kind in mounts if folder.resolve().is_relative_to(place)]
    return max(inside, key=lambda pair: len(pair[0]))[1] in ("tmpfs", "ramfs")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    if lies_in_memory(tmp_path):
        pytest.skip("temporary files lie on a file system in memory")
    path = tmp_path / "file"
    path.write_bytes(os.urandom(100 * PAGE + 17))
    return path


def test_a_dropped_file_is_out_of_memory_and_comes_back_page_by_page(file: Path) -> None:
    size = file.stat().st_size
    assert residency([file]) == (size, size)
    assert drop([file]) == (0, size)
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
    os.pread(descriptor, 1, 10 * PAGE)
    os.close(descriptor)
    assert residency([file]) == (PAGE, size)
    assert residency([file]).share == pytest.approx(PAGE / size)


def test_a_page_that_is_mapped_stays_and_is_told(file: Path) -> None:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert len(bytes(mapped)) == file.stat().st_size
        assert drop([file]).share == 1.0
    assert drop([file]).share == 0.0


def test_several_files_are_added_up_and_an_empty_one_counts_nothing(file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "small").write_bytes(b"x")
    assert residency([tmp_path / "empty"]) == (0, 0)
    assert residency([file, tmp_path / "small", tmp_path / "empty"]).bytes == 100 * PAGE + 18


def test_a_file_in_memory_stays() -> None:
    path = Path("/dev/shm/packer-test-caching")
    if not lies_in_memory(path.parent):
        pytest.skip("/dev/shm is no file system in memory here")
    path.write_bytes(b"x" * PAGE)
    try:
        assert drop([path]).share == 1.0
    finally:
        path.unlink()


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="absent"):
        drop([tmp_path / "absent"])


def test_nothing_is_claimed_where_the_system_does_not_tell() -> None:
    assert Residency(None, 10).share is None
