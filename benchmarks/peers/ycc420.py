"""packer's codec ycc420: the planes of the photos' JPEGs, decoded once; the 224 px images as planes, too."""

from collections.abc import Callable, Iterator

from benchmarks.harness.images import Image
from benchmarks.harness.job import Job
from benchmarks.peers import packer

TASKS = {
    "full": ("loader", "workers"),
    "rrc": ("loader", "workers", "loader antialias", "workers antialias"),
    "raw224": ("loader", "workers"),
    "big": ("loader", "workers"),
}
WITHOUT: dict[str, str] = {}
DOES = (
    "packer convert --codec image=ycc420; packer.Loader with threads, or with as many worker processes (workers); "
    "antialias: filtered where it shrinks; raw224: converted to RGB from planes, not only moved"
)
PACKAGES = packer.PACKAGES
SYSTEM = ()


def prepare(job: Job) -> None:
    with packer.images(job) as source:
        packer.convert(source, job, "planes", codec="ycc420")


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    return packer.epochs_of(job, "planes")
