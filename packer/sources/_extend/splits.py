"""Splits: the field `split` (int64, with the names of the splits) for any source, from lists or by random selection.

Lists: the user declares NAME=FILE. Each line of the file contains one sample, in one of these ways:
* The key of the sample.
* The path of a file of the sample, absolute or relative to the source's folder.
* The name of a file, with or without suffix, if only one sample has a file of this name.

After a key, a path or a file name with suffix, a line may contain other words (`a.jpg 3`, `a.jpg,cat`), but no second
sample. Repeated samples count once. Blank lines and lines that begin with `#` are ignored. All line ends are accepted.

Random splits: the user declares NAME=SHARE, such as `train=0.9`. The samples are sorted by sha256(seed, key) and cut
into consecutive shares. The size of a split is its share of the samples, rounded. Equal seeds and keys give equal
splits on every machine. An additional sample changes the split only of samples next to a cut. With a field `by`, all
samples with the same value of this field are in one split.
"""

import hashlib
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources import base
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource
from packer.sources._message_texts import counted, listed, shown
from packer.stores.url import path_or_url

Lists = Mapping[str, Path]  # name of a split -> file that lists the samples
UNLISTED = "in no list of --split"
NO_SHARE = "in no share of --split"
_SEPARATOR = re.compile(r"[\s,;]+")
_SHARE = re.compile(r"-?(?:(?:0|1)?\.[0-9]+|[01])")  # does not match ./0.9, the path of a file


@dataclass(frozen=True)
class Shares:
    """Random splits.

    Attributes:
        shares: Name of a split -> fraction of all samples, as text.
        seed: The seed of the random order.
        by: The field whose equal values must be in the same split. Empty: samples are split independently.
    """

    shares: Mapping[str, str]
    seed: int = 0
    by: str = ""

    def __post_init__(self) -> None:
        parts = [Fraction(text) for text in self.shares.values()]
        if min(parts) <= 0 or sum(parts) > 1:
            typed = ", ".join(f"{name}={text}" for name, text in self.shares.items())
            raise InvalidRequest(
                f"splits {typed}: expected shares above 0 that sum to at most 1; ./0.9 is a file named 0.9"
            )

    @property
    def ends(self) -> list[Fraction]:
        """The cumulative sums of the shares, in order. 1 means all samples."""
        return list(accumulate(map(Fraction, self.shares.values())))


def splits_to_json(splits: "Lists | Shares") -> dict[str, Any]:
    """Return the splits for the manifest. Lists become name -> SHA-256 of the file, shares become their attributes."""
    if isinstance(splits, Shares):
        return {"shares": dict(splits.shares), "seed": splits.seed, "by": splits.by}
    return {name: hashlib.sha256(base.read_file(file)).hexdigest() for name, file in splits.items()}


def parse_splits(texts: Sequence[str], *, seed: int = 0, by: str | None = None) -> "Lists | Shares":
    """Parse one `NAME=FILE` or `NAME=SHARE` text per split. Raise InvalidRequest if both occur, or if one is invalid.

    `seed` and `by` (None: no field) are attributes of `Shares`. `by` is invalid for lists.
    """
    values = {name: value for name, _, value in (text.partition("=") for text in texts)}
    are_shares = {bool(_SHARE.fullmatch(value)) for value in values.values()}
    if "" in {*values, *values.values()} or len(values) < len(texts) or len(are_shares) > 1:
        raise InvalidRequest(
            f"splits {', '.join(texts)}: expected unique names, all with a file or all with a share: NAME=FILE or "
            "NAME=SHARE, such as train=train.txt or train=0.9"
        )
    if True in are_shares:
        return Shares(values, seed, by or "")
    if by is not None:
        raise InvalidRequest("--split-by is for random splits; use --split train=0.9 --split val=0.1")
    return {name: path_or_url(value) for name, value in values.items()}


