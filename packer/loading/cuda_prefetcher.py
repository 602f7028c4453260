"""CUDA prefetcher: iterables that make the next batch, or copy it to a device, while the training step runs."""

import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from packer.loading.background_iterator import BackgroundIterator, Channel
from packer.loading.device_transfer import DeviceTransfer, MeanStd, PostProcessing, SentBatch, transfer_to
from packer.loading.thread_engine import BatchSource, Pass


class TransferPass(BatchSource):
    """One pass over batches. A thread copies them to a device before the consumer needs them."""

    def __init__(
        self,
        transfer: DeviceTransfer,
        batches: Iterator[Any],
        depth: int,
        *,
        stop: Callable[[], object] | None = None,
    ) -> None:
        """Start the thread.

        Args:
            transfer: Copies batches to the device.
            batches: The batches on the host.
            depth: Number of batches to copy ahead.
            stop: A function that ends `batches`. The method `stop` calls it first, so that the thread does not wait for
                `batches`. None: no function.
        """
        super().__init__()
        transfer.begin()
        self._transfer = transfer
        self._stop = stop
        self._sent: BackgroundIterator[SentBatch] = BackgroundIterator(transfer.send(batches), depth)
        self.channel = self._sent.channel

    def __next__(self) -> Any:
        return self._transfer.receive(next(self._sent))

    def stop(self) -> None:
        """End the thread and free all batches."""
        if self._stop is not None:
            self._stop()
        self._sent.close()


class CUDAPrefetcher:
    """An iterable that copies each batch of a loader to a device while the previous training step runs.

    A batch may be any nesting of tensors, dicts, lists, tuples and named tuples. The copies are in new containers, and
    values that are not tensors are unchanged. Each `iter` begins a new pass over the loader. All devices give the same
    values. If the loader fails at a batch, `next` raises its error. No thread remains after a `break`, an error,
    `close` or the end of a `with` block.
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
        """Create a prefetcher.

        Args:
            loader: Any iterable of batches.
            device: "cuda", "cuda:N", "mps" or "cpu".
            depth: Number of batches on the device or on their way, in addition to the current one.
            normalize: (mean, std) with a number per channel, in units of 0 to 1. The device computes (image / 255 -
                mean) / std in float32 for uint8 images (N, C, H, W). A batch without such images raises InvalidRequest.
                None changes no image.
            dtype: The dtype of all floating-point tensors, also of normalized images. None keeps their dtypes.
            channels_last: True puts images into torch.channels_last memory format. False keeps their format.
            skip: Keys of dicts and fields of named tuples. Values with these names stay on the host, unchanged.

        Raises:
            InvalidRequest: torch does not see the device, or an option is invalid.
        """
        keys = (skip,) if isinstance(skip, str) else tuple(skip)
        postprocess = PostProcessing(normalize=normalize, dtype=dtype, channels_last=channels_last, skip=keys)
        self._loader = loader
        self._depth = depth
        self._transfer = transfer_to(device, postprocess, keys)
        self._newest: weakref.ref[Pass[Any]] | None = None
        self._running: Channel | None = None  # of the newest pass
        self._stepped: Pass[Any] | None = None  # the pass of `next`
        self._last: Any = None  # the result of `next` at the end

    def __iter__(self) -> Pass[Any]:
        self._stepped = None
        self.wait_for_the_end()  # a loader with persistent workers has only one iterator
        source = TransferPass(self._transfer, iter(self._loader), self._depth)
        self._running = source.channel
        started: Pass[Any] = Pass(source)
        self._newest = weakref.ref(started)
        return started

    def __len__(self) -> int:
        """Return the number of batches of a pass. Raises TypeError if the loader has no length."""
        sized: Any = self._loader
        return len(sized)

    def next(self) -> Any:
        """Return the next batch, or None after the last batch. For loops with `while batch is not None`.

        If the batches are tuples or lists, it returns a tuple of Nones at the end, so that `images, labels =
        prefetcher.next()` works.
        """
        if self._stepped is None:
            self._stepped = iter(self)
        batch = next(self._stepped, None)
        if batch is None:
            return self._last
        self._last = (None,) * len(batch) if isinstance(batch, (tuple, list)) else None
        return batch

    def wait_for_the_end(self) -> None:
        """Wait until the thread of the newest pass has ended. If this pass is not closed, return at once."""
        if self._running is not None:
            self._running.wait_for_the_end()

    def close(self) -> None:
        """End the newest pass. A later `iter` begins a new pass."""
        newest = self._newest() if self._newest is not None else None
        if newest is not None:
            newest.close()

    def __enter__(self) -> "CUDAPrefetcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- torch's DataLoader, one batch ahead

T_co = TypeVar("T_co", covariant=True)

_AHEAD = 1


class DataLoaderX(DataLoader[T_co]):
    """A torch DataLoader that prepares the next batch in a thread while the current batch is used.

    The arguments are those of torch.utils.data.DataLoader. The thread receives batches from the workers. With
    num_workers=0 it makes the samples itself. If both the samples and the training step use torch's generator, their
    random numbers are not repeatable then.
    """

    _running: Channel | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._running is not None:  # persistent workers have only one iterator
            self._running.wait_for_the_end()
        ahead = BackgroundIterator(super().__iter__(), _AHEAD)
        self._running = ahead.channel
        return ahead
