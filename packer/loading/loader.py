"""Loader: batches of samples, decoded by threads straight into memory that is used again."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch.utils.data import Dataset

from packer.datasets import PackDataset
from packer.errors import Refused
from packer.geometry import Geometry, draw
from packer.loading.assembly import Assembly
from packer.loading.collating import Collator
from packer.loading.engine import Engine, Job
from packer.loading.jobs import DecodeJob, SampleJob
from packer.loading.order import Order, Step, Steps
from packer.loading.ring import Ring
from packer.parallel import usable_cores

_MOST_AHEAD = 8  # batches ready or in the making: more would only cool the caches
_STATE_VERSION = 1


class Loader:
    """An iterable of batches: dicts of batched fields, images as uint8 (N, 3, H, W) in channels_last memory.

    | field                     | in a batch                                                            |
    |---------------------------|-----------------------------------------------------------------------|
    | image, depth, mask        | uint8 (N, 3, H, W), float32 (N, 1, H, W), uint8 (N, H, W)             |
    | number of a fixed shape   | a tensor (N, ...)                                                     |
    | points, boxes, other      | a list of N tensors; with ragged="pad" one tensor (N, longest, ...),  |
    | arrays of varying length  | zeros behind each, and `<field>_count`, int64 (N,)                    |
    | text, json, bytes         | a list of N values                                                    |

    A batch is the caller's: its memory is used again only when nobody holds one of its tensors. The same seed gives the
    same batches, however many threads there are. With `as_tuple` of the data set, a batch is a list, as a DataLoader's.
    """

    def __init__(  # noqa: PLR0913  what a loader can do is said in one call
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        *,
        shuffle: bool = False,
        sampler: Any = None,
        seed: int = 0,
        geometry: Geometry | None = None,
        transform: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        ragged: str = "list",
        steps_per_epoch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        threads: int | None = None,
        prefetch_bytes: int = 256 << 20,
    ) -> None:
        """dataset: a pack's, or any other with `len` and `[index]`, which is then called in the threads.

        sampler: an iterable of sample indices with a length, in place of shuffle. seed: of order and geometry.
        geometry: in place of the data set's; its random numbers depend on (seed, epoch, sample index) alone.
        transform: called in the threads with each sample, after the data set's own.
        steps_per_epoch: cut an endless stream of passes into epochs of so many batches; an early `break` loses nothing.
        rank, world_size: this process's share of the samples, by default as torch.distributed has been set up.
        threads: by default one per core that this process may use. prefetch_bytes: of batches made ahead; two always.
        Raises Refused for what does not go together.
        """
        if threads is not None and threads < 1:
            raise Refused(f"threads={threads}: expected at least 1")
        if geometry is not None and not isinstance(dataset, PackDataset):
            raise Refused("geometry: only a pack's data set can apply one; pass a transform")
        self.dataset = dataset
        self.threads = threads or usable_cores()
        rank, world_size = _place_among_ranks(rank, world_size, given_order=sampler is not None)
        self.order = Order(
            *(len(dataset), batch_size, shuffle, seed, drop_last),  # type: ignore[arg-type]
            rank=rank,
            world_size=world_size,
            steps_per_epoch=steps_per_epoch,
            sampler=sampler,
        )
        self._recipe = _Recipe(dataset, seed, Collator(ragged), geometry=geometry, transform=transform)
        self._prefetch_bytes = prefetch_bytes
        self._epoch, self._step = 0, 0  # of the next batch that the caller gets
        self._resumed = False
        self._stream: Engine | None = None

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.order)

    @property
    def epoch(self) -> int:
        """The epoch that is going on, or comes next."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Which epoch comes next; without it, each `iter` begins the one after the last."""
        if self.order.steps_per_epoch is None:
            self._epoch, self._step, self._resumed = epoch, 0, True

    def __iter__(self) -> Iterator[Any]:
        if self.order.steps_per_epoch is not None:
            return _Epoch(self, self._running_stream(), endless=True)
        if self._step and not self._resumed:  # the last one was broken off
            self._epoch, self._step = self._epoch + 1, 0
        self._resumed = False
        return _Epoch(self, self._engine(), endless=False)

    def _running_stream(self) -> Engine:
        if self._stream is None:
            self._stream = self._engine()
            weakref.finalize(self, self._stream.stop)
        return self._stream

    def _engine(self) -> Engine:
        begin = self._recipe.begin(self.order.begin(self._epoch, self._step))
        limits = {"most_bytes": self._prefetch_bytes, "most_batches": _MOST_AHEAD}
        return Engine(begin, threads=self.threads, **limits)

    def _advance(self) -> None:
        """One more batch has been given out."""
        self._step += 1
        if self._step >= len(self.order):
            self._epoch, self._step = self._epoch + 1, 0

    def close(self) -> None:
        """End the threads of an endless stream; the next `iter` goes on where it stood."""
        if self._stream is not None:
            self._stream.stop()
            self._stream = None

    # ---- going on in another process

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands, counted in batches that the caller has got: plain numbers and text."""
        return {**self._identity(), "epoch": self._epoch, "step": self._step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there at the next `iter`; raises Refused where the batches would be others."""
        for name, mine in self._identity().items():
            if state.get(name) != mine:
                raise Refused(
                    f"state_dict: {name} was {state.get(name)!r}, here it is {mine!r}; make the loader as it was"
                )
        self.close()
        self._epoch, self._step, self._resumed = int(state["epoch"]), int(state["step"]), True

    def _identity(self) -> dict[str, Any]:
        """What must be equal for the same batches to come."""
        order = self.order
        return {
            "version": _STATE_VERSION,
            "pack": self.dataset.reader().pack.manifest.pack_id if isinstance(self.dataset, PackDataset) else None,
            "samples": order.count,
            "batch_size": order.batch_size,
            "shuffle": order.shuffle,
            "seed": order.seed,
            "drop_last": order.drop_last,
            "world_size": order.world_size,
            "steps_per_epoch": order.steps_per_epoch,
        }

    def __repr__(self) -> str:
        return f"Loader({self.dataset!r}, {self.order.batch_size}: {len(self)} batches, {self.threads} threads)"


