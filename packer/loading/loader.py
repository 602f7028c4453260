"""Loader: batches of samples, decoded by threads or worker processes straight into reused memory."""

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Literal, ParamSpec

import numpy as np
import torch
from torch.utils.data import Dataset

from packer.datasets.batch import RaggedPolicy
from packer.datasets.batch_decoder import take_from
from packer.datasets.pack_dataset import PackDataset, PartSchedule
from packer.errors import InvalidRequest, WrongType, printable
from packer.geometry import Geometry
from packer.loading import sampling
from packer.loading.batch_jobs import BatchJobs, packs_in, unwrapped
from packer.loading.block_order import BlockOrder, block_order
from packer.loading.device_transfer import MeanStd, PostProcessing, device_of, pinned, transfer_to
from packer.loading.prefetchers import TransferPass
from packer.loading.sampling import Indices, LoaderState, Order, Steps, rank_and_world_size, state_from
from packer.loading.shuffle_quality import POOR_VARIANCE_RATIO, label_field, shuffle_quality
from packer.loading.thread_engine import ThreadEngine
from packer.loading.worker_processes import WorkerPass, WorkerPool
from packer.system.buffer_pool import BufferPool, pageable
from packer.system.parallel import usable_cores

_OF_DATALOADER = {  # argument of torch's DataLoader -> what to do here
    "pin_memory": 'device="cuda" decodes into pinned memory and copies ahead',
    "pin_memory_device": 'device="cuda" decodes into pinned memory and copies ahead',
    "prefetch_factor": "prefetch_bytes= says how much is made ahead",
    "persistent_workers": "worker processes live on until close()",
    "batch_sampler": "give sampler=, an iterable of sample indices, and batch_size=",
    "worker_init_fn": "each worker seeds the generators of torch, NumPy and random from seed=",
    "generator": "the order comes from seed=",
    "timeout": "a batch is waited for as long as it takes",
    "multiprocessing_context": "processes start as torch's default says",
    "in_order": "batches always come in order",
}
_MOST_AHEAD = 8  # batches ready or in the making: more would only cool the caches
_MOST_BYTES_AHEAD = 64 << 20  # more smooths nothing more, and lies in memory as long as steps are slower than loading
_ON_DEVICE = 2  # batches there, or on their way, beside the one in use
_STATE_VERSION = 2
_JUDGED_BATCHES = 2048  # of a shuffle by blocks, whose labels are looked at

Source = ThreadEngine | WorkerPass | TransferPass  # where batches come from
Arguments = ParamSpec("Arguments")


def _explaining(init: Callable[Arguments, None]) -> Callable[Arguments, None]:
    """Raise WrongType for an argument of torch's DataLoader that Loader lacks, naming what does the same."""

    @wraps(init)
    def explained(*given: Arguments.args, **named: Arguments.kwargs) -> None:
        for name, instead in _OF_DATALOADER.items():
            if name in named:
                raise WrongType(f"Loader has no {name}=: {instead}")
        init(*given, **named)

    return explained


@dataclass(frozen=True)
class LoaderStats:
    """held_buffers: buffers of batches that somebody still holds. worker_buffer_bytes: of shared memory that a worker
    gets for a batch, 0 while that is not known.
    """

    held_buffers: int
    worker_buffer_bytes: int


