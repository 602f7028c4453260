"""Loader: an iterable of batches. Threads or worker processes decode the samples into memory that is reused."""

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Never

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset

from packer.datasets.batch import RaggedPolicy
from packer.datasets.batch_decoder import take_from
from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest, WrongType, printable
from packer.geometry import Geometry
from packer.loading import sample_order
from packer.loading.batch_jobs import BatchJobs, members, packs_in, unwrapped
from packer.loading.batch_sampler_order import BatchOrder, BatchPasses, UserBatches
from packer.loading.block_order import BlockOrder, block_order
from packer.loading.cuda_prefetcher import TransferPass
from packer.loading.device_transfer import MeanStd, PostProcessing, device_of, pinned, transfer_to
from packer.loading.mix import Mix
from packer.loading.process_engine import WorkerPool
from packer.loading.sample_order import LoaderState, Order, Step, Steps, rank_and_world_size, state_from
from packer.loading.shuffle_quality import POOR_VARIANCE_RATIO, label_field, shuffle_quality
from packer.loading.thread_engine import Pass, ThreadEngine
from packer.loading.weights import weighted_batches
from packer.system.argument_types import check_parameters
from packer.system.buffer_pool import BufferPool, pageable
from packer.system.parallel import usable_cores

if TYPE_CHECKING:
    from packer.copies.part_schedule import PartSchedule

_MOST_AHEAD = 8  # batches that are ready or being made
_MOST_BYTES_AHEAD = 64 << 20
_ON_DEVICE = 2  # batches on the device or on their way, besides the current one
_STATE_VERSION = 2
# arguments of torch's DataLoader -> advice
_INSTEAD = {
    "pin_memory": 'give device="cuda", which copies batches through pinned memory',
    "prefetch_factor": "give prefetch_bytes=",
    "generator": "give seed=",
    "worker_init_fn": "give seed= for repeatable order and views",
    "batch_sampler": "give sampler= and batch_size=",
    "persistent_workers": "omit it, because worker processes are always persistent",
}
_JUDGED_BATCHES = 2048  # batches whose labels are compared with those of a full shuffle


@dataclass(frozen=True)
class LoaderStats:
    """Memory that a loader uses now.

    Args:
        held_buffers: Number of buffers of batches that are being made, are ready, or that you still refer to.
        worker_buffer_bytes: Size of the shared memory that a worker gets for a batch. 0 until it is known.
    """

    held_buffers: int
    worker_buffer_bytes: int


