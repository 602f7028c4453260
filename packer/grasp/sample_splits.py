"""Sample splits: which samples of a pack a grasp data set has, and in which order.

| split                                  | samples                                                              |
|----------------------------------------|----------------------------------------------------------------------|
| SliceSplit(0.0, 0.9, rotate=0.1)              | the grasp networks' own: a cut of the list, rotated before           |
| Fold(0, part="train")                  | four of five random folds of the pictures; part="val" is the fifth   |
| Fold(0, by="object")                   | the same with all pictures of an object in one fold                  |
| ListSplit("train.txt")                    | the samples whose keys the file lists, in its order                  |
| "train"                                | what packer convert --split train=FILE named                         |
"""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest, UnknownKey, WrongType
from packer.geometry import shuffled
from packer.pack.reader import Pack
from packer.sources.base import read_file

Indices = npt.NDArray[np.int64]

PARTS = ("train", "val")
BY = ("image", "object")
_CHUNK = 4096


@dataclass(frozen=True)
class SliceSplit:
    """Samples int(start n) to int(end n) of n, after the first int(rotate n) were moved to the end."""

    start: float = 0.0
    end: float = 1.0
    rotate: float = 0.0

    def __post_init__(self) -> None:
        numbers = (self.start, self.end, self.rotate)
        if not all(isinstance(number, (int, float)) for number in numbers):
            raise WrongType(f"{self}: expected numbers from 0 to 1")
        if not (0 <= self.start <= self.end <= 1 and 0 <= self.rotate <= 1):
            raise InvalidRequest(f"{self}: expected 0 <= start <= end <= 1 and 0 <= rotate <= 1")

    def indices(self, pack: Pack) -> Indices:
        """Indices of the samples in the pack."""
        count = len(pack)
        every = np.roll(np.arange(count), -int(count * self.rotate))
        return every[int(count * self.start) : int(count * self.end)]


@dataclass(frozen=True)
class Fold:
    """Fold `number` of `folds` as "val", the others as "train"; which sample is in which depends on the seed alone.

    by: "image", or "object": all samples of an object are in one fold. Needs the pack's object_id.
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

    def indices(self, pack: Pack) -> Indices:
        """Indices of the samples in the pack, ascending; raises InvalidRequest where objects are not known."""
        groups = np.arange(len(pack)) if self.by == "image" else _objects(pack)
        count = int(groups.max(initial=-1)) + 1
        fold_of_group = np.empty(count, np.int64)
        fold_of_group[shuffled(self.seed, 0, count)] = np.arange(count) % self.folds
        mine = fold_of_group[groups] == self.number
        return np.flatnonzero(mine if self.part == "val" else ~mine)


@dataclass(frozen=True)
class ListSplit:
    """The samples of a text file: a key a line; blank lines and lines that begin with # are skipped."""

    file: str | PathLike[str]

    def indices(self, pack: Pack) -> Indices:
        """Indices of the samples in the pack, in the file's order; raises UnknownKey, BadInput."""
        lines = read_file(Path(self.file)).decode("utf-8-sig", "surrogateescape").splitlines()
        keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        try:
            return np.asarray([pack.index.index_of(key) for key in keys], np.int64)
        except UnknownKey as error:
            raise UnknownKey(f"{self.file}: {error}") from error


SPLITS = (SliceSplit, Fold, ListSplit)
Split = SliceSplit | Fold | ListSplit


def _objects(pack: Pack) -> Indices:
    """The number of each sample's object, from 0 on in the order of their ids."""
    if "object_id" not in pack.schema:
        raise InvalidRequest(
            f"{pack.folder}: no field object_id, so that no split by object; pack Cornell with its z.txt"
        )
    if pack.schema["object_id"].is_column:
        ids = np.asarray(pack.index.column("object_id"))
        if unknown := int((ids < 0).sum()):
            raise InvalidRequest(
                f"{pack.folder}: {unknown} samples have no object (not in z.txt), so that no split by object"
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