class Loader:
    """An iterable of batches: dicts of batched fields, images as uint8 (N, 3, H, W) in channels_last memory.

    | field                     | in a batch                                                            |
    |---------------------------|-----------------------------------------------------------------------|
    | image, depth              | uint8 (N, 3, H, W), float32 (N, 1, H, W)                              |
    | mask                      | uint8 (N, H, W), int32 where it has 16 bit                            |
    | number of a fixed shape   | a tensor (N, ...)                                                     |
    | points, boxes, other      | a list of N tensors; with ragged="pad" one tensor (N, longest, ...),  |
    | arrays of varying length  | zeros behind each, and `<field>_count`, int64 (N,)                    |
    | text, json, bytes         | a list of N values                                                    |

    A batch is the caller's: its memory is used again only when nobody holds one of its tensors. The same seed gives the
    same order and the same geometry, however many threads there are; a transform that draws random numbers in threads
    is not repeatable. With `as_tuple` of the data set, a batch is a list, as a DataLoader's.
    """

    @_explaining
    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int = 1,
        *,
        shuffle: bool | Literal["blocks"] = False,
        window: int | None = None,
        sampler: Iterable[int] | None = None,
        seed: int = 0,
        geometry: Geometry | None = None,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        drop_last: bool = False,
        ragged: RaggedPolicy = "list",
        steps_per_epoch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        threads: int | None = None,
        num_workers: int = 0,
        prefetch_bytes: int | None = None,
        device: str | torch.device | int | None = None,
        normalize: MeanStd | None = None,
    ) -> None:
        """dataset: a pack's, a Subset of one, or any other with `len` and `[index]`, then called in the threads.

        shuffle: True for a new order of all samples in each epoch, "blocks" for one that reads from few parts at a
        time, of a pack's data set or a Subset of one. window: from so many, on all ranks together; by default a tenth
        of them, at least 16 (packer/loading/block_order.py).
        sampler: an iterable of sample indices with a length, in place of shuffle. seed: of order and geometry.
        geometry: in place of the data set's; its random numbers depend on (seed, epoch, sample index) alone.
        transform: called in the threads with each sample, after the data set's own. collate_fn: makes a batch of a list
        of samples, in a thread or a worker, as a DataLoader's does; samples are then decoded one by one.
        steps_per_epoch: cut an endless stream of passes into epochs of so many batches; an early `break` loses nothing.
        rank, world_size: this process's share of the samples, by default as torch.distributed has them when a pass
        begins, and for `len`.
        threads: by default one per core that this process may use, and one in all for a pack whose samples are small
        files of bare pixels (format bmp, codec bmp or npy) that nothing is done with. prefetch_bytes: of batches made
        ahead, 64 MiB where nothing is said; two batches always, eight at most. num_workers: so many processes make
        batches in place of threads, where Python's lock would hold threads up; they live until `close`, or as long as
        the loader. One pass at a time then. `packer tune` measures both.
        device: where batches are wanted; they are decoded into pinned memory and copied there ahead, as by
        packer.loading.CUDAPrefetcher. normalize: (mean, std) of images in units of 0 to 1, there; see CUDAPrefetcher.
        Raises InvalidRequest for what does not go together.
        """
        _check(dataset, threads, num_workers, prefetch_bytes)
        _check_collate(collate_fn, ragged)
        _check_classes(dataset)
        for each in packs_in(dataset):
            if each.decodes_batches():  # else its samples are the user's own
                each.check_transform(transform, moves_all=each.output == "tv")
        self.dataset = dataset
        self._pack = unwrapped(dataset)[0]
        if geometry is not None and not isinstance(geometry, Geometry):
            raise WrongType(f"geometry={geometry!r:.60}: expected one of packer.geometry's")
        if geometry is not None and not isinstance(self._pack, PackDataset):
            raise InvalidRequest(
                f"geometry=: {type(dataset).__name__} is not a pack's data set, or a Subset of one; pass geometry= to "
                "packer.open, or a transform"
            )
        sized: Any = dataset
        self._current_ranks = partial(rank_and_world_size, rank, world_size, distributed=sampler is None)
        rank, world_size = rank_and_world_size(rank, world_size, distributed=False)
        blocks = _blocks(dataset, shuffle, window)
        self.order = Order(  # of the newest pass
            len(sized),
            batch_size,
            True if isinstance(shuffle, str) else shuffle,
            seed,
            drop_last,
            rank=rank,
            world_size=world_size,
            steps_per_epoch=steps_per_epoch,
            sampler=sampler,
            blocks=blocks,
        )
        if blocks is not None:
            self._warn_of_blocks(subset_of=unwrapped(dataset)[1])
        postprocess, wanted = PostProcessing(normalize=normalize), device_of(device if device is not None else "cpu")
        self._transfer = transfer_to(wanted, postprocess) if wanted.type != "cpu" or postprocess else None
        new_jobs = partial(
            BatchJobs,
            dataset,
            seed=seed,
            ragged=ragged,
            geometry=geometry,
            transform=transform,
            collate_fn=collate_fn,
        )
        self._buffer_pool = BufferPool(4 * _MOST_AHEAD, new=pinned if wanted.type == "cuda" else pageable)
        self._jobs = new_jobs(take=partial(take_from, self._buffer_pool))
        self.num_workers = int(num_workers)
        self.threads = (threads or self._best_threads(geometry, transform, collate_fn)) if not self.num_workers else 0
        self._worker_pool = WorkerPool(new_jobs, self.num_workers, seed=seed) if self.num_workers else None
        if self._worker_pool is not None:
            # not left to a collection, which may end queues before the processes that read them
            weakref.finalize(self, self._worker_pool.close)
        self._prefetch_bytes = prefetch_bytes if prefetch_bytes is not None else _MOST_BYTES_AHEAD
        self._state = LoaderState(int(world_size), int(batch_size))  # of the next batch
        self._steps = 0  # of the newest pass: fewer than `len` where other ranks have made some
        self._resumed = False
        self._sampler_state: Any = None  # the sampler's state before the pass that is going on
        self._pass_number = 0  # number of the iterator that the state follows: the newest
        self._stream: Source | None = None
        self._parts: PartSchedule | None = None  # of the newest pass over a pack behind a URL
        self._made = 0  # batches of it
        self._followed: Steps | None = None
        self._end_stream: Callable[[], object] = _nothing
        self._passes: weakref.WeakSet[_Epoch] = weakref.WeakSet()  # that have threads of their own

    def _best_threads(self, *functions: object) -> int:
        """One per core, but a single one where a sample is small files of bare pixels, copied as they are.

        Such a read is five calls that let go of the interpreter for 1 to 35 us each: two threads wait for each other
        longer than that, and make 0.73 to 0.8 of what one makes. functions: what else is done with samples, if any.
        """
        pack = self._pack
        if not isinstance(pack, PackDataset) or any(each is not None for each in functions):
            return usable_cores()
        is_own = pack.decodes_batches() and type(pack).batch_decoder is PackDataset.batch_decoder
        is_plain = is_own and pack.geometry is None and pack.transform is None and pack.output == "torch"
        return 1 if is_plain and pack.sample_decoder().copies_small_files else usable_cores()

    def _current_order(self) -> Order:
        """The order of a pass that begins now."""
        rank, world_size = self._current_ranks()
        return replace(self.order, rank=rank, world_size=world_size)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self._current_order())

    @property
    def epoch(self) -> int:
        """The epoch that is going on, or comes next."""
        return self._state.on(self._current_order()).epoch if self._resumed else self._state.epoch

    def set_epoch(self, epoch: int) -> None:
        """Which epoch comes next; without it, each `iter` begins the one after the last.

        Where that epoch comes next already, also in the middle after `load_state_dict`, nothing changes. An endless
        stream goes on as it is.
        """
        if self.order.steps_per_epoch is None and (epoch != self.epoch or (self._state.step and not self._resumed)):
            self._begin_epoch(epoch)
            self._resumed = True
            self._pass_number += 1

    def _warn_of_blocks(self, subset_of: Indices | None) -> None:
        """Warn where the batches of the first pass hold fewer classes than a full shuffle's would."""
        pack, blocks = self._pack, self.order.blocks
        if not isinstance(pack, PackDataset) or blocks is None or (name := label_field(pack.schema)) is None:
            return
        labels, numbers = pack.column(name), pack.part_numbers()
        if subset_of is not None:
            labels, numbers = labels[subset_of], numbers[subset_of]
        order = self.order.of_pass(0)[: _JUDGED_BATCHES * self.order.batch_size]
        found = shuffle_quality(labels, numbers, order, batch_size=self.order.batch_size)
        if found is not None and found.variance_ratio > POOR_VARIANCE_RATIO:
            line = (
                f'shuffle="blocks": batches vary {found.variance_ratio:.1f} times as much in {name!r} as a full '
                f"shuffle's ({found.classes:.1f} classes of {len(np.unique(labels))} in a batch, window of "
                f"{blocks.window} of {blocks.parts} parts); pack with --order shuffled, or raise window"
            )
            warnings.warn(printable(line), RuntimeWarning, stacklevel=3)

    def __iter__(self) -> Iterator[Any]:
        if self._state.step and not self._resumed:  # the last one was broken off
            self._begin_epoch(self._state.epoch + 1)
        order = self._current_order()
        state = self._state.on(order)
        if order != self.order:
            self._stop()  # the stream of another rank
        self.order, self._state, self._steps = order, state, order.steps_after(state.before)
        self._pass_number += 1
        if self.order.steps_per_epoch is not None:
            return _Epoch(self, self._running_stream(), self._pass_number, left=len(self) - self._state.step)
        if self._sampler_state is not None:  # no batch of it was taken: once more, in the same order
            sampling.restore(self.order.sampler, self._sampler_state, begun=False)
        self._sampler_state = sampling.state_of(self.order.sampler)
        epoch = _Epoch(self, self._source(self.epoch, self._state.step), self._pass_number)
        self._passes.add(epoch)
        return epoch

    def _running_stream(self) -> Source:
        if self._stream is not None and self._stream.pid != os.getpid():  # a child has no threads of its parent's
            self._stop()
        if self._stream is None:
            self._stream = self._source(0, self._state.taken)
            self._end_stream = weakref.finalize(self, self._stream.stop)
        return self._stream

    def _source(self, epoch: int, step: int) -> Source:
        """The source of batches: threads or workers that make them, and a transfer to a device where one is wanted."""
        steps = self.order.begin(epoch, step, self._state.before)
        self._follow(steps)
        made = self._worker_pool.begin(steps) if self._worker_pool is not None else self._engine(steps)
        if self._transfer is None:
            return made
        return TransferPass(self._transfer, made, _ON_DEVICE, stop=made.stop)

    def _follow(self, steps: Steps | None) -> None:
        """Begin to bring what these steps read of a pack behind a URL, up to the end of a pass."""
        self._parts, self._followed, self._made = None, steps, 0
        if steps is not None and isinstance(self._pack, PackDataset) and self._pack.is_remote:
            subset, upcoming = unwrapped(self.dataset)[1], steps.upcoming()
            chosen = upcoming if subset is None else subset[upcoming]
            self._parts = self._pack.fetch_ahead(chosen, rank=self.order.rank, world_size=self.order.world_size)

    def _engine(self, steps: Steps) -> ThreadEngine:
        limits = {"most_bytes": self._prefetch_bytes, "most_batches": max(_MOST_AHEAD, self.threads + 1)}
        return ThreadEngine(self._jobs.begin(steps), threads=self.threads, **limits)

    def _begin_epoch(self, epoch: int) -> None:
        stream = self.order.steps_per_epoch is not None
        self._state = replace(self._state, epoch=epoch, step=0, before=self._state.before if stream else ())
        self._sampler_state = None

    def _advance(self, pass_number: int, ready: int) -> None:
        """Count a batch that an iterator has returned. ready: how many more are made, so that their parts are read."""
        if self._parts is not None and (pass_number == self._pass_number or self.order.steps_per_epoch is not None):
            # one less: the last batches may be smaller
            self._parts.advance((self._made + ready) * self.order.batch_size)
            self._made += 1
            if self.order.steps_per_epoch is not None and self._parts.is_over(self._made * self.order.batch_size):
                self._follow(self._followed)
        if self.order.steps_per_epoch is not None:
            self._state = replace(self._state, taken=self._state.taken + 1)
        if pass_number != self._pass_number:
            return
        self._state, self._resumed = replace(self._state, step=self._state.step + 1), False
        if self._state.step >= self._steps:
            self._begin_epoch(self._state.epoch + 1)

    def close(self) -> None:
        """End all threads and worker processes, and with them the passes that are going on; may be called twice.

        The next `iter` starts them again: of an endless stream, where it stood.
        """
        for running in list(self._passes):
            running.close()
        self._stop()

    def _stop(self) -> None:
        """End the threads of an endless stream and the worker processes, which outlive a pass."""
        self._stream = None
        self._end_stream()
        if self._worker_pool is not None:
            self._worker_pool.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- going on in another process

    def state_dict(self) -> dict[str, Any]:
        """The state of the loader, counted in batches that the caller has received: plain numbers and text."""
        sampler = self._sampler_state if self._sampler_state is not None else sampling.state_of(self.order.sampler)
        return {**self._identity(), **self._state.state(), "sampler_state": sampler}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there at the next `iter`; raises InvalidRequest where the samples would be others.

        Another number of ranks, and with it another batch size, shares out what is left of the epoch.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise InvalidRequest(
                    f"state_dict: {name} was {state.get(name)!r}, here it is {value!r}; make the loader as it was"
                )
        resumed = state_from(state)
        resumed.on(self._current_order())
        sampling.restore(self.order.sampler, state.get("sampler_state"), begun=resumed.step > 0)
        self._stop()
        self._state, self._resumed, self._sampler_state = resumed, True, None
        self._pass_number += 1

    def _identity(self) -> dict[str, Any]:
        """The settings that determine the order; ranks share it."""
        order = self.order
        pack = self._pack if isinstance(self._pack, PackDataset) else None
        return {
            "version": _STATE_VERSION,
            "pack": pack.sample_decoder().pack.manifest.pack_id if pack else None,
            "split": pack.split if pack else None,
            "samples": order.count,
            "shuffle": "blocks" if order.blocks is not None else bool(order.shuffle),
            "window": order.blocks.window if order.blocks is not None else None,
            "sampler": type(order.sampler).__name__ if order.sampler is not None else None,
            "seed": int(order.seed),
            "drop_last": bool(order.drop_last),
            "steps_per_epoch": int(order.steps_per_epoch) if order.steps_per_epoch else None,
        }

    def stats(self) -> LoaderStats:
        """What the loader holds now."""
        return LoaderStats(len(self._buffer_pool), self._worker_pool.buffer_bytes if self._worker_pool else 0)

    def __repr__(self) -> str:
        made = f"{self.num_workers} workers" if self.num_workers else f"{self.threads} threads"
        blocks = self.order.blocks
        if blocks is not None:
            made += f", shuffled in {blocks.lanes} lanes, {min(blocks.window, blocks.parts)} of {blocks.parts} parts"
        return f"Loader({self.dataset!r}, {self.order.batch_size}: {len(self)} batches, {made})"


