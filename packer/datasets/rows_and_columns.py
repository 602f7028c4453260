"""Rows and columns: find samples for `where`, `sample` and `split` of PackDataset, and values for `with_column`."""

import csv
import difflib
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.errors import InvalidRequest, UnknownKey
from packer.files.safe_paths import open_file
from packer.geometry.random_numbers import shuffled
from packer.pack import row_filter
from packer.pack.filter_columns import PackColumns
from packer.pack.reader import Pack
from packer.schema import Field

Indices = npt.NDArray[np.int64]
NewKind = Literal["number", "text", "json", "points", "boxes"]
NewValues = Sequence[Any] | npt.NDArray[Any] | Mapping[str, Any] | str | PathLike[str]
_CODECS = {"number": "number", "text": "text", "json": "json", "points": "raw:float32", "boxes": "raw:float32"}


# ---- which rows


def where(columns: "DatasetColumns", condition: Any) -> Indices:
    """Return the sorted positions of the samples that meet a condition. Its types are those of `PackDataset.where`."""
    if isinstance(condition, str):
        found = columns.matching(condition)
    else:
        found = np.asarray(condition(columns) if callable(condition) else condition)
        if found.dtype != bool or found.shape != (len(columns.rows),):
            raise InvalidRequest(
                f"where: expected {len(columns.rows)} values True or False, found {found.dtype} of shape {found.shape}"
            )
    return np.flatnonzero(found)


def sampled(total: int, count: float, seed: int) -> Indices:
    """Return sorted random positions below `total`: `count` of them, or if `count` is a float, this share of all."""
    number = count if isinstance(count, int) else round(count * total)
    if not 0 <= number <= total:
        raise InvalidRequest(f"sample({count}): expected at most {total} samples, or a share from 0 to 1")
    return np.sort(shuffled(seed, 0, total)[:number])


