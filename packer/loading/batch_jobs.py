"""Batch jobs: makes a job for each batch of the sampling order.

Samples of a pack are decoded into the memory of the batch (datasets/batch_decoder.py). Samples that a Python function
makes are collated afterwards (datasets/batch.py). Threads refer to BatchJobs, but not to the loader and its iterators.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import ConcatDataset, Dataset, Subset

from packer.datasets.batch import Collator, RaggedPolicy, bytes_of
from packer.datasets.batch_decoder import Take
from packer.datasets.pack_dataset import PackDataset, RandomStream
from packer.errors import PackerError, printable
from packer.geometry import Geometry, draw
from packer.loading.sampling import Indices, Step
from packer.loading.thread_engine import BatchJob

Collate = Callable[[Sequence[Any]], Any]


class BatchJobs:
    """Jobs that make the batches of one dataset: one job for each step (a batch of the sampling order)."""

    def __init__(
        self,
        dataset: Dataset[Any],
        *,
        seed: int,
        ragged: RaggedPolicy,
        geometry: Geometry | None,
        transform: Callable[[Any], Any] | None,
        collate_fn: Collate | None,
        take: Take,
    ) -> None:
        """Create the jobs of a dataset.

        Args:
            dataset: A pack's dataset, a Subset of one, or another dataset with `[index]`.
            seed: Seed of the random numbers of the geometry.
            ragged: "list" or "pad", see Collator.
            geometry: Replaces the geometry of the pack's dataset. None keeps the geometry of the dataset.
            transform: A function of each sample, called after the dataset's own. None for no function.
            collate_fn: Makes a batch of a list of samples. None collates as torch does, except for `ragged`.
            take: Function of a size in bytes that returns memory for a batch.
        """
        self._dataset, self._subset = unwrapped(dataset)
        self._seed = seed
        pack = self._dataset if isinstance(self._dataset, PackDataset) else None
        self._pack = pack
        self._geometry = geometry or (pack.geometry if pack else None)
        self._transform = transform
        schema = pack.schema if pack else None
        as_tuple = pack.as_tuple if pack and not transform and not self._is_overridden else None
        collator = Collator(ragged, schema=schema, as_tuple=as_tuple)
        self._collate: Collate = collate_fn or collator.samples
        self._collate_own: Collate = collate_fn or Collator(ragged, schema=schema).samples
        self._collate_fields = collator.fields
        self._is_plain = not transform and collate_fn is None
        self._take = take

    @property
    def _is_overridden(self) -> bool:
        """True if the class of the dataset overrides `__getitem__`. A notebook may change the class at any time."""
        return self._pack is not None and not self._pack.decodes_batches()

    def make(self, step: Step) -> Any:
        """Make the batch of a step in the current thread and return it."""
        job = self.job(step)
        job.fill(0, len(job))
        return job.finish()[0]

    def job(self, step: Step) -> BatchJob:
        """Return the job that makes the batch of a step."""
        indices = step.indices if self._subset is None else self._subset[step.indices]
        if self._is_overridden:
            numbers = zip(step.passes.tolist(), step.indices.tolist(), strict=True)
            streams = [RandomStream(self._geometry, seed=self._seed, epoch=epoch, index=at) for epoch, at in numbers]
            return SampleJob(indices.tolist(), streams, self._collate_own, get=self._own, where=self._where)
        random = self._random(step)
        pack = self._pack
        if pack is None or not self._is_plain or pack.transform is not None or pack.output != "torch":
            return SampleJob(indices.tolist(), random, self._collate, get=self._sample, where=self._where)
        return pack.batch_decoder(indices, self._geometry, random=random, take=self._take, collate=self._collate_fields)

    def _random(self, step: Step) -> list[list[float]]:
        draws = self._geometry.draws if self._geometry is not None else 0
        if not draws:
            return [[]] * len(step.indices)
        numbers: list[list[float]] = draw(self._seed, step.passes, step.indices, draws).tolist()
        return numbers

    def _own(self, index: int, stream: RandomStream) -> Any:
        """Return one sample of a pack's dataset whose class overrides `__getitem__`."""
        dataset: Any = self._dataset
        with dataset.reading(stream):
            sample = dataset[index]
        return self._transform(sample) if self._transform else sample

    def _sample(self, index: int, random: Sequence[float]) -> Any:
        """Return one sample of a pack or of another dataset, after the loader's transform."""
        dataset: Any = self._dataset
        pack = self._pack
        sample = pack.sample_at(index, self._geometry, random) if pack is not None else dataset[index]
        return self._transform(sample) if self._transform else sample

    def _where(self, index: int) -> str:
        dataset: Any = self._dataset
        if self._pack is None or self._is_overridden:  # its indices may differ from the pack's
            return f"in sample {index} of {dataset!r}"
        return f"in sample {index} of {dataset.path}, key {dataset.key(index)!r}"


