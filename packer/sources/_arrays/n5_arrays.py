"""N5 arrays: the data sets of an N5 container, each a folder with attributes.json and a file per block.

Which blocks there are is told by the names in the folder. Layout: packer.layouts.n5_blocks.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from packer.errors import BadInput
from packer.layouts import n5_blocks
from packer.sources._arrays.array_source import LeftOut
from packer.sources._arrays.stored_array import MOST_BLOCK_BYTES, BlockedArray
from packer.sources._parse.folder_listing import listed
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources.base import Extent
from packer.sources.records._random_access_files import RecordFile, RecordFiles

ATTRIBUTES = "attributes.json"
_MOST_ATTRIBUTES_BYTES = 1 << 20
_MOST_BLOCKS = 1 << 22
_MOST_FILE_BYTES = MOST_BLOCK_BYTES + (1 << 20)
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


def arrays(
    folder: SourceRoot, names: Sequence[str], *, root_name: str
) -> tuple[list["N5Array"], list[LeftOut], set[str]]:
    """The arrays below a folder, those that are not read, and every file that belongs to one.

    names: relative paths of all files. root_name: of an array that is the folder itself. Raises BadInput.
    """
    found: list[N5Array] = []
    left: list[LeftOut] = []
    taken: set[str] = set()
    for name in names:
        parent, _, last = name.rpartition("/")
        if last != ATTRIBUTES:
            continue
        taken.add(name)
        size = folder.status(name).st_size
        try:
            said = n5_blocks.as_dataset(folder.read(name)) if size <= _MOST_ATTRIBUTES_BYTES else None
            if said is None:
                continue
            blocks = _block_names(names, f"{parent}/" if parent else "")
            taken.update(blocks.values())
            attributes = n5_blocks.attributes(said)
        except BadInput as error:
            left.append(LeftOut(parent or root_name, error.message))
            continue
        found.append(_array(folder, parent, attributes, blocks, root_name=root_name))
    return found, left, taken


def _block_names(names: Sequence[str], prefix: str) -> dict[tuple[int, ...], str]:
    """Place in the grid -> path, of files that are named as blocks below that folder."""
    found = {}
    for name in names:
        if name.startswith(prefix):
            parts = name[len(prefix) :].split("/")
            if all(map(_NUMBER.fullmatch, parts)):
                found[tuple(map(int, parts))] = name
    return found


def _array(
    folder: SourceRoot,
    path: str,
    found: n5_blocks.Attributes,
    blocks: dict[tuple[int, ...], str],
    *,
    root_name: str,
) -> "N5Array":
    """blocks: as they are named, in the order of N5's dimensions. Raises BadInput."""
    container, _, name = path.rpartition("/")
    grid = [-(-length // step) for length, step in zip(found.shape, found.block, strict=True)]
    if math.prod(grid) > _MOST_BLOCKS:
        raise BadInput(f"{folder.root / path}: has more than {_MOST_BLOCKS} blocks; write it in larger ones")
    inside = {
        place[::-1]: block_name
        for place, block_name in sorted(blocks.items())
        if len(place) == len(grid) and all(at < count for at, count in zip(place[::-1], grid, strict=True))
    }
    attributes = f"{path}/{ATTRIBUTES}" if path else ATTRIBUTES
    return N5Array(folder, container, name or root_name, attributes=attributes, blocks=inside, found=found)


class N5Array(BlockedArray):
    """One data set."""

    def __init__(
        self,
        folder: SourceRoot,
        container: str,
        name: str,
        *,
        attributes: str,
        blocks: dict[tuple[int, ...], str],
        found: n5_blocks.Attributes,
    ) -> None:
        """blocks: place in the grid, in the order of `shape`, -> path of those that are there. Raises BadInput."""
        super().__init__(container, name, dtype=found.dtype, shape=found.shape, block=found.block)
        self._attributes = attributes
        self._described = found
        self._numbers = {place: number for number, place in enumerate(blocks)}
        self._files = RecordFiles(folder, [RecordFile(path, folder.status(path).st_size) for path in blocks.values()])
        self._count_missing(folder.root / attributes, there=len(blocks))
        large = [file.name for file in self._files.files if file.size > _MOST_FILE_BYTES]
        if large:
            raise BadInput(f"{self.path}: blocks of more than {_MOST_FILE_BYTES} bytes: {listed(large)}")

    def _block(self, place: tuple[int, ...]) -> npt.NDArray[Any] | None:
        number = self._numbers.get(place)
        if number is None:
            return None
        data = self._files.read(number, 0, self._files.files[number].size)
        try:
            return n5_blocks.numbers(data, self._described, place)
        except BadInput as error:
            path = self._files.path(number)
            raise BadInput(f"{path}: is damaged: {error.message}; get the file again") from error

    def extent(self, index: int) -> Extent:
        """The row's share of the first of its blocks."""
        number, within = divmod(index, self.block[0])
        for place in self.places(number):
            file = self._numbers.get(place)
            if file is not None:
                name, size = self._files.files[file].name, self._files.files[file].size
                first = size * within // self.block[0]
                return Extent(name, first, size * (within + 1) // self.block[0] - first)
        return Extent(self._attributes, 0, 0)

    def files(self, index: int) -> tuple[str, ...]:
        places = self.places(index // self.block[0])
        found = (self._numbers[place] for place in places if place in self._numbers)
        return tuple(self._files.files[number].name for number in found) or (self._attributes,)

    def forget(self) -> None:
        super().forget()
        self._files.forget()

    def all_files(self) -> tuple[str, ...]:
        return tuple(file.name for file in self._files.files) or (self._attributes,)