class _Epoch:
    """The batches of one epoch; its threads end with it, or when nobody holds it any more."""

    def __init__(self, loader: Loader, engine: Source, pass_number: int, *, left: int | None = None) -> None:
        """left: batches of an endless stream that the epoch has yet; None for an engine that ends with the epoch."""
        self._loader = loader
        self._engine = engine
        self._pass_number = pass_number
        self._left = left
        self._close = weakref.finalize(self, engine.stop) if left is None else None

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
                self._loader._stop()  # its iterator
            raise
        if self._left is not None:
            self._left -= 1
        self._loader._advance(self._pass_number, self._engine.ready)  # its iterator
        return batch

    def close(self) -> None:
        """End the threads now; an endless stream goes on."""
        if self._close is not None:
            self._close()


def _nothing() -> None:
    """Ends a stream that has not begun."""


def _check(dataset: Any, threads: int | None, num_workers: int, prefetch_bytes: int | None) -> None:
    """Raises InvalidRequest."""
    if threads is not None and threads < 1:
        raise InvalidRequest(f"threads={threads}: expected at least 1")
    if not isinstance(num_workers, int) or num_workers < 0:
        raise InvalidRequest(f"num_workers={num_workers!r}: expected a whole number, 0 for threads alone")
    if num_workers and (threads is not None or prefetch_bytes is not None):
        raise InvalidRequest(
            "num_workers: each has one thread and makes two batches ahead; drop threads and prefetch_bytes"
        )
    if isinstance(dataset, (str, bytes, bytearray, os.PathLike)) or not isinstance(dataset, Sized):
        raise WrongType(
            f"dataset: expected a data set with len() and [index], found {dataset!r:.60}; call Loader(dataset, "
            "batch_size), where packer.open(...) makes the data set of a pack"
        )


