"""Listed files: picture files with labels that a Python object lists, such as torchvision's ImageFolder.

Where the list is that of `packer convert FOLDER`, it becomes that very source: one pack, one digest, whichever was
given. A subset, a list that was filtered or ordered otherwise, is a source of its own: the same files and labels in its
order, keys their paths below the folder.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest, PackerError
from packer.schema import KEY, Field, Schema
from packer.sources import base
from packer.sources._parse.folder_listing import counted, listed
from packer.sources._trees.open_tree import open_tree
from packer.sources.image_files import folder

KIND = "listed-files"


@dataclass(frozen=True)
class FileList:
    """root: the folder. names: paths below it. labels: a class number each, or None. classes: their names."""

    root: Path
    names: Sequence[str]
    labels: Sequence[int] | None = None
    classes: Sequence[str] = ()

    @classmethod
    def of_paths(
        cls, root: Path, paths: Sequence[str], labels: Sequence[int] | None, classes: Sequence[str]
    ) -> "FileList":
        """As an object has the paths: absolute ones, or from the current folder. Raises InvalidRequest."""
        top = str(root)
        names = [Path(base.relative_name(Path(path), top)).as_posix() for path in paths]
        outside = [name for name in names if name.startswith("../")]
        if outside:
            raise InvalidRequest(
                f"{root}: {counted(len(outside), 'file')} lie outside of the folder: {listed(outside)}"
            )
        return cls(root, names, labels, classes)


class ListedFiles(base.Source):
    """See the module."""

    kind = KIND
    left_out = ()

    def __init__(self, files: FileList, *, follow_links: bool = False) -> None:
        """Raises InvalidRequest for a folder that is not there, BadInput where a file is listed twice."""
        self._tree = open_tree(files.root, follow_links=follow_links)  # not listed: the object has done so
        self.root = files.root
        self.follow_links = follow_links
        self._listed = files
        twice = [name for name, count in Counter(files.names).items() if count > 1]
        if twice:
            raise BadInput(
                f"{files.root}: {counted(len(twice), 'file')} are listed more than once: {listed(twice)}; a pack has "
                "each once: repeat them in training, by a sampler"
            )
        fields = [Field(KEY, "text", "text"), Field("image", "image", "encoded")]
        if files.labels is not None:
            wrong = sorted(set(files.labels) - set(range(len(files.classes))))
            if wrong:
                raise InvalidRequest(f"{files.root}: labels {listed(list(map(str, wrong)))} are of no class")
            fields.append(Field("label", "number", "number", dtype="int64", shape=(), classes=tuple(files.classes)))
        self.schema = Schema(tuple(fields))
        self.notes = [
            f"{counted(len(self), 'image')}, {counted(len(files.classes), 'class')}, as the object lists them"
        ]

    def __len__(self) -> int:
        return len(self._listed.names)

    def __getitem__(self, index: int) -> base.Sample:
        name = self.key(index)
        sample: base.Sample = {KEY: name, "image": self.read(name)}
        if self._listed.labels is not None:
            sample["label"] = self.value(index, "label")
        return sample

    def value(self, index: int, name: str) -> Any:
        if name == "label" and self._listed.labels is not None:
            return np.int64(self._listed.labels[self.checked(index)])
        return self.key(index) if name == KEY else super().value(index, name)

    def key(self, index: int) -> str:
        return self._listed.names[self.checked(index)]

    def files(self, index: int) -> tuple[Path, ...]:
        return (self.root / self.key(index),)

    def file_names(self, index: int) -> tuple[str, ...]:
        return (self.key(index),)

    def stem(self, index: int) -> Path:
        return (self.root / self.key(index)).with_suffix("")


@dataclass(frozen=True)
class Listed:
    """A source of listed files. options: those of the folder source that it was made with, for the manifest."""

    source: base.Source
    options: dict[str, Any]


def source_of_list(files: FileList, *, follow_links: bool) -> Listed:
    """The folder's own source where that has the same files, labels and classes in the same order, else the list's."""
    given: dict[str, Any] = {"follow_links": True} if follow_links else {}
    if os.path.isdir(files.root):
        choices: tuple[dict[str, Any], ...] = ({}, {"layout": "class"})
        for options in choices:
            try:
                found = folder.Source(files.root, **options, **given)
            except PackerError:  # a folder that packer would not take so; the list says what is meant
                continue
            if _is_same(found, files):
                return Listed(found, {**options, **given})
    return Listed(ListedFiles(files, follow_links=follow_links), given)


def _is_same(found: base.Source, files: FileList) -> bool:
    if found.left_out or found.unread or len(found) != len(files.names):
        return False
    has_label = "label" in found.schema
    if has_label != (files.labels is not None) or "split" in found.schema:
        return False
    if has_label and found.schema["label"].classes != tuple(files.classes):
        return False
    return all(
        found.key(index) == name and (files.labels is None or found.value(index, "label") == files.labels[index])
        for index, name in enumerate(files.names)
    )
