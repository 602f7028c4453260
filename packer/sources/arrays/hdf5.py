"""HDF5: files of other tools, whose arrays have one row per sample. A pack in HDF5 is read as a pack instead.

Arrays, fields, tables and splits: packer.sources.arrays._array_source. Files of GG-CNN also contain grasps.
"""

from collections.abc import Iterator
from pathlib import Path

from packer.errors import InvalidRequest
from packer.files.terminal_output import shell_word
from packer.sources._message_texts import shown
from packer.sources.arrays._array_source import START_BYTES, ArraySource
from packer.sources.arrays._stored_array import StoredArray, Unread
from packer.sources.records._random_access_files import RecordFile, RecordFiles

SPECIFICITY = -1  # a folder that contains images is a folder of images


class Source(ArraySource):
    """An HDF5 file, or a folder of HDF5 files."""

    kind, noun, title = "hdf5", "HDF5 file", "HDF5"
    suffixes, magic = (".h5", ".hdf5", ".hdf", ".he5", ".h5py"), b"\x89HDF\r\n\x1a\n"
    color_note = "assumed to be RGB: HDF5 does not store the order"

    def _arrays_in(self, files: RecordFiles, number: int) -> Iterator[StoredArray | Unread]:
        from packer.sources.arrays import _hdf5_arrays  # h5py, only for HDF5

        return _hdf5_arrays.arrays(files, number)

    def _file(self, name: str) -> RecordFile:
        if size := _user_block_bytes(self.folder.start(name, START_BYTES)):
            path = str(self.folder.root / name)
            raise InvalidRequest(
                f"{shown(path)}: HDF5 behind a user block of {size} bytes, as MATLAB writes it; remove the block: "
                f"tail -c +{size + 1} {shell_word(path)} > plain.h5"
            )
        return super()._file(name)

    @classmethod
    def begins(cls, start: bytes, path: Path) -> bool:
        """Return whether a file is HDF5. A user block may precede the HDF5 signature."""
        return super().begins(start, path) or _user_block_bytes(start) > 0


def _user_block_bytes(start: bytes) -> int:
    """Return the size of the user block: a power of two, at least 512; 0 without a user block."""
    sizes = (1 << power for power in range(9, START_BYTES.bit_length()))
    return next((size for size in sizes if start[size : size + len(Source.magic)] == Source.magic), 0)
