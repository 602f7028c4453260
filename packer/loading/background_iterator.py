"""Background iterator: makes items of an iterable ahead, in a thread that ends when the iterator is closed or freed."""

import os
import threading
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from types import GeneratorType
from typing import Any, TypeVar

from packer.errors import InvalidRequest
from packer.loading.thread_engine import BatchSource, Pass

T = TypeVar("T")

_JOIN_S = 10.0  # for a thread that is making an item
_NAP_S = 1.0  # a consumer that waits for an item checks this often if the thread is alive
_END = object()


class _Failure:
    """An error that was raised while an item was made."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error


class Channel(BatchSource):
    """Queues between one thread and its consumer, without a lock, so that a finalizer may call `stop` at any time.

    At most `depth` items are ready: the thread takes a permit before each item, and `__next__` returns the permit.
    """

    def __init__(self, depth: int) -> None:
        super().__init__()
        self._items: SimpleQueue[Any] = SimpleQueue()
        self._permits: SimpleQueue[None] = SimpleQueue()
        self._stopped = False
        self.thread: threading.Thread | None = None
        for _ in range(depth):
            self._permits.put(None)

    def run(self, iterator: Iterator[Any]) -> None:
        """Put the items of `iterator` into the queue until its end, an error or `stop`. The thread calls this."""
        while True:
            self._permits.get()
            if self._stopped:
                break
            item = _next(iterator)
            ended = item is _END or isinstance(item, _Failure)
            self._items.put(item)
            del item  # the thread may wait long, and must not keep the memory of a batch
            if ended:
                break
        if isinstance(iterator, GeneratorType):  # closed here, because another thread must not close it
            iterator.close()

    def __next__(self) -> Any:
        item = self._taken()
        if isinstance(item, tuple):
            self._permits.put(None)
            return item[0]
        if isinstance(item, _Failure) and item.error is not None:
            error, item.error = item.error, None
            try:
                raise error
            finally:
                del error  # its traceback holds this frame: the cycle would keep memory until a collection
        raise StopIteration

    def _taken(self) -> Any:
        while True:
            try:
                return self._items.get(timeout=_NAP_S)
            except Empty:
                if (self.thread is None or not self.thread.is_alive()) and self._items.empty():
                    if self._stopped:
                        return _END
                    raise RuntimeError("the thread that makes items has ended unexpectedly") from None

    def stop(self) -> None:
        """End the thread and free all items."""
        self._stopped = True
        if os.getpid() != self.pid:  # a forked child does not have the thread
            return
        self._permits.put(None)
        if self.thread is not None and self.thread is not threading.current_thread():
            self.thread.join(_JOIN_S)
        while not self._items.empty():
            try:
                self._items.get_nowait()
            except Empty:  # another thread took it
                break
        self._items.put(_END)  # for a consumer that waits in another thread

    def wait_for_the_end(self) -> None:
        """After `stop`, wait without a timeout until the thread has ended. Then its iterator may be used again."""
        if self._stopped and self.thread is not None and os.getpid() == self.pid:
            self.thread.join()


def _next(iterator: Iterator[Any]) -> Any:
    """Return (item,), `_END` after the last item, or a `_Failure` with the error."""
    try:
        return (next(iterator),)
    except StopIteration:
        return _END
    except BaseException as error:  # noqa: BLE001  the consumer gets any error, also KeyboardInterrupt
        return _Failure(error)


class BackgroundIterator(Pass[T]):
    """An iterator that makes items ahead of its consumer in one thread, like prefetch_generator's BackgroundGenerator.

    An error, also KeyboardInterrupt, is raised in place of its item, with its traceback. The thread ends after the last
    item, by `close`, at the end of a `with` block, or when the iterator is collected.
    """

    def __init__(self, iterable: Iterable[T], depth: int = 2, *, max_prefetch: int | None = None) -> None:
        """Start the thread.

        Args:
            iterable: Any iterable. `iter` is called here, and the thread makes the items.
            depth: Number of items to make ahead, at least 1.
            max_prefetch: The same as `depth`, under the name of prefetch_generator.

        Raises:
            InvalidRequest: `depth` is less than 1.
        """
        count: Any = depth if max_prefetch is None else max_prefetch
        if not isinstance(count, int) or count < 1:
            raise InvalidRequest(f"depth={count!r}: expected a whole number, at least 1")
        self.channel = channel = Channel(count)
        self._iterable = iterable
        super().__init__(channel)
        given = (iter(iterable),)
        thread = threading.Thread(target=channel.run, args=given, name="packer-background", daemon=True)
        thread.start()
        channel.thread = thread

    next = Pass.__next__  # the name in BackgroundGenerator

    def __len__(self) -> int:
        """Return the length of the iterable. Raises TypeError if it has none."""
        sized: Any = self._iterable
        return len(sized)
