"""Hugging Face: support for `datasets.Dataset`, `IterableDataset` and `DatasetDict`, without importing the library.

Images are read without decoding, so that the pack contains the original bytes. packer reads these attributes (datasets
4.8.5): `features` (a dict of Image, ClassLabel, Value, ...), `cast_column`, `format`, `with_format` and the private
`_fingerprint`. The fingerprint changes with every map, filter, select and shuffle.

When datasets decodes an image, it applies the EXIF orientation. Coordinates in labels therefore refer to the upright
image (`Source.frame`).
"""

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from packer.errors import InvalidRequest
from packer.schema import DTYPES, Field
from packer.sources.objects._isinstance_without_import import is_a
from packer.sources.objects._object_source import ObjectData
from packer.sources.objects._torchvision_folder import FileList, file_list

SPLIT = "split"
_COLUMN = "column"  # in place of the name of a column, which may be invalid for a field
_FEATURES = "datasets.features.features"
_ROWS_AT_ONCE = 1000


def is_dataset(data: object) -> bool:
    """Return whether an object is a `datasets.Dataset`, which has random access."""
    return is_a(data, "datasets.arrow_dataset", "Dataset")


def is_splits(data: object) -> bool:
    """Return whether an object is a `datasets.DatasetDict` with at least one split."""
    return is_a(data, "datasets.dataset_dict", "DatasetDict") and bool(data)


def is_iterable(data: object) -> bool:
    """Return whether an object is a `datasets.IterableDataset`."""
    return is_a(data, "datasets.iterable_dataset", "IterableDataset")


def object_data(data: Any, *, request: Sequence[str] | None) -> ObjectData:
    """Return the samples of a Hugging Face object, and the fields that its features declare.

    Args:
        data: A Dataset, an IterableDataset or a DatasetDict.
        request: The columns to read. None for all columns.

    Raises:
        InvalidRequest: A transform is set, a column contains audio or video, or splits have different features.
    """
    if is_splits(data):
        return _joined({name: object_data(part, request=request) for name, part in data.items()})
    name = f"datasets.{type(data).__name__}"
    data_format = getattr(data, "format", None) or {}
    if data_format.get("type") == "custom":
        raise InvalidRequest(
            f"<{name}>: a transform is set, and a pack would freeze it: call reset_format() first; packer.geometry "
            "crops and flips in training"
        )
    fingerprint = getattr(data, "_fingerprint", None)
    if data_format.get("type") is not None:
        data = data.with_format(None, columns=data_format.get("columns"))
    declared: dict[str, Field] = {}
    for column, feature in (getattr(data, "features", None) or {}).items():
        is_requested = request is None or column in request
        if hasattr(feature, "decode"):  # reading a row decodes every column, also those that are not packed
            if is_requested and not _is_image(feature):
                raise InvalidRequest(
                    f"<{name}>: column {column!r} contains {type(feature).__name__}, which has no kind; leave it out: "
                    "fields=[...]"
                )
            data = data.cast_column(column, type(feature)(decode=False))
        field = _declared(feature) if is_requested else None
        if field is not None:
            declared[column] = field
    return ObjectData(
        data,
        name,
        declared=declared,
        columns=tuple(data.column_names) if is_dataset(data) else (),
        fingerprint=fingerprint if isinstance(fingerprint, str) else None,
        frame="upright",
    )


def folder_files(data: ObjectData) -> FileList | None:
    """Return the files of a data set that `imagefolder` of datasets loaded.

    Return None for images in several folders, images stored as bytes, and columns other than `image` and `label`.
    """
    features = getattr(data.data, "features", None) or {}
    classes = data.declared["label"].classes if "label" in data.declared else None
    has_label = "label" in data.columns
    if set(data.columns) - {"label"} != {"image"} or not _is_image(features["image"]) or has_label != bool(classes):
        return None
    paths: list[str] = []
    for start in range(0, len(data.data), _ROWS_AT_ONCE):
        for image in data.data[start : start + _ROWS_AT_ONCE]["image"]:
            path = (image or {}).get("path")
            if not path or image["bytes"] is not None or not os.path.isabs(path):
                return None
            paths.append(path)
    folders = {os.path.dirname(path) for path in paths}
    roots = {os.path.dirname(path) for path in folders} if has_label else folders
    if len(roots) != 1:
        return None
    return file_list(Path(roots.pop()), paths, list(data.data["label"]) if has_label else None, classes or ())


def _joined(parts: Mapping[str, ObjectData]) -> ObjectData:
    """Concatenate the splits of a DatasetDict, and add the column `split`. InvalidRequest for different features."""
    first = next(iter(parts.values()))
    for name, part in parts.items():
        if part.declared != first.declared or SPLIT in part.columns:
            raise InvalidRequest(
                f"<DatasetDict>: split {name!r} has other features than {next(iter(parts))!r}, or a column {SPLIT!r}: "
                "make the features equal, or pass one split"
            )
    fingerprints = [part.fingerprint or "" for part in parts.values()]
    return replace(
        first,
        data=_JoinedSplits([part.data for part in parts.values()]),
        name="datasets.DatasetDict",
        declared={**first.declared, SPLIT: Field(SPLIT, "number", "number", "int64", (), classes=tuple(parts))},
        columns=(*first.columns, SPLIT),
        fingerprint=",".join(fingerprints) if all(fingerprints) else None,
    )


class _JoinedSplits:
    """Concatenated data sets. The column `split` contains the position of the data set in the list."""

    def __init__(self, parts: Sequence[Any]) -> None:
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int | str) -> Any:
        if isinstance(index, str):
            return [value for part in self._parts for value in part[index]]
        number = bisect_right(self._ends, index)
        return {**self._parts[number][index - self._ends[number]], SPLIT: number}  # negative index into the part


def _is_image(feature: object) -> bool:
    return is_a(feature, "datasets.features.image", "Image")


def _declared(feature: object) -> Field | None:
    """Return the field that a feature declares. None means that the values decide."""
    if is_a(feature, _FEATURES, "ClassLabel"):
        classes = tuple(getattr(feature, "names", None) or ())
        return Field(_COLUMN, "number", "number", dtype="int64", shape=(), classes=classes or None)
    if is_a(feature, _FEATURES, "Value"):
        dtype = str(getattr(feature, "dtype", ""))
        if dtype in DTYPES:
            return Field(_COLUMN, "number", "number", dtype=dtype, shape=())
        return Field(_COLUMN, "text", "text") if dtype in ("string", "large_string") else None
    if any(is_a(feature, _FEATURES, name) for name in ("Sequence", "List", "LargeList")):
        inner = _declared(getattr(feature, "feature", None))
        if inner is not None and inner.shape == ():
            return replace(inner, codec=f"raw:{inner.dtype}", shape=(None,))
    return None
