"""Hugging Face: `datasets.Dataset` and `IterableDataset` by what their features say; nothing is imported.

Pictures are asked for undecoded, so that their bytes are kept and never encoded again. Read in datasets 4.8.5:
`features` (a dict of Image, ClassLabel, Value, ...), `cast_column`, `format`, `with_format`, and the private
`_fingerprint`, which changes with every map, filter, select and shuffle.

The library turns pictures upright by their EXIF orientation when it decodes them, so that labels are said to lie over
the upright picture (`Source.frame`).
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from packer.errors import InvalidRequest
from packer.schema import Field
from packer.sources._name_words import ordered_splits
from packer.sources._objects.object_class import is_a

SPLIT = "split"
_DATASET = ("datasets.arrow_dataset", "Dataset")
_ITERABLE = ("datasets.iterable_dataset", "IterableDataset")
_SPLITS = ("datasets.dataset_dict", "DatasetDict")
_PICTURE = ("datasets.features.image", "Image")
_UNDECODABLE = (
    ("datasets.features.audio", "Audio"),
    ("datasets.features.video", "Video"),
    ("datasets.features.pdf", "Pdf"),
)
_NUMBERS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bool",
)


def is_dataset(data: object) -> bool:
    """Whether it gives a sample for a number."""
    return is_a(data, *_DATASET)


def is_iterable(data: object) -> bool:
    """Whether it gives its samples one after the other."""
    return is_a(data, *_ITERABLE)


def is_splits(data: object) -> bool:
    """Whether it is a dict of data sets, the splits, with random access."""
    return is_a(data, *_SPLITS) and bool(data)


@dataclass(frozen=True)
class Prepared:
    """data: the same samples, pictures undecoded. declared: the fields of those columns whose features say them.
    columns: the names of those that can be read alone.
    """

    data: Any
    declared: Mapping[str, Field]
    fingerprint: str | None
    notes: Sequence[str] = ()
    pictures: Sequence[str] = field(default=())
    columns: Sequence[str] = ()


def prepared(data: Any, *, wanted: Sequence[str] | None) -> Prepared:
    """A data set whose rows can be packed. wanted: columns that the user takes; None for all.

    Raises InvalidRequest where a transform is set, or a column holds what no kind holds.
    """
    given = getattr(data, "format", None) or {}
    if given.get("type") == "custom":
        raise InvalidRequest(
            f"<{type(data).__name__}>: a transform is set (set_transform, with_transform), which a pack would freeze: "
            "call reset_format() before; packer.geometry crops and flips in training"
        )
    fingerprint = getattr(data, "_fingerprint", None)
    if given.get("type") is not None:
        data = data.with_format(None, columns=given.get("columns"))
    features = getattr(data, "features", None) or {}
    declared: dict[str, Field] = {}
    notes: list[str] = []
    pictures: list[str] = []
    for name, feature in features.items():
        is_wanted = wanted is None or name in wanted
        kind = next((kind for kind in _UNDECODABLE if is_a(feature, *kind)), None)
        if kind is not None and is_wanted:
            raise InvalidRequest(f"column {name!r} holds {kind[1]}, which no kind holds; leave it out: fields=[...]")
        if kind is not None or is_a(feature, *_PICTURE):  # a column that is not packed is read with its row, too
            data = data.cast_column(name, type(feature)(decode=False))
        if not is_wanted:
            continue
        if is_a(feature, *_PICTURE):
            pictures.append(name)
            if getattr(feature, "mode", None) not in (None, "RGB"):
                notes.append(f"{name}: its feature has mode {feature.mode}; the files are kept as they are")
        found = _declared(feature)
        if name == SPLIT and is_dataset(data) and found is not None and found.kind == "text":
            found = Field(SPLIT, "number", "number", "int64", (), classes=ordered_splits({*data[name]} - {None}))
        if found is not None:
            declared[name] = found
    columns = list(data.column_names) if is_dataset(data) else ()
    return Prepared(data, declared, fingerprint if isinstance(fingerprint, str) else None, notes, pictures, columns)


def joined(splits: Mapping[str, Any], *, wanted: Sequence[str] | None) -> Prepared:
    """The samples of a dict of splits, one split after the other, with the column `split`; raises as `prepared`."""
    parts = {name: prepared(data, wanted=wanted) for name, data in splits.items()}
    first = next(iter(parts.values()))
    for name, part in parts.items():
        if part.declared != first.declared or SPLIT in part.columns:
            raise InvalidRequest(
                f"<DatasetDict>: split {name!r} has other features than {next(iter(parts))!r}, or its own column "
                f"{SPLIT!r}: make them alike, or pass one split"
            )
    prints = [part.fingerprint or "" for part in parts.values()]
    return replace(
        first,
        data=_JoinedSplits([part.data for part in parts.values()]),
        declared={**first.declared, SPLIT: Field(SPLIT, "number", "number", "int64", (), classes=tuple(parts))},
        fingerprint=",".join(prints) if all(prints) else None,
        columns=[*first.columns, SPLIT],
    )


class _JoinedSplits:
    """Data sets one after the other, with the number of each as the column `split`."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, wanted: int | str) -> Any:
        if isinstance(wanted, str):
            return [value for part in self._parts for value in part[wanted]]
        number = bisect_right(self._ends, wanted)
        return {**self._parts[number][wanted - self._ends[number]], SPLIT: number}  # its row, counted from the end


_COLUMN = "column"  # in place of a name, which may be one that no field can have


def _declared(feature: object) -> Field | None:
    """The field that a feature says, of no name yet; None where the values say it."""
    module = "datasets.features.features"
    if is_a(feature, module, "ClassLabel"):
        classes = tuple(getattr(feature, "names", None) or ())
        return Field(_COLUMN, "number", "number", dtype="int64", shape=(), classes=classes or None)
    if is_a(feature, module, "Value"):
        dtype = str(getattr(feature, "dtype", ""))
        if dtype in _NUMBERS:
            return Field(_COLUMN, "number", "number", dtype=dtype, shape=())
        return Field(_COLUMN, "text", "text") if dtype in ("string", "large_string") else None
    if any(is_a(feature, module, name) for name in ("Sequence", "List", "LargeList")):
        inner = _declared(getattr(feature, "feature", None))
        if inner is not None and inner.kind == "number" and inner.shape == ():
            return replace(inner, codec=f"raw:{inner.dtype}", shape=(None,))
    return None