def add_splits(source: base.Source, lists: Lists) -> base.Source:
    """Return a source with only the listed samples, in the order of `source`, and with the field `split`.

    The value of `split` is the position of the list in `lists`. Raise BadInput if a line contains no sample of the
    source, or if a sample is in two lists.
    """
    names = tuple(lists)
    numbers = array("h", [-1]) * len(source)
    rows = _RowsByName(source)
    unread, listed_unread = dict(source.unread), set[str]()
    for number, (split, file) in enumerate(lists.items()):
        faults = []
        for name in _lines(split, file):
            row = rows.find(name)
            if row is None and name.removeprefix("./") in unread:
                listed_unread.add(name.removeprefix("./"))
            elif row is None:
                faults.append(f"{name} (of several samples)" if rows.is_ambiguous(name) else name)
            elif numbers[row] not in (-1, number):
                faults.append(f"{source.key(row)} (also in {names[numbers[row]]})")
            else:
                numbers[row] = number
        if faults:
            example = f" (such as {shown(source.key(0))})" if len(source) else ""
            raise BadInput(
                f"{shown(str(file))}: {counted(len(faults), 'name')} that no sample of {shown(str(source.root))} has, "
                f"or that are in another list too: {listed(faults)}; give keys{example}, relative paths, or names that "
                "one sample has, each in one list"
            )
    kept = [(name, reason) for name, reason in source.unread if name in listed_unread]
    unlisted = [(name, UNLISTED) for name in unread if name not in listed_unread]
    addition = _SplitNumber(source, numbers, names, splits_to_json(lists))
    return _with_numbers(source, addition, reason=UNLISTED, unread=kept, left_out=unlisted)


def add_shares(source: base.Source, shares: Shares) -> base.Source:
    """Return a source with random splits as the field `split`. If the shares sum to less than 1, the rest is skipped.

    Raise InvalidRequest if the field `shares.by` is not one number or text per sample, or if a split has no samples.
    """
    names, ends, count = tuple(shares.shares), shares.ends, len(source)
    numbers = array("h", [-1]) * count
    begin = 0
    if shares.by:
        groups = [_group(source, row, shares.by) for row in range(count)]
        sizes, number_of = Counter(groups), {}
        for group in sorted(sizes, key=lambda group: _random_rank(shares.seed, group)):
            middle = Fraction(2 * begin + sizes[group], 2 * count)
            number_of[group] = next((number for number, end in enumerate(ends) if middle < end), -1)
            begin += sizes[group]
        numbers = array("h", (number_of[group] for group in groups))
    else:
        order = sorted(range(count), key=lambda row: _random_rank(shares.seed, source.key(row)))
        for number, end in enumerate(ends):
            for row in order[begin : round(end * count)]:
                numbers[row] = number
            begin = round(end * count)
    empty = [name for number, name in enumerate(names) if number not in numbers]
    if empty:
        among = f"{len(sizes)} values of {shares.by!r}" if shares.by else counted(count, "sample")
        raise InvalidRequest(
            f"split {empty[0]!r}: a share of {shares.shares[empty[0]]} of {among} is empty; give it a larger one"
        )
    how = f" (drawn with seed {shares.seed}{f', by {shares.by}' if shares.by else ''})"
    addition = _SplitNumber(source, numbers, names, splits_to_json(shares))
    return _with_numbers(source, addition, reason=NO_SHARE, unread=source.unread, how=how)


def _with_numbers(
    source: base.Source,
    addition: "_SplitNumber",
    *,
    reason: str,
    unread: Sequence[tuple[str, str]],
    left_out: Sequence[tuple[str, str]] = (),
    how: str = "",
) -> base.Source:
    """Return the samples whose number in `addition` is at least 0. Others are skipped with `reason`.

    Unreadable images are in `unread` if they are in a split, else in `left_out`. `how` is appended to the note.
    """
    names, numbers = addition.names, addition.numbers
    left_out = [*((source.key(row), reason) for row, number in enumerate(numbers) if number < 0), *left_out]
    rows = (row for row, number in enumerate(numbers) if number >= 0)
    counts = ", ".join(f"{shown(name)} {numbers.count(number)}" for number, name in enumerate(names))
    others = f"; {counted(len(left_out), 'sample')} {reason}" if left_out else ""
    note = f"splits: {counts}{how}{others}"
    return DerivedSource(source, addition, rows=rows, left_out=left_out, note=note, unread=unread)


def _random_rank(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}\0{name}".encode("utf-8", "surrogateescape")).digest()


