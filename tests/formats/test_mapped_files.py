"""Mapped files: what is read, how long it lives, and that no descriptor stays."""

import os
from pathlib import Path

import pytest

from packer.formats._folder_part_files import map_file
from tests.support.descriptors import open_files


def maps_of(path: Path) -> int:
    """How many mappings of the file this process has."""
    return Path("/proc/self/maps").read_text().count(str(path))


def opened(path: Path, size: int) -> memoryview:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return map_file(descriptor, size)
    finally:
        os.close(descriptor)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 100)
    return path


def test_the_bytes_are_those_of_the_file_and_cannot_be_written(file: Path) -> None:
    found = opened(file, 25_600)
    assert found == file.read_bytes() and found.format == "B"
    with pytest.raises(TypeError):
        found[0] = 1


def test_it_lives_as_long_as_a_slice_and_holds_no_descriptor(file: Path) -> None:
    before = open_files()
    whole = opened(file, 25_600)
    part = whole[300:310]
    del whole
    assert open_files() == before and maps_of(file) == 1
    assert bytes(part) == bytes(range(44, 54))
    del part
    assert maps_of(file) == 0


def test_more_files_are_mapped_than_may_be_open(file: Path) -> None:
    found = [opened(file, 100) for _ in range(3000)]
    assert maps_of(file) == 3000 and len(open_files()) < 1000
    del found
    assert maps_of(file) == 0


def test_what_cannot_be_mapped_is_an_error(file: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        map_file(-1, 100)
    with pytest.raises(OSError, match="Invalid argument"):
        opened(file, 0)
