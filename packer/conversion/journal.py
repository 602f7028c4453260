"""Journal: which parts of an interrupted conversion are finished, so that the next run goes on after them.

`.<name>.partial/` beside the target, locked while a conversion runs:
    journal         a line of JSON with the plan's fingerprint, then one per finished part, each synced
    pieces/<part>   the index entries of a finished part
    pack/           the parts; becomes the target by one rename
"""

import json
import os
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from packer.errors import CorruptPack, PackerError, Refused
from packer.pack import manifest as manifests
from packer.pack.digest import part_bytes
from packer.pack.manifest import Part
from packer.pack.storage import append_line, failing, make_folder, remove, sync, write_file


@dataclass(frozen=True)
class Finished:
    """A finished part, and what became of its samples."""

    part: Part
    bytes_in: int
    bytes_out: int
    skipped: list[list[str]] = field(default_factory=list)
    incomplete: list[list[str]] = field(default_factory=list)


class Journal:
    """The state of one conversion in its `.partial` folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pack = folder / "pack"
        self.pieces = folder / "pieces"
        self._path = folder / "journal"
        self._lock = threading.Lock()
        self.finished: dict[str, Finished] = {}

    def begin(self, fingerprint: str, *, restart: bool) -> None:
        """Take up the work of an earlier run, or start anew; raises Refused where source or options changed."""
        lines = [] if restart else self._lines()
        if len(lines) < 2 and (not lines or lines[0].get("fingerprint") != fingerprint):  # no part would be lost
            for path in (self.pack, self.pieces, self._path):
                remove(path)
            make_folder(self.pack)
            make_folder(self.pieces)
            write_file(self._path, json.dumps({"fingerprint": fingerprint}).encode() + b"\n")
            sync(self.folder)
            return
        if lines[0].get("fingerprint") != fingerprint:
            raise Refused(
                f"{self.folder}: an interrupted conversion with another source state, options or packer version lies "
                "here; --restart throws its work away"
            )
        for path in (self.pack, self.pieces):
            make_folder(path)  # `pack` is gone when a run ended right after it became the target
        every = [self._finished(line) for line in lines[1:]]
        if not self._is_replaced(every):
            # not there after a power loss on a disk that lies
            self.finished = {done.part.name: done for done in every if self._is_there(done)}
        self.sweep()

    def _is_replaced(self, every: list[Finished]) -> bool:
        """Whether `pack` is the old pack: a run ended between the swap and `remove`, and sizes alone may agree."""
        try:
            found = manifests.read(self.pack)
        except PackerError:  # none yet, or one that a kill cut short
            return False
        return {part.name: part.sha256 for part in found.parts} != {done.part.name: done.part.sha256 for done in every}

    def _finished(self, line: dict[str, Any]) -> Finished:
        try:
            return Finished(**{**line, "part": Part(**line["part"])})
        except (TypeError, KeyError) as error:
            raise self._damaged() from error

    def _is_there(self, done: Finished) -> bool:
        part, piece = self.pack / done.part.name, self.pieces / done.part.name
        return piece.is_file() and part.exists() and part_bytes(part) == done.part.bytes

    def _damaged(self) -> CorruptPack:
        return CorruptPack(f"{self._path}: damaged: not the lines that packer writes; --restart throws the work away")

    def _lines(self) -> list[dict[str, Any]]:
        """Whole lines only: one that a kill cut short does not count."""
        with failing(self._path, "read"):
            try:
                text = self._path.read_bytes()
            except FileNotFoundError:
                return []
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) != len(text):
            with failing(self._path, "cut"):
                os.truncate(self._path, len(whole))
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise self._damaged() from error
        if not all(isinstance(line, dict) for line in lines):
            raise self._damaged()
        return lines

    def sweep(self) -> None:
        """Remove what is unfinished, and so give its space back; raises StorageFailed."""
        for folder in (self.pack, self.pieces):
            with failing(folder, "list"):
                names = os.listdir(folder)
            for name in names:
                if name not in self.finished:
                    remove(folder / name)

    def remove(self) -> None:
        """Remove everything, the journal first: without it the rest counts for nothing, however far this gets."""
        remove(self._path)
        sync(self.folder)
        remove(self.folder)

    def add(self, done: Finished) -> None:
        """A part and its piece are on disk, and so are their names. Any thread may say so."""
        for path in (self.pack, self.pieces):
            sync(path)
        with self._lock:
            append_line(self._path, json.dumps(asdict(done)).encode())
            self.finished[done.part.name] = done