class Loader:
    """An iterable of batches: dicts of batched fields. Images are uint8 (N, 3, H, W) in torch.channels_last memory.

    | field                     | in a batch                                                            |
    |---------------------------|-----------------------------------------------------------------------|
    | image, depth              | uint8 (N, 3, H, W), float32 (N, 1, H, W)                              |
    | mask                      | uint8 (N, H, W), or int32 if it has 16 bit                            |
    | images of varying size    | with ragged="pad" as above, with zeros right of and below each image, |
    |                           | and `<field>_size`, int64 (N, 2), their height and width              |
    | number of a fixed shape   | a tensor (N, ...)                                                     |
    | points, boxes, other      | a list of N tensors; with ragged="pad" one tensor (N, longest, ...),  |
    | arrays of varying length  | with zeros after each value, and `<field>_count`, int64 (N,)          |
    | text, json, bytes         | a list of N values                                                    |

    You own a batch that you receive. Its memory is reused after the last reference to its tensors is gone. If the
    dataset has `as_tuple`, a batch is a list, as in torch's DataLoader.

    The order and the geometry depend on the seed, and not on the number of threads. A transform that draws random
    numbers itself is not repeatable, because threads call it in any order.

    Some arguments of torch's DataLoader do not exist here. The error names the argument to use instead.
    """

    def __init__(
        self,
        dataset: Dataset[Any] | Mix,
        batch_size: int = 1,
        *,
        shuffle: bool | Literal["blocks"] = False,
        window: int | None = None,
        weights: Sequence[float] | npt.NDArray[Any] | torch.Tensor | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | BatchPasses | None = None,
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
        **unknown: Never,
    ) -> None:
        """Create a loader.

        Args:
            dataset: A dataset of a pack, a Subset or ConcatDataset of them, a packer.Mix, or another dataset with `len`
                and `[index]`. Threads call it.
            batch_size: Number of samples of a batch.
            shuffle: True shuffles all samples in each epoch. "blocks" shuffles them so that few parts of the pack are
                read at a time. False keeps the order of the dataset.
            window: With shuffle="blocks", the number of parts to read from at a time, on all ranks together. The
                default is a tenth of the parts, at least 16.
            weights: A number for each sample. Each epoch repeats or skips samples at random, in proportion to these
                numbers. `packer.loading.balanced(dataset.targets)` gives all classes equal shares.
            sampler: An iterable of sample indices with a length. It replaces `shuffle`.
            batch_sampler: An iterable of lists of sample indices with a length, or a packer.loading.SizeBuckets. It
                replaces `batch_size`, `shuffle` and `sampler`.
            seed: Seed of the order and of the geometry.
            geometry: Replaces the geometry of the dataset. None keeps it. Its random numbers depend on (seed, epoch,
                sample index).
            transform: A function of the sample, called in threads after the dataset's own transform.
            collate_fn: A function of a list of samples that returns the batch. With it, samples are decoded one by one.
            drop_last: True drops an incomplete last batch, False makes it. With weights, a Mix or a batch_sampler, the
                batches may not divide among the ranks. True drops the last ones, False cuts the longest in halves.
            ragged: For fields of varying length, "list" makes lists of tensors, "pad" makes padded tensors. See the
                table of the class.
            steps_per_epoch: Number of batches of an epoch. Epochs continue one endless stream of passes, and a `break`
                loses no batch of it. None: an epoch is one pass over all samples.
            rank: Number of this process. By default the rank in torch.distributed when a pass begins.
            world_size: Number of processes that share the samples. Give it together with `rank`.
            threads: Number of threads. The default is one per usable core. It is 1 for a pack of small files whose
                uncompressed pixels are only copied.
            num_workers: Number of processes that make batches, for functions that hold Python's lock. They run until
                `close`, and only one pass at a time is possible. 0 uses threads.
            prefetch_bytes: Size of the batches to make ahead, by default 64 MiB. At least 2 batches, at most 8.
            device: The device of the batches, None for the CPU. For CUDA, batches are decoded into pinned memory and
                copied ahead.
            normalize: (mean, std) per channel in units of 0 to 1, applied on the device. See CUDAPrefetcher. None keeps
                uint8 images.
            unknown: Any other argument is an error. For an argument of torch's DataLoader, the message names a
                replacement.

        Raises:
            WrongType: An argument does not exist, or has another type.
            InvalidRequest: An argument is out of range, or arguments contradict each other.
        """
        for name in unknown:
            instead = _INSTEAD.get(name, "see help(packer.Loader)")
            raise WrongType(f"{name}=: packer.Loader does not have this argument; {instead}")
        mix, dataset = (dataset, dataset.dataset) if isinstance(dataset, Mix) else (None, dataset)
        if isinstance(dataset, (str, bytes, bytearray, os.PathLike)) or not isinstance(dataset, Sized):
            raise WrongType(
                f"dataset: expected a data set with len() and [index], found {dataset!r:.60}; call Loader(dataset, "
                "batch_size), where packer.open(...) makes the data set of a pack"
            )
        # None is torch's default
        shuffle = False if shuffle is None else shuffle
        drop_last = False if drop_last is None else drop_last
        skipped = ("dataset", "normalize", "weights", "unknown")
        check_parameters(Loader.__init__, {name: given for name, given in locals().items() if name not in skipped})
        _check(batch_size, threads, num_workers, prefetch_bytes, collate_fn, ragged)
        _check_classes(dataset)
        for each in packs_in(dataset):
            if each.decodes_batches():  # otherwise the samples are the user's own
                each.check_transform(transform, gets_image=False)
        self.dataset = dataset
        self._pack, self._subset = unwrapped(dataset)
        if geometry is not None and not all(isinstance(each, PackDataset) for each in members(dataset)):
            raise InvalidRequest(
                f"geometry=: {type(dataset).__name__} is not a pack's dataset, or a Subset or ConcatDataset of them; "
                "pass geometry= to packer.open, or a transform"
            )
        is_users = sampler is not None or not isinstance(batch_sampler, BatchPasses | None)
        self._current_ranks = partial(rank_and_world_size, rank, world_size, distributed=not is_users)
        rank, world_size = rank_and_world_size(rank, world_size, distributed=False)
        blocks = self._blocks(shuffle, window)
        deciding = {
            "Mix": mix,
            "weights": weights,
            "batch_sampler": batch_sampler,
            "sampler": sampler,
            "shuffle": True if shuffle and (mix is None or blocks is not None) else None,
            "batch_size": batch_size if batch_sampler is not None and batch_size != 1 else None,
        }
        given = [name for name, value in deciding.items() if value is not None]
        if len(given) > 1:
            raise InvalidRequest(f"{given[0]} and {given[1]}: each of them decides the order; drop one of them")
        passes: BatchPasses | None = batch_sampler if isinstance(batch_sampler, BatchPasses) else None
        if mix is not None:
            passes = mix.batches(batch_size, shuffle=bool(shuffle))
        elif weights is not None:
            passes = weighted_batches(weights, len(dataset), batch_size)
        elif batch_sampler is not None and passes is None:
            passes = UserBatches(batch_sampler)
        new_order = partial(BatchOrder, passes=passes) if passes is not None else Order
        self.order: Order = new_order(  # of the newest pass
            len(passes) if passes is not None else len(dataset),
            batch_size if passes is None else 1,
            bool(shuffle) and passes is None,
            seed,
            drop_last,
            rank=rank,
            world_size=world_size,
            steps_per_epoch=steps_per_epoch,
            sampler=passes.deciding if isinstance(passes, UserBatches) else sampler,
            blocks=blocks,
        )
        if blocks is not None:
            self._warn_of_blocks()
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
            # a garbage collection might end the queues before the processes that read them
            weakref.finalize(self, self._worker_pool.close)
        self._prefetch_bytes = prefetch_bytes if prefetch_bytes is not None else _MOST_BYTES_AHEAD
        self._state = LoaderState(int(world_size), int(self.order.batch_size))  # of the next batch
        self._steps = 0  # of the newest pass: fewer than `len` if other ranks have made some
        self._resumed = False
        self._sampler_state: Any = None  # the sampler's state before the current pass
        self._pass_number = 0  # of the newest iterator, which advances the state
        self._stream: Pass[Any] | None = None
        self._parts: PartSchedule | None = None  # of the newest pass over a pack at a URL
        self._made = 0  # batches of that pass
        self._followed: Iterator[Step] | None = None
        self._passes: weakref.WeakSet[Pass[Any]] = weakref.WeakSet()

    def _best_threads(self, *functions: object) -> int:
        """Return the number of cores, or 1 for a pack of small files whose uncompressed pixels are only copied.

        These copies take less time than the threads would wait for Python's lock. `functions` are called for each
        sample. If one of them is not None, the result is the number of cores.
        """
        pack = self._pack
        if not isinstance(pack, PackDataset) or any(each is not None for each in functions):
            return usable_cores()
        is_own = pack.decodes_batches() and type(pack).batch_decoder is PackDataset.batch_decoder
        is_plain = is_own and pack.geometry is None and pack.transform is None and pack.output == "torch"
        return 1 if is_plain and pack.sample_decoder().copies_small_files else usable_cores()

    def _current_order(self) -> Order:
        """Return the order for a pass that begins now, with the current rank and number of ranks."""
        rank, world_size = self._current_ranks()
        return replace(self.order, rank=rank, world_size=world_size)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._current_order())

    @property
    def epoch(self) -> int:
        """Number of the current epoch. After the end of an epoch, number of the next epoch."""
        return self._state.on(self._current_order()).epoch if self._resumed else self._state.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch. Without this call, each `iter` begins the epoch after the previous epoch.

        The call has no effect for an endless stream, or if the next `iter` begins this epoch anyway. It also does not
        change the batch at which `load_state_dict` continues this epoch.
        """
        if self.order.steps_per_epoch is None and (epoch != self.epoch or (self._state.step and not self._resumed)):
            self._begin_epoch(epoch)
            self._resumed = True
            self._pass_number += 1

    def _blocks(self, shuffle: object, window: int | None) -> BlockOrder | None:
        if shuffle != "blocks":
            if window is not None:
                raise InvalidRequest(f'window={window!r:.60}: it needs shuffle="blocks"; give both, or drop window')
            return None
        pack, count = self._pack, len(self.dataset)
        if not isinstance(pack, PackDataset):
            raise InvalidRequest(
                f'shuffle="blocks": {type(pack).__name__} has no parts; expected a pack\'s data set, or a Subset of one'
            )
        numbers = pack.part_numbers(self._subset)
        if len(numbers) != count:
            raise InvalidRequest(
                f'shuffle="blocks": {type(pack).__name__} has {count} samples, but the parts of its pack contain '
                f"{len(numbers)} of them; give shuffle=True"
            )
        return block_order(numbers, window)

    def _warn_of_blocks(self) -> None:
        """Warn if the batches of the first pass contain fewer classes than those of a full shuffle."""
        pack, blocks = self._pack, self.order.blocks
        if not isinstance(pack, PackDataset) or blocks is None or (name := label_field(pack.schema)) is None:
            return
        labels = pack.column(name)
        if self._subset is not None:
            labels = labels[self._subset]
        order = self.order.of_pass(0)[: _JUDGED_BATCHES * self.order.batch_size]
        found = shuffle_quality(labels, order, batch_size=self.order.batch_size)
        if found is not None and found.variance_ratio > POOR_VARIANCE_RATIO:
            line = (
                f'shuffle="blocks": batches vary {found.variance_ratio:.1f} times as much in {name!r} as a full '
                f"shuffle's ({found.classes:.1f} classes of {len(np.unique(labels))} in a batch, window of "
                f"{blocks.window} of {blocks.parts} parts); pack with --order shuffled, or raise window"
            )
            warnings.warn(printable(line), RuntimeWarning, stacklevel=3)

    def __iter__(self) -> Iterator[Any]:
        if self._state.step and not self._resumed:  # the last epoch was left early
            self._begin_epoch(self._state.epoch + 1)
        order = self._current_order()
        state = self._state.on(order)
        if order != self.order:
            self._stop()  # ends the stream of another rank
        self.order, self._state, self._steps = order, state, order.steps_after(state.before)
        self._pass_number += 1
        if self.order.steps_per_epoch is not None:
            return _Epoch(self, self._running_stream(), self._pass_number, left=len(self) - self._state.step)
        if self._sampler_state is not None:  # no batch of the last pass was taken: it is repeated in the same order
            sample_order.restore(self.order.sampler, self._sampler_state, begun=False)
        self._sampler_state = sample_order.state_of(self.order.sampler)
        batches = self._pass(self.epoch, self._state.step)
        self._passes.add(batches)
        return _Epoch(self, batches, self._pass_number)

    def _running_stream(self) -> Pass[Any]:
        if self._stream is not None and self._stream.source.pid != os.getpid():  # a child does not have the threads
            self._stop()
        if self._stream is None:
            self._stream = self._pass(0, self._state.taken)
        return self._stream

    def _pass(self, epoch: int, step: int) -> Pass[Any]:
        """Return the batches of an epoch from number `step` on, and start the threads or processes that make them."""
        steps = self.order.begin(epoch, step, self._state.before)
        self._follow(steps)
        made = self._worker_pool.begin(steps) if self._worker_pool is not None else self._engine(steps)
        if self._transfer is None:
            return Pass(made)
        return Pass(TransferPass(self._transfer, made, _ON_DEVICE, stop=made.stop))

    def _follow(self, steps: Iterator[Step] | None) -> None:
        """Start to download the parts for the batches `steps`, if the pack is remote."""
        self._parts, self._followed, self._made = None, steps, 0
        if isinstance(steps, Steps) and isinstance(self._pack, PackDataset) and self._pack.is_remote:
            upcoming = steps.upcoming()
            chosen = upcoming if self._subset is None else self._subset[upcoming]
            self._parts = self._pack.fetch_ahead(chosen, rank=self.order.rank, world_size=self.order.world_size)

    def _engine(self, steps: Iterator[Step]) -> ThreadEngine:
        jobs = self._jobs  # the threads must not hold the loader
        return ThreadEngine(
            (jobs.job(step) for step in steps),
            threads=self.threads,
            most_bytes=self._prefetch_bytes,
            most_batches=max(_MOST_AHEAD, self.threads + 1),
        )

    def _begin_epoch(self, epoch: int) -> None:
        stream = self.order.steps_per_epoch is not None
        self._state = replace(self._state, epoch=epoch, step=0, before=self._state.before if stream else ())
        self._sampler_state = None

    def _advance(self, pass_number: int, ready: int) -> None:
        """Count a batch that an iterator returns. `ready` is the number of later batches that are already made."""
        if self._parts is not None and (pass_number == self._pass_number or self.order.steps_per_epoch is not None):
            # without the returned batch, because the last batches may be smaller
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
        """End all passes, threads and worker processes. A second call has no effect.

        The next `iter` starts new threads or processes. An endless stream continues at the same batch.
        """
        for running in list(self._passes):
            running.close()
        self._stop()

    def _stop(self) -> None:
        """End what continues after a pass: the threads of an endless stream, and the worker processes."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self._worker_pool is not None:
            self._worker_pool.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- continuing in another process

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader as a dict of numbers and texts. Only batches that you received count."""
        sampler = self._sampler_state if self._sampler_state is not None else sample_order.state_of(self.order.sampler)
        return {**self._identity(), **self._state.state(), "sampler_state": sampler}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from `state`, a result of `state_dict`, at the next `iter`.

        The number of ranks may have changed. If another setting that determines the order has changed, this raises
        InvalidRequest.
        """
        for name, value in self._identity().items():
            if state.get(name) != value:
                raise InvalidRequest(
                    f"state_dict: {name} was {state.get(name)!r}, here it is {value!r}; make the loader as it was"
                )
        resumed = state_from(state)
        resumed.on(self._current_order())
        sample_order.restore(self.order.sampler, state.get("sampler_state"), begun=resumed.step > 0)
        self._stop()
        self._state, self._resumed, self._sampler_state = resumed, True, None
        self._pass_number += 1

    def _identity(self) -> dict[str, Any]:
        """Return the settings that determine the order and are equal on all ranks."""
        order = self.order
        packs = packs_in(self.dataset)
        return {
            "version": _STATE_VERSION,
            "pack": _only([each.content_id for each in packs]),
            "split": _only([each.split_name for each in packs]),
            "samples": len(self.dataset),
            "shuffle": "blocks" if order.blocks is not None else bool(order.shuffle),
            "window": order.blocks.window if order.blocks is not None else None,
            "sampler": type(order.sampler).__name__ if order.sampler is not None else None,
            "batches": order.passes.identity() if isinstance(order, BatchOrder) else None,
            "seed": int(order.seed),
            "drop_last": bool(order.drop_last),
            "steps_per_epoch": int(order.steps_per_epoch) if order.steps_per_epoch else None,
        }

    def stats(self) -> LoaderStats:
        """Return the memory that the loader uses now."""
        return LoaderStats(len(self._buffer_pool), self._worker_pool.buffer_bytes if self._worker_pool else 0)

    def __repr__(self) -> str:
        made = f"{self.num_workers} workers" if self.num_workers else f"{self.threads} threads"
        blocks = self.order.blocks
        if blocks is not None:
            made += f", shuffled in {blocks.lanes} lanes, {min(blocks.window, blocks.parts)} of {blocks.parts} parts"
        size = self.order.passes.identity() if isinstance(self.order, BatchOrder) else self.order.batch_size
        return f"Loader({self.dataset!r}, {size}: {len(self)} batches, {made})"


