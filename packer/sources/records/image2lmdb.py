"""Image2LMDB: pictures alone under numbers, as Fangyh09/Image2LMDB writes them; the labels are lost in it.

Fields: key (the file's name where its list has each once, else the number), image (its bytes as they are), and with
`labels_from` label (int64), in the order of the numbers, which is that of ImageFolder when they were written.
Layout: key = the number in decimal digits; value = the bytes by pyarrow.serialize (packer.layouts.arrow_payload);
`__keys__` and `__len__` alike besides; NAME_images_idx.txt beside NAME.lmdb: lines of a file's name without its
folders, a space, its number.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.layouts import serialized
from packer.schema import Field
from packer.sources import base
from packer.sources._parse.folder_listing import counted, listed, scan, shown
from packer.sources._trees.open_tree import open_tree
from packer.sources.records._numbered_lmdb import NumberedLMDB
from packer.sources.records._record_source import is_path

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_LIST = "_images_idx.txt"
_SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's IMG_EXTENSIONS


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(NumberedLMDB):
    """One LMDB of Image2LMDB, or a folder of them."""

    kind = "image2lmdb"
    layout = "pictures without labels, by pyarrow"

    def __init__(self, root: Path, *, labels_from: str = "", layout: str = "auto", follow_links: bool = False) -> None:
        """Find every entry.

        Raises InvalidRequest where there is no such LMDB, and for a folder that is not the one that was packed,
        BadInput for a damaged LMDB or list, MissingPackage without pyarrow.
        """
        originals = _Originals(Path(labels_from), follow_links=follow_links) if labels_from else None
        self._lists: list[str] = []
        files = self._list_numbered(root, follow_links=follow_links, layout=layout)
        if originals is not None and len(files) != 1:
            raise InvalidRequest(f"--labels-from is for one LMDB, found {len(files)}; pack them one by one")
        lists = [self._list_of(file.name) for file in files]
        self._names = self._settled_names(lists)
        self._labels: list[int] | None = None
        self._places: dict[str, str] = {}
        fields = [Field("image", "image", "encoded")]
        if originals is not None:
            self._labels = self._restored(originals, lists[0])
            self._places = {"labels_from": originals.digest}
            fields.append(Field("label", "number", "number", dtype="int64", shape=(), classes=tuple(originals.classes)))
            self.notes.append(f"labels of {shown(labels_from)}: {counted(len(originals.classes), 'class')}")
        else:
            self.notes.append(
                "no labels: Image2LMDB does not store them; --labels-from DIR restores them from the folder that was "
                "packed"
            )
        self._settle(fields, [name for name in self._others if name not in self._lists])

    @classmethod
    def _check_record(cls, key: bytes, value: bytes) -> None:
        if not key.isdigit():
            raise BadInput("the key is no number")
        _picture(value)

    # ---- names and labels

    def _list_of(self, name: str) -> dict[int, str]:
        """What the list beside an LMDB calls its numbers; empty where there is none. Raises BadInput."""
        beside = f"{name.removesuffix(PurePosixPath(name).suffix)}{_LIST}"
        path = self.folder.root / beside
        if not path.is_file():
            return {}
        self._lists.append(beside)
        found: dict[int, str] = {}
        for at, line in enumerate(self.folder.read(beside).decode("utf-8", "surrogateescape").splitlines(), 1):
            called, space, number = line.rstrip().rpartition(" ")
            if not line.strip():
                continue
            if not space or not called or not number.isdecimal() or int(number) in found:
                raise BadInput(f"{path}: line {at}: expected a name and a number that comes once, found {line[:80]!r}")
            found[int(number)] = called
        return found

    def _settled_names(self, lists: Sequence[dict[int, str]]) -> list[str]:
        """A name for each sample; empty where lists have none for some, or one for several."""
        names = [lists[self._numbers[row]].get(self._ids[row], "") for row in range(len(self))]
        twice = sorted(name for name, count in Counter(names).items() if count > 1 and name)
        if twice:
            self.notes.append(
                f"names of several files, which came from several folders: {listed(twice)}; keys are numbers"
            )
        lacking = names.count("")
        if lacking and any(lists):
            self.notes.append(f"{counted(lacking, 'record')} without a name in the list; keys are numbers")
        return [] if twice or lacking or len(lists) != 1 else names

    def _restored(self, originals: "_Originals", names: dict[int, str]) -> list[int]:
        """The label of each sample; raises InvalidRequest where the folder is not the one that was packed."""
        where = shown(str(originals.folder.root))
        highest = max(self._ids, default=-1)
        expected = max(len(self), highest + 1)
        if len(originals.names) != expected:
            raise InvalidRequest(
                f"{where}: holds {counted(len(originals.names), 'picture')}, the LMDB {expected}; "
                "--labels-from takes the folder that was packed, with nothing added or removed"
            )
        for number in self._ids:
            original = PurePosixPath(originals.names[number]).name
            if names.get(number, original) != original:
                raise InvalidRequest(
                    f"{where}: picture {number} is {shown(original)}, the list of the LMDB says "
                    f"{shown(names[number])}; --labels-from takes the folder that was packed"
                )
        for index, record in self._probes():
            name = originals.names[self._ids[index]]
            if originals.folder.read(name) != _picture(record):
                raise InvalidRequest(
                    f"{where}/{name}: is not what the LMDB holds under {self._ids[index]}; --labels-from takes the "
                    "folder that was packed"
                )
        return [originals.labels[number] for number in self._ids]

    # ---- samples

    def key(self, index: int) -> str:
        at = self.checked(index)
        return self._names[at] if self._names else super().key(at)

    def places(self) -> Mapping[str, str]:
        return self._places

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.folder.root / name for name in self._lists)

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            sample: base.Sample = {"image": _picture(record)}
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: {error.message}") from error
        if self._labels is not None:
            sample["label"] = np.int64(self._labels[index])
        return sample


class _Originals:
    """The folder that was packed, or an archive of it, as ImageFolder lists it.

    Source: torchvision.datasets.folder (find_classes, make_dataset).

    names: relative paths. labels: the number of the class of each. classes: their names. digest: of the paths.
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
            raise InvalidRequest(f"{shown(str(root))}: --labels-from: no pictures in folders that are their classes")


def _order(name: str) -> tuple[str, str, str]:
    """Class by class, in it folder by folder and file by file."""
    folder, _, last = name.rpartition("/")
    return name.partition("/")[0], folder, last


def _picture(value: bytes) -> bytes:
    """The bytes of a value; raises BadInput."""
    found: Any = serialized.loads(value)
    if not isinstance(found, bytes):
        raise BadInput(f"expected bytes alone, found {type(found).__name__}")
    return found
