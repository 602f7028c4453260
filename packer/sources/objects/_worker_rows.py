"""Worker rows: processes that read the samples of a Python object ahead, for a dataset that is slow to read."""

import os
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import parent_process
from typing import Any, ClassVar

from packer.errors import InvalidRequest
from packer.sources.objects._object_rows import ObjectRows

_AHEAD = 4  # samples that each process reads ahead


class WorkerRows(ObjectRows):
    """Samples that worker processes read by index. Not thread-safe: `ObjectSource` holds a lock."""

    def __init__(self, data: Any, count: int, name: str, *, workers: int) -> None:
        """Start the processes, before this one opens files and starts threads. `name` is the object in messages."""
        super().__init__(data, count)
        self._name = name
        self.ahead = _AHEAD * workers
        self._requested = bytearray(count)
        self._pending: dict[int, Future[Any]] = {}
        self._pool = ProcessPoolExecutor(workers, initializer=_Worker.begin, initargs=(data,))
        for started in [self._pool.submit(os.getpid) for _ in range(workers)]:
            self._result(started, "<start>")

    def expect(self, rows: Iterable[int]) -> None:
        for row in rows:
            if not self._requested[row]:
                self._requested[row] = True
                self._pending[row] = self._pool.submit(_Worker.read, row)

    def read(self, index: int) -> Any:
        reading = self._pending.pop(index, None) or self._pool.submit(_Worker.read, index)
        return self._result(reading, f"[{index}]")

    def _result(self, reading: Future[Any], place: str) -> Any:
        try:
            return reading.result()
        except BrokenProcessPool as error:
            raise InvalidRequest(
                f"{self._name}{place}: a process that reads samples ended; its memory may be full: use fewer "
                "num_workers, or num_workers=0 to see the error"
            ) from error
        except Exception as error:  # any error of a user's object
            error.add_note(f"while {self._name}{place} was read in a process")
            raise


class _Worker:
    data: ClassVar[Any]

    @classmethod
    def begin(cls, data: Any) -> None:
        cls.data = data
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its processes
        threading.Thread(target=_end_with_parent, daemon=True).start()

    @classmethod
    def read(cls, index: int) -> Any:
        return cls.data[index]


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
