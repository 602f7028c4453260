"""Journal: which parts of an interrupted conversion are finished, so that the next run goes on after them.

`.<name>.partial/` beside the target, a work folder (files/work_folder.py):
    journal         a line of JSON with the plan's fingerprint and options, then one per finished part, each synced
    pieces/<part>   the index entries of a finished part
    pack/           the parts; becomes the target by one rename
    pack.old/       the pack that is replaced, for a moment, on a system that cannot exchange two folders at once

What is read of an earlier run is read from this very folder, whose marker a copy does not have: a journal that came
with an archive is never taken for one's own work.
"""

import json
import re
import stat
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from packer import __version__
from packer.errors import CorruptPack, InvalidRequest, PackerError
from packer.files.digest import part_bytes
from packer.files.work_folder import ANYTHING, WorkFolder
from packer.formats._columns import SPOOL_NAME
from packer.pack import manifest as manifests
from packer.pack.manifest import Part
from packer.pack.unlisted_files import PACK_NAMES

PACK, PIECES, _JOURNAL = "pack", "pieces", "journal"
NAMES = {
    _JOURNAL: ANYTHING,
    PIECES: r"part-[0-9]+.*",
    rf"{PACK}(\.old)?": rf"{PACK_NAMES}|{re.escape(SPOOL_NAME)}.*",
}
_NONE: Mapping[str, Any] = MappingProxyType({})
_OPTIONS = {"part_bytes": "--part-size", "extras_bytes": "--extras", "codecs": "--codec"}  # others as they are called


@dataclass(frozen=True)
class FinishedPart:
    """A finished part, and what became of its samples. findings: how many of them have each, see suspect_values.py."""

    part: Part
    bytes_in: int
    bytes_out: int
    skipped: list[list[str]] = field(default_factory=list)
    incomplete: list[list[str]] = field(default_factory=list)
    findings: Mapping[str, int] = field(default_factory=dict)


