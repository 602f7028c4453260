"""Splits: lists of samples (train, val, ...), as one more field of any source: `split`, an int64 with their names.

The user types NAME=FILE. The file has one sample per line: its key, or the relative path of one of its files. Every
line end is accepted; blank lines and lines that begin with `#` are skipped.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from packer.errors import BadInput, Refused
from packer.schema import Field
from packer.sources import base
from packer.sources.adding.wrapping import Addition, Wrapped
from packer.sources.parsing.scanning import counted, listed, shown

UNLISTED = "in no list of --split"


@dataclass(frozen=True)
class Split:
    """A name and the file that lists its samples."""

    name: str
    file: Path

    @classmethod
    def parse(cls, text: str) -> "Split":
        """From what the user types, `NAME=FILE`; raises Refused."""
        name, _, file = text.partition("=")
        if not name or not file:
            raise Refused(f"split {text!r}: expected NAME=FILE, such as train=train.txt")
        return cls(name, Path(file))


def add_splits(source: base.Source, splits: Sequence[Split]) -> base.Source:
    """The listed samples of the source, in its order, with the number of their list as field `split`.

    The others are left out, each with a reason. Raises BadInput for names that no sample has and for samples in two
    lists, Refused for two lists of one name.
    """
    names = tuple(split.name for split in splits)
    if len(set(names)) != len(names):
        raise Refused(f"splits {', '.join(names)}: names are not unique; rename one")
    numbers = array("h", [-1]) * len(source)
    places = _Places(source)
    for number, split in enumerate(splits):
        unknown, twice = [], []
        for name in _lines(split.file):
            row = places.find(name)
            if row is None:
                unknown.append(name)
            elif numbers[row] not in (-1, number):
                twice.append(f"{source.key(row)} (also in {names[numbers[row]]})")
            else:
                numbers[row] = number
        _check(split, unknown, twice, source)
    left_out = [(source.key(row), UNLISTED) for row, number in enumerate(numbers) if number < 0]
    rows = (row for row, number in enumerate(numbers) if number >= 0)
    counts = ", ".join(f"{shown(name)} {numbers.count(number)}" for number, name in enumerate(names))
    note = f"splits: {counts}; {counted(len(left_out), 'sample')} {UNLISTED}"
    return Wrapped(source, _Number(numbers, names), rows=rows, left_out=left_out, note=note)


class _Places:
    """Finds samples by key or by the path of a file; the paths are collected when a name is no key."""

    def __init__(self, source: base.Source) -> None:
        self._source = source
        self._keys = {source.key(row): row for row in range(len(source))}
        self._paths: dict[str, int] | None = None

    def find(self, name: str) -> int | None:
        """The sample's row, None for an unknown name."""
        row = self._keys.get(name)
        return self._files().get(name.removeprefix("./")) if row is None else row

    def _files(self) -> dict[str, int]:
        if self._paths is None:
            root = self._source.root
            rows = range(len(self._source))
            self._paths = {path.relative_to(root).as_posix(): row for row in rows for path in self._source.files(row)}
        return self._paths


class _Number(Addition):
    """Gives the number of the list."""

    def __init__(self, numbers: "array[int]", names: tuple[str, ...]) -> None:
        self._numbers = numbers
        self.fields = (Field("split", "number", "number", dtype="int64", shape=(), classes=names),)

    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        return {"split": np.int64(self._numbers[row])}


def _lines(file: Path) -> Iterator[str]:
    text = base.read_file(file).decode("utf-8", errors="surrogateescape").removeprefix("\ufeff")
    for line in text.replace("\r", "\n").split("\n"):
        name = line.strip()
        if name and not name.startswith("#"):
            yield name


def _check(split: Split, unknown: Sequence[str], twice: Sequence[str], source: base.Source) -> None:
    where = shown(str(split.file))
    if unknown:
        example = f" (such as {shown(source.key(0))})" if len(source) else ""
        raise BadInput(
            f"{where}: {counted(len(unknown), 'name')} that no sample of {shown(str(source.root))} has: "
            f"{listed(unknown)}; give keys{example} or relative paths"
        )
    if twice:
        raise BadInput(
            f"{where}: {counted(len(twice), 'sample')} of split {split.name!r} in another list too: {listed(twice)}; "
            "list each once"
        )
