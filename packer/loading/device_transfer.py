"""Device transfer: copies batches to a device and normalizes their images there.

    send      runs in a thread. It starts the copy of each batch, and yields what `receive` needs, in order.
    receive   runs in the consumer's thread. It returns the batch, ready for use on the device.

On CUDA, `send` works on a side stream. Events keep the order between the streams:

    consumer's stream   ... step k-1 | ready |                  wait(arrived k) | step k ...
    side stream                        wait(ready) | copy k | process k | arrived k |

`ready` is recorded when the consumer takes a batch, before it launches its step. So a copy waits for the previous
steps, but not for the step that it overlaps with. Device tensors are recorded on the consumer's stream, so that torch's
allocator does not reuse their memory while a step reads it. Host tensors are kept until their copy has ended, so that
nothing overwrites their memory before.

An image is a tensor (N, C, H, W). The normalization is that of torchvision's ToTensor and Normalize: (value / 255 -
mean) / std in float32. Each operation rounds once, so that all devices give the same bits.
"""

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from packer.errors import InvalidRequest
from packer.loading.tensor_pytree import mapped, tensors
from packer.system.argument_types import check_switches
from packer.system.buffer_pool import PooledBuffer

MeanStd = tuple[Sequence[float], Sequence[float]]

_IMAGE_NDIM = 4


class PostProcessing:
    """A function that normalizes images and converts tensors of a batch. It returns the batch in new containers."""

    def __init__(
        self,
        *,
        normalize: MeanStd | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        skip: Collection[str] = (),
    ) -> None:
        """Create the function. CUDAPrefetcher has the same arguments. Raises InvalidRequest if one is invalid."""
        check_switches({"channels_last": channels_last})
        if dtype is not None and not dtype.is_floating_point:
            raise InvalidRequest(f"dtype={dtype}: expected a floating-point one; integers keep theirs")
        self._normalize = _checked(normalize) if normalize is not None else None
        self._dtype = dtype
        self._channels_last = channels_last
        self._skip = skip
        self._constants: dict[torch.device, tuple[torch.Tensor, ...]] = {}

    def __bool__(self) -> bool:
        """Return True if the function changes batches, False if all options have their defaults."""
        return self._normalize is not None or self._dtype is not None or self._channels_last

    def __call__(self, batch: Any) -> Any:
        """Return the processed batch. With `normalize`, a batch without a uint8 image raises InvalidRequest."""
        if self._normalize is not None and not any(map(self._is_raw, tensors(batch, self._skip))):
            raise InvalidRequest(self._complaint(batch))
        return mapped(batch, self._tensor, self._skip)

    def _is_raw(self, tensor: torch.Tensor) -> bool:
        if self._normalize is None or tensor.dtype != torch.uint8 or tensor.ndim != _IMAGE_NDIM:
            return False
        return tensor.shape[1] == len(self._normalize[0])

    def _complaint(self, batch: Any) -> str:
        channels = len(self._normalize[0]) if self._normalize is not None else 0
        found = [f"{str(each.dtype)[6:]} {tuple(each.shape)}" for each in tensors(batch, self._skip)]
        return (
            f"normalize: expected a uint8 image (N, {channels}, H, W), found {', '.join(found) or 'no tensor'}; "
            "give all images one size with a geometry, and normalize uint8 images in one place only"
        )

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._channels_last and tensor.ndim == _IMAGE_NDIM:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if self._is_raw(tensor):
            levels, mean, std = self._on(tensor.device)
            tensor = tensor.to(torch.float32).div_(levels).sub_(mean).div_(std)
        if self._dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        return tensor

    def _on(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Return 255, mean and std as tensors. A GPU would multiply by the inverse of a Python number instead."""
        found = self._constants.get(device)
        if found is None:
            given: Any = self._normalize
            mean, std = (torch.tensor(each, dtype=torch.float32, device=device).view(-1, 1, 1) for each in given)
            found = self._constants[device] = (torch.full_like(mean, 255), mean, std)
        return found


def _checked(normalize: Any) -> MeanStd:
    try:
        mean, std = (tuple(float(each) for each in values) for values in normalize)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"normalize={normalize!r}: expected (mean, std), a number per channel each") from error
    if not mean or len(mean) != len(std):
        raise InvalidRequest(f"normalize: expected as many means as stds, found {len(mean)} and {len(std)}")
    if not all(0 <= each <= 1 for each in mean) or not all(0 < each <= 1 for each in std):
        raise InvalidRequest(
            f"normalize: mean {mean} and std {std} must be in units of 0 to 1; divide those of 0 to 255 by 255"
        )
    return mean, std


# ---- the transfers

_STAGED_BYTES = 64 << 10  # CUDA copies pageable memory up to this size without blocking the host


@dataclass(frozen=True)
class SentBatch:
    """A batch whose copy was started. `arrived` is the CUDA event at the end of the copy, or None without CUDA."""

    batch: Any
    arrived: Any = None


class DeviceTransfer(Protocol):
    """The interface of transfers, which copy batches to one device."""

    def begin(self) -> None:
        """Prepare a pass. The consumer's thread calls this method before `send`."""

    def send(self, batches: Iterator[Any]) -> Iterator[SentBatch]:
        """Start the copy of each batch and yield it. The sending thread runs and closes this generator."""

    def receive(self, sent: SentBatch) -> Any:
        """Return the batch on the device, ready for the consumer's current stream."""


class HostTransfer:
    """A transfer to the CPU. The sending thread applies `postprocess`."""

    def __init__(self, postprocess: PostProcessing) -> None:
        self._postprocess = postprocess

    def begin(self) -> None:
        """Do nothing."""

    def send(self, batches: Iterator[Any]) -> Iterator[SentBatch]:
        yield from map(SentBatch, map(self._postprocess, batches))

    def receive(self, sent: SentBatch) -> Any:
        return sent.batch


class MPSTransfer:
    """A transfer to Apple's GPU. torch has only one stream for it, so the consumer's thread makes the copies."""

    def __init__(self, postprocess: PostProcessing, skip: Collection[str]) -> None:
        self._postprocess = postprocess
        self._skip = skip

    def begin(self) -> None:
        """Do nothing."""

    def send(self, batches: Iterator[Any]) -> Iterator[SentBatch]:
        yield from map(SentBatch, batches)

    def receive(self, sent: SentBatch) -> Any:
        return self._postprocess(mapped(sent.batch, lambda tensor: tensor.to("mps"), self._skip))


class CUDATransfer:
    """A transfer to a CUDA device. The copies run on their own CUDA stream."""

    def __init__(self, device: torch.device, postprocess: PostProcessing, skip: Collection[str]) -> None:
        self._device = device
        self._postprocess = postprocess
        self._skip = skip
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._ready: Any = None

    def begin(self) -> None:
        """Make the copies of this pass wait for all work on the consumer's current CUDA stream."""
        self._ready = torch.cuda.current_stream(self._device).record_event()

    def send(self, batches: Iterator[Any]) -> Iterator[SentBatch]:
        copying: deque[tuple[Any, Any]] = deque()  # host batches that are being copied, and the events at their ends
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            try:
                while True:
                    self._stream.wait_event(self._ready)
                    try:
                        host = mapped(next(batches), self._staged, self._skip)
                    except StopIteration:
                        return
                    there = self._postprocess(mapped(host, self._moved, self._skip))
                    sent = SentBatch(there, self._stream.record_event())
                    del there
                    copying.append((sent.arrived, host))
                    del host
                    while copying and copying[0][0].query():
                        copying.popleft()
                    yield sent
                    del sent
            finally:
                for arrived, _ in copying:
                    arrived.synchronize()
                copying.clear()

    def _staged(self, tensor: torch.Tensor) -> torch.Tensor:
        dense = tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
        large = tensor.numel() * tensor.element_size() > _STAGED_BYTES
        if tensor.device.type != "cpu" or not dense or not large or tensor.is_pinned():
            return tensor
        return tensor.pin_memory()

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=True)

    def receive(self, sent: SentBatch) -> Any:
        stream = torch.cuda.current_stream(self._device)
        self._ready = stream.record_event()
        stream.wait_event(sent.arrived)
        for tensor in tensors(sent.batch, self._skip):
            tensor.record_stream(stream)
        return sent.batch


