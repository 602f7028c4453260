"""Batches in the making: which thread takes what at once, and what is said, once, of an image that does not decode."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.datasets.batch_decoder import BatchDecoder, PackBatchDecoder
from packer.datasets.pack_dataset import PackDataset
from packer.errors import CorruptRecord
from packer.system.buffer_pool import BufferPool, PooledBuffer
from tests.support import image_files
from tests.support.conversions import packed


def photos(folder: Path, sizes: list[tuple[int, int]], damaged: int | None = None) -> Path:
    """A folder of JPEGs, of one of which the last third is missing."""
    (folder / "class").mkdir(parents=True)
    for number, (height, width) in enumerate(sizes):
        file = image_files.jpeg(image_files.colors(number, height=height, width=width))
        if number == damaged:
            file = file[: len(file) * 2 // 3] + image_files.EOI
        (folder / "class" / f"{number:03d}.jpg").write_bytes(file)
    return folder


def assembly(dataset: PackDataset) -> BatchDecoder:
    return PackBatchDecoder(dataset.sample_decoder(), np.arange(len(dataset)))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sizes", [[(40, 60)] * 3, [(40, 60), (40, 60), (50, 60)]], ids=["one shape", "odd"])
@pytest.mark.parametrize("how", [{"threads": 2}, {"num_workers": 2}], ids=str)
def test_a_damaged_image_is_named_once(tmp_path: Path, sizes: list[tuple[int, int]], how: dict[str, int]) -> None:
    packed(photos(tmp_path / "photos", sizes, damaged=2), tmp_path / "set.pack", to="lmdb", validate="header")
    dataset = packer.open(tmp_path / "set.pack")
    with pytest.raises(CorruptRecord) as alone:
        dataset[2]
    loader = packer.Loader(dataset, 3, **how)
    with pytest.raises(CorruptRecord) as found:
        list(loader)
    loader.close()
    told = str(found.value).partition("\n")[0]
    assert told == str(alone.value) and told.count("does not decode") == told.count("class/002.jpg") == 1


@pytest.mark.parametrize("format, at_once", [("lmdb", 32), ("hdf5", 32), ("pth", 32), ("bmp", 8)])
def test_what_is_read_into_memory_is_taken_by_few(
    tmp_path: Path, format: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread's pool of file memory serves all of a batch: no more files are held than it keeps."""
    packed(
        photos(tmp_path / "photos", [(16, 16)] * 70), tmp_path / "set.pack", to=format, codecs=(("image", "encoded"),)
    )
    dataset = packer.open(tmp_path / "set.pack", fields=("image",))
    made: list[int] = []
    new = BufferPool._fitting

    def noting(self: BufferPool[PooledBuffer], size: int) -> Any:
        found = new(self, size)
        if found is None:
            made.append(size)
        return found

    first = assembly(dataset)
    assert first.at_once == at_once
    first.fill(0, 70)
    monkeypatch.setattr(BufferPool, "_fitting", noting)
    again = assembly(dataset)
    again.fill(0, 70)
    assert len(made) < 8  # one or two: files differ in size
    assert all(
        np.array_equal(one, other) for one, other in zip(first.fields()["image"], again.fields()["image"], strict=True)
    )


@pytest.mark.parametrize("count", [1, 2, 7, 31, 32, 33, 64, 96, 100, 160, 192, 1024])
@pytest.mark.parametrize("threads", [1, 2, 3, 4, 16])
def test_slices_are_even_and_not_too_large(count: int, threads: int) -> None:
    decoder: Any = type("Decoder", (BatchDecoder,), {"at_once": 32, "fill": None, "fields": None})
    size = decoder(np.arange(count)).slice(threads)
    assert 1 <= size <= 32
    slices = -(-count // size)
    assert -(-slices // threads) * size <= -(-count // threads) + slices  # what one thread does until the batch is made


def test_nobody_goes_on_with_a_batch_that_is_given_up(tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos", [(16, 16)] * 10), tmp_path / "set.pack", to="lmdb")
    dataset = packer.open(tmp_path / "set.pack", fields=("image",))
    made = assembly(dataset)
    made.fill(0, 2)
    before = made.fields()["image"].clone()
    made.given_up = True
    made.fill(2, 10)
    assert np.array_equal(made.fields()["image"], before)
