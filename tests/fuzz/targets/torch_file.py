"""Files of torch.save and what Grasp-Anything keeps in them: no more memory than the file has, finite grasps."""

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.layouts.torch_file_reader import read_tensor
from packer.sources.grasp._grasp_anything_labels import read_grasps
from tests.fuzz import words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.PICKLE, b"ctorch\nFloatStorage\n", b"ctorch\nDoubleStorage\n", b"Q", b"K\x00", b"K\x06", b"h\x00")
TOKENS += (b"ctorch._utils\n_rebuild_tensor_v2\n", b"ccollections\nOrderedDict\n", b"J\xff\xff\xff\x7f")
_PATH = Path("fuzz.pt")


def seeds() -> Iterator[bytes]:
    """Files as torch writes them, made without it, which takes seconds to import; and pickles with their storage."""
    for count, kind, dtype in ((3, b"Float", "<f4"), (1, b"Double", "<f8"), (0, b"Float", "<f4")):
        values = np.arange(6 * count).astype(dtype)
        yield _file(_pickled(kind, count), values.tobytes())
    yield b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def check(data: bytes) -> None:
    """As a file; and as the pickle of one, whose checksum holds."""
    for file in (data, _file(data, bytes(range(72)))):
        with refusable():
            tensor = read_tensor(file)
            if tensor.nbytes > len(file) or tensor.flags.writeable:
                raise Disagreement(f"{tensor.nbytes} bytes of {len(file)}")
            grasps = read_grasps(file, _PATH)
            is_finite = np.isfinite(grasps.rows).all() and np.isfinite(grasps.corners).all()
            if not is_finite or len(grasps.rows) > grasps.total:
                raise Disagreement(f"{grasps}")


def _pickled(kind: bytes, count: int) -> bytes:
    identity = b"(X\x07\0\0\0storagectorch\n%bStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK%ctQ" % (kind, 6 * count)
    shape = b"K\0K%cK\x06\x86K\x06K\x01\x86\x89ccollections\nOrderedDict\n)R" % count
    return b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + identity + shape + b"tR."


def _file(pickled: bytes, storage: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in (("a/data.pkl", pickled), ("a/byteorder", b"little"), ("a/data/0", storage)):
            archive.writestr(zipfile.ZipInfo(name), content)
    return file.getvalue()
