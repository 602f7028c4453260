"""Grasp-Anything labels: grasps (.pt), descriptions (.pkl) and masks (.npy).

* .pt: a tensor (N, 6) with the columns score, x, y, opening, jaw (in px) and theta (in degrees, signs as in Jacquard).
* .pkl: a text, or a pair of a text and a list of texts.
* .npy: an array (height, width), not 0 in the pixels of the object.
No code in a .pt or .pkl file is executed: packer.layouts parses these files (torch_file_reader, pickled).
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.files.npy_arrays import read_header
from packer.layouts.torch_file_reader import read_tensor
from packer.schema import MOST_PIXELS
from packer.sources._message_texts import shown
from packer.sources.grasp._label_files import corners

COLUMNS = 6
_FLOATS = ("float16", "float32", "float64")


class AnythingGrasps(NamedTuple):
    """Grasps of a .pt file.

    Attributes:
        rows: Finite rows of the file, float32 (N, 6): score, x, y, opening, jaw, theta in degrees.
        corners: Corners of the grasp rectangles, float32 (N, 4, 2), in px.
        total: Number of rows in the file, including rows that are not finite.
        is_rounded: True if the conversion to float32 changed a number of `rows`.
    """

    rows: npt.NDArray[np.float32]
    corners: npt.NDArray[np.float32]
    total: int
    is_rounded: bool = False


NO_GRASPS = AnythingGrasps(np.zeros((0, COLUMNS), np.float32), np.zeros((0, 4, 2), np.float32), 0)


class SceneText(NamedTuple):
    """The description of an image, and the names of its objects: `queries[i]` is the name of object i."""

    prompt: str = ""
    queries: tuple[str, ...] = ()


def read_grasps(data: bytes, path: Path) -> AnythingGrasps:
    """Parse a .pt file. Rows that are not finite in float32 are skipped. Raises BadInput for an invalid file."""
    where = shown(str(path))
    try:
        tensor = read_tensor(data)
    except BadInput as error:
        raise BadInput(f"{where}: cannot read the grasps: {shown(error.message)}; use --bad-labels skip") from error
    name, shape = tensor.dtype.name, tensor.shape
    if name not in _FLOATS or shape not in ((0,), (*shape[:1], COLUMNS)):  # (0,): torch.tensor([])
        raise BadInput(
            f"{where}: cannot read the grasps: found {name} {shape!s:.60}, expected a tensor (N, {COLUMNS}) of "
            "float32; use --bad-labels skip"
        )
    with np.errstate(all="ignore"):  # NaN and numbers beyond float32 are skipped
        exact = tensor.reshape(-1, COLUMNS)
        rows = np.ascontiguousarray(exact, np.float32)
        placed = corners(rows[:, [1, 2, 5, 3, 4]].astype(np.float64))
        kept = np.isfinite(rows).all(axis=1) & np.isfinite(placed).all(axis=(1, 2))
    return AnythingGrasps(rows[kept], placed[kept], len(rows), bool((rows[kept] != exact[kept]).any()))


def read_description(data: bytes, path: Path) -> SceneText:
    """Parse a .pkl file with a text, or with a text and names of objects. Raises BadInput for an invalid file."""
    match _unpickled(data, path):
        case str(prompt):
            return SceneText(prompt)
        case (str(prompt), list(queries) | tuple(queries)) if all(type(query) is str for query in queries):
            return SceneText(prompt, tuple(queries))
    raise BadInput(f"{shown(str(path))}: cannot read the text: expected a pair of a text and a list of texts")


def read_instruction(data: bytes, path: Path) -> str:
    """Return the text of a .pkl file, or the first text of a list. Raises BadInput for an invalid file."""
    match _unpickled(data, path):
        case str(text) | (str(text), *_):
            return text
    raise BadInput(f"{shown(str(path))}: cannot read the text: expected a text")


def _unpickled(data: bytes, path: Path) -> Any:
    from packer.layouts import pickled  # imported late: not needed to list a folder

    try:
        value = pickled.loads(data)
        _check_texts(value)
    except (BadInput, UnicodeEncodeError) as error:
        cause = error.message if isinstance(error, BadInput) else "not Unicode"
        raise BadInput(f"{shown(str(path))}: cannot read the text: {shown(cause)}") from error
    return value


def _check_texts(value: Any, depth: int = 2) -> None:
    """Raise UnicodeEncodeError for a text that UTF-8 cannot encode. `depth` is the number of nested lists to enter."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, (tuple, list)) and depth:
        for inner in value:
            _check_texts(inner, depth - 1)


def read_mask(data: bytes, path: Path) -> npt.NDArray[Any]:
    """Return the mask of an .npy file as integers (height, width). A bool mask becomes uint8.

    Raises BadInput for an invalid file.
    """
    where = shown(str(path))
    try:
        header = read_header(data)
    except ValueError as error:
        raise BadInput(f"{where}: cannot read the mask: {error}; download the file again") from error
    dtype = np.dtype(np.uint8) if header.dtype.kind == "b" else header.dtype  # a byte of a bool may have any value
    if dtype.kind not in "iu" or len(header.shape) != 2:
        raise BadInput(
            f"{where}: found {header.name} {header.shape!s:.60}, expected a mask (height, width) of whole numbers"
        )
    height, width = header.shape
    if not 0 < height * width <= MOST_PIXELS or len(data) - header.data_at != header.data_bytes:
        raise BadInput(
            f"{where}: {len(data) - header.data_at} bytes of data, expected {header.data_bytes} for a mask "
            f"{width}x{height}; get the file again"
        )
    return header._replace(dtype=dtype).array(data)
