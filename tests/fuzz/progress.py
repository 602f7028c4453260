"""Progress: what a worker does, in a file that outlives it: how many inputs it has had, and the one that it has."""

import mmap
import time
from pathlib import Path

_HEAD = 24


class Progress:
    """executions: u64 at 0; their processor time in us, u64 at 8; size of the input u64 at 16, and its bytes."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        if not path.exists():
            path.write_bytes(bytes(_HEAD + most_bytes))
        with path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 0)
        self._executions = self.executions
        self._begun = time.process_time() - self.seconds

    @property
    def executions(self) -> int:
        """Inputs so far, of all workers on this file."""
        return int.from_bytes(self._mapped[:8], "little")

    @property
    def seconds(self) -> float:
        """Processor time of all workers on this file, from their first input to the beginning of their last."""
        return int.from_bytes(self._mapped[8:16], "little") / 1e6

    @property
    def data(self) -> bytes:
        """The input that was last begun."""
        size = int.from_bytes(self._mapped[16:24], "little")
        return self._mapped[_HEAD : _HEAD + size]

    def begin(self, data: bytes) -> None:
        """Note an input before it is tried."""
        self._executions += 1
        data = data[: len(self._mapped) - _HEAD]
        spent = int((time.process_time() - self._begun) * 1e6)
        head = b"".join(number.to_bytes(8, "little") for number in (self._executions, spent, len(data)))
        self._mapped[: _HEAD + len(data)] = head + data