def divided(
    columns: "DatasetColumns", shares: Mapping[str, float], *, stratify: str | None, by: str | None, seed: int
) -> dict[str, Indices]:
    """Return the sorted positions of the samples of each share. The arguments are those of `PackDataset.split`."""
    if not shares or not all(share >= 0 for share in shares.values()) or math.fsum(shares.values()) > 1 + 1e-9:
        raise InvalidRequest(f"split: shares {dict(shares)}: expected such as train=0.8, val=0.2, at most 1 in all")
    count = len(columns.rows)
    groups = np.arange(count) if by is None else _numbered(columns[by])
    strata = np.zeros(count, np.int64) if stratify is None else _numbered(columns[stratify])
    stratum_of = np.zeros(int(groups.max(initial=-1)) + 1, np.int64)
    stratum_of[groups] = strata
    if (stratum_of[groups] != strata).any():
        raise InvalidRequest(f"split: samples with an equal {by!r} differ in {stratify!r}; leave one of them out")
    share_of = np.full(len(stratum_of), len(shares))
    order = shuffled(seed, 0, len(stratum_of))
    bounds = np.cumsum(list(shares.values()))
    for stratum in np.unique(strata):
        members = order[stratum_of[order] == stratum]
        ends = np.rint(bounds * len(members)).astype(np.int64)
        share_of[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
    return {name: np.flatnonzero(share_of[groups] == at) for at, name in enumerate(shares)}


def _numbered(values: npt.NDArray[Any]) -> Indices:
    """Return a number from 0 for each value, int64 (n,). Equal values have equal numbers, others different ones."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


# ---- other values


def new_values(
    columns: "DatasetColumns",
    name: str,
    values: NewValues,
    *,
    kind: NewKind | None,
    classes: Sequence[str] | None,
) -> tuple[Field, Sequence[Any] | npt.NDArray[Any]]:
    """Return the new field and a value for each sample. The arguments are those of `PackDataset.with_column`."""
    old = next((field for field in columns.pack.schema if field.name == name), None)
    if isinstance(values, str | PathLike):
        values = _of_csv(Path(values), name)
    if isinstance(values, Mapping):
        values = _in_order(columns, name, values, old)
    if old is not None and classes is not None and tuple(classes)[: len(old.classes or ())] != (old.classes or ()):
        raise InvalidRequest(f"with_column({name!r}): classes begin with {', '.join(old.classes or ())}, in this order")
    field = old if kind is None else None
    names = tuple(classes) if classes is not None else field.classes if field is not None else None
    if names is not None and (field is None or field.kind == "number"):
        known = set() if old is None or not old.is_column else set(columns.pack.index.column(name).ravel().tolist())
        values = _of_classes(name, values, names, known)
    elif kind == "number" or (field is not None and field.is_column):
        values = [_number(name, value) if isinstance(value, str) else value for value in values]
    if field is None:
        return _new_field(name, values, kind, names), values
    return replace(field, classes=names), values


def _of_csv(path: Path, name: str) -> dict[str, str]:
    """Read a CSV file, and return for each text in its column `key` the text in its column `name`."""
    with open_file(path) as raw:
        text = raw.read().decode("utf-8-sig")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    if not {"key", name} <= set(reader.fieldnames or ()):
        raise InvalidRequest(f"{path}: expected the columns key and {name}, found {', '.join(reader.fieldnames or ())}")
    found: dict[str, str] = {}
    for row in reader:
        if row["key"] in found:
            raise InvalidRequest(f"{path}: the key {row['key']!r} is there twice; remove one of the lines")
        found[row["key"]] = row[name]
    return found


def _in_order(columns: "DatasetColumns", name: str, values: Mapping[str, Any], old: Field | None) -> list[Any]:
    """Return a value for each sample: the value of its key in `values`, else its stored value of the field `old`."""
    positions = columns.positions(values)
    found: list[Any] = [None] * len(columns.rows)
    missing = np.setdiff1d(np.arange(len(found)), positions).tolist()
    if old is None and missing:
        raise InvalidRequest(
            f"with_column({name!r}): no value for {len(missing)} samples, such as "
            f"{columns.pack.index.key(int(columns.rows[missing[0]]))!r}, and the pack does not have the field; give "
            "every sample a value"
        )
    if old is not None and old.is_column:
        found = list(columns.pack.index.column(name)[columns.rows])
    elif old is not None:
        codec = codecs.make(old)
        for at in missing:
            with columns.pack.record(int(columns.rows[at]), [name]) as record:
                found[at] = codec.decode(record[name])
    for at, value in zip(positions, values.values(), strict=True):
        found[at] = value
    return found


def _new_field(
    name: str, values: Sequence[Any] | npt.NDArray[Any], kind: NewKind | None, classes: tuple[str, ...] | None
) -> Field:
    first = values[0] if len(values) else 0
    chosen = kind or ("text" if isinstance(first, str) else "number")
    if chosen == "number":
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise InvalidRequest(f"with_column({name!r}): values such as {first!r:.60}: give kind=")
        return Field(name, "number", "number", str(array.dtype), array.shape[1:], classes=classes)
    shapes = {"points": (None, 2), "boxes": (None, 4)}
    dtype = "float32" if chosen in shapes else None
    return Field(name, chosen, _CODECS[chosen], dtype, shapes.get(chosen))


def _of_classes(
    field: str, values: Sequence[Any] | npt.NDArray[Any], names: Sequence[str], known: set[Any]
) -> npt.NDArray[Any]:
    """Return the number of each class name. Numbers are unchanged, and must be classes or in `known`."""
    numbers = {name: number for number, name in enumerate(names)}

    def number_of(value: Any) -> Any:
        number = value
        if isinstance(value, str):
            number = numbers.get(value, int(value) if value.isdecimal() else None)
        if number is None or (number not in known and number not in range(len(names))):
            close = difflib.get_close_matches(str(value), names, 1)
            raise InvalidRequest(
                f"with_column({field!r}): {value!r:.60} is not one of the {len(names)} classes"
                f"{f'; did you mean {close[0]!r}?' if close else ''}; classes= (--new-class) adds new ones at the end"
            )
        return number

    return np.asarray([number_of(value) for value in values])


def _number(name: str, text: str) -> int | float:
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError as error:
        raise InvalidRequest(
            f"with_column({name!r}): expected a number, found {text!r:.60}; give kind= or classes="
        ) from error


# ---- columns


class DatasetColumns(Mapping[str, npt.NDArray[Any]]):
    """The columns of a dataset by name, in the order of its samples. They come from the index, so no part is read.

    The names are those in conditions of `PackDataset.where`: number and text fields, `key`, `width`, `height`,
    `NAME.width`, `NAME.height`, `len(NAME)` and `incomplete`. Classes are numbers, and texts are `str`.

    Attributes:
        pack: The pack.
        rows: The row of each sample in the pack, int64.
    """

    def __init__(self, pack: Pack, rows: Indices) -> None:
        self.pack = pack
        self.rows = rows
        self._filter = PackColumns(pack.schema, pack.index, dict(pack.manifest.incomplete))

    def positions(self, keys: Iterable[str]) -> list[int]:
        """Return the position in the dataset of the sample with each key. Raises UnknownKey if there is none."""
        at = np.full(len(self.pack), -1)
        at[self.rows] = np.arange(len(self.rows))
        found = []
        for key in keys:
            found.append(int(at[self.pack.index.index_of(key)]))
            if found[-1] < 0:
                raise UnknownKey(f"key {key!r} is not among the chosen samples")
        return found

    def matching(self, text: str) -> npt.NDArray[np.bool_]:
        """Return bool (n,): True for each sample that meets the condition `text`."""
        return np.asarray(row_filter.parse(text).rows(self._filter)[self.rows])

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if self._filter.kinds[name] != "text":
            return self._filter.numbers(name)[self.rows]
        return np.asarray(self._filter.values(name, self.rows), object)

    def __iter__(self) -> Iterator[str]:
        return iter(self._filter.kinds)

    def __len__(self) -> int:
        return len(self._filter.kinds)
