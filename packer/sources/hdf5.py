"""HDF5: files that others made, whose arrays have a row for each sample; packer's own packs are read as packs.

Fields: key (the number of the row, behind the table's name where there are several), image and label as --image-key and
--label-key name their arrays, and every other array with as many rows; what is guessed is shown as --features.
Rows of uint8 (H, W, 3), (3, H, W) or (H, W) are pictures in RGB or gray; bytes of any length are encoded pictures;
floats and uint16 (H, W) are depth; whole numbers labels, texts classes; everything else numbers. GG-CNN's own files are
read with their grasps. How arrays form tables and splits: packer.sources._arrays.array_source.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from packer.errors import InvalidRequest
from packer.files.terminal_output import shell_word
from packer.sources._arrays.array_source import ArraySource, LeftOut
from packer.sources._arrays.stored_array import StoredArray
from packer.sources._parse.folder_listing import counted, shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources.records._random_access_files import RecordFile, RecordFiles, check_magic, is_pointer

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_NAME = re.compile(r"\.(?:h5|hdf5|hdf|he5|h5py)$", re.IGNORECASE)
_MAGIC = b"\x89HDF\r\n\x1a\n"
_MOST_USER_BLOCK_BYTES = 1 << 13  # that is looked behind; HDF5 allows any power of two from 512 on
_START_BYTES = _MOST_USER_BLOCK_BYTES + len(_MAGIC)


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(ArraySource):
    """One HDF5 file, or a folder of them."""

    kind = "hdf5"
    noun = "HDF5 file"
    colour_note = "taken as RGB, which HDF5 does not say"

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

        Raises InvalidRequest where there is no HDF5 file with pictures, and for an array that is not there; BadInput
        for a damaged file, and for what git-lfs left.
        """
        from packer.sources._arrays import hdf5_arrays  # h5py, only where there is HDF5

        names = self._open(root, follow_links=follow_links, layout=layout, axes=axes)
        chosen = names if root.is_file() else [name for name in names if _NAME.search(name)]
        if not chosen:
            raise self._none_found(names, "names that end in .h5 or .hdf5")
        arrays: list[StoredArray] = []
        left: list[LeftOut] = []
        files = RecordFiles(self.folder, [self._file(name) for name in chosen])
        for number in range(len(chosen)):
            found, unread = hdf5_arrays.arrays(files, number)
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
        start, path = self.folder.start(name, _START_BYTES), self.folder.root / name
        if block := _user_block_bytes(start):
            raise InvalidRequest(
                f"{shown(str(path))}: HDF5 behind a user block of {block} bytes, as MATLAB writes it; take it off: "
                f"tail -c +{block + 1} {shell_word(str(path))} > plain.h5"
            )
        check_magic(start, _MAGIC, path, what="HDF5")
        return RecordFile(name, self.folder.status(name).st_size)

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many files there are, if the first of them begins as one."""
        chosen = names if len(names) == 1 else [name for name in names if _NAME.search(name)]
        for name in chosen:
            start = folder.start(name, _START_BYTES)
            is_one = start.startswith(_MAGIC) or _user_block_bytes(start) > 0
            if is_one or (is_pointer(start) and _NAME.search(name)):
                return f"HDF5: {counted(len(chosen), 'file')}"
            return None
        return None


def _user_block_bytes(start: bytes) -> int:
    """How many bytes of the user's own stand before HDF5's, by the first bytes of a file; 0 for none."""
    blocks = (1 << power for power in range(9, _MOST_USER_BLOCK_BYTES.bit_length()))
    return next((size for size in blocks if start[size : size + len(_MAGIC)] == _MAGIC), 0)
