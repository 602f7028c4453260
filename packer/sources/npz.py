"""NPZ: numpy.savez files that others made, whose arrays have a row for each sample, such as MedMNIST's and mnist.npz.

Fields: key (the number of the row, behind the table's name where there are several), image and label as --image-key and
--label-key name their arrays, and every other array with as many rows; what is guessed is shown as --features.
`train_images`, `x_test` and their like are splits. How rows become fields, and arrays tables and splits:
packer.sources._arrays.array_source. Arrays of Python objects are left out: only unpickling would read them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from packer.errors import BadInput
from packer.sources._arrays import npy_members
from packer.sources._arrays.array_source import ArraySource, LeftOut
from packer.sources._arrays.stored_array import StoredArray
from packer.sources._parse.folder_listing import counted
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources.records._random_access_files import RecordFile, RecordFiles, check_magic, is_pointer

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_NAME = re.compile(r"\.npz$", re.IGNORECASE)
_START_BYTES = 512


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(ArraySource):
    """One .npz file, or a folder of them."""

    kind = "npz"
    noun = ".npz file"
    colour_note = "taken as RGB, which NumPy does not say"

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
        """List the arrays, and compare the crc32 of each.

        Raises InvalidRequest where there is no .npz file with pictures, and for an array that is not there; BadInput
        for a damaged file, and for what git-lfs left.
        """
        names = self._open(root, follow_links=follow_links, layout=layout, axes=axes)
        chosen = names if root.is_file() else [name for name in names if _NAME.search(name)]
        if not chosen:
            raise self._none_found(names, "names that end in .npz")
        arrays: list[StoredArray] = []
        left: list[LeftOut] = []
        files = RecordFiles(self.folder, [self._file(name) for name in chosen])
        for number in range(len(chosen)):
            found, unread = npy_members.members(files, number)
            arrays += found
            left += unread
        taken = set(chosen)
        self._settle(
            arrays,
            left,
            image_key=image_key,
            label_key=label_key,
            features=features,
            extras=[name for name in names if name not in taken],
        )

    def _file(self, name: str) -> RecordFile:
        start = self.folder.start(name, _START_BYTES)
        check_magic(start, npy_members.ZIP_MAGIC, self.folder.root / name, what=".npz")
        return RecordFile(name, self.folder.status(name).st_size)

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many files there are, if the first of them begins with an array."""
        chosen = names if len(names) == 1 else [name for name in names if _NAME.search(name)]
        for name in chosen:
            start = folder.start(name, _START_BYTES)
            is_one = npy_members.is_npz(start) and (_NAME.search(name) or _holds_arrays_alone(folder.root / name))
            if is_one or (is_pointer(start) and _NAME.search(name)):
                return f"NumPy .npz: {counted(len(chosen), 'file')}"
            return None
        return None


def _holds_arrays_alone(path: Path) -> bool:
    """Whether a zip of another name holds nothing else: that of a folder may begin with an array, too."""
    from packer.sources._trees import zip_tree  # only such a zip needs it

    try:
        found = zip_tree.zip_tree(path).contents
    except BadInput:
        return True  # whoever reads it says why it is none
    return all(name.endswith(".npy") for name in found.names)
