"""N5: containers of arrays in blocks, as Java's N5, zarr-python 2, z5py and tensorstore write them; none is needed.

Fields: key (the number of the row, behind the table's name where there are several), image and label as --image-key and
--label-key name their arrays, and every other array with as many rows; what is guessed is shown as --features.
Dimensions are column-major: an array [C, W, H, N] has N rows of (H, W, C). How rows become fields, and arrays
tables and splits: packer.sources._arrays.array_source. Layout: packer.layouts.n5_blocks.
"""

from collections.abc import Sequence
from pathlib import Path

from packer.errors import BadInput, InvalidRequest
from packer.layouts import n5_blocks
from packer.sources._arrays import n5_arrays
from packer.sources._arrays.array_source import ArraySource
from packer.sources._parse.folder_listing import counted, shown
from packer.sources._trees.folder_tree import SourceRoot

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_LOOKED_AT = 100  # attributes.json


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(ArraySource):
    """One N5 container, a group in it, or one of its data sets."""

    kind = "n5"
    noun = "N5 data set"
    colour_note = "taken as RGB, which N5 does not say"

    def __init__(
        self,
        root: Path,
        *,
        image_key: str = "",
        label_key: str = "",
        features: Sequence[str] = (),
        axes: str = "auto",
        layout: str = "auto",
        follow_links: bool = False,
    ) -> None:
        """List the arrays and their blocks.

        Raises InvalidRequest where there is no data set with pictures, and for an array that is not there; BadInput for
        blocks that cannot be held.
        """
        names = self._open(root, follow_links=follow_links, layout=layout, axes=axes)
        if root.is_file():
            raise InvalidRequest(f"{shown(str(root))}: is a file; an N5 container is a folder: give that")
        arrays, left, taken = n5_arrays.arrays(self.folder, names, root_name=root.resolve().name)
        if not arrays and not left:
            raise self._none_found(names, f"{n5_arrays.ATTRIBUTES} with dimensions, blockSize and dataType")
        self._settle(
            arrays,
            left,
            image_key=image_key,
            label_key=label_key,
            features=features,
            extras=[name for name in names if name not in taken],
        )
        self._attributes = sorted(name for name in taken if name.endswith(n5_arrays.ATTRIBUTES))

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.folder.root / name for name in self._attributes)

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many data sets there are, if there is one."""
        found = [name for name in names if name.rpartition("/")[2] == n5_arrays.ATTRIBUTES][:_LOOKED_AT]
        if not found or len(names) == 1:
            return None
        count = sum(_is_dataset(folder.read(name)) for name in found)
        return f"N5: {counted(count, 'data set')}" if count else None


def _is_dataset(text: bytes) -> bool:
    try:
        return n5_blocks.as_dataset(text) is not None
    except BadInput:  # maybe the attributes of something else
        return False
