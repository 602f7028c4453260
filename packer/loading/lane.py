"""Lane: the way of batches to a device, of which every prefetcher has one.

    carry     in a thread: batch after batch begins its way; what it gives is handed to `receive` in that order
    receive   in the consumer's thread: the batch, fit for use there

On CUDA, carry works on a side stream, one for each lane, and order between the streams is kept by events:

    consumer's stream   ... step k-1 | ready |                  wait(arrived k) | step k ...
    side stream                        wait(ready) | copy k | finish k | arrived k |

`ready` is recorded when the consumer comes for a batch, before its step is launched: a copy waits for the steps before,
never for the step that it should overlap with. Memory is safe both ways: device tensors are recorded on the consumer's
stream, so that torch's allocator gives their memory to no other batch while a step reads it; host tensors are held
until their copy has ended, so that nobody writes into what is still being read.
"""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from packer.errors import Refused
from packer.loading.finish import Finish
from packer.loading.nesting import mapped, tensors

_STAGED_BYTES = 64 << 10  # up to here CUDA takes pageable memory without making the host wait


@dataclass(frozen=True)
class Sent:
    """A batch on its way, and the event that says that it has arrived."""

    batch: Any
    arrived: Any = None


class Lane(Protocol):
    """The way to one device."""

    def begin(self) -> None:
        """Called by the consumer before a pass."""

    def carry(self, batches: Iterator[Any]) -> Iterator[Sent]:
        """Send batch after batch; runs in a thread of its own, and is closed there."""

    def receive(self, sent: Sent) -> Any:
        """The batch, for use on the consumer's current stream."""


class HostLane:
    """To the CPU: batches are finished in the thread."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish

    def begin(self) -> None:
        """Nothing to wait for."""

    def carry(self, batches: Iterator[Any]) -> Iterator[Sent]:
        yield from map(Sent, map(self._finish, batches))

    def receive(self, sent: Sent) -> Any:
        return sent.batch


class MPSLane:
    """To Apple's GPU. It shares the host's memory and torch gives it one stream: copies are the consumer's to make."""

    def __init__(self, finish: Finish, skip: Collection[str]) -> None:
        self._finish = finish
        self._skip = skip

    def begin(self) -> None:
        """Nothing to wait for."""

    def carry(self, batches: Iterator[Any]) -> Iterator[Sent]:
        yield from map(Sent, batches)

    def receive(self, sent: Sent) -> Any:
        return self._finish(mapped(sent.batch, lambda tensor: tensor.to("mps"), self._skip))


class CUDALane:
    """To a CUDA device."""

    def __init__(self, device: torch.device, finish: Finish, skip: Collection[str]) -> None:
        self._device = device
        self._finish = finish
        self._skip = skip
        self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._ready: Any = None

    def begin(self) -> None:
        """What the consumer has made so far is there before anything of this pass."""
        self._ready = torch.cuda.current_stream(self._device).record_event()

    def carry(self, batches: Iterator[Any]) -> Iterator[Sent]:
        flight: deque[tuple[Any, Any]] = deque()  # what is still being read on the host, with the event of its end
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            try:
                while True:
                    self._stream.wait_event(self._ready)
                    try:
                        host = mapped(next(batches), self._staged, self._skip)
                    except StopIteration:
                        return
                    there = self._finish(mapped(host, self._moved, self._skip))
                    sent = Sent(there, self._stream.record_event())
                    del there
                    flight.append((sent.arrived, host))
                    del host
                    while flight and flight[0][0].query():
                        flight.popleft()
                    yield sent
                    del sent
            finally:
                for arrived, _ in flight:
                    arrived.synchronize()
                flight.clear()

    def _staged(self, tensor: torch.Tensor) -> torch.Tensor:
        """In pinned memory, which a copy can leave from while the host goes on; small and scattered ones stay."""
        dense = tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
        large = tensor.numel() * tensor.element_size() > _STAGED_BYTES
        if tensor.device.type != "cpu" or not dense or not large or tensor.is_pinned():
            return tensor
        return tensor.pin_memory()

    def _moved(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=True)

    def receive(self, sent: Sent) -> Any:
        stream = torch.cuda.current_stream(self._device)
        self._ready = stream.record_event()
        stream.wait_event(sent.arrived)
        for tensor in tensors(sent.batch, self._skip):
            tensor.record_stream(stream)
        return sent.batch


def pinned(size: int) -> npt.NDArray[np.uint8]:
    """Memory that a copy to a CUDA device can leave from while the host goes on."""
    memory: npt.NDArray[np.uint8] = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
    return memory


def lane_to(device: str | torch.device | int, finish: Finish, skip: Collection[str] = ()) -> Lane:
    """The lane to a device; raises Refused for one that torch does not have here, or that packer has no lane to."""
    wanted = device_of(device)
    if wanted.type == "cpu":
        return HostLane(finish)
    if wanted.type == "mps":
        return MPSLane(finish, skip)
    return CUDALane(wanted, finish, skip)


def device_of(device: str | torch.device | int) -> torch.device:
    """The device with its number; raises Refused as lane_to does."""
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise Refused(f"device={device!r}: {str(error).splitlines()[0]}") from error
    if wanted.type == "cuda":
        if not torch.cuda.is_available() or (wanted.index or 0) >= torch.cuda.device_count():
            raise Refused(f"device={device!r}: torch sees {_seen()} here; device='cpu' does the same without one")
        number = wanted.index if wanted.index is not None else torch.cuda.current_device()
        return torch.device("cuda", number)
    if wanted.type == "mps" and not torch.backends.mps.is_available():
        raise Refused(f"device={device!r}: torch has no MPS here; device='cpu' does the same without it")
    if wanted.type not in ("cpu", "mps"):
        raise Refused(f"device={device!r}: expected 'cuda', 'cuda:N', 'mps' or 'cpu'")
    return wanted


def _seen() -> str:
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"{count} CUDA devices" if count else "no CUDA device"
