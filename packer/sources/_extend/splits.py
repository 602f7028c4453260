"""Splits: lists of samples (train, val, ...), as one more field of any source: `split`, an int64 with their names.

The user types NAME=FILE. The file has one sample per line: its key, the path of one of its files (relative, or below
the source's folder), or the name of one, with or without its suffix, where no other sample has it. Behind a file's name
anything may stand that is no other sample (`a.jpg 3`, `a.jpg,cat`), behind one without its suffix numbers alone: in
`1 5.png` it would not be known which of them is meant, so that is refused. A sample that is listed again counts once.
Every line end is accepted; blank lines and lines that begin with `#` are skipped.

Or NAME=SHARE, such as `train=0.9`: the samples are put in the order of sha256(seed, key) and cut where the shares end,
so that counts are exact, the same seed and keys give the same split on every machine, and a file more moves no sample
but those next to a cut. By a field, what has one value of it stays together: the values are put in such an order, and
each goes whole where its middle lies.
"""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources import base
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.stores.url import path_or_url

UNLISTED = "in no list of --split"
NO_SHARE = "in no share of --split"
_SEPARATOR = re.compile(r"[\s,;]+")
_NUMBERS = re.compile(r"(?:[\s,;]+[+-]?[0-9.]+)+")
_SHOWN = 5  # classes
_SHARE = re.compile(r"-?(?:(?:0|1)?\.[0-9]+|[01])")  # ./0.9 is a file of that name


@dataclass(frozen=True)
class Split:
    """A name and the file that lists its samples."""

    name: str
    file: Path

    @classmethod
    def parse(cls, text: str) -> "Split":
        """From what the user types, `NAME=FILE`; raises InvalidRequest."""
        name, _, file = text.partition("=")
        if not name or not file:
            raise InvalidRequest(
                f"split {text!r}: expected NAME=FILE or NAME=SHARE, such as train=train.txt or train=0.9"
            )
        return cls(name, path_or_url(file))


@dataclass(frozen=True)
class Shares:
    """Random splits. shares: name -> part of all samples, as typed.

    by: the field whose values stay together, "" for none.
    """

    shares: Mapping[str, str]
    seed: int = 0
    by: str = ""

    def __post_init__(self) -> None:
        parts = [Fraction(text) for text in self.shares.values()]
        if min(parts) <= 0 or sum(parts) > 1:
            typed = ", ".join(f"{name}={text}" for name, text in self.shares.items())
            least = min(self.shares, key=lambda name: Fraction(self.shares[name]))
            found = f"their sum is {float(sum(parts)):g}" if min(parts) > 0 else f"{least} has {self.shares[least]}"
            raise InvalidRequest(
                f"splits {typed}: expected shares above 0 that sum to at most 1, found that {found}; "
                "./0.9 would be a file of that name"
            )

    @property
    def ends(self) -> list[Fraction]:
        """Where each share ends, of 1."""
        parts = [Fraction(text) for text in self.shares.values()]
        return [sum(parts[: number + 1], Fraction()) for number in range(len(parts))]


def splits_to_json(splits: "Sequence[Split] | Shares") -> dict[str, Any]:
    """As manifests state them: lists by their content, nothing of the machine."""
    if isinstance(splits, Shares):
        return {"shares": dict(splits.shares), "seed": splits.seed, "by": splits.by}
    return {split.name: hashlib.sha256(base.read_file(split.file)).hexdigest() for split in splits}


def parse_splits(texts: Sequence[str], *, seed: int | None = None, by: str | None = None) -> "list[Split] | Shares":
    """From what the user types, all lists or all shares; raises InvalidRequest."""
    splits = [Split.parse(text) for text in texts]
    shares = {split.name: str(text.partition("=")[2]) for split, text in zip(splits, texts, strict=True)}
    random = [name for name, text in shares.items() if _SHARE.fullmatch(text)]
    if random and (len(random) < len(shares) or len(shares) < len(splits)):
        raise InvalidRequest(
            f"splits {', '.join(texts)}: expected a file for each, or a share for each, each name once"
        )
    if random:
        return Shares(shares, seed or 0, by or "")
    if seed is not None or by is not None:
        raise InvalidRequest("--split-seed and --split-by are for random splits; say --split train=0.9 --split val=0.1")
    return splits