def _group(source: base.Source, row: int, name: str) -> str:
    """Return the value of the field `name` as text. Raise InvalidRequest unless the value is one number or text."""
    fields = [field.name for field in source.schema if field.kind in ("number", "text")]
    value = np.asarray(source.value(row, name)) if name in fields else np.empty(0)
    if value.size != 1:
        raise InvalidRequest(
            f"--split-by {name}: expected a field with one number or text per sample, such as {', '.join(fields)}"
        )
    return str(value.item())


class _RowsByName:
    """An index of samples by key, by path and by file name."""

    def __init__(self, source: base.Source) -> None:
        self._source = source
        self._keys = {source.key(row): row for row in range(len(source))}
        root = source.folder.root
        self._roots = (f"{root.absolute()}/", f"{root}/", "./")

    def find(self, line: str) -> int | None:
        """Return the row of the sample that a line names, or None if the name is unknown or ambiguous."""
        row = self._row(line)
        row = self._stems.get(line) if row is None else row
        for separator in reversed(list(_SEPARATOR.finditer(line))) if row is None else ():
            row, other = self._row(line[: separator.start()]), self._row(line[separator.end() :])
            if row is not None:
                return row if other in (None, row) else None
        return row

    def is_ambiguous(self, name: str) -> bool:
        """Return whether several samples have a file named `name`."""
        return None in (self._files.get(name, 0), self._stems.get(name, 0))

    def _row(self, name: str) -> int | None:
        row = self._keys.get(name)
        row = self._paths.get(self._below_root(name)) if row is None else row
        return self._files.get(name) if row is None else row

    def _below_root(self, name: str) -> str:
        """Return a path relative to the source's folder. `name` may be absolute or begin with the folder's name."""
        front = next((front for front in self._roots if name.startswith(front)), "")
        inner = name.removeprefix(front or f"{self._source.folder.root.name}/")
        return inner if front or inner in self._paths else name

    @cached_property
    def _paths(self) -> dict[str, int]:
        return {path: row for row in range(len(self._source)) for path in self._source.entry(row).files}

    @cached_property
    def _files(self) -> dict[str, int | None]:
        return self._rows_of(lambda path: PurePosixPath(path).name)

    @cached_property
    def _stems(self) -> dict[str, int | None]:
        return self._rows_of(lambda path: PurePosixPath(path).stem)

    def _rows_of(self, name_of: Callable[[str], str]) -> dict[str, int | None]:
        """Return `name_of(path)` of each file -> row of its sample, or None if several samples share the name."""
        found: dict[str, int | None] = {}
        for path, row in self._paths.items():
            name = name_of(path)
            found[name] = row if found.setdefault(name, row) == row else None
        return found


class _SplitNumber(AddedFields):
    """The field `split`: the number of the split of each sample."""

    def __init__(
        self, source: base.Source, numbers: "array[int]", names: tuple[str, ...], manifest: Mapping[str, Any]
    ) -> None:
        """Store the split number of each row of the source (-1: no split), and the splits for the manifest.

        If the source has a field `split`, such as that of several COCO files, the field gets the new values.
        """
        self.numbers = numbers
        self.names = names
        self._manifest = manifest
        field = Field("split", "number", "number", dtype="int64", shape=(), classes=names)
        is_there = field.name in source.schema
        self.fields, self.changed = ((), (field,)) if is_there else ((field,), ())

    def values(self, sample: base.Sample, source: base.Source, row: int, names: Collection[str]) -> base.Sample:
        return {"split": np.int64(self.numbers[row])}

    def asked(self, of_source: dict[str, Any]) -> dict[str, Any]:
        return {**of_source, "splits": dict(self._manifest)}


def _lines(split: str, file: Path) -> Iterator[str]:
    if not file.exists():
        raise InvalidRequest(
            f"{shown(str(file))}: the list of split {split!r} does not exist; give a file with a key or path per line, "
            "or a share such as 0.9"
        )
    text = base.read_file(file).decode("utf-8", errors="surrogateescape").removeprefix("\ufeff")
    for line in text.replace("\r", "\n").split("\n"):
        name = line.strip()
        if name and not name.startswith("#"):
            yield name
