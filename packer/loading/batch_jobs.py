"""Batch jobs: of each step of the sampling order a job for threads, which makes its batch.

A job has the step's random numbers, its slices for threads, and the name of a sample that fails. Samples of a pack are
decoded straight into the batch (datasets/batch_decoder.py); those that a Python function makes are collated afterwards
(datasets/batch.py). Threads hold BatchJobs, and neither the loader nor its iterators.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from torch.utils.data import ConcatDataset, Dataset, Subset

from packer.datasets.batch import Collator, RaggedPolicy, bytes_of
from packer.datasets.batch_decoder import BatchFiller, Take
from packer.datasets.pack_dataset import PackDataset, RandomStream
from packer.errors import PackerError, printable
from packer.geometry import Geometry, draw
from packer.loading.sampling import Indices, Step, Steps
from packer.loading.thread_engine import BatchJob

Collate = Callable[[Sequence[Any]], Any]


class BatchJobs:
    """Makes the jobs that build the batches of one data set."""

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
        """collate_fn: makes a batch of a list of samples, None for the data set's own way.

        take: where the memory of batches comes from. Raises InvalidRequest for another `ragged`.
        """
        self._dataset, self._subset = unwrapped(dataset)
        self._seed = seed
        pack = self._dataset if isinstance(self._dataset, PackDataset) else None
        self._pack = pack
        self._geometry = geometry or (pack.geometry if pack else None)
        self._transform = transform
        schema = pack.schema if pack else None
        as_tuple = pack.as_tuple if pack and not transform and not self._is_overridden else None
        self._collator = Collator(ragged, schema=schema, as_tuple=as_tuple)
        self._collate: Collate = collate_fn or self._collator.samples
        self._collate_own: Collate = collate_fn or Collator(ragged, schema=schema).samples
        self._is_plain = not transform and collate_fn is None
        self._take = take

    @property
    def _is_overridden(self) -> bool:
        """Whether the data set has a `__getitem__` of its own, for this batch: classes can be changed."""
        return self._pack is not None and not self._pack.decodes_batches()

    def begin(self, steps: Steps) -> Callable[[], BatchJob | None]:
        """A function that returns the job of the next batch, None after the last."""
        return partial(self._next, steps)

    def _next(self, steps: Steps) -> BatchJob | None:
        step = steps.next()
        return None if step is None else self._job(step)

    def make(self, step: Step) -> Any:
        """One batch, built by this thread alone."""
        job = self._job(step)
        job.fill(0, len(job))
        return job.finish()[0]

    def _job(self, step: Step) -> BatchJob:
        indices = self._of_dataset(step.indices)
        if self._is_overridden:
            streams = self._streams(step)
            return SampleJob(indices.tolist(), streams, self._collate_own, get=self._own, where=self._where)
        random = self._random(step)
        pack = self._pack
        if pack is None or not self._is_plain or pack.transform is not None or pack.output != "torch":
            return SampleJob(indices.tolist(), random, self._collate, get=self._sample, where=self._where)
        decoder = pack.batch_decoder(indices, self._geometry, random=random, take=self._take)
        return DecodeJob(decoder, pack.as_tuple, self._collator)

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
        pack = self._pack
        sample = pack.sample(index, self._geometry, random) if pack is not None else dataset[index]
        return self._transform(sample) if self._transform else sample

    def _where(self, index: int) -> str:
        dataset: Any = self._dataset
        if self._pack is None or self._is_overridden:  # whose indices may be others than the pack's
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


def packs_in(dataset: object) -> Iterator[PackDataset]:
    """Yield the data sets of packs in torch's Subset and ConcatDataset."""
    if isinstance(dataset, PackDataset):
        yield dataset
    inner = dataset.datasets if isinstance(dataset, ConcatDataset) else ()
    for each in (dataset.dataset,) if isinstance(dataset, Subset) else inner:
        yield from packs_in(each)


# ---- the two kinds of jobs

_SMALL_SLICES = 4  # per thread: they keep all threads busy to the end of a batch; each costs some microseconds

Random = TypeVar("Random")  # what a sample's random numbers come from
Where = Callable[[int], str]


class DecodeJob:
    """Samples of a pack, decoded into the batch's memory."""

    def __init__(self, decoder: BatchFiller, as_tuple: tuple[str, ...] | None, collator: Collator) -> None:
        self._decoder = decoder
        self._as_tuple = as_tuple
        self._collator = collator
        self.fill = decoder.fill

    @property
    def given_up(self) -> bool:
        """As BatchJob has it."""
        return self._decoder.given_up

    @given_up.setter
    def given_up(self, value: bool) -> None:
        self._decoder.given_up = value

    def __len__(self) -> int:
        return len(self._decoder.indices)

    def slice(self, threads: int) -> int:
        """The whole batch where nothing is decoded; else equal slices, at most as long as what is read at once."""
        if self._decoder.only_copies:
            return len(self)
        rounds = _share(_share(len(self), threads), self._decoder.at_once)
        return _share(len(self), threads * rounds)

    def finish(self) -> tuple[Any, int]:
        """A dict of batched fields, or with `as_tuple` a list of them, as torch's default collate gives."""
        fields = self._collator.fields(self._decoder.fields())
        batch = fields if self._as_tuple is None else [fields[name] for name in self._as_tuple]
        return batch, bytes_of(batch)


class SampleJob(Generic[Random]):
    """Samples made by one function of (index, random numbers), and collated by another."""

    def __init__(
        self,
        indices: Sequence[int],
        random: Sequence[Random],
        collate: Collate,
        *,
        get: Callable[[int, Random], Any],
        where: Where,
    ) -> None:
        """collate: makes a batch of the samples. get: the sample of an index and random numbers.

        where: what to say of an index in an error.
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
        """Small slices, since the function may take any time."""
        return _share(len(self), threads * _SMALL_SLICES)

    def fill(self, start: int, stop: int) -> None:
        """Make the samples at these positions."""
        for position in range(start, stop):
            if self.given_up:  # a slow function must not hold up an error or the end of the program
                return
            index = self._indices[position]
            try:
                self._samples[position] = self._get(index, self._random[position])
            except Exception as error:  # whatever a user's function raises goes on, with the sample's name
                note(error, self._where(index))
                raise

    def finish(self) -> tuple[Any, int]:
        """Dicts and tuples of tensors and numbers become batched ones; what has no one shape becomes a list."""
        batch = self._collate(self._samples)
        return batch, bytes_of(batch)


def _share(count: int, among: int) -> int:
    return -(-count // among)


def note(error: Exception, where: str) -> None:
    """Add the sample to the error's notes; packer's own messages name it already."""
    if not isinstance(error, PackerError):
        error.add_note(printable(where))