class _Epoch:
    """The batches of one epoch; its threads end with it, or when nobody holds it any more."""

    def __init__(self, loader: Loader, engine: Engine, *, endless: bool) -> None:
        self._loader = loader
        self._engine = engine
        self._left = len(loader) if endless else -1
        self._close = None if endless else weakref.finalize(self, engine.stop)

    def __iter__(self) -> "_Epoch":
        return self

    def __next__(self) -> Any:
        if self._left == 0:
            raise StopIteration
        try:
            batch = self._engine.take()
        except BaseException:
            if self._close is not None:
                self._close()
            else:
                self._loader.close()
            raise
        self._left -= 1
        self._loader._advance()  # noqa: SLF001  its iterator
        return batch

    def close(self) -> None:
        """End the threads now; an endless stream goes on."""
        if self._close is not None:
            self._close()


class _Recipe:
    """How a step becomes a batch. The threads hold this, and neither the loader nor its iterators."""

    def __init__(
        self,
        dataset: Any,
        seed: int,
        collator: Collator,
        *,
        geometry: Geometry | None,
        transform: Callable[[Any], Any] | None,
    ) -> None:
        self._dataset = dataset
        self._seed = seed
        self._is_pack = isinstance(dataset, PackDataset)
        self._geometry = geometry or (dataset.geometry if self._is_pack else None)
        self._transform = transform
        self._collator = collator
        self._ring = Ring(4 * _MOST_AHEAD)

    def begin(self, steps: Steps) -> Callable[[], Job | None]:
        """A function that begins batch after batch."""
        return partial(self._next, steps)

    def _next(self, steps: Steps) -> Job | None:
        step = steps.next()
        if step is None:
            return None
        random = self._random(step)
        dataset = self._dataset
        if not self._is_pack or self._transform or dataset.transform or dataset.output != "torch":
            indices = step.indices.tolist()
            return SampleJob(indices, random, self._collator, get=self._sample, where=self._where)
        places = dataset.places(step.indices)
        parts: dict[str, Any] = {"geometry": self._geometry, "random": random, "take": self._ring.take}
        return DecodeJob(Assembly(dataset.reader(), places, **parts), dataset.as_tuple, self._collator)

    def _random(self, step: Step) -> list[list[float]]:
        draws = self._geometry.draws if self._geometry is not None else 0
        if not draws:
            return [[]] * len(step.indices)
        numbers: list[list[float]] = draw(self._seed, step.passes, step.indices, draws).tolist()
        return numbers

    def _sample(self, index: int, random: Sequence[float]) -> Any:
        """One sample for a Python function, or of another data set."""
        sample = self._dataset.sample(index, self._geometry, random) if self._is_pack else self._dataset[index]
        return self._transform(sample) if self._transform else sample

    def _where(self, index: int) -> str:
        if not self._is_pack:
            return f"in sample {index} of {self._dataset!r}"
        return f"in sample {index} of {self._dataset.path}, key {self._dataset.key(index)!r}"


def _place_among_ranks(rank: int | None, world_size: int | None, *, given_order: bool) -> tuple[int, int]:
    """rank and world_size as given, else as torch.distributed has them, else 0 of 1."""
    if (rank is None) != (world_size is None):
        raise Refused(f"rank={rank}, world_size={world_size}: pass both or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    distributed = torch.distributed
    if given_order or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
