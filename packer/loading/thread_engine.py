"""Thread engine: threads that make batches ahead of the consumer, in order, within a limit of bytes.

A BatchSource owns the threads, and a Pass is the consumer's iterator over a source.

All threads work on one batch, a slice each, so that the first batch is ready early. A thread without a slice begins the
next batch. The engine does not depend on the contents of a batch: it fills a BatchJob slice by slice, then finishes it.
"""

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

from packer.errors import InvalidRequest

T = TypeVar("T")

_LEAVE_S = 10.0  # for threads that are making a slice
_JOIN_S = 0.1
_LOCK_S = 1.0  # a finalizer may run in the thread that holds the lock
_NAP_S = 1.0


class BatchSource(Iterator[Any], ABC):
    """An iterator of batches that threads or processes make ahead. It works only in the process that created it.

    `__next__` waits for the next batch and returns it. If a batch failed, `__next__` raises the error of this batch.
    """

    ready = 0  # batches that are made and not taken yet; 0 if this is unknown

    def __init__(self) -> None:
        self.pid = os.getpid()

    @abstractmethod
    def stop(self) -> None:
        """End the threads and free all batches. Any thread may call this, also twice."""


class Pass(Generic[T]):
    """An iterator that owns a source. The last batch, an error, `close` or garbage collection stops the source.

    The threads of the source must not refer to the pass, or the pass would never be collected.
    """

    def __init__(self, source: BatchSource) -> None:
        self.source = source
        self._stop = weakref.finalize(self, source.stop)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if os.getpid() != self.source.pid:
            raise InvalidRequest("an iterator with threads does not work in a forked child; call iter(...) there")
        if not self._stop.alive:
            raise StopIteration
        try:
            item: T = next(self.source)
        except BaseException:
            self._stop()
            raise
        return item

    def close(self) -> None:
        """End the threads now."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BatchJob(Protocol):
    """One batch to make. Threads call `fill` for slices of the batch, and the last of them calls `finish`.

    Attributes:
        given_up: Set to True when the batch is not needed any more. `fill` may then return early.
    """

    given_up: bool

    def __len__(self) -> int:
        """Return the number of samples of this batch, at least 1."""

    def slice(self, threads: int) -> int:
        """Return the number of samples, at least 1, that a thread makes in one call of `fill`.

        Args:
            threads: Number of threads of the engine.
        """

    def fill(self, start: int, stop: int) -> None:
        """Make the samples start, ..., stop - 1 of this batch. Several threads call `fill` at the same time."""

    def finish(self) -> tuple[Any, int]:
        """Return (the batch, its size in bytes). The engine calls this once, when all slices are filled."""


class _QueuedJob:
    """A job, how many of its samples are claimed and filled, and its result."""

    def __init__(self, job: BatchJob, threads: int) -> None:
        self.job = job
        self.count = len(job)
        self.size = job.slice(threads)
        self.claimed = 0
        self.filled = 0
        self.batch: Any = None
        self.bytes = 0
        self.done = False
        self.error: BaseException | None = None


class ThreadEngine(BatchSource):
    """Threads that make the batches of an iterator of jobs."""

    def __init__(self, jobs: Iterator[BatchJob], *, threads: int, most_bytes: int, most_batches: int) -> None:
        """Start the threads.

        Args:
            jobs: The jobs in order. Only one thread at a time calls `next`.
            threads: Number of threads.
            most_bytes: Largest size in bytes of all batches that are ready or being made. Two batches are always
                allowed, whatever their size.
            most_batches: Largest number of batches that are ready or being made.
        """
        super().__init__()
        self._jobs = jobs
        self._most_bytes = most_bytes
        self._most_batches = most_batches
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._ready = threading.Condition(self._lock)
        self._left = threading.Condition(self._lock)
        self._running = 0  # threads that have not left their loop
        self._entries: deque[_QueuedJob] = deque()
        self._beginning = False
        self._ended = False
        self._failure: BaseException | None = None  # of `jobs`
        self._stopped = False
        self._bytes: int | None = None  # of the largest batch so far; until one is done, at most two are begun
        self._threads = [
            threading.Thread(target=self._run, name=f"packer-loader-{number}", daemon=True) for number in range(threads)
        ]
        try:
            for thread in self._threads:
                self._start(thread)
        except BaseException:  # no more threads, or Ctrl-C: the threads that run must end
            self.stop()
            raise

    def _start(self, thread: threading.Thread) -> None:
        with self._lock:
            self._running += 1
        try:
            thread.start()
        except BaseException:
            with self._lock:
                self._running -= 1
            raise

    # ---- the consumer's side

    def __next__(self) -> Any:
        with self._lock:
            while not self._is_next_ready():
                self._ready.wait()
            if self._entries and self._entries[0].error is None:
                entry = self._entries.popleft()
                self._work.notify_all()
                return entry.batch
            error = self._pop_error()
        self.stop()
        if error is None:
            raise StopIteration
        try:
            if isinstance(error, StopIteration):  # it would end the epoch silently (see PEP 479)
                raise RuntimeError("StopIteration was raised while a batch was made") from error
            raise error
        finally:
            del error  # its traceback holds this frame: the cycle would keep memory until a collection

    @property
    def ready(self) -> int:  # type: ignore[override]
        """Number of batches that are made, but not taken by the consumer yet."""
        with self._lock:
            return next((at for at, entry in enumerate(self._entries) if not entry.done), len(self._entries))

    def _pop_error(self) -> BaseException | None:
        if self._entries:
            error, self._entries[0].error = self._entries[0].error, None
        else:
            error, self._failure = self._failure, None
        return error

    def _is_next_ready(self) -> bool:
        if self._entries:
            return self._entries[0].done or self._entries[0].error is not None
        return self._stopped or self._ended

    def stop(self) -> None:
        """End all threads and free all batches.

        The garbage collector may call `stop` in a thread that holds the engine's lock. The other threads then see
        `_stopped` and end within a second. Its thread may also hold the lock of `threading`, which a thread needs to
        end. Therefore `stop` waits until each thread leaves its loop, and not until each thread has ended.
        """
        self._stopped = True
        if os.getpid() != self.pid or not self._lock.acquire(timeout=_LOCK_S):  # a forked child has no threads
            return
        try:
            for entry in self._entries:
                entry.job.given_up = True
            self._entries.clear()
            self._work.notify_all()
            self._ready.notify_all()
            others = [thread for thread in self._threads if thread is not threading.current_thread()]
            staying = len(self._threads) - len(others)
            until = time.monotonic() + _LEAVE_S
            while self._running > staying and (left := until - time.monotonic()) > 0:
                self._left.wait(left)
        finally:
            self._lock.release()
        for thread in others:
            if thread.ident is not None:  # started
                thread.join(_JOIN_S)
                if thread.is_alive():
                    return

    # ---- the threads' side

    def _run(self) -> None:
        try:
            self._make_batches()
        finally:
            with self._lock:
                self._running -= 1
                self._left.notify_all()

    def _make_batches(self) -> None:
        while True:
            with self._lock:
                while not self._stopped and not self._has_slice() and not self._may_begin():
                    self._work.wait(_NAP_S)
                if self._stopped:
                    return
                claim = self._claim()
                if claim is None:
                    self._beginning = True
            if claim is None:
                self._begin_next()
            else:
                self._fill(*claim)
            del claim  # the thread may wait long, and must not keep the memory of a batch

    def _has_slice(self) -> bool:
        return any(entry.claimed < entry.count for entry in self._entries)

    def _may_begin(self) -> bool:
        if self._beginning or self._ended:
            return False
        ahead = len(self._entries)
        if ahead < 2 or self._bytes is None:
            return ahead < 2
        return ahead < self._most_batches and (ahead + 1) * self._bytes <= self._most_bytes

    def _claim(self) -> tuple[_QueuedJob, int, int] | None:
        for entry in self._entries:
            if entry.claimed < entry.count:
                start = entry.claimed
                entry.claimed = min(entry.count, start + entry.size)
                return entry, start, entry.claimed
        return None

    def _begin_next(self) -> None:
        entry, failure = None, None
        try:
            job = next(self._jobs, None)
            entry = _QueuedJob(job, len(self._threads)) if job is not None else None
        except BaseException as error:  # noqa: BLE001  the consumer gets any error
            failure = error
        with self._lock:
            self._beginning = False
            if entry is None:
                self._ended, self._failure, failure = True, failure, None  # a frame with its error is a cycle
            elif not self._stopped:
                self._entries.append(entry)
            self._work.notify_all()
            self._ready.notify_all()

    def _fill(self, entry: _QueuedJob, start: int, stop: int) -> None:
        try:
            entry.job.fill(start, stop)
            with self._lock:
                entry.filled += stop - start
                last = entry.filled == entry.count and entry.error is None and not self._stopped
            if last:
                entry.batch, entry.bytes = entry.job.finish()
        except BaseException as error:  # noqa: BLE001  the consumer gets any error, also KeyboardInterrupt
            self._fail(entry, error)
            return
        if last:
            with self._lock:
                entry.done = True
                self._bytes = max(self._bytes or 0, entry.bytes)
                self._ready.notify_all()

    def _fail(self, entry: _QueuedJob, error: BaseException) -> None:
        with self._lock:
            if entry.error is None:
                entry.error = error
            entry.claimed = entry.count
            self._ended = True
            self._ready.notify_all()
