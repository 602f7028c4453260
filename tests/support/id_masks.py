"""Sets with masks of 16 bit, as Cityscapes' instanceIds: ids of objects beyond 255, and 0 where there is none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._trees.folder_tree import SourceRoot
from tests.support import image_files
from tests.support.source_trees import encoded, write

SIZE = (48, 64)
ID = 26_001
SIDECAR = {"mask": "_ids.png:mask:uint16"}
MASK = Field("mask", "mask", "encoded", dtype="uint16")


def ids(number: int) -> npt.NDArray[np.uint16]:
    """(H, W): objects 26001, 26002 and 255 of every sample, and one that is its own."""
    found = np.zeros(SIZE, np.uint16)
    found[4:20, 6:30] = ID
    found[10:40, 30:50] = ID + 1
    found[30:46, 2:20] = 33_000 + number
    found[-3:, -3:] = 255
    return found


def of_8_bit(number: int) -> npt.NDArray[np.uint8]:
    """The classes of a sample without objects."""
    return np.asarray(np.where(ids(number) > 0, 7 + number, 0), np.uint8)


def mask_of(number: int) -> npt.NDArray[Any]:
    """What sample `number` of `tree` holds: every third is a file of 8 bit."""
    return of_8_bit(number) if number % 3 == 2 else ids(number)


def tree(root: Path, count: int = 4, *, orientation: int = 1) -> Path:
    """Photos 0.jpg, 1.jpg, ... and beside each its mask, 0_ids.png. orientation: of the photos, by their EXIF."""
    for number in range(count):
        photo = image_files.oriented(orientation, pixels=image_files.colors(number, height=SIZE[0], width=SIZE[1]))
        write(root, {f"{number}.jpg": photo, f"{number}_ids.png": encoded(".png", mask_of(number))})
    return root


class MaskSource(base.Source):
    """A source that declares masks of 16 bit itself, and gives files or arrays of them."""

    kind = "id-masks"
    notes = ()
    left_out = ()

    def __init__(self, root: Path, values: Sequence[Any], field: Field = MASK) -> None:
        """values: of the mask, one a sample: a file's bytes or pixels."""
        self.root, self.folder = root, SourceRoot(root)
        self.schema = Schema((Field("key", "text", "text"), field))
        self.decodes = not all(isinstance(value, bytes) for value in values)
        self._values = values
        write(root, {f"{number}.bin": b"%d" % number for number in range(len(values))})

    def __len__(self) -> int:
        return len(self._values)

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        return {"key": self.key(index), "mask": self._values[self.checked(index)]}

    def entry(self, index: int) -> base.SampleEntry:
        return base.SampleEntry(str(index), (f"{index}.bin",), str(index))
