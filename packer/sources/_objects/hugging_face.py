"""Hugging Face: `datasets.Dataset` and `IterableDataset` by what their features say; nothing is imported.

Pictures are asked for undecoded, so that their bytes are kept and never encoded again. Read in datasets 4.8.5:
`features` (a dict of Image, ClassLabel, Value, ...), `cast_column`, `format`, `with_format`, and the private
`_fingerprint`, which changes with every map, filter, select and shuffle.

The library turns pictures upright by their EXIF orientation when it decodes them, so that labels are said to lie over
the upright picture (`Source.frame`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from packer.errors import InvalidRequest
from packer.schema import Field
from packer.sources._objects.object_class import is_a
from packer.sources._parse.folder_listing import listed

_DATASET = ("datasets.arrow_dataset", "Dataset")
_ITERABLE = ("datasets.iterable_dataset", "IterableDataset")
_SEVERAL = (("datasets.dataset_dict", "DatasetDict"), ("datasets.dataset_dict", "IterableDatasetDict"))
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


def check_one_split(data: object) -> None:
    """Raise InvalidRequest for a dict of splits."""
    if any(is_a(data, *name) for name in _SEVERAL) and isinstance(data, Mapping):
        names = [str(name) for name in data]
        raise InvalidRequest(
            f"<DatasetDict>: holds the splits {listed(names)}: pass one, such as dataset[{names[0]!r}]"
            if names
            else "<DatasetDict>: holds no split"
        )


@dataclass(frozen=True)
class Prepared:
    """data: the same samples, pictures undecoded. declared: the fields of those columns whose features say them."""

    data: Any
    declared: Mapping[str, Field]
    fingerprint: str | None
    notes: Sequence[str] = ()
    pictures: Sequence[str] = field(default=())


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
        if found is not None:
            declared[name] = found
    return Prepared(data, declared, fingerprint if isinstance(fingerprint, str) else None, notes, pictures)


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