class _Epoch(Iterator[Any]):
    """The batches of one epoch. Each returned batch advances the state of the loader."""

    def __init__(self, loader: Loader, batches: Pass[Any], pass_number: int, *, left: int | None = None) -> None:
        """Create an epoch. `left` limits the batches of an endless stream, and is None for a source of one epoch."""
        self._loader = loader
        self._batches = batches
        self._pass_number = pass_number
        self._left = left

    def __next__(self) -> Any:
        if self._left == 0:
            raise StopIteration
        try:
            batch = next(self._batches)
        except BaseException:
            if self._left is not None:
                self._loader._stop()
            raise
        if self._left is not None:
            self._left -= 1
        self._loader._advance(self._pass_number, self._batches.source.ready)
        return batch

    def close(self) -> None:
        """End the threads now. An endless stream continues."""
        if self._left is None:
            self._batches.close()


def _check(
    batch_size: int,
    threads: int | None,
    num_workers: int,
    prefetch_bytes: int | None,
    collate_fn: object,
    ragged: RaggedPolicy,
) -> None:
    if batch_size < 1:
        raise InvalidRequest(f"batch_size={batch_size!r}: expected a whole number, at least 1")
    if threads is not None and threads < 1:
        raise InvalidRequest(f"threads={threads}: expected at least 1")
    if num_workers < 0:
        raise InvalidRequest(f"num_workers={num_workers}: expected at least 0, which is for threads alone")
    if num_workers and (threads is not None or prefetch_bytes is not None):
        raise InvalidRequest(
            "num_workers: each has one thread and makes two batches ahead; drop threads and prefetch_bytes"
        )
    if collate_fn is not None and ragged != "list":
        raise InvalidRequest(f"collate_fn and ragged={ragged!r}: the function makes the batch; drop one of them")


def _only(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values or None


def _check_classes(dataset: Any) -> None:
    """Raise InvalidRequest if the packs in `dataset` number the classes of a field differently."""
    first: dict[str, tuple[PackDataset, tuple[str, ...]]] = {}
    for pack in packs_in(dataset):
        for field in pack.schema:
            if field.classes is not None:
                other, classes = first.setdefault(field.name, (pack, field.classes))
                if classes != field.classes:
                    raise InvalidRequest(
                        f"{pack.path}: the classes of {field.name!r} are not those of {other.path}, and their numbers "
                        "would be mixed; packer.concat merges class lists by name, or leave the field out with fields="
                    )
