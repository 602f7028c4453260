"""Part fetcher: threads that bring the parts of a pack before they are read, and let go of what others need room for.

They are started when there is something for them to do, and end with the pack; a forked child has none. What cannot be
fetched is left to who reads the part, who then says why.

Several parts are on their way at once: a small one is hashed, written and synced while the next ones arrive. Room is
asked for by one thread at a time, so the parts get it in the order in which they are needed.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

from packer.errors import PackerError
from packer.pack.part_readers import open_readers
from packer.remote.part_cache import PackFile, PartCache

_LOOK_S = 0.1  # how often it is asked what was given up, and whether others wait for room
_AGAIN_S = 0.2  # until there may be room for another part
_AFTER_FAILURE_S = 5.0
_MOST_FETCHES = 4
_BYTES_UNDER_WAY = 24 << 20  # of small parts; large ones come in ranges, of which several are under way
_JOIN_S = 1.0  # for threads that are not in the middle of a download


class PartFetcher:
    """Of one open pack in one process."""

    def __init__(self, cache: PartCache, parts: tuple[PackFile, ...]) -> None:
        self._cache = cache
        self._parts = parts
        self._pid = os.getpid()
        self._began_ns = time.time_ns()
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # to ask for room
        self._wanted: deque[int] = deque()
        self._stopped = False
        self._threads: dict[str, threading.Thread] = {}

    def start_watching(self) -> None:
        """Close readers of parts that were given up from now on, and idle ones while another process waits for room."""
        self._start("watch", self._watch)

    def want(self, parts: Iterable[int], *, more: bool = False) -> None:
        """Fetch these parts, in this order, as long as there is room; in place of those before, or after them."""
        with self._changed:
            if more:
                self._wanted.extend(parts)
            else:
                self._wanted = deque(parts)
            self._changed.notify_all()
        if self._wanted:
            largest = max(part.bytes for part in self._parts)
            for number in range(max(2, min(_MOST_FETCHES, _BYTES_UNDER_WAY // max(1, largest)))):
                self._start(f"fetch-{number}", self._fetch)

    def give_up(self, parts: Iterable[int]) -> None:
        """These parts will not be needed soon: they are the first to make room for others."""
        for number in parts:
            with suppress(PackerError):  # only which file goes first depends on it
                self._cache.give_up(self._parts[number])
        open_readers.close_idle(only_done_with=True)

    def _start(self, name: str, run: Callable[[], None]) -> None:
        with self._changed:
            if name in self._threads or self._stopped or self._pid != os.getpid():
                return
            thread = threading.Thread(target=run, name=f"packer-remote-{name}", daemon=True)
            self._threads[name] = thread
        thread.start()

    def close(self) -> None:
        """End the threads; a download that is going on is not waited for, and ends by itself. May be called twice, and
        by the garbage collector in one of the threads.
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
                is_waited_for = self._cache.folder.is_waited_for()
                # what is behind a pass, so that it can make room; where that was not enough, all that is not read now
                open_readers.close_idle(only_done_with=not (is_waited_for and was_waited_for))
                was_waited_for = is_waited_for
            with self._changed:
                if not self._stopped:
                    self._changed.wait(_LOOK_S)

    def _fetch(self) -> None:
        while not self._stopped:
            try:
                fetch = self._next()
                if fetch is not None:
                    fetch()
            except PackerError:
                self._pause(_AFTER_FAILURE_S)

    def _next(self) -> Callable[[], None] | None:
        """What fetches the next part that is wanted; None where there was no room for it, or at the end."""
        with self._turn:
            with self._changed:
                while not self._wanted and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return None
                number, wanted = self._wanted[0], self._wanted
            # what was used before the pack was opened makes room, and what was given up, but nothing else
            reserved = self._cache.reserve_ahead(self._parts[number], since_ns=self._began_ns)
            if reserved is None:
                open_readers.close_idle(only_done_with=True)
                self._pause(_AGAIN_S)
                return None
            with self._changed:
                if wanted is self._wanted:
                    wanted.popleft()

        def fetch() -> None:
            try:
                reserved()
            except PackerError:
                with self._changed:
                    if wanted is self._wanted:
                        wanted.appendleft(number)
                raise

        return fetch

    def _pause(self, seconds: float) -> None:
        with self._changed:
            if not self._stopped:
                self._changed.wait(seconds)
