"""HDF5: files of other tools, whose arrays have one row per sample. A pack in HDF5 is read as a pack instead.

packer.sources.arrays._array_source describes arrays, fields, tables and splits. Files of GG-CNN also contain grasps.
"""

from collections.abc import Iterator

from packer.sources.arrays._array_source import ArraySource
from packer.sources.arrays._stored_array import StoredArray, Unread
from packer.sources.records._random_access_files import RecordFiles

SPECIFICITY = -1  # a folder that contains images is a folder of images


class Source(ArraySource):
    """An HDF5 file, or a folder of HDF5 files."""

    kind, noun, title = "hdf5", "HDF5 file", "HDF5"
    suffixes, magic = (".h5", ".hdf5", ".hdf", ".he5", ".h5py"), b"\x89HDF\r\n\x1a\n"

    def _arrays_in(self, files: RecordFiles, number: int) -> Iterator[StoredArray | Unread]:
        from packer.sources.arrays import _hdf5_arrays  # h5py, only for HDF5

        return _hdf5_arrays.arrays(files, number)
