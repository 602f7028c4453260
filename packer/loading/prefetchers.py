"""Prefetchers: make batches of any loader, or copy them to a device, while the training step before runs."""

import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from packer.loading.background_iterator import BackgroundIterator, Channel
from packer.loading.device_transfer import DeviceTransfer, MeanStd, PostProcessing, SentBatch, transfer_to


class TransferPass:
    """One pass over batches, `depth` of them sent ahead by a thread."""

    def __init__(
        self,
        transfer: DeviceTransfer,
        batches: Iterator[Any],
        depth: int,
        *,
        stop: Callable[[], object] | None = None,
    ) -> None:
        """stop: called first when the pass is ended early, so that a thread that waits in `batches` comes back."""
        transfer.begin()
        self.pid = os.getpid()
        self._transfer = transfer
        self._stop = stop
        self._sent: BackgroundIterator[SentBatch] = BackgroundIterator(transfer.send(batches), depth)

    def take(self) -> Any:
        """The next batch, on the device; raises StopIteration after the last, and what went wrong, in its turn."""
        return self._transfer.receive(next(self._sent))

    @property
    def ready(self) -> int:
        """As ThreadEngine.ready: few batches wait on the device."""
        return 0

    @property
    def channel(self) -> Channel:
        """The queues between its thread and the consumer."""
        return self._sent.channel

    def stop(self) -> None:
        """End the thread and let go of all batches; may be called twice."""
        if self._stop is not None:
            self._stop()
        self._sent.close()


class CUDAPrefetcher:
    """An iterable of the loader's batches on a device, copied there while the step before runs.

    Batches may be any nesting of tensors, dicts, lists, tuples and named tuples; they come in new containers, what is
    no tensor stays as it is, and the loader's own are not changed. Each `iter` is a pass over the loader; `len` is its.
    On "cpu" batches come with the same values, on "mps" too. What goes wrong in the loader is raised where its batch is
    awaited. After an early `break`, an error, `close` or the end of a `with` block no thread is left.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        device: str | torch.device | int = "cuda",
        depth: int = 2,
        *,
        normalize: MeanStd | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        skip: Collection[str] = ("meta",),
    ) -> None:
        """depth: batches on the way or there, beside the one in use.

        normalize: (mean, std) per channel in units of 0 to 1: uint8 images (N, C, H, W) become float32
        (image / 255 - mean) / std on the device; a batch without one is refused, as floats were normalized before.
        dtype: of all floating-point tensors, normalized images among them. channels_last: memory format of images.
        skip: keys of dicts and names of named tuples that stay on the host, untouched.
        Raises InvalidRequest for a device that torch does not see here, and for options that do not fit.
        """
        keys = (skip,) if isinstance(skip, str) else tuple(skip)
        postprocess = PostProcessing(normalize=normalize, dtype=dtype, channels_last=channels_last, skip=keys)
        self._loader = loader
        self._depth = depth
        self._transfer = transfer_to(device, postprocess, keys)
        self._newest: weakref.ref[_PrefetchPass] | None = None  # the newest
        self._running: Channel | None = None  # its thread's
        self._stepped: _PrefetchPass | None = None  # the one that `next` goes through
        self._last: Any = None  # the form of the batch that `next` gave last

    def __iter__(self) -> "_PrefetchPass":
        self._stepped = None
        self.wait_for_the_end()  # a loader with persistent workers has one iterator
        transfer_pass = TransferPass(self._transfer, iter(self._loader), self._depth)
        self._running = transfer_pass.channel
        started = _PrefetchPass(transfer_pass)
        self._newest = weakref.ref(started)
        return started

    def __len__(self) -> int:
        """Batches of a pass; raises TypeError where the loader has no length."""
        sized: Any = self._loader
        return len(sized)

    def next(self) -> Any:
        """The next batch, as loops with `while batch is not None` ask for it; at the end None.

        Where batches are tuples or lists it is as many Nones at the end, for `images, labels = prefetcher.next()`.
        After the end it stays at the end, until `iter`.
        """
        if self._stepped is None:
            self._stepped = iter(self)
        batch = next(self._stepped, None)
        if batch is None:
            return self._last
        self._last = (None,) * len(batch) if isinstance(batch, (tuple, list)) else None
        return batch

    def wait_for_the_end(self) -> None:
        """Wait until the newest pass's thread is out of the loader, where that pass has been ended."""
        if self._running is not None:
            self._running.wait_for_the_end()

    def close(self) -> None:
        """End the newest pass now; a later `iter` begins another."""
        newest = self._newest() if self._newest is not None else None
        if newest is not None:
            newest.close()

    def __enter__(self) -> "CUDAPrefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _PrefetchPass:
    """One pass of a prefetcher; its thread ends with it, or when nobody holds it any more."""

    def __init__(self, transfer_pass: TransferPass) -> None:
        self._transfer_pass = transfer_pass
        self._close = weakref.finalize(self, transfer_pass.stop)

    def __iter__(self) -> "_PrefetchPass":
        return self

    def __next__(self) -> Any:
        try:
            return self._transfer_pass.take()
        except BaseException:
            self._close()
            raise

    def close(self) -> None:
        """End the thread now."""
        self._close()


# ---- torch's DataLoader, one batch ahead

T_co = TypeVar("T_co", covariant=True)

_AHEAD = 1


class DataLoaderX(DataLoader[T_co]):
    """A DataLoader whose next batch is collated, or unpacked from its worker, while the current one is used.

    Arguments as of torch.utils.data.DataLoader. With num_workers=0 samples are made in that thread; what they draw
    from torch's generator and what the training step draws come in no fixed order then.
    """

    _running: Channel | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._running is not None:  # persistent workers have one iterator
            self._running.wait_for_the_end()
        ahead = BackgroundIterator(super().__iter__(), _AHEAD)
        self._running = ahead.channel
        return ahead
