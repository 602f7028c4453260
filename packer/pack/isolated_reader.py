"""Isolated reader: reads a damaged part in a separate process, so that a crash does not end this process.

A read of a mapped file ends the process with SIGBUS if the disk fails, and damaged bytes may crash the C code of HDF5.
Parts whose sha256 is correct are read in this process, and all others in the subprocess. The subprocess starts when a
value is first read, and again after a crash.

A request is one JSON message on a pipe. The answer is a JSON message, followed by one message for each value. No
message is unpickled.
"""

import json
import os
import resource
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packer import codecs
from packer.errors import CorruptPack, CrashingPart, PackerError, StorageError
from packer.formats.base import Reader, Record
from packer.pack.part_readers import PartOpener
from packer.schema import Schema

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess


_MOST_ENDS = 50  # crashes of the subprocess for one part; a restart takes a third of a second
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)


class PipeEnds(NamedTuple):
    """The ends of two pipes that one process uses: it reads messages from `incoming` and writes them to `outgoing`."""

    incoming: "Connection[Any, Any]"
    outgoing: "Connection[Any, Any]"

    def send_bytes(self, data: bytes) -> None:
        """Send one message."""
        self.outgoing.send_bytes(data)

    def recv_bytes(self) -> bytes:
        """Return the next message; raises EOFError if the other end is closed."""
        return self.incoming.recv_bytes()

    def close(self) -> None:
        """Close both pipes."""
        self.incoming.close()
        self.outgoing.close()


class ReaderProcess:
    """A subprocess that reads the parts of one pack, one record at a time. Thread-safe, but not for forked children."""

    def __init__(self, format: str, schema: Schema) -> None:
        self._format = format
        self._schema = schema
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: PipeEnds | None = None
        self._ends: dict[Path, int] = {}

    def reader(self, path: Path, samples: int) -> "IsolatedReader":
        """Return a reader of a part. The subprocess opens the part when a value is first read."""
        return IsolatedReader(self, path, self._schema, samples)

    def values_of(self, path: Path, samples: int, row: int, names: Sequence[str]) -> list[bytes]:
        """Return copies of the named values of a row. If `names` is empty, open the part and return [].

        Raises:
            CorruptPack: the part or the record is damaged.
            CrashingPart: the subprocess crashed, or has crashed so often for this part that it is not started again.
            StorageError: the machine cannot read the part.
        """
        with self._lock:
            if self._ends.get(path, 0) >= _MOST_ENDS:
                raise CrashingPart(f"{path}: reading it ended {_MOST_ENDS} processes; its rest is skipped; pack again")
            pipe = self._pipe or self._start()
            try:
                pipe.send_bytes(json.dumps([os.fspath(path), samples, row, list(names)]).encode())
                answer = json.loads(pipe.recv_bytes())
                values = [pipe.recv_bytes() for _ in range(answer.get("values", 0))]
            except _GONE as error:
                self._ends[path] = self._ends.get(path, 0) + 1
                place = f"row {row} of it" if names else "it"
                cause = self._stop()
                raise CrashingPart(f"{path}: reading {place} ends the process with {cause}; pack again") from error
        if "error" in answer:
            raise (StorageError if answer["error"] == "StorageError" else CorruptPack)(answer["message"])
        return values

    def _start(self) -> PipeEnds:
        from multiprocessing import get_context  # conversions that read no damaged pack do without

        context = get_context("spawn")  # a fork would copy the locks of our threads
        incoming, their_outgoing = context.Pipe(duplex=False)
        their_incoming, outgoing = context.Pipe(duplex=False)
        theirs = PipeEnds(their_incoming, their_outgoing)
        self._pipe = PipeEnds(incoming, outgoing)
        self._process = context.Process(target=serve, args=(theirs, self._format, self._schema.to_json()), daemon=True)
        self._process.start()
        theirs.close()
        return self._pipe

    def _stop(self) -> str:
        """End the subprocess, and return its signal or exit code as text."""
        if self._process is None or self._pipe is None:
            return "nothing"
        self._pipe.close()  # ends a process that still runs
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        self._process = self._pipe = None
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def close(self) -> None:
        """End the subprocess. May be called twice. Does nothing in a forked child."""
        if self._pid == os.getpid():
            with self._lock:
                self._stop()


class IsolatedReader(Reader):
    """A reader of a part whose values a `ReaderProcess` reads. `read` returns copies, not mapped memory."""

    def __init__(self, process: ReaderProcess, path: Path, schema: Schema, samples: int) -> None:
        super().__init__(path, schema, samples=samples)
        self._process = process

    def check(self) -> None:
        """Open the part in the subprocess; raises CorruptPack, CrashingPart."""
        self._process.values_of(self.path, self.samples, 0, ())

    def read(self, row: int, names: Sequence[str]) -> Record:
        return dict(zip(names, self._process.values_of(self.path, self.samples, row, names), strict=True))

    def close(self) -> None:
        """Do nothing: `ReaderProcess.close` ends the process."""


def serve(pipe: PipeEnds, format: str, schema: list[dict[str, Any]]) -> None:
    """Run the subprocess: answer requests until the other end of the pipes is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    opener = PartOpener(format, codecs.described(Schema.from_json(schema)))
    path, reader = "", None
    with suppress(*_GONE):
        while True:
            wanted, samples, row, names = json.loads(pipe.recv_bytes())
            try:
                if reader is None or wanted != path:
                    if reader is not None:
                        reader.close()
                    reader = None
                    path, reader = wanted, opener.open(Path(wanted), samples)
                record = reader.read(row, names) if names else {}
                values = [bytes(record[name]) for name in names]
            except PackerError as error:
                pipe.send_bytes(json.dumps({"error": type(error).__name__, "message": error.message}).encode())
                continue
            pipe.send_bytes(json.dumps({"values": len(values)}).encode())
            for value in values:
                pipe.send_bytes(value)
