"""Caffe LMDB: pictures and labels as Caffe's convert_imageset and NVIDIA's DIGITS store them; Caffe is not needed.

Fields: key (as in the LMDB, such as `00000012_cat/a.jpg`), image and label (int64), where the records have labels.
The order is that of the keys, as Caffe and DALI read them. Encoded pictures keep their bytes; raw ones, uint8 in planes
of blue, green and red, or of gray, are given as RGB pixels.
Of the values see packer.layouts.datum.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.images import file_suffixes
from packer.layouts.datum import Datum, parse
from packer.schema import MOST_PIXELS, Field
from packer.sources import base
from packer.sources._parse.folder_listing import counted
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._record_source import is_path

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_NUMBERED = re.compile(r"[0-9]{8}_(.+)", re.DOTALL)
_GRAY, _COLOUR = 1, 3


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(LMDBSource):
    """One Caffe LMDB, or a folder of them."""

    kind = "caffe-lmdb"
    layout = "Caffe's Datum"

    def __init__(self, root: Path, *, layout: str = "auto", follow_links: bool = False) -> None:
        """Find every entry.

        Raises InvalidRequest where there is no such LMDB, BadInput for a damaged one, and for what git-lfs left.
        """
        files = self._list_all(root, follow_links=follow_links, layout=layout)
        self._take(files)
        names = [key.decode("utf-8", "surrogateescape") for key in self._raw_keys]
        del self._raw_keys
        if len(set(names)) < len(names):
            names = [f"{self._stems[number]}/{name}" for number, name in zip(self._numbers, names, strict=True)]
        self._names = names
        self._paths_of = _original_paths(names)
        found = []
        for _, record in self._probes():
            try:
                found.append(parse(record))
            except BadInput:
                continue  # whoever packs the record is told
        self.decodes = any(not datum.is_encoded for datum in found)
        fields = [Field("image", "image", "encoded")]
        self._has_labels = any(datum.label is not None for datum in found)
        if self._has_labels:
            fields.append(Field("label", "number", "number", dtype="int64", shape=()))
        self._settle(fields, self._others)
        self.notes.append(f"{counted(len(self), 'record')} in {counted(len(files), self.noun)}")
        if self.decodes:
            self.notes.append("raw pixels, in planes of blue, green and red: stored as PNG")
        if not self._has_labels:
            self.notes.append("no labels")

    @classmethod
    def _check_record(cls, key: bytes, value: bytes) -> None:
        datum = parse(value)
        if not datum.data and not datum.has_floats:
            raise BadInput("a Datum without data")

    def key(self, index: int) -> str:
        return self._names[self.checked(index)]

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            datum = parse(record)
            sample: base.Sample = {"image": datum.data if datum.is_encoded else pixels(datum)}
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: {error.message}") from error
        if self._has_labels:
            if datum.label is None:
                raise BadInput(f"{self.where(index)}: it has no label, as others have")
            sample["label"] = np.int64(datum.label)
        return sample

    def _paths(self, index: int, values: base.Sample) -> dict[str, str]:
        """The original path where keys hold it."""
        stem = self._paths_of[index] if self._paths_of else self.key(index)
        stem = stem if is_path(stem) else f"{index:08d}"
        value = values["image"]
        suffixes = (file_suffixes(value) if isinstance(value, bytes) else (".png",)) or (".bin",)
        return {"image": stem if stem.lower().endswith(suffixes) else f"{stem}{suffixes[0]}"}


def pixels(datum: Datum) -> npt.NDArray[np.uint8]:
    """Raw pixels as RGB, (H, W, 3); raises BadInput where they are no picture."""
    channels, height, width = datum.channels, datum.height, datum.width
    if not datum.data and datum.has_floats:
        raise BadInput("it holds float_data, numbers and no picture; packer does not read these")
    if channels not in (_GRAY, _COLOUR) or height < 1 or width < 1 or height * width > MOST_PIXELS:
        raise BadInput(f"raw pixels of {channels} channels, {height} x {width}: expected 1 or 3 channels of a picture")
    if channels * height * width != len(datum.data):
        raise BadInput(f"raw pixels of {channels} x {height} x {width}, but {len(datum.data)} bytes")
    planes = np.frombuffer(datum.data, np.uint8).reshape(channels, height, width)
    return np.ascontiguousarray(np.broadcast_to(planes[::-1], (_COLOUR, height, width)).transpose(1, 2, 0))


def _original_paths(keys: Sequence[str]) -> list[str]:
    """The paths behind the numbers of convert_imageset; none where keys are others, or two have one path."""
    matches = [_NUMBERED.fullmatch(key) for key in keys]
    found = [match[1] for match in matches if match]
    return found if len(found) == len(keys) == len(set(found)) else []
