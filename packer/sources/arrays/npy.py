"""NPY: files of numpy.save, each with an array that has one row per sample, such as images.npy and labels.npy.

packer never unpickles: an array of Python objects is an error. packer.sources.arrays._array_source describes fields,
tables and splits.
"""

from collections.abc import Iterator

from packer.errors import BadInput
from packer.files.npy_arrays import MAGIC, read_header
from packer.sources.arrays._array_source import ArraySource
from packer.sources.arrays._stored_array import ArrayForm, SpanArray, StoredArray, Unread
from packer.sources.records._random_access_files import RecordFiles

SPECIFICITY = -1  # a folder that contains images is a folder of images
_HEADER_BYTES = 8192


class Source(ArraySource):
    """A .npy file, or a folder of .npy files."""

    kind, noun, title = "npy", ".npy file", "NumPy .npy"
    suffixes, magic = (".npy",), MAGIC
    most_files = 64  # of arrays of many samples; one of more files may be one sample

    def _arrays_in(self, files: RecordFiles, number: int) -> Iterator[StoredArray | Unread]:
        name, file = files.files[number].name, files.open(number)
        try:
            found = read_header(file.read(0, _HEADER_BYTES), texts=True)
        except ValueError as error:
            raise BadInput(f"{file.path}: {error}; numpy.save an array of numbers") from error
        if found.data_at + found.data_bytes != file.size:
            raise BadInput(
                f"{file.path}: is cut, or has more than one array: {file.size} bytes, expected "
                f"{found.data_at + found.data_bytes} for {found.name} {found.shape}; get the file again"
            )
        form = ArrayForm(name[: -len(".npy")], files, number, found.dtype, found.shape, found.data_at)
        yield SpanArray(form, is_fortran=found.is_fortran)
