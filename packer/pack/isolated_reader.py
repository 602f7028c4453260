"""Isolated reader: reads a damaged part in a subprocess, so that SIGBUS cannot end ours.

A disk that cannot give a page of a mapped file ends the process that reads it with SIGBUS, and HDF5 parses what it
finds in C. So a part is read here only when its sha256 is the manifest's. Any other is read there, in a process that is
started when it is first needed and again after each end.

What goes over the pipe, both ways: one message of JSON, and from there, one more for each value, as it is. Nothing that
comes back is unpickled.
"""

import json
import os
import resource
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from packer import codecs
from packer.errors import CorruptPack, CrashingPart, PackerError, StorageError
from packer.formats.base import Reader, Record
from packer.pack.part_readers import PartOpener
from packer.schema import Schema

_MOST_ENDS = 50  # of processes, a third of a second each, before the rest of a part is given up
_GONE = (EOFError, BrokenPipeError, ConnectionResetError)


class PipeEnds(NamedTuple):
    """One end of two pipes, one each way: a Pipe for both ways would be a socket, and no pack is to open one."""

    incoming: "Connection[Any, Any]"
    outgoing: "Connection[Any, Any]"

    def send_bytes(self, data: bytes) -> None:
        """One message."""
        self.outgoing.send_bytes(data)

    def recv_bytes(self) -> bytes:
        """The next message; raises EOFError when the other end is closed."""
        return self.incoming.recv_bytes()

    def close(self) -> None:
        """Both pipes."""
        self.incoming.close()
        self.outgoing.close()


def _lines(context: SpawnContext) -> tuple[PipeEnds, PipeEnds]:
    """Our end and theirs."""
    incoming, their_outgoing = context.Pipe(duplex=False)
    their_incoming, outgoing = context.Pipe(duplex=False)
    return PipeEnds(incoming, outgoing), PipeEnds(their_incoming, their_outgoing)


class ReaderProcess:
    """A process that reads parts of one pack, one at a time. Threads may share it; a fork may not."""

    def __init__(self, format: str, schema: Schema) -> None:
        self._format = format
        self._schema = schema
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._pipe: PipeEnds | None = None
        self._ends: dict[Path, int] = {}

    def reader(self, path: Path, samples: int) -> "IsolatedReader":
        """A part that is read there."""
        return IsolatedReader(self, path, self._schema, samples)

    def ask(self, path: Path, samples: int, row: int, names: Sequence[str]) -> list[bytes]:
        """The named values of a row of a part; raises what its reader raises, or CrashingPart."""
        with self._lock:
            if self._ends.get(path, 0) >= _MOST_ENDS:
                raise CrashingPart(
                    f"{path}: reading it ended {_MOST_ENDS} processes, so no more of it is read; pack again"
                )
            pipe = self._pipe or self._start()
            try:
                pipe.send_bytes(json.dumps([os.fspath(path), samples, row, list(names)]).encode())
                answer = json.loads(pipe.recv_bytes())
                values = [pipe.recv_bytes() for _ in range(answer.get("values", 0))]
            except _GONE as error:
                self._ends[path] = self._ends.get(path, 0) + 1
                cause = self._stop()
                at = f"row {row} of it" if names else "it"
                raise CrashingPart(f"{path}: reading {at} ends the process with {cause}; pack again") from error
        if "error" in answer:
            raise (StorageError if answer["error"] == "StorageError" else CorruptPack)(answer["message"])
        return values

    def _start(self) -> PipeEnds:
        context = get_context("spawn")  # a fork would bring the locks of our threads along
        self._pipe, theirs = _lines(context)
        self._process = context.Process(target=serve, args=(theirs, self._format, self._schema.to_json()), daemon=True)
        self._process.start()
        theirs.close()
        return self._pipe

    def _stop(self) -> str:
        """How the process ended."""
        if self._process is None or self._pipe is None:
            return "nothing"
        self._pipe.close()  # it ends then by itself, if it has not yet
        self._process.join()
        code = self._process.exitcode or 0
        self._process.close()
        self._process = self._pipe = None
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def close(self) -> None:
        """End the process; may be called twice."""
        with self._lock:
            self._stop()


class IsolatedReader(Reader):
    """A part that is read by a `ReaderProcess`, opened when that is first needed; its buffers are copies."""

    def __init__(self, apart: ReaderProcess, path: Path, schema: Schema, samples: int) -> None:
        super().__init__(path, schema, samples=samples)
        self._apart = apart

    def check(self) -> None:
        """Open it; raises CorruptPack, CrashingPart."""
        self._apart.ask(self.path, self.samples, 0, ())

    def read(self, row: int, names: Sequence[str]) -> Record:
        return dict(zip(names, self._apart.ask(self.path, self.samples, row, names), strict=True))

    def close(self) -> None:
        """Nothing is open here."""


def serve(pipe: PipeEnds, format: str, schema: list[dict[str, Any]]) -> None:
    """Answer until the other side is gone: the body of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, for the process that asks
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
