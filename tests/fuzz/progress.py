"""Progress: what a worker does, in a file that outlives it: how many inputs it has had, and the one that it has."""

import mmap
from pathlib import Path

_HEAD = 16


class Progress:
    """executions: u64 at 0; size of the input u64 at 8, and its bytes."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        if not path.exists():
            path.write_bytes(bytes(_HEAD + most_bytes))
        with path.open("r+b") as file:
            self._mapped = mmap.mmap(file.fileno(), 0)
        self._executions = self.executions

    @property
    def executions(self) -> int:
        """Inputs so far, of all workers on this file."""
        return int.from_bytes(self._mapped[:8], "little")

    @property
    def data(self) -> bytes:
        """The input that was last begun."""
        size = int.from_bytes(self._mapped[8:16], "little")
        return self._mapped[_HEAD : _HEAD + size]

    def begin(self, data: bytes) -> None:
        """Note an input before it is tried."""
        self._executions += 1
        data = data[: len(self._mapped) - _HEAD]
        head = self._executions.to_bytes(8, "little") + len(data).to_bytes(8, "little")
        self._mapped[: _HEAD + len(data)] = head + data