class Journal:
    """The state of one conversion in its work folder. pack, pieces: good as long as the work folder is open."""

    def __init__(self, work: WorkFolder) -> None:
        self.work = work
        self.pack = work.inside / PACK
        self.pieces = work.inside / PIECES
        self._lock = threading.Lock()
        self.finished: dict[str, FinishedPart] = {}

    def check(
        self, fingerprint: str, *, restart: bool, options: Mapping[str, Any], no_resume: str | None = None
    ) -> None:
        """Raise InvalidRequest where `begin` would; nothing is changed. Then `finished` is what a run would go on
        after.
        """
        lines = [] if restart else self._lines(cut=False)
        if len(lines) >= 2:
            self._compare(lines[0], fingerprint, options, no_resume)
            if self.work.status(PACK) is not None and self.work.status(PIECES) is not None:
                every = [self._finished(line) for line in lines[1:]]
                self.finished = {done.part.name: done for done in every if self._is_there(done)}

    def begin(
        self, fingerprint: str, *, restart: bool, options: Mapping[str, Any] = _NONE, no_resume: str | None = None
    ) -> None:
        """Take up the work of an earlier run, or start anew; raises InvalidRequest where source or options changed.

        options: what the user asked for, so that a later run can say what is another. no_resume: why the source cannot
        be told from another one, so that no work of an earlier run is taken up.
        """
        lines = [] if restart else self._lines()
        if len(lines) < 2 and (not lines or lines[0].get("fingerprint") != fingerprint):  # no part would be lost
            self.work.clear()
            for name in (PACK, PIECES):
                self.work.make_folder(name).close()
            said = {"fingerprint": fingerprint, "options": dict(options), "version": __version__}
            self.work.write_file(_JOURNAL, json.dumps(said).encode() + b"\n")
            self.work.sync()
            return
        self._compare(lines[0], fingerprint, options, no_resume)
        for name in (PACK, PIECES):
            self.work.make_folder(name).close()  # `pack` is gone when a run ended right after it became the target
        every = [self._finished(line) for line in lines[1:]]
        if not self._is_replaced(every):
            # not there after a power loss on a disk that lies
            self.finished = {done.part.name: done for done in every if self._is_there(done)}
        self.sweep()

    def _compare(
        self, first: dict[str, Any], fingerprint: str, options: Mapping[str, Any], no_resume: str | None
    ) -> None:
        """Raise InvalidRequest, saying what is another, where the journal's first line is not of that plan."""
        if no_resume is not None:
            raise InvalidRequest(
                f"{self.work.path}: an interrupted conversion lies here, which cannot go on: {no_resume}; --restart "
                "(restart=True) throws its work away"
            )
        if first.get("fingerprint") != fingerprint:
            raise InvalidRequest(
                f"{self.work.path}: an interrupted conversion lies here, and since then {_difference(first, options)}; "
                "--restart throws its work away"
            )

    def _is_replaced(self, every: list[FinishedPart]) -> bool:
        """Whether `pack` is the old pack: a run ended between the swap and `remove`, and sizes alone may agree."""
        try:
            found = manifests.read(self.pack)
        except PackerError:  # none yet, or one that a kill cut short
            return False
        return {part.name: part.sha256 for part in found.parts} != {done.part.name: done.part.sha256 for done in every}

    def _finished(self, line: dict[str, Any]) -> FinishedPart:
        try:
            part, skipped, incomplete = (
                Part.from_json(line["part"]),
                _pairs(line["skipped"]),
                _pairs(line["incomplete"]),
            )
            sizes = _count(line["bytes_in"]), _count(line["bytes_out"])
            return FinishedPart(part, *sizes, skipped, incomplete, _counts(line.get("findings", {})))
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged() from error

    def _is_there(self, done: FinishedPart) -> bool:
        with self.work.folder(PACK) as pack, self.work.folder(PIECES) as pieces:
            part, piece = pack.status(done.part.name), pieces.status(done.part.name)
        if part is None or piece is None or not stat.S_ISREG(piece.st_mode):
            return False
        is_real = stat.S_ISREG(part.st_mode) or stat.S_ISDIR(part.st_mode)
        return is_real and part_bytes(self.pack / done.part.name) == done.part.bytes

    def _damaged(self) -> CorruptPack:
        path = self.work.path / _JOURNAL
        return CorruptPack(f"{path}: damaged: not the lines that packer writes; --restart throws the work away")

    def _lines(self, *, cut: bool = True) -> list[dict[str, Any]]:
        """Whole lines only: one that a kill cut short does not count."""
        text = self.work.read_file(_JOURNAL)
        whole = text[: text.rfind(b"\n") + 1]
        if cut and len(whole) != len(text):
            self.work.cut(_JOURNAL, len(whole))
        try:
            lines = [json.loads(line) for line in whole.splitlines()]
        except (ValueError, RecursionError) as error:
            raise self._damaged() from error
        if not all(isinstance(line, dict) for line in lines):
            raise self._damaged()
        return lines

    def sweep(self) -> None:
        """Remove what is unfinished, and so give its space back; raises UnsafePath, StorageError."""
        self.work.check()
        for name in (PACK, PIECES):
            with self.work.folder(name) as folder:
                for inner in folder.names():
                    if inner not in self.finished:
                        folder.remove(inner)

    def remove(self) -> None:
        """Remove everything, the journal first: without it the rest counts for nothing, however far this gets."""
        self.work.check()
        self.work.remove(_JOURNAL)
        self.work.sync()
        self.work.clear()

    def add(self, done: FinishedPart) -> None:
        """A part and its piece are on disk, and so are their names. Any thread may say so."""
        for name in (PACK, PIECES):
            with self.work.folder(name) as folder:
                folder.sync()
        with self._lock:
            self.work.append_line(_JOURNAL, json.dumps(asdict(done)).encode())
            self.finished[done.part.name] = done


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"expected a count, found {value!r:.40}")
    return value


def _counts(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise TypeError(f"expected counts, found {value!r:.40}")
    return {name: _count(count) for name, count in value.items()}


def _pairs(value: Any) -> list[list[str]]:
    pairs = isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value)
    if not (pairs and all(isinstance(text, str) for pair in value for text in pair)):
        raise TypeError(f"expected keys with reasons, found {value!r:.40}")
    return list(value)


def _difference(first: dict[str, Any], now: Mapping[str, Any]) -> str:
    """What is another than in the run whose journal begins with this line."""
    then = first.get("options")
    if not isinstance(then, dict) or not then or not now:
        return "the source, the options or packer's version changed"
    changed = [
        f"{_OPTIONS.get(name, '--' + name.replace('_', '-'))} was {_said(then.get(name))}, now {_said(now.get(name))}"
        for name in sorted({*then, *now} - {"source"})
        if then.get(name) != now.get(name)
    ]
    if then.get("source") != now.get("source"):
        changed.append("what is asked of the source (--from, --split, --sidecar, --missing ...) changed")
    if first.get("version") != __version__:
        changed.append(f"packer was {first.get('version')!s:.20}, now {__version__}")
    return "; ".join(changed) or "files of the source changed"


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={inner}" for name, inner in value.items()) or "not given"
    return ",".join(map(str, value)) if isinstance(value, list) else "not given" if value is None else f"{value}"
