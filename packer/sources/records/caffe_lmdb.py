"""Caffe LMDB: images and labels as Caffe's convert_imageset and NVIDIA's DIGITS store them. Caffe is not needed.

Fields: key (as in the LMDB, such as `00000012_cat/a.jpg`), image, and label (int64) if the records have labels. Samples
are sorted by key, as in Caffe and DALI. Encoded images are not changed. Raw images, which are uint8 planes of blue,
green and red, or of gray, become RGB pixels. packer.layouts.datum describes the values.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.layouts.datum import Datum, parse
from packer.schema import MOST_PIXELS, Field
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._record_source import IMAGE, LABEL

SPECIFICITY = -1
_NUMBERED = re.compile(r"[0-9]{8}_(.+)", re.DOTALL)
_GRAY, _COLOR = 1, 3


class Source(LMDBSource):
    """A Caffe LMDB, or a folder of Caffe LMDBs."""

    kind = "caffe-lmdb"
    title = "LMDB of Caffe's Datum"
    is_numbered = False

    def __init__(self, root: Path, *, named_splits: bool = False, follow_links: bool = False) -> None:
        """Find all records. Raises BadInput for a damaged LMDB, InvalidRequest for another layout.

        If `named_splits` is false, files of several splits also raise InvalidRequest.
        """
        self._has_labels = True
        self._list(root, named_splits=named_splits, follow_links=follow_links)

    @classmethod
    def is_metadata(cls, key: bytes) -> bool:
        return False

    @classmethod
    def parse(cls, value: bytes) -> Datum:
        datum = parse(value)
        if not datum.data and not datum.has_floats:
            raise BadInput("a Datum without data")
        return datum

    def choose_fields(self) -> Sequence[Field]:
        self._name_by_file()
        matches = [_NUMBERED.fullmatch(key) for key in self._names]
        paths = [match[1] for match in matches if match]  # convert_imageset writes a number before each path
        self._paths = paths if len(paths) == len(matches) == len(set(paths)) else self._names
        found = []
        for _, record in self._probes():
            try:
                found.append(parse(record))
            except BadInput:
                continue  # packing the sample reports the error
        self.decodes = any(not datum.is_encoded for datum in found)
        self._has_labels = any(datum.label is not None for datum in found)
        if self.decodes:
            self.notes.append("raw pixels, in planes of blue, green and red: stored as PNG")
        if not self._has_labels:
            self.notes.append("no labels")
        return (IMAGE, LABEL) if self._has_labels else (IMAGE,)

    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        datum = parse(record)
        image = {"image": datum.data if datum.is_encoded else pixels(datum)}
        if not self._has_labels:
            return image
        if datum.label is None:
            raise BadInput("it has no label, as others have")
        return {**image, "label": np.int64(datum.label)}

    def path_stem(self, index: int) -> str:
        return self._paths[index]


def pixels(datum: Datum) -> npt.NDArray[np.uint8]:
    """Return the raw pixels of a datum as RGB, (H, W, 3). Raise BadInput if the pixels are not an image."""
    channels, height, width = datum.channels, datum.height, datum.width
    if not datum.data and datum.has_floats:
        raise BadInput("it contains float_data, numbers and no image; packer does not read these")
    if channels not in (_GRAY, _COLOR) or height < 1 or width < 1 or height * width > MOST_PIXELS:
        raise BadInput(f"raw pixels of {channels} channels, {height} x {width}: expected 1 or 3 channels of an image")
    if channels * height * width != len(datum.data):
        raise BadInput(f"raw pixels of {channels} x {height} x {width}, but {len(datum.data)} bytes")
    planes = np.frombuffer(datum.data, np.uint8).reshape(channels, height, width)
    return np.ascontiguousarray(np.broadcast_to(planes[::-1], (_COLOR, height, width)).transpose(1, 2, 0))
