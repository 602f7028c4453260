"""How many files of packer a sample, and a batch of the Loader, pass through: a short way is easy to read and quick."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import packer
from packer import Loader
from packer.datasets import LMDBDataset
from tests.support.conversions import packed
from tests.support.source_trees import photos

ROOT = Path(packer.__file__).parent
MOST_OF_A_SAMPLE, MOST_OF_A_BATCH = 12, 19


@contextmanager
def entered() -> Iterator[set[str]]:
    """The files of packer whose functions are called, in this thread and in those that start meanwhile."""
    files: set[str] = set()

    def see(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(ROOT)):
            files.add(Path(path).relative_to(ROOT).as_posix())

    before = sys.getprofile()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield files
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos as they are, in a pack of format lmdb."""
    folder = tmp_path_factory.mktemp("way")
    packed(photos(folder / "photos", 40), folder / "photos.pack")
    return folder / "photos.pack"


@pytest.mark.jpeg
def test_a_sample_passes_few_files(pack: Path) -> None:
    with LMDBDataset(pack) as dataset:
        dataset[0]
        with entered() as files:
            dataset[1]
    assert "datasets/pack_dataset.py" in files
    assert len(files) <= MOST_OF_A_SAMPLE, sorted(files)


@pytest.mark.jpeg
def test_a_batch_passes_few_files(pack: Path) -> None:
    with LMDBDataset(pack) as dataset, Loader(dataset, 2, threads=2, shuffle=True) as loader, entered() as files:
        batches = iter(loader)
        next(batches)
        files.clear()  # what opens the pack and starts the threads
        list(batches)
    assert "datasets/batch_decoder.py" in files
    assert len(files) <= MOST_OF_A_BATCH, sorted(files)