def add_splits(source: base.Source, splits: Sequence[Split]) -> base.Source:
    """The listed samples of the source, in its order, with the number of their list as field `split`.

    The others are left out, each with a reason. Raises BadInput for names that no sample has and for samples in two
    lists, InvalidRequest for two lists of one name.
    """
    names = tuple(split.name for split in splits)
    if len(set(names)) != len(names):
        raise InvalidRequest(f"splits {', '.join(names)}: names are not unique; rename one")
    numbers = array("h", [-1]) * len(source)
    places = _Places(source)
    unread, listed_unread = dict(source.unread), set[str]()
    again: Counter[str] = Counter()
    for number, split in enumerate(splits):
        unknown, twice = [], []
        for name in _lines(split):
            row = places.find(name)
            if row is None and name.removeprefix("./") in unread:
                listed_unread.add(name.removeprefix("./"))
            elif row is None:
                unknown.append(name + places.doubt(name))
            elif numbers[row] not in (-1, number):
                twice.append(f"{source.key(row)} (also in {names[numbers[row]]})")
            else:
                again[split.name] += numbers[row] == number
                numbers[row] = number
        _check(split, unknown, twice, source)
    kept = [(name, reason) for name, reason in source.unread if name in listed_unread]
    unlisted = [(name, UNLISTED) for name in unread if name not in listed_unread]
    addition = _Number(numbers, names, splits_to_json(splits))
    made = _numbered(source, addition, reason=UNLISTED, unread=kept, further=unlisted)
    repeated = ", ".join(f"{shown(name)} {count}" for name, count in again.items() if count)
    if repeated:
        made.notes = [*made.notes, f"lines that list a sample again: {repeated}; each sample is packed once"]
    return made


def add_shares(source: base.Source, shares: Shares) -> base.Source:
    """The source with random splits as field `split`; see the module.

    Raises InvalidRequest for a field that has no single value per sample, and for a share that gets no sample.
    """
    names, ends, count = tuple(shares.shares), shares.ends, len(source)
    numbers = array("h", [-1]) * count
    if shares.by:
        groups = [_group(source, row, shares.by) for row in range(count)]
        sizes = Counter(groups)
        begin, numbered = 0, {}
        for group in sorted(sizes, key=lambda group: _drawn(shares.seed, group)):
            middle = Fraction(2 * begin + sizes[group], 2 * count)
            numbered[group] = next((number for number, end in enumerate(ends) if middle < end), -1)
            begin += sizes[group]
        for row, group in enumerate(groups):
            numbers[row] = numbered[group]
    else:
        order = sorted(range(count), key=lambda row: _drawn(shares.seed, source.key(row)))
        begin = 0
        for number, end in enumerate(ends):
            stop = round(end * count)
            for row in order[begin:stop]:
                numbers[row] = number
            begin = stop
    empty = [name for number, name in enumerate(names) if number not in numbers]
    if empty:
        among = f"{len(set(groups))} values of {shares.by!r}" if shares.by else counted(count, "sample")
        raise InvalidRequest(
            f"split {empty[0]!r}: a share of {shares.shares[empty[0]]} of {among} is none; give it a larger one"
        )
    how = f"drawn with seed {shares.seed}" + (f", by {shares.by}" if shares.by else "")
    addition = _Number(numbers, names, splits_to_json(shares))
    made = _numbered(source, addition, reason=NO_SHARE, unread=source.unread, how=how)
    made.notes = [*made.notes, *_lacking(source, names, numbers)]
    return made


def _lacking(source: base.Source, names: tuple[str, ...], numbers: "array[int]") -> Iterator[str]:
    """A line for each split without a sample of some class, which a draw over all samples gives to small ones."""
    classes = source.schema["label"].classes if "label" in source.schema else None
    if not classes:
        return
    found = set()
    for row, number in enumerate(numbers):
        with suppress(BadInput):  # a bad sample is told when it is packed
            found.add((number, int(source.value(row, "label"))))
    there = {label for _, label in found}
    for number, name in enumerate(names):
        without = [shown(classes[label]) for label in sorted(there) if (number, label) not in found]
        if without:
            yield (
                f"split {shown(name)} has no sample of {counted(len(without), 'class')}: "
                f"{', '.join(without[:_SHOWN])}{', ...' if len(without) > _SHOWN else ''}; shares are drawn over all "
                "samples, not class by class"
            )


def _numbered(
    source: base.Source,
    addition: "_Number",
    *,
    reason: str,
    unread: Sequence[tuple[str, str]],
    further: Sequence[tuple[str, str]] = (),
    how: str = "",
) -> base.Source:
    names, numbers = addition.names, addition.numbers
    left_out = [*((source.key(row), reason) for row, number in enumerate(numbers) if number < 0), *further]
    rows = (row for row, number in enumerate(numbers) if number >= 0)
    counts = ", ".join(f"{shown(name)} {numbers.count(number)}" for number, name in enumerate(names))
    note = f"splits: {counts}; {counted(len(left_out), 'sample')} {reason}{f' ({how})' if how else ''}"
    return DerivedSource(source, addition, rows=rows, left_out=left_out, note=note, unread=unread)