def _check_classes(dataset: Any) -> None:
    """Raise InvalidRequest if packs number the classes of a field differently."""
    first: dict[str, tuple[PackDataset, tuple[str, ...]]] = {}
    for pack in packs_in(dataset):
        for field in pack.schema:
            if field.classes is not None:
                other, classes = first.setdefault(field.name, (pack, field.classes))
                if classes != field.classes:
                    raise InvalidRequest(
                        f"{pack.path}: the classes of {field.name!r} are not those of {other.path}, and their numbers "
                        f"would be mixed; pack again with --classes-from {other.path}, or leave it out with fields="
                    )


def _blocks(dataset: Any, shuffle: object, window: int | None) -> BlockOrder | None:
    """How a data set is shuffled by blocks; None where that is not asked for. Raises InvalidRequest."""
    if not isinstance(shuffle, str):
        if window is not None:
            raise InvalidRequest(f'window={window!r:.60}: it is of shuffle="blocks"; give that too, or drop window')
        return None
    if shuffle != "blocks":
        raise WrongType(f'shuffle={shuffle!r:.60}: expected True, False or "blocks"')
    pack, subset = unwrapped(dataset)
    if not isinstance(pack, PackDataset):
        raise InvalidRequest(
            f'shuffle="blocks": {type(pack).__name__} has no parts; expected a pack\'s data set, or a Subset of one'
        )
    numbers = pack.part_numbers(subset)
    if len(numbers) != len(dataset):
        raise InvalidRequest(
            f'shuffle="blocks": {type(pack).__name__} says that it has {len(dataset)} samples, and they lie in the '
            f"parts of a pack as {len(numbers)}; give shuffle=True"
        )
    return block_order(numbers, window)


def _check_collate(collate_fn: Any, ragged: str) -> None:
    if collate_fn is None:
        return
    if not callable(collate_fn):
        raise WrongType(f"collate_fn={collate_fn!r:.60}: expected a function of a list of samples")
    if ragged != "list":
        raise InvalidRequest(f"collate_fn and ragged={ragged!r}: the function makes the whole batch; drop one of them")
