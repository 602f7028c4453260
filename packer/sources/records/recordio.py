"""RecordIO: the .rec files of MXNet's im2rec and of InsightFace. mxnet is not needed.

Fields:
* key: the path of the record in a .lst next to the file, otherwise its number in the .idx, otherwise its number in the
  file. With a .lst and without an .idx, the number is read from the record header, as im2rec writes it.
* image: the bytes of the image file.
* label: int64 if every label is one whole number, otherwise float32. An array if records have several labels.

InsightFace's records without images are skipped. In its files, label is the first label, label_vector all labels.
An .idx next to the file has a line `number<TAB>offset` for each record. Records that the .idx does not list are
skipped. packer.layouts.recordio_frames describes the layout.
"""

import math
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from packer.layouts.recordio_frames import (
    FIRST,
    HEADER,
    KEY,
    LAST,
    LENGTH,
    MAGIC,
    MIDDLE,
    WHOLE,
    unframed,
    unpacked,
)
from packer.schema import Field
from packer.sources._message_texts import counted, shown
from packer.sources.records._random_access_files import HeaderReader, OpenFile, UnpackedFile
from packer.sources.records._record_source import IMAGE, MOST_BYTES, RecordSource

SPECIFICITY = -1
_HEAD_BYTES = 64  # bytes of a record that contain the header and first label
_MOST_WHOLE = 1 << 63  # limit of whole-number labels


class _RecordPlace(NamedTuple):
    offset: int
    size: int
    head: bytes

    @property
    def number(self) -> int:
        return int(HEADER.unpack_from(self.head)[2]) if len(self.head) >= HEADER.size else -1

    @property
    def width(self) -> int:
        """Return the number of labels after the header. 0: the label is in the header. -1: the header is incomplete."""
        return int(HEADER.unpack_from(self.head)[0]) if len(self.head) >= HEADER.size else -1

    @property
    def label(self) -> float | None:
        """The first label, or None if the record is too short."""
        if self.width <= 0:
            return float(HEADER.unpack_from(self.head)[1]) if self.width == 0 else None
        has_label = len(self.head) >= HEADER.size + 4
        return float(struct.unpack_from("<f", self.head, HEADER.size)[0]) if has_label else None