def _drawn(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogateescape")).digest()


def _group(source: base.Source, row: int, name: str) -> str:
    if name not in source.schema or source.schema[name].kind not in ("number", "text"):
        fields = ", ".join(field.name for field in source.schema if field.kind in ("number", "text"))
        raise InvalidRequest(
            f"--split-by {name}: expected a field with one number or text per sample, such as {fields}"
        )
    value = np.asarray(source.value(row, name))
    if value.size != 1:
        raise InvalidRequest(f"--split-by {name}: {value.size} values per sample, expected one")
    return str(value.item())


class _Places:
    """Finds samples by key or by the path of a file; the paths are collected when a name is no key."""

    def __init__(self, source: base.Source) -> None:
        self._source = source
        self._keys = {source.key(row): row for row in range(len(source))}
        self._paths: dict[str, int] | None = None
        self._names: dict[str, int | None] | None = None

    def find(self, line: str) -> int | None:
        """The sample's row, None for an unknown name, or where it is not known which of several is meant."""
        row = self._found(line)
        if row is not None:
            return row
        for separator in reversed(list(_SEPARATOR.finditer(line))):
            name, rest = line[: separator.start()], line[separator.end() :]
            row = self._found(name)
            if row is None:
                continue
            is_file = self._is_file_of(row, name)
            other = self._found(rest)
            if other is not None and other != row and (not is_file or self._is_file_of(other, rest)):
                return None
            return row if is_file or _NUMBERS.fullmatch(line, separator.start()) else None
        return None

    def _is_file_of(self, row: int, name: str) -> bool:
        """Whether that is the name of a file of the sample with its suffix, or its key unless that is a number."""
        if name == self._source.key(row) and not name.isdecimal():
            return True
        return any(path.name == name.rpartition("/")[2] for path in self._source.files(row))

    def doubt(self, line: str) -> str:
        """Why no sample was taken for it, where that is not plain."""
        if self._short().get(line, 0) is None:
            return " (of several samples)"
        words = _SEPARATOR.split(line)
        named = [word for word in words if self._found(word) is not None]
        if len(named) > 1:
            return f" (is it {shown(named[0])} or {shown(named[1])}?)"
        return f" (is it {shown(named[0])}?)" if named and len(words) > 1 else ""

    def _found(self, name: str) -> int | None:
        row = self._keys.get(name)
        row = self._files().get(self._below_root(name)) if row is None else row
        return self._short().get(name) if row is None else row

    def _below_root(self, name: str) -> str:
        """The path from the source's folder, of one that is absolute, or begins with the folder's name."""
        root = self._source.root
        for front in (f"{root.absolute()}/", f"{root}/", "./"):
            if name.startswith(front):
                return name[len(front) :]
        inner = name.removeprefix(f"{root.name}/")
        return inner if inner in self._files() else name

    def _short(self) -> dict[str, int | None]:
        """Names of files with and without their suffix -> the sample; None where several have it."""
        if self._names is None:
            self._names = {}
            for path, row in self._files().items():
                file = path.rpartition("/")[2]
                for name in {file, PurePosixPath(file).stem}:
                    self._names[name] = row if self._names.setdefault(name, row) == row else None
        return self._names

    def _files(self) -> dict[str, int]:
        if self._paths is None:
            root = self._source.root
            rows = range(len(self._source))
            self._paths = {path.relative_to(root).as_posix(): row for row in rows for path in self._source.files(row)}
        return self._paths


class _Number(AddedFields):
    """Gives the number of the list."""

    def __init__(self, numbers: "array[int]", names: tuple[str, ...], said: Mapping[str, Any]) -> None:
        """said: of the splits, as manifests state them."""
        self.numbers = numbers
        self.names = names
        self._said = said
        self.fields = (Field("split", "number", "number", dtype="int64", shape=(), classes=names),)

    def values(self, sample: base.Sample, source: base.Source, row: int) -> base.Sample:
        return {"split": np.int64(self.numbers[row])}

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        return {**of_source, "splits": dict(self._said)}

    def value(self, source: base.Source, row: int, name: str) -> Any:
        return np.int64(self.numbers[row])


def _lines(split: Split) -> Iterator[str]:
    if not split.file.exists():
        raise InvalidRequest(
            f"{shown(str(split.file))}: the list of split {split.name!r} does not exist; give a file with a key or "
            "path per line, or a share such as 0.9"
        )
    text = base.read_file(split.file).decode("utf-8", errors="surrogateescape").removeprefix("\ufeff")
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
            f"{listed(unknown)}; give keys{example}, relative paths, or names that one sample has"
        )
    if twice:
        raise BadInput(
            f"{where}: {counted(len(twice), 'sample')} of split {split.name!r} in another list too: {listed(twice)}; "
            "list each once"
        )
