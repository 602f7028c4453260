"""packer: a pack in the store, its parts in a cache folder, Loader with threads."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness.images import RATIO, SCALE, Image, files
from benchmarks.harness.remote_job import RemoteJob

DOES = (
    'convert --order shuffled to s3://; packer.open(url, cache=, cache_limit=), Loader(shuffle="blocks") with threads'
)
PACKAGES = ("packer-datasets", "torch", "lmdb", "simplejpeg", "opencv-python", "obstore")
SYSTEM = ()
VARIANTS = ("",)


def library() -> Any:
    import packer
    import packer.geometry

    return packer


def prepare(job: RemoteJob) -> None:
    scratch = job.cache.with_name("scratch")
    scratch.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "packer", "convert", str(job.images), job.url, "--scratch", str(scratch)]
    subprocess.run([*command, "--part-size", str(job.part_bytes), "--order", "shuffled"], check=True)


class Stream:
    """The loader of a job; bytes are kept, so that they are the ones that the others store."""

    def __init__(self, job: RemoteJob) -> None:
        packer = library()
        crop = packer.geometry.RandomResizedCrop(job.task.side, scale=SCALE, ratio=RATIO, antialias=False)
        data = packer.open(
            job.url,
            fields=("image", "key"),
            geometry=packer.geometry.Compose(crop, packer.geometry.RandomHorizontalFlip()) if job.task.crops else None,
            cache=job.cache,
            cache_limit=job.cache_limit or None,
        )
        # with a limit, half of it: the other half is for the parts that come next
        window = max(1, job.cache_limit // job.part_bytes // 2) if job.cache_limit else None
        self._loader = packer.Loader(data, job.batch_size, shuffle="blocks", window=window, threads=job.workers)
        names = (Path(name).relative_to(job.images).as_posix() for name in files(job.images))
        self._numbers = {name: number for number, name in enumerate(names)}

    def epoch(self) -> Iterator[tuple[Image, npt.NDArray[np.int64]]]:
        for batch in self._loader:
            yield batch["image"].numpy(), np.array([self._numbers[key] for key in batch["key"]])

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._loader.state_dict()
        return found

    def restore(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)


opened = Stream