class Source(RecordSource):
    """A .rec file, or a folder of .rec files."""

    kind = "recordio"
    title = "RecordIO"
    noun = "RecordIO file"
    expected = "names that end in .rec, with at least one record of an image"
    file_name = re.compile(r"\.rec$", re.IGNORECASE)

    def __init__(self, root: Path, *, named_splits: bool = False, follow_links: bool = False) -> None:
        """Find all records. Raises BadInput for a damaged file, InvalidRequest for another layout.

        If `named_splits` is false, files of several splits also raise InvalidRequest.
        """
        self._paths: list[str] = []  # the path of each record; empty without a path
        self._widths: set[int] = set()
        self._is_whole, self._is_faces = True, False
        self._list(root, named_splits=named_splits, follow_links=follow_links)

    @classmethod
    def begins(cls, start: bytes) -> bool:
        return start.startswith(KEY)

    # ---- finding records

    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        records = list(self._walk(HeaderReader(file), name, size or 0))
        index = self._index(name, {record.offset for record in records})
        paths = self._listed_paths(name)
        images = _face_images(records[0]) if records and (index is None or index.get(records[0].offset) == 0) else None
        self._is_faces |= images is not None
        numbers = _listed_numbers(records, list(paths)) if index is None else index
        unnamed = others = 0
        for record in records:
            number = numbers.get(record.offset)
            if number is None:
                unnamed += 1
            elif images is not None and not 1 <= number < images:
                others += 1
            else:
                self._add(record.offset, record.size, number)
                self._note_labels(record)
                self._paths.append(paths.get(number, ""))
        if unnamed:
            self.left_out.append((name, f"{counted(unnamed, 'record')} that the index does not name"))
            self.notes.append(f"{shown(name)}: {counted(unnamed, 'record')} skipped that the index does not name")
        if others:
            self.left_out.append((name, f"{counted(others, 'record')} of InsightFace's identities, without images"))
            self.notes.append(f"{shown(name)}: InsightFace: {counted(others, 'record')} of identities have no image")

    def _walk(self, file: HeaderReader, name: str, size: int) -> Iterator[_RecordPlace]:
        at = records = 0
        while at < size:
            start, head, part = at, b"", -1
            where = f"record {records} at byte {at}"
            while part not in (WHOLE, LAST):
                frame = file.read(at, 8)
                if len(frame) < 8:
                    self._end(name, start, f"{where} is cut", is_cut=True)
                    return
                magic, word = struct.unpack("<II", frame)
                before, part, length = part, word >> 29, word & LENGTH
                follows = part in (MIDDLE, LAST)
                if magic != MAGIC or part > LAST or follows != (before in (FIRST, MIDDLE)):
                    self._end(name, start, f"{where} is none: {frame.hex(' ')} is not a frame", is_cut=False)
                    return
                if at + 8 + length > size:
                    self._end(name, start, f"{where} is cut: it goes on after the end of the file", is_cut=True)
                    return
                if len(head) < _HEAD_BYTES:
                    head += (KEY if follows else b"") + file.read(at + 8, min(length, _HEAD_BYTES))
                at += 8 + (length + 3 & ~3)
                if at - start > MOST_BYTES:
                    self._end(name, start, f"{where} has more than a GiB", is_cut=False)
                    return
            yield _RecordPlace(start, min(at, size) - start, head[:_HEAD_BYTES])
            records += 1

    def _index(self, name: str, starts: set[int]) -> dict[int, int] | None:
        """Return offset -> number from the .idx. None: it is absent, or contains an offset that is not in `starts`."""
        place = str(PurePosixPath(name).with_suffix(".idx"))
        data = self._table(place)
        if data is None:
            return None
        found: dict[int, int] = {}
        numbers: set[int] = set()
        for line in data.decode("latin1").splitlines():
            match = re.fullmatch(r"\s*([0-9]{1,18})\t([0-9]{1,18})\s*", line)
            number, offset = (int(match[1]), int(match[2])) if match else (-1, -1)
            if line.strip() and (offset not in starts or offset in found or number in numbers):
                self.notes.append(f"{shown(place)}: is not of this file (line {line[:40]!r}): not used")
                return None
            if line.strip():
                found[offset] = number
                numbers.add(number)
        return found

    def _listed_paths(self, name: str) -> dict[int, str]:
        """Return number -> path from the .lst next to the file, in the order of its lines."""
        data = self._table(str(PurePosixPath(name).with_suffix(".lst"))) or b""
        lines = [line.split("\t") for line in data.decode("utf-8", "surrogateescape").splitlines()]
        return {
            int(cells[0]): cells[-1].strip()
            for cells in lines
            if len(cells) > 1 and re.fullmatch(r"[0-9]{1,18}", cells[0]) and cells[-1].strip()
        }

    def _note_labels(self, record: _RecordPlace) -> None:
        if record.width >= 0:
            self._widths.add(record.width)
        if record.label is not None:
            is_whole = math.isfinite(record.label) and record.label == int(record.label)
            self._is_whole &= is_whole and abs(record.label) < _MOST_WHOLE

    # ---- what records contain

    def choose_fields(self) -> Sequence[Field]:
        if any(self._paths) and all(self._paths) and len(set(self._paths)) == len(self._paths):
            self._names = self._paths
        elif any(self._paths):
            self.notes.append("the .lst does not give every record a path of its own: records are named by number")
        is_single = self._widths <= {0}
        self._dtype = "int64" if self._is_whole and (self._is_faces or is_single) else "float32"
        scalar = Field("label", "number", "number", dtype=self._dtype, shape=())
        if is_single:
            self._vector = ""
            return [IMAGE, scalar]
        width = None if len(self._widths) > 1 else next(iter(self._widths))
        self._vector = "label_vector" if self._is_faces else "label"
        codec = "raw:float32" if width is None else "number"
        vector = Field(self._vector, "number", codec, dtype="float32", shape=(width,))
        return [IMAGE, scalar, vector] if self._is_faces else [IMAGE, vector]

    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        labels, image = unpacked(unframed(record))
        values: dict[str, Any] = {"image": image}
        if self._vector != "label":
            values["label"] = np.int64(labels[0]) if self._dtype == "int64" else labels[0]
        return {**values, self._vector: labels} if self._vector else values


def _face_images(first: _RecordPlace) -> int | None:
    """Parse InsightFace's first record: return the number after that of the last image. None for another record."""
    if not 0 < first.width == (len(first.head) - HEADER.size) / 4 or len(first.head) >= _HEAD_BYTES:
        return None
    images = first.label or 0.0
    return int(images) if math.isfinite(images) and images >= 1 and images == int(images) else None


def _listed_numbers(records: Sequence[_RecordPlace], listed: Sequence[int]) -> dict[int, int]:
    """Return offset -> number of the records of a file without an .idx.

    If the .lst (`listed`) contains all numbers of the record headers, use these numbers. Otherwise use the i-th line
    for the i-th record, as im2rec does. Without a .lst, use positions.
    """
    numbers = [record.number for record in records]
    if len(set(numbers)) < len(numbers) or not set(listed) >= set(numbers):
        numbers = list(listed) if len(listed) == len(records) else list(range(len(records)))
    return {record.offset: number for record, number in zip(records, numbers, strict=True)}
