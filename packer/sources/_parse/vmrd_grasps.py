"""VMRD grasps: lines of eight numbers, the corners x1 y1 ... x4 y4, the number of an object, and `easy` or `hard`.

The last word may be absent. Corners are kept in their order and as they are: the numbers of boxes in the XML beside
them count pixels from 1, those of grasps are taken as they are by every reader that is public.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.sources._parse.folder_listing import shown
from packer.sources.grasp._label_files import read_rows

_NUMBERS = 9
_MOST_OBJECT = 1 << 31


class ObjectGrasps(NamedTuple):
    """corners: float64 (N, 4, 2). objects: int64 (N,), whose grasp each is. total: how many lines there were."""

    corners: npt.NDArray[np.float64]
    objects: npt.NDArray[np.int64]
    total: int

    @property
    def dropped(self) -> int:
        """How many were left out."""
        return self.total - len(self.objects)


def read_object_grasps(data: bytes, path: Path, *, strict: bool) -> ObjectGrasps:
    """The grasps of one file; strict: a line that does not fit is BadInput with path:line, else it is left out.

    Lines that are not finite are left out either way.
    """
    lines = data.decode("utf-8-sig", errors="replace").splitlines()
    text = "\n".join(_without_word(line) for line in lines)
    rows = read_rows(text.encode(), path, columns=_NUMBERS, separator=None, strict=strict)
    numbers = rows.values[:, -1]
    whole = (numbers == np.floor(numbers)) & (numbers >= 0) & (numbers < _MOST_OBJECT)
    if strict and not whole.all():
        first = float(numbers[~whole][0])
        raise BadInput(
            f"{shown(str(path))}: the ninth number of a line is {first:g}, expected the number of an object; mend the "
            "file or say --labels lenient"
        )
    kept = rows.values[whole]
    return ObjectGrasps(kept[:, :8].reshape(-1, 4, 2), kept[:, 8].astype(np.int64), rows.total)


def _without_word(line: str) -> str:
    """The line without a word behind its numbers; as long as it was, or blank."""
    words = line.split()
    return " ".join(words[:-1] if len(words) == _NUMBERS + 1 and words[-1].isalpha() else words)
