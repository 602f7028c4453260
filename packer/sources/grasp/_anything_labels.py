"""Anything labels: the files of Grasp-Anything as arrays and texts: grasps (.pt), descriptions (.pkl), masks (.npy).

A .pt file is a tensor (N, 6): score, x, y, opening, jaw, theta in degrees, in pixels of the picture and with the signs
of Jacquard; float32 as the authors store it. A .pkl file is a text, or a pair of one and a list of texts. Neither is
unpickled (packer.layouts.torch_file, packer.layouts.pickled). An .npy file is an array (height, width) that is not 0
where the object is.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.files.npy_arrays import NpyHeader, read_header
from packer.layouts.torch_file import read_tensor
from packer.schema import MOST_PIXELS
from packer.sources._parse.folder_listing import shown
from packer.sources.grasp._label_files import corners

COLUMNS = 6
_ANOTHER = "get the file again, or say --labels lenient"
_FLOATS = ("float16", "float32", "float64")
_PAIR = 2


class AnythingGrasps(NamedTuple):
    """rows: float32 (N, 6), finite, as in the file. corners: float32 (N, 4, 2). total: with those left out.

    is_rounded: whether the file says its numbers to more places than float32 has.
    """

    rows: npt.NDArray[np.float32]
    corners: npt.NDArray[np.float32]
    total: int
    is_rounded: bool = False

    @property
    def dropped(self) -> int:
        """How many were left out."""
        return self.total - len(self.rows)


NO_GRASPS = AnythingGrasps(np.zeros((0, COLUMNS), np.float32), np.zeros((0, 4, 2), np.float32), 0)


class SceneText(NamedTuple):
    """prompt: what a picture shows. queries: the names of its objects, by their numbers."""

    prompt: str
    queries: tuple[str, ...]


def read_grasps(data: bytes, path: Path) -> AnythingGrasps:
    """The grasps of a file; rows that are no place in a picture (NaN, beyond float32) are left out; raises BadInput."""
    where = shown(str(path))
    try:
        tensor = read_tensor(data)
    except BadInput as error:
        raise BadInput(f"{where}: cannot read the grasps: {shown(error.message)}; {_ANOTHER}") from error
    name, shape = tensor.dtype.name, tensor.shape
    is_empty = shape == (0,)  # what torch.tensor([]) gives
    if name not in _FLOATS or not (is_empty or (len(shape) == 2 and shape[1] == COLUMNS)):
        raise BadInput(
            f"{where}: cannot read the grasps: found {name} {shape!s:.60}, expected a tensor (N, {COLUMNS}) of "
            f"float32; {_ANOTHER}"
        )
    given = tensor.reshape(-1, COLUMNS)
    with np.errstate(all="ignore"):  # what comes of NaN and of numbers beyond float32 is left out
        rows = np.ascontiguousarray(given, np.float32)
        placed = corners(rows[:, 1:][:, [0, 1, 4, 2, 3]].astype(np.float64))
        kept = np.isfinite(rows).all(axis=1) & np.isfinite(placed).all(axis=(1, 2))
    is_rounded = bool((rows[kept] != given[kept]).any())
    return AnythingGrasps(rows[kept], placed[kept], len(rows), is_rounded)


def read_description(data: bytes, path: Path) -> SceneText:
    """The pair of a text and the names of objects; raises BadInput."""
    found = _unpickled(data, path)
    if isinstance(found, str):
        return SceneText(found, ())
    if isinstance(found, (tuple, list)) and len(found) == _PAIR:
        prompt, queries = found
        if isinstance(prompt, str) and isinstance(queries, (tuple, list)) and all(type(one) is str for one in queries):
            return SceneText(prompt, tuple(queries))
    raise BadInput(f"{shown(str(path))}: cannot read the text: expected a pair of a text and a list of texts")


def read_instruction(data: bytes, path: Path) -> str:
    """The text of a file, alone or first in a list; raises BadInput."""
    found = _unpickled(data, path)
    if isinstance(found, (tuple, list)) and found:
        found = found[0]
    if not isinstance(found, str):
        raise BadInput(f"{shown(str(path))}: cannot read the text: expected a text, found {type(found).__name__}")
    return found


def _unpickled(data: bytes, path: Path) -> Any:
    """The plain value of a pickle, whose texts are Unicode; raises BadInput."""
    from packer.layouts import pickled  # the table of all opcodes, which looking at a folder does without

    try:
        found = pickled.loads(data)
        _check_texts(found)
    except (BadInput, UnicodeEncodeError) as error:
        said = error.message if isinstance(error, BadInput) else "it is no Unicode"
        raise BadInput(f"{shown(str(path))}: cannot read the text: {shown(said)}") from error
    return found


def _check_texts(value: Any) -> None:
    """Raise UnicodeEncodeError for a text with half of a pair of surrogates; looks two lists deep, as texts lie."""
    for one in value if isinstance(value, (tuple, list)) else (value,):
        for text in one if isinstance(one, (tuple, list)) else (one,):
            if isinstance(text, str):
                text.encode()


def read_object_mask(data: bytes, path: Path) -> npt.NDArray[np.bool_]:
    """Where the object is, (height, width); raises BadInput."""
    found = _read_array(data, path)
    return np.asarray(found != 0)


def read_whole_mask(data: bytes, path: Path) -> npt.NDArray[np.uint8]:
    """The mask of a picture as it is in the file, (height, width); raises BadInput."""
    found = _read_array(data, path)
    if found.dtype.itemsize != 1:
        raise BadInput(f"{shown(str(path))}: a mask of {found.dtype.name}, expected uint8; save it as that")
    return np.asarray(found, np.uint8)


def _read_array(data: bytes, path: Path) -> npt.NDArray[Any]:
    """The numbers of a mask; those of bool as uint8, since any byte may stand there."""
    where = shown(str(path))
    try:
        header = read_header(data)
    except ValueError as error:
        raise BadInput(f"{where}: cannot read the mask: {error}; get the file again") from error
    if header.dtype.kind not in "biu" or len(header.shape) != _PAIR:
        raise BadInput(
            f"{where}: found {header.name} {header.shape!s:.60}, expected a mask (height, width) of whole numbers"
        )
    height, width = header.shape
    size = height * width * header.dtype.itemsize
    if not 0 < height * width <= MOST_PIXELS or len(data) - header.data_at != size:
        raise BadInput(
            f"{where}: {len(data) - header.data_at} bytes of data, expected {size} for a mask {width}x{height}; get "
            "the file again"
        )
    return _shaped(data, header)


def _shaped(data: bytes, header: NpyHeader) -> npt.NDArray[Any]:
    dtype = np.dtype(np.uint8) if header.dtype.kind == "b" else header.dtype
    array = np.frombuffer(data, dtype, offset=header.data_at)
    return array.reshape(header.shape, order="F" if header.is_fortran else "C")
