"""N5: containers of arrays in blocks, as Java's N5, zarr-python 2, z5py and tensorstore write. No N5 library is needed.

A data set is a folder with attributes.json and one file per block. The dimensions are in column-major order: an array
[C, W, H, N] has N rows of (H, W, C). packer.sources.arrays._array_source describes fields, tables and splits, and
packer.layouts.n5_blocks the layout of the files.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.layouts import n5_blocks
from packer.sources._message_texts import counted, listed, shown
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.arrays._array_source import ArraySource
from packer.sources.arrays._stored_array import MOST_STRETCH_BYTES, ArrayForm, BlockedArray, StoredArray, Unread
from packer.sources.base import Extent
from packer.sources.records._random_access_files import RecordFile, RecordFiles

SPECIFICITY = -1  # a folder that contains images is a folder of images
_ATTRIBUTES = "attributes.json"
_MOST_ATTRIBUTES_BYTES = 1 << 20
_MOST_FILE_BYTES = MOST_STRETCH_BYTES + (1 << 20)
_PROBES = 100  # number of attributes.json files to inspect
_NUMBER = re.compile(r"0|[1-9][0-9]{0,9}")


class Source(ArraySource):
    """An N5 container, a group in a container, or one data set."""

    kind, noun, title = "n5", "N5 data set", "N5"

    def _list(self, names: Sequence[str]) -> tuple[list[StoredArray | Unread], set[str]]:
        if self.root.is_file():
            raise InvalidRequest(f"{shown(str(self.root))}: is a file; an N5 container is a folder: give that")
        found: list[StoredArray | Unread] = []
        self.tables = sorted(name for name in names if name.rpartition("/")[2] == _ATTRIBUTES)
        used = set(self.tables)
        for name in self.tables:
            parent = name.rpartition("/")[0]
            path = parent or self.root.resolve().name
            is_small = self.folder.status(name).st_size <= _MOST_ATTRIBUTES_BYTES
            text = self.folder.read(name) if is_small else b"{}"
            try:
                members = n5_blocks.as_dataset(text)
                if members is None:
                    continue
                blocks = _block_names(names, f"{parent}/" if parent else "")
                used.update(blocks.values())
                attributes = n5_blocks.attributes(members)
            except BadInput as error:
                found.append(Unread(path, error.message))
            else:
                found.append(N5Array(path, self.folder, name, attributes=attributes, blocks=blocks))
        if not found:
            raise self._none_found(names, f"{_ATTRIBUTES} with dimensions, blockSize and dataType")
        return found, used

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a text such as `N5: 3 data sets`. Return None for a folder without N5 data sets."""
        if not isinstance(tree, SourceRoot):
            return None
        found = [name for name in names if name.rpartition("/")[2] == _ATTRIBUTES][:_PROBES]
        count = sum(_is_dataset(tree.read(name)) for name in found) if len(names) > 1 else 0
        return f"N5: {counted(count, 'data set')}" if count else None


def _is_dataset(text: bytes) -> bool:
    try:
        return n5_blocks.as_dataset(text) is not None
    except BadInput:  # may be attributes of another format
        return False


def _block_names(names: Sequence[str], prefix: str) -> dict[tuple[int, ...], str]:
    """Return grid position -> path of each block below the folder `prefix`, with the dimensions in N5's order."""
    found = {}
    for name in names:
        parts = name[len(prefix) :].split("/") if name.startswith(prefix) else [""]
        if all(map(_NUMBER.fullmatch, parts)):
            found[tuple(map(int, parts))] = name
    return found


class N5Array(BlockedArray):
    """An N5 data set: an array whose blocks are files in a folder."""

    def __init__(
        self,
        path: str,
        folder: SourceRoot,
        attributes_name: str,
        *,
        attributes: n5_blocks.Attributes,
        blocks: dict[tuple[int, ...], str],
    ) -> None:
        """Find the blocks that are inside the grid. Raise BadInput if a block is too large or most blocks are absent.

        Args:
            path: The path of the container and the name of the array, for messages.
            folder: The root of the source.
            attributes_name: The relative path of attributes.json.
            attributes: The parsed contents of attributes.json.
            blocks: Grid position, in N5's dimension order -> relative path of the block.
        """
        lengths = [-(-length // step) for length, step in zip(attributes.shape, attributes.block, strict=True)]
        inside = {
            place[::-1]: name
            for place, name in sorted(blocks.items())
            if len(place) == len(lengths) and all(at < count for at, count in zip(place[::-1], lengths, strict=True))
        }
        files = RecordFiles(folder, [RecordFile(name, folder.status(name).st_size) for name in inside.values()])
        form = ArrayForm(path, files, 0, attributes.dtype, attributes.shape)
        super().__init__(form, block=attributes.block, present=len(inside))
        self._attributes, self._attributes_name = attributes, attributes_name
        self._numbers = {place: number for number, place in enumerate(inside)}
        large = [file.name for file in files.files if file.size > _MOST_FILE_BYTES]
        if large:
            raise BadInput(f"{self.path}: blocks of more than {_MOST_FILE_BYTES} bytes: {listed(large)}")

    def _block(self, place: tuple[int, ...]) -> npt.NDArray[Any] | None:
        number = self._numbers.get(place)
        if number is None:
            return None
        data = self._files.read(number, 0, self._files.files[number].size)
        try:
            return n5_blocks.numbers(data, self._attributes, place)
        except BadInput as error:
            raise BadInput(f"{self._files.path(number)}: is damaged: {error.message}; get the file again") from error

    def _present(self, index: int | None) -> Iterator[RecordFile]:
        """Yield the files of the blocks with row `index`. None selects all rows."""
        places = self._numbers if index is None else self.places(index // self.block[0])
        return (self._files.files[self._numbers[place]] for place in places if place in self._numbers)

    def extent(self, index: int) -> Extent:
        """Return a part of the first block that contains the row. Its size is the share of one row in that block."""
        file, within, step = next(self._present(index), None), index % self.block[0], self.block[0]
        if file is None:
            return Extent(self._attributes_name, 0, 0)
        first = file.size * within // step
        return Extent(file.name, first, file.size * (within + 1) // step - first)

    def files(self, index: int | None = None) -> tuple[str, ...]:
        return tuple(file.name for file in self._present(index)) or (self._attributes_name,)
