"""WebDataset: tar files read in sequence, shuffled by shard and in a buffer, torch's DataLoader around it."""

import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import stacking
from benchmarks.harness.images import Copy, Decode, Image, files, raw
from benchmarks.harness.job import Job

TASKS = {"full": ("",), "rrc": ("",), "raw224": ("",), "big": ("",)}
WITHOUT: dict[str, str] = {}
DOES = "sequential tar, shuffle buffer of 1000, cv2.imdecode (RGB) instead of its slower PIL handler, DataLoader"
PACKAGES = ("webdataset", "opencv-python", "torch")
SYSTEM = ()
SHARDS = 16  # enough for the workers to share


def suffix(job: Job) -> str:
    """What the entries of the tar files are called."""
    return "raw" if job.task == "raw224" else "jpg"


def prepare(job: Job) -> None:
    values: Any = raw(job.images) if job.task == "raw224" else files(job.images)
    for shard in range(SHARDS):
        with tarfile.open(job.work / f"{shard:04d}.tar", "w") as archive:
            for index in range(shard, len(values), SHARDS):
                value = values[index]
                data = Path(value).read_bytes() if isinstance(value, str) else value.tobytes()
                entry = tarfile.TarInfo(f"{index:08d}.{suffix(job)}")
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))


class Finish:
    """A sample of a tar file -> a tensor."""

    def __init__(self, job: Job) -> None:
        self.suffix = suffix(job)
        self.decode: Callable[[Any], Image] = Copy(job.side) if job.task == "raw224" else Decode(job)

    def __call__(self, sample: dict[str, Any]) -> Any:
        import torch

        return torch.from_numpy(self.decode(sample[self.suffix]))


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    import webdataset
    from torch.utils.data import DataLoader

    shards = [str(path) for path in sorted(job.work.glob("*.tar"))]
    data = webdataset.WebDataset(shards, shardshuffle=SHARDS).shuffle(1000).map(Finish(job))
    return stacking.epochs(DataLoader(data, **stacking.loader_options(job)))
