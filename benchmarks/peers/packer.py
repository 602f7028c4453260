"""packer itself: packs of the same images; its Loader, and the same data set in torch's DataLoader."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import stacking
from benchmarks.harness.images import RATIO, SCALE, Image, raw
from benchmarks.harness.job import Job

# variant -> the pack that it reads; the first is what the others are compared with
_FULL = {
    "loader": "kept",
    "loader fast dct": "kept",
    "workers": "kept",
    "workers fast dct": "kept",
    "dataloader": "kept",
}
_CROPS = {
    "loader jpeg:90": "jpeg",
    "loader kept": "kept",
    "loader jpeg:90 antialias": "jpeg",
    "loader kept antialias": "kept",
    "workers jpeg:90": "jpeg",
    "workers jpeg:90 fast dct": "jpeg",
    "workers kept": "kept",
    "workers jpeg:90 antialias": "jpeg",
    "dataloader jpeg:90": "jpeg",
    "dataloader": "kept",
}
_RAW = {"loader hdf5": "hdf5", "loader pth": "pth", "loader lmdb": "lmdb", "dataloader": "lmdb"}
_PACKS = {"full": _FULL, "rrc": _CROPS, "raw224": _RAW, "big": _CROPS}

TASKS = {task: tuple(variants) for task, variants in _PACKS.items()}
WITHOUT: dict[str, str] = {}
DOES = (
    "packer convert; packer.Loader with threads, with as many worker processes (workers), or the data set in a "
    "DataLoader with worker processes. kept: the files' own bytes; jpeg:90: encoded anew with restart intervals; "
    "antialias: filtered where it shrinks"
)
PACKAGES = ("packer-datasets", "torch", "lmdb", "simplejpeg", "opencv-python")
SYSTEM = ()


def prepare(job: Job) -> None:
    with images(job) as source:
        # what one set is prepared for serves all its tasks
        for name in dict.fromkeys(_RAW.values()) if job.task == "raw224" else ("kept", "jpeg"):
            form = name if job.task == "raw224" else "lmdb"
            convert(source, job, name, form=form, codec={"kept": "encoded", "jpeg": "jpeg:90"}.get(name, "raw"))


@contextmanager
def images(job: Job) -> Iterator[Path]:
    """The folder that is packed: the images, those of raw224 as BMP files."""
    if job.task != "raw224":
        yield job.images
        return
    import cv2

    source = job.work / "bmp"
    source.mkdir()
    for index, image in enumerate(raw(job.images)):
        cv2.imwrite(str(source / f"{index:08d}.bmp"), image[..., ::-1])
    yield source
    shutil.rmtree(source)


def convert(source: Path, job: Job, name: str, *, form: str = "lmdb", codec: str) -> None:
    """The pack of that name in the job's folder."""
    command = [sys.executable, "-m", "packer", "convert", str(source), str(job.work / f"{name}.pack")]
    # they have that size: says so
    resize = ["--resize", f"{job.side}x{job.side}"] if job.task == "raw224" else []
    subprocess.run([*command, "--to", form, "--codec", f"image={codec}", *resize], check=True)


def geometry(job: Job) -> Any:
    """RandomResizedCrop and flip as one warp."""
    from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop

    antialias = job.variant.endswith("antialias")
    return Compose(RandomResizedCrop(job.side, scale=SCALE, ratio=RATIO, antialias=antialias), RandomHorizontalFlip())


def stored(job: Job) -> Path:
    return job.work / f"{_PACKS[job.task][job.variant]}.pack"


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    return epochs_of(job, _PACKS[job.task][job.variant])


def epochs_of(job: Job, name: str) -> Callable[[], Iterator[Image]]:
    """Epochs over the pack of that name."""
    import packer

    warp = {"geometry": geometry(job)} if job.crops else {}
    dct = "fast" if job.variant.endswith("fast dct") else "accurate"
    data_set = packer.open(job.work / f"{name}.pack", fields=("image",), dct=dct, **warp)
    if job.variant.startswith("dataloader"):
        return stacking.shuffled(data_set, job, "image")
    how = {"num_workers": job.threads} if job.variant.startswith("workers") else {"threads": job.threads}
    return stacking.epochs(packer.Loader(data_set, job.batch_size, shuffle=True, **how), "image")
