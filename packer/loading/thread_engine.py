"""Thread engine: threads that make batches ahead of the consumer, in order, within a limit of bytes.

All threads work on the same batch, a slice each, so that the first batch takes one batch's time divided by the threads;
a thread that finds no slice left begins the next batch. The engine does not know what a batch holds: a BatchJob is
filled slice by slice, then finished.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from packer.errors import InvalidRequest

_LEAVE_S = 10.0  # for threads that are in the middle of a slice
_JOIN_S = 0.1  # for a thread that has left its loop: all that is left of it is what `threading` does
_LOCK_S = 1.0  # the lock is held for an instant, but a finalizer may run in the thread that holds it
_NAP_S = 1.0  # a thread without work looks whether it was stopped by such a finalizer


class BatchJob(Protocol):
    """One batch to be made."""

    given_up: bool  # set when the batch is no longer wanted: `fill` may return early

    def __len__(self) -> int:
        """How many samples, at least one."""

    def slice(self, threads: int) -> int:
        """How many samples, at least one, a slice has where so many threads work on the batch."""

    def fill(self, start: int, stop: int) -> None:
        """Make the samples at those positions; called by several threads at once."""

    def finish(self) -> tuple[Any, int]:
        """The batch, and how many bytes it holds; called once, after all of it is filled."""


class _QueuedJob:
    """A job and its progress."""

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


class ThreadEngine:
    """Makes the batches of the jobs that `begin` returns, one after the other, until it returns None."""

    def __init__(
        self, begin: Callable[[], BatchJob | None], *, threads: int, most_bytes: int, most_batches: int
    ) -> None:
        """begin: the next job, None after the last; called by one thread at a time. Threads start here.

        most_bytes, most_batches: how much may be ready or in the making; two batches always may.
        """
        self._begin = begin
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
        self._failure: BaseException | None = None  # of `begin`
        self._stopped = False
        self._bytes: int | None = None  # of the largest batch so far; while none is done, no more than two are begun
        self.pid = os.getpid()  # of the process whose threads make the batches
        self._threads = [
            threading.Thread(target=self._run, name=f"packer-loader-{number}", daemon=True) for number in range(threads)
        ]
        try:
            for thread in self._threads:
                self._start(thread)
        except BaseException:  # the system gives no more threads, or Ctrl-C: those that run must not stay
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

    def __iter__(self) -> "ThreadEngine":
        return self

    def __next__(self) -> Any:
        return self.take()

    def take(self) -> Any:
        """The next batch; raises StopIteration after the last, and what went wrong in a thread, in its turn."""
        if os.getpid() != self.pid:
            raise InvalidRequest("a Loader's iterator does not live on in a forked child; call iter(loader) there")
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
            if isinstance(error, StopIteration):  # it would end the epoch in silence (PEP 479 has it the same way)
                raise RuntimeError("StopIteration was raised while a batch was made") from error
            raise error
        finally:
            del error  # its traceback holds this frame: the two would keep the batch's memory until a collection

    @property
    def ready(self) -> int:
        """The number of batches that are made and not taken yet."""
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
        """End all threads and let go of all batches; may be called twice, also by a thread of the engine itself.

        The garbage collector may call this at any point, even in a thread that holds the engine's lock: then it only
        leaves word, and the threads end by themselves within a second. It may also hold the lock of `threading`, which
        a thread needs to end: so what is waited for is that the threads leave their loop, not that they are gone.
        """
        self._stopped = True
        if os.getpid() != self.pid or not self._lock.acquire(timeout=_LOCK_S):  # a child has none of the threads
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
            del claim  # the thread waits, maybe for long, and must not keep a batch's memory

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
            job = self._begin()
            entry = _QueuedJob(job, len(self._threads)) if job is not None else None
        except BaseException as error:  # noqa: BLE001  whatever it is, the consumer gets it
            failure = error
        with self._lock:
            self._beginning = False
            if entry is None:
                self._ended, self._failure, failure = True, failure, None  # a frame that holds its error is a cycle
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
        except BaseException as error:  # noqa: BLE001  whatever it is, KeyboardInterrupt too, the consumer gets it
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
            entry.claimed = entry.count  # nobody goes on with it
            self._ended = True  # nor with what would come after it
            self._ready.notify_all()
