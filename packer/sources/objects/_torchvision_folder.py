"""torchvision folder: image files with labels that a Python object lists, such as torchvision's ImageFolder.

If `packer convert FOLDER` would pack the listed files in this order, the source `folder` reads them. The pack and its
digest are then equal to those of that command. For any other list (a Subset, filtered or sorted files), `ListedFiles`
reads the files in the order of the list. The keys are the paths relative to the folder.

packer reads these attributes (torchvision 0.28.0): `root`, `samples` (path, class number), `classes` (names; ImageNet
has tuples of names), `loader`, `transform`, `target_transform`.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, InvalidRequest, PackerError
from packer.schema import KEY, Field, Schema
from packer.sources import base
from packer.sources._message_texts import counted, listed
from packer.sources._trees.open_tree import open_tree
from packer.sources.image_files import folder
from packer.sources.objects._isinstance_without_import import class_named, type_name

_TORCHVISION = "torchvision.datasets.folder"


class FileList(NamedTuple):
    """A folder, the relative paths of files, their class numbers (None without labels), and the class names."""

    root: Path
    names: Sequence[str]
    labels: Sequence[int] | None
    classes: tuple[str, ...]


def file_list(root: Path, paths: Iterable[str], labels: Sequence[int] | None, classes: Iterable[str]) -> FileList:
    """Return a list of the files at `paths`, which are absolute or relative to the current folder.

    Raises InvalidRequest for a file that is not in the folder `root`.
    """
    names = [Path(base.relative_name(Path(path), str(root))).as_posix() for path in paths]
    outside = [name for name in names if name.startswith("../")]
    if outside:
        raise InvalidRequest(f"{root}: {counted(len(outside), 'file')} outside of the folder: {listed(outside)}")
    return FileList(root, names, labels, tuple(classes))


def is_torchvision_folder(data: object) -> bool:
    """Return whether `data` is a DatasetFolder with torchvision's own `__getitem__` and a standard loader."""
    cls = class_named(type(data), _TORCHVISION, "DatasetFolder")
    if cls is None or getattr(type(data), "__getitem__", None) is not getattr(cls, "__getitem__", None):
        return False
    return getattr(getattr(data, "loader", None), "__module__", None) == _TORCHVISION


def torchvision_files(data: Any, rows: Sequence[int] | None) -> FileList:
    """Return the files of a DatasetFolder at the indices `rows` (None for all). InvalidRequest for a transform."""
    for name in ("transform", "target_transform"):
        if getattr(data, name, None) is not None:
            raise InvalidRequest(
                f"<{type_name(data)}>: {name} is set, but the files are packed as they are: set {name}=None; resize= "
                "packs smaller images, packer.geometry crops in training"
            )
    samples = data.samples if rows is None else [data.samples[row] for row in rows]
    classes = (name if isinstance(name, str) else ", ".join(name) for name in data.classes)
    return file_list(Path(data.root), (str(path) for path, _ in samples), [int(label) for _, label in samples], classes)


class ListedFiles(base.Source):
    """A source of listed files, for lists that are not the complete content of the folder in its order."""

    kind = "listed-files"
    left_out = ()

    def __init__(self, files: FileList, *, follow_links: bool = False) -> None:
        """Check the list. Raise InvalidRequest for a label without a class, BadInput for a repeated file."""
        self.folder = open_tree(files.root, follow_links=follow_links)
        self.root = files.root
        self._files = files
        repeated = [name for name, count in Counter(files.names).items() if count > 1]
        if repeated:
            raise BadInput(
                f"{files.root}: {counted(len(repeated), 'file')} listed more than once: {listed(repeated)}; a pack "
                "has each file once: repeat it in training, with a sampler"
            )
        fields = [Field(KEY, "text", "text"), Field("image", "image", "encoded")]
        if files.labels is not None:
            wrong = sorted(set(files.labels) - set(range(len(files.classes))))
            if wrong:
                raise InvalidRequest(f"{files.root}: labels {listed(map(str, wrong))} are not classes")
            fields.append(Field("label", "number", "number", dtype="int64", shape=(), classes=files.classes))
        self.schema = Schema(tuple(fields))
        self.notes = [f"{counted(len(self), 'image')}, {counted(len(files.classes), 'class')}, listed by the object"]

    def __len__(self) -> int:
        return len(self._files.names)

    def entry(self, index: int) -> base.SampleEntry:
        name = self.key(index)
        return base.SampleEntry(name, (name,), base.stem_of(name))

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        sample: base.Sample = {KEY: self.key(index)}
        if "image" in names:
            sample["image"] = self.read_file(sample[KEY])
        if "label" in names and self._files.labels is not None:
            sample["label"] = np.int64(self._files.labels[index])
        return sample

    def key(self, index: int) -> str:
        return self._files.names[self.checked(index)]


def source_of_list(files: FileList, *, follow_links: bool) -> tuple[base.Source, dict[str, Any]]:
    """Return `(source, options)` for a list of files. `options` are the options of `source` for the manifest.

    `source` is the source `folder` if the folder contains the same files and labels in the same order. Otherwise it is
    a `ListedFiles`.
    """
    links: dict[str, Any] = {"follow_links": True} if follow_links else {}
    layouts: tuple[dict[str, Any], ...] = ({}, {"folders": "class"})
    for layout in layouts if os.path.isdir(files.root) else ():
        try:
            source = folder.Source(files.root, **layout, **links)
        except PackerError:  # packer refuses the folder, but the object lists its files
            continue
        if _is_equal(source, files):
            return source, {**layout, **links}
    return ListedFiles(files, follow_links=follow_links), links


def _is_equal(source: base.Source, files: FileList) -> bool:
    expected = {KEY, "image", "files"} if files.labels is None else {KEY, "image", "files", "label"}
    if source.left_out or source.unread or len(source) != len(files.names) or set(source.schema.names) - expected:
        return False
    if files.labels is not None and ("label" not in source.schema or source.schema["label"].classes != files.classes):
        return False
    return all(
        source.key(row) == name and (files.labels is None or source.value(row, "label") == files.labels[row])
        for row, name in enumerate(files.names)
    )
