"""Index files are .npy files that NumPy reads, and nothing else is taken for one."""

import io
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import CorruptPack
from packer.files.npy_arrays import map_file, npy_file, npy_header
from tests.support.child_processes import child
from tests.support.hostile_npy import GOOD, HOSTILE, header

DTYPES = ("|u1", "|i1", "|b1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f2", "<f4", "<f8")
shapes = st.tuples(st.integers(0, 9)) | st.tuples(st.integers(0, 9), st.integers(0, 5))


def bytes_of(array: np.ndarray) -> bytes:
    return npy_header(array.dtype, array.shape) + array.tobytes()


def mapped(folder: Path, data: bytes) -> np.ndarray:
    (folder / "x.npy").write_bytes(data)
    return map_file(folder / "x.npy", len(data))[0]


@given(shape=shapes, dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
def test_what_is_written_is_read_here_and_by_numpy(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], dtype: str, seed: int
) -> None:
    array = np.random.default_rng(seed).integers(0, 2, shape).astype(dtype)
    folder = tmp_path_factory.mktemp("npy")
    found = mapped(folder, bytes_of(array))
    by_numpy = np.load(folder / "x.npy", allow_pickle=False)
    for read in (found, by_numpy):
        assert read.dtype == array.dtype
        assert read.shape == array.shape
        assert (read == array).all()


@given(shape=shapes, dtype=st.sampled_from(DTYPES))
def test_what_numpy_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, shape: tuple[int, ...], dtype: str
) -> None:
    array = np.ones(shape, dtype)
    file = io.BytesIO()
    np.save(file, array)
    assert (mapped(tmp_path_factory.mktemp("npy"), file.getvalue()) == array).all()
    assert file.getvalue() == bytes_of(array) == npy_file(array)


def test_the_array_cannot_be_written_to(tmp_path: Path) -> None:
    found = mapped(tmp_path, bytes_of(np.arange(5)))
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1


def test_the_array_outlives_the_name_of_its_mapping(tmp_path: Path) -> None:
    found = mapped(tmp_path, bytes_of(np.arange(5)))
    (tmp_path / "x.npy").unlink()
    assert found.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("what", HOSTILE)
def test_any_other_file_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(CorruptPack, match=r"x\.npy"):
        mapped(tmp_path, HOSTILE[what])


def test_the_good_header_of_that_table_is_accepted(tmp_path: Path) -> None:
    assert mapped(tmp_path, header(GOOD)).tolist() == [0] * 5


@pytest.mark.parametrize("change", [-1, 1, -100, 1 << 40])
def test_another_size_than_announced_is_refused_before_anything_is_mapped(tmp_path: Path, change: int) -> None:
    data = bytes_of(np.arange(5))
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(CorruptPack, match=f"{len(data) + change} bytes, .* {len(data)}"):
        map_file(tmp_path / "x.npy", len(data) + change)


@pytest.mark.parametrize("count", [1 << 10, 1 << 18])
def test_only_large_files_are_mapped(tmp_path: Path, count: int) -> None:
    """A mapping keeps a descriptor of the file."""
    data = bytes_of(np.arange(count, dtype="<i8"))
    (tmp_path / "x.npy").write_bytes(data)
    array, content = map_file(tmp_path / "x.npy", len(data))
    assert array.tolist() == list(range(count))
    assert not array.flags.writeable
    assert isinstance(content, bytes if count == 1 << 10 else mmap.mmap)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "real.npy").write_bytes(bytes_of(np.arange(5)))
    makers: dict[str, Any] = {
        "fifo": os.mkfifo,
        "folder": os.mkdir,
        "link": lambda path: os.symlink(tmp_path / "real.npy", path),
        "nothing": lambda path: None,
    }
    for name, make in makers.items():
        make(tmp_path / name)
        outcome = child(lambda name=name: map_file(tmp_path / name, 168)[0].tolist(), timeout_seconds=20)
        assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), (name, outcome)


def test_a_flipped_bit_of_the_header_is_refused_or_changes_no_size(tmp_path: Path) -> None:
    good = header(GOOD)
    for bit in range(128 * 8):
        damaged = bytearray(good)
        damaged[bit >> 3] ^= 1 << (bit & 7)
        try:
            found = mapped(tmp_path, bytes(damaged))
        except CorruptPack:
            continue
        assert found.nbytes == 40  # such as <i8 to <u8: the crc32 of the file is what notices that
