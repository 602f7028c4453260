"""Sample splits: select the samples of a grasp dataset, and their order.

| split                                  | samples                                                              |
|----------------------------------------|----------------------------------------------------------------------|
| SliceSplit(0.0, 0.9, rotate=0.1)       | a slice of the rotated list, as in the networks' own loaders         |
| SliceSplit(0.0, 0.9, of=NamedSplit(f)) | a slice of another split                                             |
| Fold(0, part="train")                  | four of five random folds of the images; part="val" is the fifth     |
| Fold(0, by="object")                   | four of five folds, with all images of an object in one fold         |
| ListSplit("train.txt")                 | the samples whose keys are in the file, in the order of the file     |
| NamedSplit("seen.obj")                 | the samples in a text or pickled list, in the order of the pack      |
| "train"                                | the split of packer convert --split train=FILE                       |

If items are label files (GraspDataset, items="label"), splits select label files. A fold contains all label files of an
image, or none.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest, UnknownKey, WrongType
from packer.geometry import shuffled
from packer.grasp.item_list import ItemList, PackItems
from packer.layouts import pickled
from packer.pack.reader import Pack
from packer.sources.base import read_file
from packer.stores.url import path_or_url

Indices = npt.NDArray[np.int64]

PARTS = ("train", "val")
BY = ("image", "object")
_CHUNK = 4096
_PICKLE = b"\x80"  # first byte of a pickle of protocol 2 or later


class _OfPack(ABC):
    """Base class of splits of the items of a pack."""

    @abstractmethod
    def choose(self, items: PackItems) -> ItemList:
        """Return the items of the split, in order."""

    def indices(self, pack: Pack) -> Indices:
        """Return the rows of the pack, int64 (N,), in order. Raises InvalidRequest, UnknownKey or BadInput."""
        return self.choose(PackItems(pack)).samples


@dataclass(frozen=True)
class SliceSplit(_OfPack):
    """A slice of a list of n samples: the positions int(start * n) to int(end * n) - 1 after the list is rotated.

    Args:
        start: Share of the samples before the slice, 0 to 1.
        end: Share of the samples before the end of the slice, 0 to 1.
        rotate: Share of the samples that first move from the start to the end of the list, 0 to 1.
        of: Split whose samples are the list. None for all samples of the pack.
    """

    start: float = 0.0
    end: float = 1.0
    rotate: float = 0.0
    of: "Split | None" = None

    def __post_init__(self) -> None:
        numbers = (self.start, self.end, self.rotate)
        if not all(isinstance(number, (int, float)) for number in numbers):
            raise WrongType(f"{self}: expected numbers from 0 to 1")
        if not (0 <= self.start <= self.end <= 1 and 0 <= self.rotate <= 1):
            raise InvalidRequest(f"{self}: expected 0 <= start <= end <= 1 and 0 <= rotate <= 1")
        if not (self.of is None or isinstance(self.of, SPLITS)):
            raise WrongType(f'{self}: expected a split of packer.grasp, such as NamedSplit("seen.obj"), or None')

    def choose(self, items: PackItems) -> ItemList:
        """Return the items of the slice, in order. Raises UnknownKey, BadInput or InvalidRequest if `of` raises it."""
        every = items.every() if self.of is None else self.of.choose(items)
        count = len(every.samples)
        rotated = np.roll(np.arange(count), -int(count * self.rotate))
        return every.at(rotated[int(count * self.start) : int(count * self.end)])


@dataclass(frozen=True)
class Fold(_OfPack):
    """A part of a cross-validation with random folds.

    Args:
        number: Number of the fold for validation, from 0.
        folds: Number of folds, at least 2.
        part: "val" for the samples in fold `number`, "train" for the samples in all other folds.
        by: "image", or "object" to assign all samples of an object to one fold. "object" needs the field object_id.
        seed: Seed of the random assignment of samples to folds.
    """

    number: int
    folds: int = 5
    part: str = "train"
    by: str = "image"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.part not in PARTS or self.by not in BY:
            raise InvalidRequest(f"{self}: expected part {' or '.join(PARTS)}, by {' or '.join(BY)}")
        if not (self.folds >= 2 and 0 <= self.number < self.folds):
            raise InvalidRequest(f"{self}: expected at least 2 folds, and their number from 0 to {self.folds - 1}")

    def choose(self, items: PackItems) -> ItemList:
        """Return the items in the order of the pack. Raises InvalidRequest if by="object" and an object is unknown."""
        every = items.every()
        of_sample = np.arange(len(items.pack)) if self.by == "image" else _objects(items.pack)
        groups = np.unique(of_sample[every.samples], return_inverse=True)[1].reshape(-1)
        count = int(groups.max(initial=-1)) + 1
        fold_of_group = np.empty(count, np.int64)
        fold_of_group[shuffled(self.seed, 0, count)] = np.arange(count) % self.folds
        mine = fold_of_group[groups] == self.number
        return every.at(np.flatnonzero(mine if self.part == "val" else ~mine))


@dataclass(frozen=True)
class ListSplit(_OfPack):
    """The samples whose keys are in a text file, in the order of the file.

    Args:
        file: Path of a text file with one key per line. Blank lines and lines that begin with # are ignored.
    """

    file: str | PathLike[str]

    def choose(self, items: PackItems) -> ItemList:
        """Return the items in the order of the file. Raises UnknownKey, or BadInput if the file cannot be read."""
        try:
            return items.named(_lines(read_file(path_or_url(self.file))))
        except UnknownKey as error:
            raise UnknownKey(f"{self.file}: {error}") from error


@dataclass(frozen=True)
class NamedSplit(_OfPack):
    """The samples whose names are in a file, in the order of the pack, such as a list of seen or unseen objects.

    Args:
        file: Text file as in ListSplit, or a pickled list of texts such as split/*/seen.obj of andvg3/Grasp-Anything.
            The pickle is parsed without executing code. Names of Cornell may begin with pcd.
        missing: "error" raises UnknownKey for names without a sample. "skip" ignores these names, for a partly
            downloaded set.
    """

    file: str | PathLike[str]
    missing: Literal["error", "skip"] = "error"

    def __post_init__(self) -> None:
        if self.missing not in ("error", "skip"):
            raise InvalidRequest(f"{self}: expected missing error or skip")

    def choose(self, items: PackItems) -> ItemList:
        """Return the items in the order of the pack. Raises UnknownKey, BadInput, or InvalidRequest for no items."""
        names = list(dict.fromkeys(_names(path_or_url(self.file))))
        try:
            found = items.named(names, skip_missing=self.missing == "skip")
        except UnknownKey as error:
            raise UnknownKey(f'{self.file}: {error}, or skip these names: missing="skip"') from error
        if names and not len(found.samples):
            raise InvalidRequest(f"{self.file}: none of its {len(names)} names is there, such as {names[0]!r:.100}")
        keys = found.samples[None] if found.labels is None else np.stack([found.samples, found.labels])
        return found.at(np.unique(keys, axis=1, return_index=True)[1])


Split = SliceSplit | Fold | ListSplit | NamedSplit
SPLITS = (SliceSplit, Fold, ListSplit, NamedSplit)


def _lines(data: bytes) -> list[str]:
    lines = data.decode("utf-8-sig", "surrogateescape").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def _names(path: Path) -> list[str]:
    """Return the names in a text file or a pickled list. Raises BadInput."""
    data = read_file(path)
    if not data.startswith(_PICKLE):
        return _lines(data)
    try:
        found = pickled.loads(data)
    except BadInput as error:
        raise BadInput(f"{path}: {error}; write the names into a text file, one per line") from error
    if not isinstance(found, (list, tuple)) or not all(isinstance(name, str) for name in found):
        raise BadInput(f"{path}: a pickle of {found!r:.60}, expected a list of names; write a text file, one per line")
    return list(found)


def _objects(pack: Pack) -> Indices:
    """Return a number from 0 for the object of each sample, int64 (N,). Numbers have the order of the object ids."""
    if "object_id" not in pack.schema:
        raise InvalidRequest(f"{pack.folder}: no field object_id for a split by object; pack Cornell with its z.txt")
    if pack.schema["object_id"].is_column:
        ids = np.asarray(pack.index.column("object_id"))
        if unknown := int((ids < 0).sum()):
            raise InvalidRequest(
                f"{pack.folder}: {unknown} samples have no object, because they are not in z.txt; give by='image'"
            )
    else:
        ids = np.asarray(_texts(pack, "object_id"))
    return np.asarray(np.unique(ids, return_inverse=True)[1], np.int64).reshape(-1)


def _texts(pack: Pack, name: str) -> list[str]:
    found = []
    for start in range(0, len(pack), _CHUNK):
        with pack.records(range(start, min(len(pack), start + _CHUNK)), [name]) as records:
            found += [str(record[name], "utf-8", "surrogateescape") for record in records]
    return found