def pinned(size: int) -> PooledBuffer:
    """Return a buffer of `size` bytes in pinned memory, for asynchronous copies to a CUDA device."""
    return PooledBuffer(torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy())


def transfer_to(
    device: str | torch.device | int, postprocess: PostProcessing, skip: Collection[str] = ()
) -> DeviceTransfer:
    """Return the transfer to a device. `skip` contains the names of values that stay on the host.

    Raises InvalidRequest if torch does not see the device.
    """
    wanted = device_of(device)
    if wanted.type == "cpu":
        return HostTransfer(postprocess)
    if wanted.type == "mps":
        return MPSTransfer(postprocess, skip)
    return CUDATransfer(wanted, postprocess, skip)


def device_of(device: str | torch.device | int) -> torch.device:
    """Return the device; "cuda" becomes the current one. Raises InvalidRequest if torch does not see the device."""
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise InvalidRequest(f"device={device!r}: {str(error).splitlines()[0]}") from error
    if wanted.type == "cuda":
        if not torch.cuda.is_available() or (wanted.index or 0) >= torch.cuda.device_count():
            raise InvalidRequest(f"device={device!r}: torch sees {_seen()} here; device='cpu' gives the same values")
        number = wanted.index if wanted.index is not None else torch.cuda.current_device()
        return torch.device("cuda", number)
    if wanted.type == "mps" and not torch.backends.mps.is_available():
        raise InvalidRequest(f"device={device!r}: torch has no MPS here; device='cpu' gives the same values")
    if wanted.type not in ("cpu", "mps"):
        raise InvalidRequest(f"device={device!r}: expected 'cuda', 'cuda:N', 'mps' or 'cpu'")
    return wanted


def _seen() -> str:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"{count} CUDA devices" if count else "no CUDA device"
