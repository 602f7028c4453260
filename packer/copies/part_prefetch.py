"""Part prefetch: threads that download the parts of a remote pack before they are read.

The threads start when they are needed and end when the pack is closed. A forked child has none. If a download fails,
the reader of the part downloads it again and reports the error.

Several parts are downloaded at the same time. One thread at a time reserves room in the cache, so that the parts get
room in the order in which they are needed.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from packer.copies.pack_files import PackFile
from packer.copies.part_cache import PartCache
from packer.errors import PackerError
from packer.pack.part_readers import open_readers

_WATCH_S = 0.1  # between two checks for parts that were given up, and for processes that wait for room
_AGAIN_S = 0.2  # between two checks for room
_AFTER_FAILURE_S = 5.0
_MOST_DOWNLOADS = 4
_MOST_BYTES = 24 << 20  # of small parts at the same time. A large part is downloaded in several ranges.
_JOIN_S = 1.0  # to wait for threads that do not download at the moment


class PartPrefetch:
    """The threads that download parts for one open pack in one process, in the order of the last call of `want`."""

    def __init__(self, cache: PartCache, parts: tuple[PackFile, ...]) -> None:
        self._cache = cache
        self._parts = parts
        self._pid = os.getpid()
        self._began_ns = time.time_ns()
        self._changed = threading.Condition()
        self._reserving = threading.Lock()
        self._wanted: deque[int] = deque()
        self._stopped = False
        self._threads: dict[str, threading.Thread] = {}

    def start_watching(self) -> None:
        """Start a thread that closes readers of parts, so that the cache may remove the files of these parts.

        The thread closes the readers of parts marked by `give_up`. While another process waits for room in the cache,
        it closes all readers that are not in use.
        """
        self._start("watch", self._watch)

    def want(self, parts: Iterable[int], *, more: bool = False) -> None:
        """Download parts in this order while the cache has room. With `more`, the parts of earlier calls come first."""
        with self._changed:
            if more:
                self._wanted.extend(parts)
            else:
                self._wanted = deque(parts)
            self._changed.notify_all()
        if self._wanted:
            largest = max(part.bytes for part in self._parts)
            for number in range(max(2, min(_MOST_DOWNLOADS, _MOST_BYTES // max(1, largest)))):
                self._start(f"fetch-{number}", self._run)

    def give_up(self, parts: Iterable[int]) -> None:
        """Mark parts as not needed soon. The cache removes them before other files."""
        for number in parts:
            with suppress(PackerError):  # only the order of removal depends on it
                self._cache.give_up(self._parts[number])
        open_readers.close_unused(only_given_up=True)

    def _start(self, name: str, run: Callable[[], None]) -> None:
        with self._changed:
            if name in self._threads or self._stopped or self._pid != os.getpid():
                return
            thread = threading.Thread(target=run, name=f"packer-remote-{name}", daemon=True)
            self._threads[name] = thread
        thread.start()

    def close(self) -> None:
        """End the threads. Does not wait for downloads that are running.

        May be called twice, and by the garbage collector in one of the threads.
        """
        self._stopped = True
        if self._pid != os.getpid():
            return
        if self._changed.acquire(timeout=_JOIN_S):
            self._changed.notify_all()
            self._changed.release()
        until = time.monotonic() + _JOIN_S
        for thread in list(self._threads.values()):
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - time.monotonic()))

    def _watch(self) -> None:
        was_waited_for = False
        while not self._stopped:
            with suppress(PackerError):
                is_waited_for = self._cache.is_waited_for()
                # at first only parts that were given up; if a process still waits at the next check, all of them
                open_readers.close_unused(only_given_up=not (is_waited_for and was_waited_for))
                was_waited_for = is_waited_for
            self._pause(_WATCH_S)

    def _run(self) -> None:
        while not self._stopped:
            try:
                download = self._next()
                if download is not None:
                    download()
            except PackerError:
                self._pause(_AFTER_FAILURE_S)

    def _next(self) -> Callable[[], None] | None:
        """Wait for the next part and return a function that downloads it. None without room, or if closed."""
        with self._reserving:
            with self._changed:
                while not self._wanted and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return None
                number, wanted = self._wanted[0], self._wanted
            # removes only files that were given up, or were read last before the pack was opened
            reserved = self._cache.reserve_ahead(self._parts[number], since_ns=self._began_ns)
            if reserved is None:
                open_readers.close_unused(only_given_up=True)
                self._pause(_AGAIN_S)
                return None
            with self._changed:
                if wanted is self._wanted:
                    wanted.popleft()

        def download() -> None:
            try:
                reserved()
            except PackerError:
                with self._changed:
                    if wanted is self._wanted:
                        wanted.appendleft(number)
                raise

        return download

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._stopped:
                self._changed.wait(seconds)
