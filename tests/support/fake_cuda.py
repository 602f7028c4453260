"""A CUDA that is not there: streams run their work late and in any order that waits and records allow.

A copy to it leaves garbage until its turn comes. Memory of a tensor that died is garbage again as soon as torch's
allocator could give it to the next one: at once on the stream that it was made on, and for streams on which
`record_stream` was called, after what they had been given until then. So a wait or a record that is missing is seen in
the values, in some order of events; every call is also written down in `calls`.
"""

import ctypes
import random
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

GARBAGE = 0xA5


class Event:
    """Done when its place in a stream was reached."""

    def __init__(self, cuda: "FakeCUDA", stream: "Stream") -> None:
        self._cuda = cuda
        self.stream = stream
        self.done = False

    def query(self) -> bool:
        self._cuda.step(self._cuda.random.randrange(3))
        return self.done

    def synchronize(self) -> None:
        self._cuda.calls.append(("synchronize", self.stream.name))
        while not self.done:
            assert self._cuda.step(1) or self.done, "waits for what nothing leads to"


class Wait:
    """Holds its stream up until an event is done."""

    def __init__(self, event: Event) -> None:
        self.event = event


class Stream:
    """Work in order."""

    def __init__(self, cuda: "FakeCUDA", name: str) -> None:
        self.cuda = cuda
        self.name = name
        self.work: deque[Event | Wait | Callable[[], object]] = deque()

    def wait_event(self, event: Event) -> None:
        self.cuda.calls.append(("wait", self.name, event.stream.name))
        self.add(Wait(event))

    def record_event(self) -> Event:
        self.cuda.calls.append(("record", self.name))
        event = Event(self.cuda, self)
        self.add(event)
        return event

    def add(self, work: Any) -> None:
        with self.cuda.lock:
            self.work.append(work)


class FakeCUDA:
    """One device, its consumer's stream, and the streams that were made."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calls: list[tuple[str, ...]] = []
        self.lock = threading.RLock()
        self.consumer = Stream(self, "consumer")
        self.streams = [self.consumer]
        self.local = threading.local()
        self.memory: dict[int, Any] = {}  # id of a tensor there -> its bytes
        self.recorded: dict[int, list[Stream]] = {}
        self.staged = 0
        self.pinned_memory: list[torch.Tensor] = []

    # ---- what torch.cuda has

    def make_stream(self, device: Any = None) -> Stream:
        assert device == torch.device("cuda", 0)
        self.streams.append(Stream(self, f"side {len(self.streams)}"))
        return self.streams[-1]

    def current_stream(self, device: Any = None) -> Stream:
        found: Stream = getattr(self.local, "stream", self.consumer)
        return found

    @contextmanager
    def using(self, stream: Stream) -> Iterator[None]:
        before = self.current_stream()
        self.local.stream = stream
        try:
            yield
        finally:
            self.local.stream = before

    @contextmanager
    def device(self, device: Any) -> Iterator[None]:
        yield

    # ---- work

    def step(self, count: int) -> bool:
        """Let so many pieces of work be done, of any streams; False where none can be."""
        for _ in range(count):
            with self.lock:
                able = [stream for stream in self.streams if stream.work and not _waits(stream.work[0])]
                if not able:
                    return False
                work = self.random.choice(able).work.popleft()
                if isinstance(work, Event):
                    work.done = True
                elif not isinstance(work, Wait):
                    work()
        return True

    def finish(self) -> None:
        while self.step(1):
            pass
        assert not any(stream.work for stream in self.streams)

    def read(self, tensor: torch.Tensor, into: list[Any]) -> None:
        """A step on the consumer's stream that reads a tensor there, later."""
        memory = self.memory[id(tensor)]
        shape, dtype = tuple(tensor.shape), tensor.numpy().dtype

        def kernel() -> None:
            into.append(memory.copy().view(dtype).reshape(shape))

        self.consumer.add(kernel)

    # ---- tensors

    def copied(self, host: torch.Tensor) -> torch.Tensor:
        """A tensor there that gets the host's bytes when the current stream comes to it."""
        stream = self.current_stream()
        self.calls.append(("copy", stream.name))
        source = _seen_later(host) if self.is_pinned(host) else host.numpy().copy()  # CUDA takes pageable bytes at once
        memory = np.full(source.size * source.dtype.itemsize, GARBAGE, np.uint8)
        there = torch.from_numpy(memory).view(host.dtype).view(host.shape)

        def copy() -> None:
            memory[:] = np.frombuffer(np.ascontiguousarray(source).tobytes(), np.uint8)

        stream.add(copy)
        self.memory[id(there)] = memory
        self.recorded[id(there)] = []
        weakref.finalize(there, self._freed, id(there), memory, stream).atexit = False
        return there

    def _freed(self, name: int, memory: Any, stream: Stream) -> None:
        """The allocator may give it out again, on the stream it was made on."""
        self.memory.pop(name)
        users = self.recorded.pop(name)

        def spoil() -> None:
            memory[:] = GARBAGE

        if users:
            for user in users:
                user.add(spoil)
        else:
            stream.add(spoil)

    def record(self, tensor: torch.Tensor, stream: Stream) -> None:
        self.calls.append(("record_stream", stream.name))
        self.recorded[id(tensor)].append(stream)

    def pin(self, tensor: torch.Tensor) -> torch.Tensor:
        self.staged += 1
        return self.pinned(tensor.clone())

    def pinned(self, tensor: torch.Tensor) -> torch.Tensor:
        self.pinned_memory.append(tensor)
        return tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        place = tensor.data_ptr()
        return any(0 <= place - each.data_ptr() < each.nbytes for each in self.pinned_memory)


def _seen_later(host: torch.Tensor) -> Any:
    """The same memory, not held by this array: what is written there meanwhile is seen, as a GPU would see it."""
    like = host.numpy()
    span = sum((size - 1) * stride for size, stride in zip(like.shape, like.strides, strict=True)) + like.itemsize
    raw = np.frombuffer((ctypes.c_uint8 * span).from_address(host.data_ptr()), np.uint8)
    return np.ndarray(like.shape, like.dtype, raw, 0, like.strides)


def _waits(work: Any) -> bool:
    return isinstance(work, Wait) and not work.event.done


def install(monkeypatch: pytest.MonkeyPatch, seed: int) -> FakeCUDA:
    """Put it in the place of torch.cuda; tensors go there by `.to("cuda")`."""
    cuda = FakeCUDA(seed)
    own_to, own_empty = torch.Tensor.to, torch.empty

    def to(tensor: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
        if given and isinstance(given[0], torch.device) and given[0].type == "cuda":
            assert given == (torch.device("cuda", 0),) and options == {"non_blocking": True}
            return cuda.copied(tensor)
        return own_to(tensor, *given, **options)

    def empty(*given: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return cuda.pinned(own_empty(*given, **options)) if pin_memory else own_empty(*given, **options)

    for name, value in {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "Stream": cuda.make_stream,
        "stream": cuda.using,
        "current_stream": cuda.current_stream,
        "device": cuda.device,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "empty", empty)
    for name, method in {
        "to": to,
        "record_stream": lambda tensor, stream: cuda.record(tensor, stream),
        "pin_memory": lambda tensor: cuda.pin(tensor),
        "is_pinned": lambda tensor: cuda.is_pinned(tensor),
    }.items():
        monkeypatch.setattr(torch.Tensor, name, method, raising=False)
    return cuda
