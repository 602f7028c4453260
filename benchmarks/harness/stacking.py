"""torch's DataLoader around a data set, as a contestant: worker processes decode, its collate stacks."""

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.harness.images import Image
from benchmarks.harness.job import Job


class Fetched:
    """A map-style data set: fetch(index) gives encoded bytes, decode makes an image of them."""

    def __init__(self, fetch: Callable[[int], Any], count: int, decode: Callable[[Any], Image]) -> None:
        self.fetch, self.count, self.decode = fetch, count, decode

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.from_numpy(self.decode(self.fetch(index)))


def quiet(_: int) -> None:
    """In a worker process: no threads of OpenCV's own, they would only fight with the other workers."""
    import cv2

    cv2.setNumThreads(0)


def loader_options(job: Job) -> dict[str, Any]:
    """What every DataLoader here is given: the workers live on between epochs."""
    return {
        "batch_size": job.batch_size,
        "num_workers": job.threads,
        "persistent_workers": True,
        "worker_init_fn": quiet,
    }


def epochs(loader: Any, key: str | None = None) -> Callable[[], Iterator[Image]]:
    """Epochs of a DataLoader whose batches are tensors, or dicts with one under `key`."""

    def epoch() -> Iterator[Image]:
        for batch in loader:
            yield (batch if key is None else batch[key]).numpy()

    return epoch


def shuffled(data_set: Any, job: Job, key: str | None = None) -> Callable[[], Iterator[Image]]:
    """Epochs of a map-style data set whose samples are tensors, or dicts with one under `key`."""
    from torch.utils.data import DataLoader

    return epochs(DataLoader(data_set, shuffle=True, **loader_options(job)), key)
