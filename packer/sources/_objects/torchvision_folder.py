"""Torchvision folder: ImageFolder and DatasetFolder by their list of files, whose bytes are kept; nothing is imported.

Read in torchvision 0.28.0: `root`, `samples` (path, class number), `classes` (names; ImageNet has tuples of them),
`loader`, `transform`, `target_transform`, `transforms`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packer.errors import InvalidRequest
from packer.sources._objects.listed_files import FileList
from packer.sources._objects.object_class import class_named, said

_MODULE = "torchvision.datasets.folder"
_TRANSFORMS = ("transform", "target_transform")


def recognised(data: object) -> bool:
    """Whether it is one that opens its files as torchvision does, so that their bytes are what it shows."""
    base = class_named(type(data), _MODULE, "DatasetFolder")
    if base is None:
        return False
    own_items = getattr(type(data), "__getitem__", None) is not getattr(base, "__getitem__", None)
    return not own_items and getattr(getattr(data, "loader", None), "__module__", None) == _MODULE


def file_list(data: Any, rows: Sequence[int] | None) -> FileList:
    """Its files. rows: of a Subset of it; None for all. Raises InvalidRequest where a transform is set."""
    check_no_transform(data)
    samples = data.samples if rows is None else [data.samples[row] for row in rows]
    classes = [name if isinstance(name, str) else ", ".join(name) for name in data.classes]
    paths, labels = [str(path) for path, _ in samples], [int(label) for _, label in samples]
    return FileList.of_paths(Path(data.root), paths, labels, classes)


def check_no_transform(data: object) -> None:
    """Raise InvalidRequest for a data set that changes its samples when they are read."""
    for name in _TRANSFORMS:
        transform = getattr(data, name, None)
        if transform is not None:
            raise InvalidRequest(
                f"<{said(data)}>: its {name} is set ({said(transform)}), which a pack would freeze, or leave out, if "
                f"files are kept: set {name}=None; resize= packs smaller pictures, packer.geometry crops in training"
            )
