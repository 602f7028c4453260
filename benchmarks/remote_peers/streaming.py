"""MosaicML Streaming: MDS shards in the store, StreamingDataset with a local folder, its StreamingDataLoader."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import stacking
from benchmarks.harness.images import Decode, Image, files
from benchmarks.harness.remote_job import RemoteJob
from benchmarks.peers.streaming import library as library

DOES = "MDSWriter to s3://; StreamingDataset(shuffle=True, cache_limit=), StreamingDataLoader with worker processes"
PACKAGES = ("mosaicml-streaming", "boto3", "opencv-python", "torch")
HASH = "xxh64"
SYSTEM = ()
VARIANTS = ("", HASH)


def prepare(job: RemoteJob) -> None:
    names = files(job.images)
    columns = {"image": "bytes", "number": "int"}
    how = {"columns": columns, "size_limit": job.part_bytes, "hashes": [HASH]}
    with library().MDSWriter(out=job.url, **how) as writer:
        for number, name in enumerate(names):
            writer.write({"image": Path(name).read_bytes(), "number": number})


def block(job: RemoteJob) -> int:
    """Photos in the shards that half of the cache holds."""
    names = files(job.images)
    return len(names) * job.cache_limit // 2 // sum(Path(name).stat().st_size for name in names)


class Stream:
    """The loader of a job. variant HASH: validate_hash, which is off by default.

    With a cache limit samples are shuffled over as many shards as half of it holds: over all shards, which is the
    default for sets of this size, each was fetched a hundred times.
    """

    def __init__(self, job: RemoteJob) -> None:
        import torch

        streaming, decode = library(), Decode(job.task)

        class Stored(streaming.StreamingDataset):  # type: ignore[misc,name-defined]
            def __getitem__(self, at: int) -> Any:
                sample = super().__getitem__(at)
                return torch.from_numpy(decode(sample["image"])), sample["number"]

        streaming.base.util.clean_stale_shared_memory()
        data = Stored(
            remote=job.url,
            local=str(job.cache),
            shuffle=True,
            batch_size=job.batch_size,
            cache_limit=job.cache_limit or None,
            validate_hash=job.variant or None,
            shuffle_block_size=block(job) if job.cache_limit else None,
        )
        self._loader = streaming.StreamingDataLoader(data, **stacking.loader_options(job.task))

    def epoch(self) -> Iterator[tuple[Image, npt.NDArray[np.int64]]]:
        for images, numbers in self._loader:
            yield images.numpy(), np.asarray(numbers)

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._loader.state_dict()
        return found

    def restore(self, state: dict[str, Any]) -> None:
        self._loader.load_state_dict(state)


opened = Stream
