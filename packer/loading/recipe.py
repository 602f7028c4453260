"""Recipe: how a step of the order becomes a batch. Threads hold this, and neither the loader nor its iterators."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Subset

from packer.datasets import PackDataset, RandomStream
from packer.geometry import Geometry, draw
from packer.loading.assembly import Take
from packer.loading.collating import Collator
from packer.loading.engine import Job
from packer.loading.jobs import DecodeJob, SampleJob
from packer.loading.order import Indices, Step, Steps


class Recipe:
    """Makes jobs for one data set."""

    def __init__(
        self,
        dataset: Dataset[Any],
        *,
        seed: int,
        ragged: str,
        geometry: Geometry | None,
        transform: Callable[[Any], Any] | None,
        take: Take,
    ) -> None:
        """take: where the memory of batches comes from. Raises Refused for another `ragged`."""
        self._dataset, self._subset = unwrapped(dataset)
        self._seed = seed
        pack = self._dataset if isinstance(self._dataset, PackDataset) else None
        self._is_pack = pack is not None
        self._is_overridden = pack is not None and not pack.decodes_batches
        self._geometry = geometry or (pack.geometry if pack else None)
        self._transform = transform
        as_tuple = pack.as_tuple if pack and not transform and not self._is_overridden else None
        self._collator = Collator(ragged, schema=pack.schema if pack else None, as_tuple=as_tuple)
        plain = pack is not None and not transform and not pack.transform and pack.output == "torch"
        self._decodes = plain and not self._is_overridden
        self._take = take

    def begin(self, steps: Steps) -> Callable[[], Job | None]:
        """A function that begins batch after batch."""
        return partial(self._next, steps)

    def _next(self, steps: Steps) -> Job | None:
        step = steps.next()
        return None if step is None else self._job(step)

    def make(self, step: Step) -> Any:
        """One batch, by this thread alone."""
        job = self._job(step)
        job.fill(0, len(job))
        return job.finish()[0]

    def _job(self, step: Step) -> Job:
        indices = self._of_dataset(step.indices)
        if self._is_overridden:
            return SampleJob(indices.tolist(), self._streams(step), self._collator, get=self._own, where=self._where)
        random = self._random(step)
        if not self._decodes:
            return SampleJob(indices.tolist(), random, self._collator, get=self._sample, where=self._where)
        dataset: Any = self._dataset
        assembly = dataset.assembly(indices, self._geometry, random=random, take=self._take)
        return DecodeJob(assembly, dataset.as_tuple, self._collator)

    def _of_dataset(self, indices: Indices) -> Indices:
        """Indices of the data set that a Subset was cut from."""
        return indices if self._subset is None else self._subset[indices]

    def _random(self, step: Step) -> list[list[float]]:
        draws = self._geometry.draws if self._geometry is not None else 0
        if not draws:
            return [[]] * len(step.indices)
        numbers: list[list[float]] = draw(self._seed, step.passes, step.indices, draws).tolist()
        return numbers

    def _streams(self, step: Step) -> list[RandomStream]:
        steps = zip(step.passes.tolist(), step.indices.tolist(), strict=True)
        return [RandomStream(self._geometry, seed=self._seed, epoch=epoch, index=index) for epoch, index in steps]

    def _own(self, index: int, stream: RandomStream) -> Any:
        """One sample of a pack's data set that has a `__getitem__` of its own."""
        dataset: Any = self._dataset
        with dataset.reading(stream):
            sample = dataset[index]
        return self._transform(sample) if self._transform else sample

    def _sample(self, index: int, random: Sequence[float]) -> Any:
        """One sample for a Python function, or of another data set."""
        dataset: Any = self._dataset
        sample = dataset.sample(index, self._geometry, random) if self._is_pack else dataset[index]
        return self._transform(sample) if self._transform else sample

    def _where(self, index: int) -> str:
        dataset: Any = self._dataset
        if not self._is_pack or self._is_overridden:  # whose indices may be others than the pack's
            return f"in sample {index} of {dataset!r}"
        return f"in sample {index} of {dataset.path}, key {dataset.key(index)!r}"


def unwrapped(dataset: Dataset[Any]) -> tuple[Dataset[Any], Indices | None]:
    """A pack's data set inside of torch's Subset, and the indices that are in it; others as they are."""
    inner: Any = dataset
    chosen = None
    while type(inner) is Subset:
        indices = np.asarray(inner.indices, np.int64)
        chosen = indices if chosen is None else indices[chosen]
        inner = inner.dataset
    return (inner, chosen) if isinstance(inner, PackDataset) else (dataset, None)
