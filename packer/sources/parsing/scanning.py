"""Scanning: every file name under a folder, in one walk that opens no file.

Symlinked folders are entered, as torchvision's ImageFolder does. A folder that leads back to one that it lies in is
not entered again, so that loops end; whether it is one depends on its own path alone, never on the listing's order.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packer.errors import BadInput, Refused
from packer.files.text import printable

_SHOWN = 20  # names in one message


@dataclass(frozen=True)
class Listing:
    """What lies under `root`, as relative POSIX paths; bytes that are not UTF-8 are surrogates (PEP 383).

    names: every file and whatever else is no folder, sorted by code point, about 120 bytes each in memory.
    folders: every folder below the root, the empty ones too, sorted.
    loops: folders that were not entered, because they are one that they lie in.
    """

    root: Path
    names: list[str]
    folders: list[str]
    loops: list[str]

    def notes(self) -> list[str]:
        """What the walk left out, one line each."""
        return [f"folders not entered, since they lead back to one above: {listed(self.loops)}"] if self.loops else []


def scan(root: Path) -> Listing:
    """List everything under `root`; raises Refused where it is no folder, BadInput naming all unreadable folders."""
    if not root.is_dir():
        raise Refused(f"{shown(str(root))}: no such folder; give the folder that holds the data set")
    names: list[str] = []
    folders: list[str] = []
    loops: list[str] = []
    failures: list[str] = []
    pending: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while pending:
        prefix, above = pending.pop()
        path = os.path.join(root, prefix)
        try:
            status = os.stat(path)
            identity = (status.st_dev, status.st_ino)
            files, inner = ([], []) if identity in above else _entries(path)
        except OSError as error:
            failures.append(f"{shown(path)} ({error.strerror})")
            continue
        if identity in above:
            loops.append(prefix[:-1])
            continue
        names.extend(prefix + name for name in files)
        folders.extend(prefix + name for name in inner)
        pending.extend((f"{prefix}{name}/", above | {identity}) for name in inner)
    if failures:
        raise BadInput(f"{shown(str(root))}: cannot list folders: {listed(failures)}; make them readable or move them")
    return Listing(root, sorted(names), sorted(folders), sorted(loops))


def _entries(path: str) -> tuple[list[str], list[str]]:
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                is_folder = entry.is_dir()
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                is_folder = False  # a link to itself: reading it will say so
            (folders if is_folder else files).append(entry.name)
    return files, folders


def shown(name: str) -> str:
    """A name as one printable line, for messages and for reasons that a pack keeps."""
    return printable(name)


def listed(names: Iterable[str]) -> str:
    """The first 20 of some names for a message, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(shown(name) for name in found[:_SHOWN]) + more


def counted(count: int, noun: str) -> str:
    """`1 view`, `2 views`, `3 classes`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def described(names: Iterable[str]) -> str:
    """What kinds of file there are: `12 files (.txt 10, .pdf 2)`."""
    suffixes = Counter(PurePosixPath(name).suffix.lower() or "no suffix" for name in names)
    kinds = ", ".join(f"{shown(suffix)} {count}" for suffix, count in suffixes.most_common(5))
    return counted(suffixes.total(), "file") + (f" ({kinds})" if kinds else "")
