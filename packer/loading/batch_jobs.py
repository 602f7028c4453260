"""Batch jobs: makes a job for each batch of the sampling order.

Samples of a pack are decoded into the memory of the batch (datasets/batch_decoder.py). Samples that a Python function
makes are collated afterwards (datasets/batch.py). Threads refer to BatchJobs, but not to the loader and its iterators.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Dataset, Subset

from packer.datasets.batch import Collator, RaggedPolicy, bytes_of
from packer.datasets.batch_decoder import Take
from packer.datasets.pack_dataset import PackDataset, RandomStream
from packer.errors import PackerError, printable
from packer.geometry import Geometry, draw
from packer.loading.sample_order import Indices, Step
from packer.loading.thread_engine import BatchJob

Collate = Callable[[Sequence[Any]], Any]
Numbers = tuple[int, int, Sequence[float]]


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
            dataset: A pack's dataset, a Subset or ConcatDataset of them, or another dataset with `[index]`.
            seed: Seed of the random numbers of the geometry.
            ragged: "list" or "pad", see Collator.
            geometry: Replaces the geometry of the packs' datasets. None keeps the geometry of each dataset.
            transform: A function of each sample, called after the dataset's own. None for no function.
            collate_fn: Makes a batch of a list of samples. None collates as torch does, except for `ragged`.
            take: Function of a size in bytes that returns memory for a batch.
        """
        self._dataset, self._subset = unwrapped(dataset)
        self._seed = seed
        self._pack = self._dataset if isinstance(self._dataset, PackDataset) else None
        packs = packs_in(dataset)
        first = packs[0] if packs else None  # all packs in a ConcatDataset have its fields
        self._geometry = geometry or (self._pack.geometry if self._pack else None)
        geometries = [self._geometry] if self._geometry else [each.geometry for each in packs]
        self._draws = max((each.draws for each in geometries if each is not None), default=0)
        self._transform = transform
        schema = first.schema if first else None
        as_tuple = first.as_tuple if first and not transform and first.decodes_batches() else None
        collator = Collator(ragged, schema=schema, as_tuple=as_tuple)
        self._collate: Collate = collate_fn or collator.samples
        self._collate_own: Collate = collate_fn or Collator(ragged, schema=schema).samples
        self._collate_fields = collator.fields
        self._is_plain = not transform and collate_fn is None
        self._take = take

    def make(self, step: Step) -> Any:
        """Make the batch of a step in the current thread and return it."""
        job = self.job(step)
        job.fill(0, len(job))
        return job.finish()[0]

    def job(self, step: Step) -> BatchJob:
        """Return the job that makes the batch of a step."""
        indices = step.indices if self._subset is None else self._subset[step.indices]
        pack = self._pack
        # a notebook may override `__getitem__` at any time
        is_plain = pack is not None and pack.decodes_batches() and pack.transform is None and pack.output == "torch"
        random: list[list[float]] = [[]] * len(indices)
        if self._draws:
            random = draw(self._seed, step.passes, step.indices, self._draws).tolist()
        if pack is None or not is_plain or not self._is_plain:
            numbers = zip(step.passes.tolist(), step.indices.tolist(), random, strict=True)
            is_own = pack is not None and not pack.decodes_batches()
            collate = self._collate_own if is_own else self._collate
            return SampleJob(indices.tolist(), list(numbers), collate, get=self._sample, where=self._where)
        return pack.batch_decoder(indices, self._geometry, random=random, take=self._take, collate=self._collate_fields)

    def _sample(self, index: int, numbers: Numbers) -> Any:
        """Return one sample after the loader's transform."""
        dataset, at = located(self._dataset, index)
        if isinstance(dataset, PackDataset):
            epoch, of_loader, first = numbers
            geometry = self._geometry or dataset.geometry
            stream = RandomStream(geometry, seed=self._seed, epoch=epoch, index=of_loader, first=first)
            with dataset.reading(stream):
                sample = dataset[at]
        else:
            sample = dataset[at]
        return self._transform(sample) if self._transform else sample

    def _where(self, index: int) -> str:
        dataset, at = located(self._dataset, index)
        if isinstance(dataset, PackDataset) and dataset.decodes_batches():  # otherwise its indices may differ
            return f"in sample {at} of {dataset.path}, key {dataset.key(at)!r}"
        return f"in sample {at} of {dataset!r}"


def located(dataset: Dataset[Any], index: int) -> tuple[Any, int]:
    """Return the dataset inside of torch's Subset and ConcatDataset objects that contains a sample, and its index."""
    inner: Any = dataset
    while True:
        if type(inner) is Subset:
            inner, index = inner.dataset, inner.indices[index]
        elif type(inner) is ConcatDataset:
            index += len(inner) if index < 0 else 0
            number = bisect_right(inner.cumulative_sizes, index)
            index -= inner.cumulative_sizes[number - 1] if number else 0
            inner = inner.datasets[number]
        else:
            return inner, index


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


def members(dataset: object) -> Iterator[Any]:
    """Yield each dataset inside of nested Subset and ConcatDataset objects of torch."""
    if type(dataset) is Subset:
        yield from members(dataset.dataset)
    elif type(dataset) is ConcatDataset:
        for each in dataset.datasets:
            yield from members(each)
    else:
        yield dataset


def packs_in(dataset: object) -> list[PackDataset]:
    """Return each PackDataset in `dataset`, also in nested Subset and ConcatDataset objects of torch."""
    return [each for each in members(dataset) if isinstance(each, PackDataset)]


_SMALL_SLICES = 4  # per thread: they keep all threads busy to the end of a batch

Where = Callable[[int], str]


class SampleJob:
    """A job that calls a function for each sample, and collates the samples."""

    def __init__(
        self,
        indices: Sequence[int],
        numbers: Sequence[Numbers],
        collate: Collate,
        *,
        get: Callable[[int, Numbers], Any],
        where: Where,
    ) -> None:
        """Create a job.

        Args:
            indices: Indices of samples.
            numbers: For each sample its pass, its index in the loader's dataset, and its first random numbers.
            collate: Makes a batch of a list of samples.
            get: Makes a sample of an index and the numbers of this sample.
            where: Function of an index that returns a description of the sample for error messages.
        """
        self._indices = indices
        self._numbers = numbers
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
                self._samples[position] = self._get(index, self._numbers[position])
            except Exception as error:  # any error of a user's function
                if not isinstance(error, PackerError):  # packer's messages contain the sample already
                    error.add_note(printable(self._where(index)))
                raise

    def finish(self) -> tuple[Any, int]:
        """Return (batch, size of the batch in bytes)."""
        batch = self._collate(self._samples)
        return batch, bytes_of(batch)
