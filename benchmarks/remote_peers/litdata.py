"""LitData: optimized chunks in the store, StreamingDataset and StreamingDataLoader with worker processes."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import stacking
from benchmarks.harness.images import Decode, Image, files
from benchmarks.harness.remote_job import RemoteJob

DOES = "optimize() to s3://; StreamingDataset(shuffle=True, max_cache_size=), StreamingDataLoader with worker processes"
PACKAGES = ("litdata", "obstore", "boto3", "opencv-python", "torch")
SYSTEM = ()
VARIANTS = ("",)


def library() -> Any:
    """The module. Its faster client, obstore, takes https alone, since LitData's own options replace AWS_ALLOW_HTTP."""
    import litdata
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True
    return litdata


def jpeg(names: list[str], number: int) -> dict[str, Any]:
    """The bytes of a file, with its number."""
    return {"image": Path(names[number]).read_bytes(), "number": number}


def prepare(job: RemoteJob) -> None:
    names = files(job.images)
    library().optimize(
        fn=partial(jpeg, names),
        inputs=list(range(len(names))),
        output_dir=job.url,
        chunk_bytes=job.part_bytes,
        num_workers=1,  # in the order of the folders, as the others
        keep_data_ordered=True,
        reorder_files=False,
        start_method="fork",
    )


class Finish:
    """A stored sample -> an image and its number."""

    def __init__(self, job: RemoteJob) -> None:
        self.decode = Decode(job.task)

    def __call__(self, sample: dict[str, Any]) -> Any:
        import torch

        return torch.from_numpy(self.decode(sample["image"])), sample["number"]


class Stream:
    """The loader of a job."""

    def __init__(self, job: RemoteJob) -> None:
        litdata = library()
        data = litdata.StreamingDataset(
            job.url,
            cache_dir=str(job.cache),
            shuffle=True,
            drop_last=False,
            max_cache_size=job.cache_limit or None,
            transform=Finish(job),
        )
        self._loader = litdata.StreamingDataLoader(data, **stacking.loader_options(job.task))

    def epoch(self) -> Iterator[tuple[Image, npt.NDArray[np.int64]]]:
        for images, numbers in self._loader:
            yield images.numpy(), np.asarray(numbers)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._loader.state_dict()
        return found

    def restore(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)


opened = Stream
