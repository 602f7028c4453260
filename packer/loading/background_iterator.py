"""Background iterator: makes the items of any iterable ahead in a thread, which ends with its consumer."""

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from types import GeneratorType
from typing import Any, Generic, TypeVar

from packer.errors import InvalidRequest

T = TypeVar("T")

_JOIN_S = 10.0  # for a thread that is in the middle of an item
_NAP_S = 1.0  # whoever waits for an item looks whether the thread is still there
_END = object()


class _Failure:
    """What was raised while an item was made."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error


class Channel:
    """Between a thread and the consumer. Its queues may be used by a finalizer at any point: they have no lock of ours.

    A permit is put for each item that may be made; the thread takes one before it begins the next.
    """

    def __init__(self, depth: int) -> None:
        self.items: SimpleQueue[Any] = SimpleQueue()
        self.permits: SimpleQueue[None] = SimpleQueue()
        self.stopped = False
        self.pid = os.getpid()
        self.thread: threading.Thread | None = None
        for _ in range(depth):
            self.permits.put(None)

    def run(self, iterator: Iterator[Any]) -> None:
        """What the thread does."""
        while True:
            self.permits.get()
            if self.stopped:
                break
            item = _next(iterator)
            ended = item is _END or isinstance(item, _Failure)
            self.items.put(item)
            del item  # the thread waits, maybe for long, and must not keep a batch's memory
            if ended:
                break
        if isinstance(iterator, GeneratorType):  # here, since no other thread may close what this one runs
            iterator.close()

    def take(self) -> Any:
        """The next item, waited for."""
        while True:
            try:
                return self.items.get(timeout=_NAP_S)
            except Empty:
                if (self.thread is None or not self.thread.is_alive()) and self.items.empty():
                    if self.stopped:
                        return _END
                    raise RuntimeError("the thread that makes items has ended without a word") from None

    def stop(self) -> None:
        """End the thread and let go of all items; may be called twice, and by the thread itself."""
        self.stopped = True
        if os.getpid() != self.pid:  # a forked child has none of the threads
            return
        self.permits.put(None)
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(_JOIN_S)
        while not self.items.empty():
            try:
                self.items.get_nowait()
            except Empty:  # another one took it
                break
        self.items.put(_END)  # for one who waits in another thread

    def wait_for_the_end(self) -> None:
        """Where `stop` has given up waiting: what the thread still reads must not be read by another."""
        if self.stopped and self.thread is not None and os.getpid() == self.pid:
            self.thread.join()


def _next(iterator: Iterator[Any]) -> Any:
    """An item, the mark of the end, or what was raised."""
    try:
        return (next(iterator),)
    except StopIteration:
        return _END
    except BaseException as error:  # noqa: BLE001  whatever it is, KeyboardInterrupt too, the consumer gets it
        return _Failure(error)


class BackgroundIterator(Generic[T]):
    """An iterator that runs `depth` items ahead of its consumer, in one thread; in the place of BackgroundGenerator.

    An exception, KeyboardInterrupt too, is raised where its item is awaited, with its traceback. The thread ends after
    the last item, with `close`, at the end of a `with` block, or when nobody holds the iterator.
    """

    def __init__(self, iterable: Iterable[T], depth: int = 2, *, max_prefetch: int | None = None) -> None:
        """iterable: of anything; `iter` of it is called here, its items are made in the thread.

        max_prefetch: prefetch_generator's word for depth. Raises InvalidRequest where depth is not at least 1.
        """
        self._channel = channel = Channel(_checked(depth if max_prefetch is None else max_prefetch))
        self._iterable = iterable
        self._ended = False
        self._close = weakref.finalize(self, channel.stop)
        given = (iter(iterable),)
        thread = threading.Thread(target=channel.run, args=given, name="packer-background", daemon=True)
        thread.start()
        channel.thread = thread

    def __iter__(self) -> "BackgroundIterator[T]":
        return self

    def __next__(self) -> T:
        if os.getpid() != self._channel.pid:
            raise InvalidRequest("a BackgroundIterator does not live on in a forked child; make one there")
        item = _END if self._ended else self._channel.take()
        if isinstance(item, tuple):
            self._channel.permits.put(None)
            value: T = item[0]
            return value
        self._ended = True
        self._close()
        if isinstance(item, _Failure) and item.error is not None:
            error, item.error = item.error, None
            try:
                raise error
            finally:
                del error  # its traceback holds this frame: the two would keep memory until a collection
        raise StopIteration

    next = __next__  # as BackgroundGenerator has it

    def __len__(self) -> int:
        """Of the iterable; raises TypeError where it has none."""
        sized: Any = self._iterable
        return len(sized)

    def close(self) -> None:
        """End the thread now."""
        self._ended = True
        self._close()

    @property
    def channel(self) -> Channel:
        """The queues between the thread and the consumer, which say when it has ended."""
        return self._channel

    def __enter__(self) -> "BackgroundIterator[T]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _checked(depth: Any) -> int:
    if not isinstance(depth, int) or depth < 1:
        raise InvalidRequest(f"depth={depth!r}: expected a whole number, at least 1")
    return depth
