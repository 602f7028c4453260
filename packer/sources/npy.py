"""NPY: numpy.save files that others made, each an array with a row for each sample, such as images.npy and labels.npy.

Fields: key (the number of the row, behind the table's name where there are several), image and label as --image-key and
--label-key name their arrays, and every other array with as many rows; what is guessed is shown as --features.
`x_train.npy`, test/images.npy and their like are splits. How rows become fields, and arrays tables and splits:
packer.sources._arrays.array_source. Arrays of Python objects are refused: only unpickling would read them.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from packer.files.npy_arrays import MAGIC
from packer.sources._arrays import npy_members
from packer.sources._arrays.array_source import ArraySource
from packer.sources._parse.folder_listing import counted
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources.records._random_access_files import RecordFile, RecordFiles, check_magic, is_pointer

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_NAME = re.compile(r"\.npy$", re.IGNORECASE)
_START_BYTES = 512
_MOST_FILES = 64  # that are taken for arrays of many samples unasked


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(ArraySource):
    """One .npy file, or a folder of them."""

    kind = "npy"
    noun = ".npy file"
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
        """List the arrays.

        Raises InvalidRequest where there is no .npy file with pictures, and for an array that is not there; BadInput
        for a damaged file, and for what git-lfs left.
        """
        names = self._open(root, follow_links=follow_links, layout=layout, axes=axes)
        chosen = names if root.is_file() else [name for name in names if _NAME.search(name)]
        if not chosen:
            raise self._none_found(names, "names that end in .npy")
        files = RecordFiles(self.folder, [self._file(name) for name in chosen])
        arrays = [npy_members.single(files, number) for number in range(len(chosen))]
        taken = set(chosen)
        self._settle(
            arrays,
            (),
            image_key=image_key,
            label_key=label_key,
            features=features,
            extras=[name for name in names if name not in taken],
        )

    def _file(self, name: str) -> RecordFile:
        start = self.folder.start(name, _START_BYTES)
        check_magic(start, MAGIC, self.folder.root / name, what=".npy")
        return RecordFile(name, self.folder.status(name).st_size)

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many files there are, if the first of them is an array with rows; of many, each may be one sample."""
        chosen = names if len(names) == 1 else [name for name in names if _NAME.search(name)]
        if not 0 < len(chosen) <= _MOST_FILES:
            return None
        start = folder.start(chosen[0], _START_BYTES)
        if npy_members.is_npy(start) or (is_pointer(start) and _NAME.search(chosen[0])):
            return f"NumPy .npy: {counted(len(chosen), 'file')}"
        return None