def unwrapped(dataset: Dataset[Any]) -> tuple[Dataset[Any], Indices | None]:
    """Return (the PackDataset inside of torch's Subset, the indices of the Subset). Without a Subset, they are None.

    If the dataset is not a PackDataset, return (dataset, None).
    """
    inner: Any = dataset
    chosen = None
    while type(inner) is Subset:
        indices = np.asarray(inner.indices, np.int64)
        chosen = indices if chosen is None else indices[chosen]
        inner = inner.dataset
    return (inner, chosen) if isinstance(inner, PackDataset) else (dataset, None)


def packs_in(dataset: object) -> Iterator[PackDataset]:
    """Yield each PackDataset in `dataset`, also in nested Subset and ConcatDataset objects of torch."""
    if isinstance(dataset, PackDataset):
        yield dataset
    inner = dataset.datasets if isinstance(dataset, ConcatDataset) else ()
    for each in (dataset.dataset,) if isinstance(dataset, Subset) else inner:
        yield from packs_in(each)


_SMALL_SLICES = 4  # per thread: they keep all threads busy to the end of a batch

Random = TypeVar("Random")  # random numbers of a sample, or their stream
Where = Callable[[int], str]


class SampleJob(Generic[Random]):
    """A job that calls a function of (index, random numbers) for each sample, and collates the samples."""

    def __init__(
        self,
        indices: Sequence[int],
        random: Sequence[Random],
        collate: Collate,
        *,
        get: Callable[[int, Random], Any],
        where: Where,
    ) -> None:
        """Create a job.

        Args:
            indices: Indices of samples.
            random: For each sample the second argument of `get`: its random numbers, or a RandomStream.
            collate: Makes a batch of a list of samples.
            get: Makes a sample of an index and its random numbers.
            where: Function of an index that returns a description of the sample for error messages.
        """
        self._indices = indices
        self._random = random
        self._get = get
        self._where = where
        self._collate = collate
        self._samples: list[Any] = [None] * len(indices)
        self.given_up = False

    def __len__(self) -> int:
        return len(self._indices)

    def slice(self, threads: int) -> int:
        """Return the number of samples of a slice. Slices are small, because the function may be slow."""
        return -(-len(self) // (threads * _SMALL_SLICES))

    def fill(self, start: int, stop: int) -> None:
        """Make the samples at these positions."""
        for position in range(start, stop):
            if self.given_up:  # a slow function must not delay an error or the end of the program
                return
            index = self._indices[position]
            try:
                self._samples[position] = self._get(index, self._random[position])
            except Exception as error:  # any error of a user's function
                if not isinstance(error, PackerError):  # packer's messages contain the sample already
                    error.add_note(printable(self._where(index)))
                raise

    def finish(self) -> tuple[Any, int]:
        """Return (batch, size of the batch in bytes)."""
        batch = self._collate(self._samples)
        return batch, bytes_of(batch)
