"""packer's codec raw: the photos as the RGB that is read, which is decoded never and largest."""

from collections.abc import Callable, Iterator

from benchmarks.harness.images import Image
from benchmarks.harness.job import Job
from benchmarks.peers import packer

TASKS = {"full": ("loader",), "rrc": ("loader", "workers", "loader antialias")}
WITHOUT = {"raw224": "it is there as packer's", "big": "4.6 GB of pixels"}
DOES = "packer convert --codec image=raw; packer.Loader with threads, or with as many worker processes (workers)"
PACKAGES = packer.PACKAGES
SYSTEM = ()


def prepare(job: Job) -> None:
    packer.convert(job.images, job, "pixels", codec="raw")


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    return packer.epochs_of(job, "pixels")
