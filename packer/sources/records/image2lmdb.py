"""Image2LMDB: images with numbers as keys, as Fangyh09/Image2LMDB writes them. The LMDB does not contain labels.

Fields: key, image (the bytes of the file) and, with `labels_from`, label (int64). The key is the file name if all names
in the list next to the LMDB differ, otherwise the number. Samples are sorted by number, which is ImageFolder's order.

Layout: the key is the number in decimal digits. The value is the bytes by pyarrow.serialize
(packer.layouts.arrow_payload). `__keys__` and `__len__` have the same encoding. NAME_images_idx.txt next to NAME.lmdb
has a line for each file: file name without folders, space, number.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.layouts import serialized
from packer.schema import Field
from packer.sources._extract_destinations import is_path
from packer.sources._message_texts import counted, listed, shown
from packer.sources._trees.listing import scan
from packer.sources._trees.open_tree import open_tree
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._random_access_files import OpenFile, UnpackedFile
from packer.sources.records._record_source import IMAGE, LABEL

SPECIFICITY = -1
_LIST = "_images_idx.txt"
_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's IMG_EXTENSIONS


class Source(LMDBSource):
    """An LMDB of Image2LMDB, or a folder of LMDBs."""

    kind = "image2lmdb"
    title = "LMDB of images without labels, by pyarrow"

    def __init__(
        self, root: Path, *, labels_from: str = "", named_splits: bool = False, follow_links: bool = False
    ) -> None:
        """Find all records.

        Args:
            root: An LMDB, or a folder of LMDBs.
            labels_from: The original folder of images, or an archive of the folder, which provides the labels.
            named_splits: True adds the field split. False raises if the file names are those of several splits.
            follow_links: If True, follow symbolic links to outside the folder.

        Raises:
            InvalidRequest: No LMDB has this layout, or `labels_from` does not contain the images of the LMDB.
            BadInput: The LMDB or the list next to the LMDB is damaged.
            MissingPackage: pyarrow is absent.
        """
        self._originals = _Originals(Path(labels_from), follow_links=follow_links) if labels_from else None
        self._labels: list[int] = []
        self._lists: list[dict[int, str]] = []
        self._list(root, named_splits=named_splits, follow_links=follow_links)
        self.places = {"labels_from": self._originals.digest} if self._originals else {}
        self._originals = None  # frees the lists

    @classmethod
    def parse(cls, value: bytes) -> dict[str, Any]:
        found: Any = serialized.loads(value)
        if not isinstance(found, bytes):
            raise BadInput(f"expected bytes alone, found {type(found).__name__}")
        return {"image": found}

    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        super().find(name, file, size)
        self._lists.append(self._listed_names(f"{name.removesuffix(PurePosixPath(name).suffix)}{_LIST}"))

    def _listed_names(self, name: str) -> dict[int, str]:
        """Return number -> file name from the list next to an LMDB. Raises `BadInput` for a damaged list."""
        found: dict[int, str] = {}
        lines = (self._table(name) or b"").decode("utf-8", "surrogateescape").splitlines()
        for at, line in enumerate(lines, 1):
            file, space, number = line.rstrip().rpartition(" ")
            if not line.strip():
                continue
            if not space or not file or not number.isdecimal() or int(number) in found:
                raise BadInput(
                    f"{self.folder.root / name}: line {at}: expected a name and a number that comes once, found "
                    f"{line[:80]!r}"
                )
            found[int(number)] = file
        return found

    def choose_fields(self) -> Sequence[Field]:
        names = [self._lists[number].get(at, "") for number, at in zip(self._numbers, self._ids, strict=True)]
        twice = sorted(name for name, count in Counter(names).items() if count > 1 and name)
        absent = names.count("")
        if twice:
            self.notes.append(
                f"names of several files, which came from several folders: {listed(twice)}; keys are numbers"
            )
        if absent and any(self._lists):
            self.notes.append(f"{counted(absent, 'record')} without a name in the list; keys are numbers")
        if self._originals is None:
            label = []
            self.notes.append(
                "no labels: Image2LMDB does not store them; --labels-from DIR restores them from the folder that was "
                "packed"
            )
        else:
            self._labels = self._restored(self._originals)
            label = [replace(LABEL, classes=tuple(self._originals.classes))]
            self.notes.append(
                f"labels of {shown(str(self._originals.folder.root))}: {counted(len(label[0].classes or ()), 'class')}"
            )
        self._names = [] if twice or absent or len(self._lists) != 1 else names
        return [IMAGE, *label]

    def _restored(self, originals: "_Originals") -> list[int]:
        """Return the label of each sample. Raises `InvalidRequest` if the folder does not match the LMDB."""
        where, advice = shown(str(originals.folder.root)), "--labels-from needs the folder that was packed, unchanged"
        if len(self._lists) != 1:
            raise InvalidRequest(f"--labels-from is for one LMDB, found {len(self._lists)}; pack them one by one")
        expected = max(len(self), max(self._ids, default=-1) + 1)
        if len(originals.names) != expected:
            raise InvalidRequest(
                f"{where}: contains {counted(len(originals.names), 'image')}, the LMDB {expected}; {advice}"
            )
        for number in self._ids:
            original = PurePosixPath(originals.names[number]).name
            name = self._lists[0].get(number, original)
            if name != original:
                raise InvalidRequest(
                    f"{where}: image {number} is {shown(original)}, in the list of the LMDB {shown(name)}; {advice}"
                )
        for index, record in self._probes():
            name = originals.names[self._ids[index]]
            if originals.folder.read(name) != self.parse(record)["image"]:
                raise InvalidRequest(f"{where}/{name}: differs from number {self._ids[index]} of the LMDB; {advice}")
        return [originals.labels[number] for number in self._ids]

    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        values = super().entries(index, record)
        return {**values, "label": np.int64(self._labels[index])} if self._labels else values


class _Originals:
    """The original folder of images, or an archive of the folder, with the classes of ImageFolder.

    Source: torchvision.datasets.folder (find_classes, make_dataset).

    Attributes:
        names: The relative paths.
        labels: The class number of each path.
        classes: The names of the classes.
        digest: The sha256 of the paths.
    """

    def __init__(self, root: Path, *, follow_links: bool) -> None:
        if not root.exists():
            raise InvalidRequest(
                f"option labels_from: {shown(str(root))}: no such folder; give the one that was packed, or an "
                "archive of it"
            )
        self.folder = open_tree(root, follow_links=follow_links)
        listing = scan(self.folder)
        self.classes = sorted({name.partition("/")[0] for name in listing.folders})
        inside = [name for name in listing.names if "/" in name and name.lower().endswith(_SUFFIXES) and is_path(name)]
        self.names = sorted(inside, key=_order)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self.labels = [numbers[name.partition("/")[0]] for name in self.names]
        self.digest = hashlib.sha256(b"".join(os.fsencode(name) + b"\0" for name in self.names)).hexdigest()
        if not self.names:
            raise InvalidRequest(f"{shown(str(root))}: --labels-from: no images in folders that are their classes")


def _order(name: str) -> tuple[str, str, str]:
    """Return the sort key of a path: class, folder, file name."""
    folder, _, last = name.rpartition("/")
    return name.partition("/")[0], folder, last
