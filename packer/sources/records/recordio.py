"""RecordIO: the .rec files of MXNet's im2rec and of InsightFace; mxnet is not needed.

Fields: key (the path that a .lst beside the file gives the record, else its number in the .idx, else in the file; with
a .lst and no .idx that of its header, as im2rec writes it), image (its bytes as they are) and label: int64 where every
label is one whole number, float32 where not, an array where records have several. Of InsightFace's records those that
are images; label is the first of theirs, label_vector all.
Of the layout see packer.layouts.recordio_frames.
An .idx beside the file has a line `number<TAB>offset` for each record; those that it does not name are left out.
"""

import math
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.layouts.recordio_frames import (
    FIRST,
    HEADER,
    KEY,
    LAST,
    LENGTH,
    MAGIC,
    MIDDLE,
    OLD_MAGIC,
    WHOLE,
    unframed,
    unpacked,
)
from packer.schema import Field
from packer.sources import base
from packer.sources._parse.folder_listing import counted, shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources.records._random_access_files import HeaderReader, OpenFile, RecordFile, check_no_pointer, is_pointer
from packer.sources.records._record_source import RecordSource

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_SUFFIX = ".rec"
_START_BYTES = 64
_MOST_BYTES = 1 << 30  # of one record
_MOST_WHOLE = 1 << 63  # of a label that is a whole number
_EXACT_FLOAT = 1 << 24  # float32 holds every whole number up to it


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


@dataclass
class _LabelsSeen:
    """What the labels of all records have in common. widths: how many labels a record has, 0 for one in its header."""

    widths: set[int] = field(default_factory=set)
    is_whole: bool = True
    largest: float = 0.0


class _Listed(NamedTuple):
    """A line of a .lst: the path, and the labels as they stand there."""

    path: str
    labels: tuple[str, ...]


class Source(RecordSource):
    """One .rec file, or a folder of them."""

    kind = "recordio"
    noun = "RecordIO file"

    def __init__(self, root: Path, *, layout: str = "auto", follow_links: bool = False) -> None:
        """Find every record.

        Raises InvalidRequest where there is no RecordIO file, BadInput for what git-lfs left.
        """
        names = self._open(root, follow_links=follow_links, layout=layout)
        chosen = names if root.is_file() else [name for name in names if name.lower().endswith(_SUFFIX)]
        self._ids = array("q")  # number of each record in its index, else in its file
        self._named: list[dict[int, str]] = []  # of each file, the paths that its list gives to numbers
        self._tables: list[str] = []
        self._seen = _LabelsSeen()
        self._is_faces = False
        files = [self._list(name, number, names) for number, name in enumerate(chosen)]
        if not len(self) and not self.unread:
            raise self._none_found(names, "names that end in .rec, with at least one record that holds an image")
        self._take(files)
        self._names = self._settled_names()
        taken = {*chosen, *self._tables}
        self._settle([Field("image", "image", "encoded"), *self._labels()], [n for n in names if n not in taken])
        self.notes.append(f"{counted(len(self), 'record')} in {counted(len(files), self.noun)}")
        if self._seen.largest >= _EXACT_FLOAT:
            self.notes.append(f"labels up to {self._seen.largest:.0f}: float32 does not hold every number above 2**24")

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many files there are, if the first of them begins with a record."""
        chosen = names if len(names) == 1 else [name for name in names if name.lower().endswith(_SUFFIX)]
        for name in chosen:
            start = folder.start(name, _START_BYTES)
            named = name.lower().endswith(_SUFFIX)
            if start.startswith(KEY) or (named and (is_pointer(start) or _is_old(start))):
                return f"RecordIO: {counted(len(chosen), 'file')}"
        return None

    # ---- finding records

    def _list(self, name: str, number: int, names: Sequence[str]) -> RecordFile:
        file = OpenFile(self.folder, name)
        start = file.read(0, _START_BYTES)
        check_no_pointer(start, file.path)
        if _is_old(start):
            raise InvalidRequest(
                f"{file.path}: has the magic 0x3ed7230a of early dmlc files; write it anew with im2rec"
            )
        found = list(self._walk(HeaderReader(file), name, file.size))
        index = self._index(name, names, {offset for offset, _, _ in found})
        listed = self._list_file(name, names)
        self._named.append({key: entry.path for key, entry in listed.items()})
        faces = _faces(found[0][2]) if found else None
        first = faces if faces is not None and (index is None or index.get(0) == 0) else None
        self._is_faces |= first is not None
        numbers = None if index is None else {offset: key for key, offset in index.items()}
        if numbers is None and listed:
            numbers = _listed_numbers(found, listed)
        unnamed = dropped = differing = 0
        for position, (offset, size, head) in enumerate(found):
            key = position if numbers is None else numbers.get(offset)
            if key is None:
                unnamed += 1
            elif first is not None and not 1 <= key < first:
                dropped += 1
            else:
                self._add(number, offset, size)
                self._ids.append(key)
                _note_label(head, self._seen)
                differing += key in listed and not _has_labels(head, listed[key].labels)
        if unnamed:
            self.left_out.append((name, f"{counted(unnamed, 'record')} that the index does not name"))
            self.notes.append(f"{shown(name)}: {counted(unnamed, 'record')} that the index does not name left out")
        if differing:
            self.notes.append(
                f"{shown(name)}: {counted(differing, 'record')} with other labels than its .lst says: the records' own "
                "are taken; im2rec writes them anew from the list"
            )
        if dropped:
            self.left_out.append((name, f"{counted(dropped, 'record')} of InsightFace's identities, without images"))
            self.notes.append(f"{shown(name)}: InsightFace: {counted(dropped, 'record')} of identities hold no image")
        return RecordFile(name, file.size)

    def _walk(self, file: HeaderReader, name: str, size: int) -> Iterator[tuple[int, int, bytes]]:
        """Offset, size and first bytes of each record, up to the end, or to the first bytes that are none."""
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
                    self._end(
                        name, start, f"{where} is none: {frame.hex(' ')} where a frame should begin", is_cut=False
                    )
                    return
                if at + 8 + length > size:
                    self._end(name, start, f"{where} is cut: it goes on behind the end of the file", is_cut=True)
                    return
                if len(head) < _START_BYTES:
                    head += (KEY if follows else b"") + file.read(at + 8, min(length, _START_BYTES))
                at += 8 + (length + 3 & ~3)
                if at - start > _MOST_BYTES:
                    self._end(name, start, f"{where} has more than a GiB", is_cut=False)
                    return
            yield start, min(at, size) - start, head[:_START_BYTES]
            records += 1

    def _beside(self, name: str, suffix: str, names: Sequence[str]) -> str | None:
        """The file of the same stem with another suffix, if it is there."""
        other = str(PurePosixPath(name).with_suffix(suffix))
        if other in names or (self.root.is_file() and (self.folder.root / other).is_file()):
            self._tables.append(other)
            return other
        return None

    def _index(self, name: str, names: Sequence[str], starts: set[int]) -> dict[int, int] | None:
        """Offsets by number; None where there is no index, or one of another file."""
        other = self._beside(name, ".idx", names)
        if other is None:
            return None
        found: dict[int, int] = {}
        for line in self.folder.read(other).decode("latin1").splitlines():
            match = re.fullmatch(r"\s*([0-9]{1,18})\t([0-9]{1,18})\s*", line)
            if match is None or int(match[2]) not in starts or int(match[1]) in found:
                if line.strip():
                    self.notes.append(f"{shown(other)}: is not of this file (line {line[:40]!r}): not used")
                    return None
                continue
            found[int(match[1])] = int(match[2])
        if len(set(found.values())) < len(found):
            self.notes.append(f"{shown(other)}: names a record twice: not used")
            return None
        return found

    def _list_file(self, name: str, names: Sequence[str]) -> dict[int, _Listed]:
        """What the .lst beside the file says by number, in the order of its lines."""
        other = self._beside(name, ".lst", names)
        found: dict[int, _Listed] = {}
        if other is None:
            return found
        for line in self.folder.read(other).decode("utf-8", "surrogateescape").splitlines():
            cells = line.split("\t")
            if len(cells) > 1 and re.fullmatch(r"[0-9]{1,18}", cells[0]) and cells[-1].strip():
                found[int(cells[0])] = _Listed(cells[-1].strip(), tuple(cells[1:-1]))
        return found

    def _settled_names(self) -> list[str]:
        """The keys that lists give; none where a record has none, or two have one."""
        if not any(self._named):
            return []
        found = [self._named[number].get(key, "") for number, key in zip(self._numbers, self._ids, strict=True)]
        if not all(found) or len(set(found)) < len(found):
            self.notes.append("the .lst does not give every record a path of its own: records are named by number")
            return []
        return found

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.folder.root / name for name in self._tables)

    # ---- what records hold

    def _labels(self) -> list[Field]:
        """The fields of the labels."""
        seen = self._seen
        self._dtype = "int64" if seen.is_whole and (self._is_faces or seen.widths <= {0}) else "float32"
        scalar = Field("label", "number", "number", dtype=self._dtype, shape=())
        if seen.widths <= {0}:
            return [scalar]
        width = None if len(seen.widths) > 1 else next(iter(seen.widths))
        codec = "raw:float32" if width is None else "number"
        name = "label_vector" if self._is_faces else "label"
        vector = Field(name, "number", codec, dtype="float32", shape=(width,))
        return [scalar, vector] if self._is_faces else [vector]

    def key(self, index: int) -> str:
        if self._names:
            return self._names[self.checked(index)]
        at = self.checked(index)
        number = f"{self._ids[at]:08d}"
        return number if len(self._firsts) == 1 else f"{self._stems[self._numbers[at]]}/{number}"

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            data = unframed(record)
            labels, image = unpacked(data)
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: {error.message}") from error
        sample: base.Sample = {"image": image}
        for described in self.schema:
            if described.name == "label_vector" or (described.name == "label" and described.shape):
                sample[described.name] = labels
            elif described.name == "label":
                sample["label"] = self._one(labels)
        return sample

    def _one(self, labels: npt.NDArray[np.float32]) -> np.int64 | np.float32:
        first: np.float32 = labels[0]
        return np.int64(first) if self._dtype == "int64" else first


def _is_old(start: bytes) -> bool:
    return start.startswith(struct.pack("<I", OLD_MAGIC))


def _faces(head: bytes) -> int | None:
    """Of InsightFace's first record, which is labels alone, the number behind that of the last image; else None."""
    if len(head) < HEADER.size + 4 or len(head) >= _START_BYTES:
        return None
    flag = HEADER.unpack_from(head)[0]
    if len(head) != HEADER.size + 4 * flag:
        return None
    (first,) = struct.unpack_from("<f", head, HEADER.size)
    return int(first) if math.isfinite(first) and first >= 1 and first == int(first) else None


def _listed_numbers(found: Sequence[tuple[int, int, bytes]], listed: Mapping[int, _Listed]) -> dict[int, int]:
    """Numbers of records by their offsets, where there is no index: those in their headers, if the list has them all.

    Else the list's lines in their order, in which im2rec writes records; else their places.
    """
    numbers = [HEADER.unpack_from(head)[2] if len(head) >= HEADER.size else -1 for _, _, head in found]
    if len(set(numbers)) < len(numbers) or not listed.keys() >= set(numbers):
        numbers = list(listed) if len(listed) == len(found) else list(range(len(found)))
    return {offset: number for (offset, _, _), number in zip(found, numbers, strict=True)}


def _has_labels(head: bytes, texts: Sequence[str]) -> bool:
    """Whether a record begins with the labels that a list has, as far as these are numbers and were looked at."""
    if len(head) < HEADER.size or not texts:
        return True
    flag, label, _, _ = HEADER.unpack_from(head)
    count = min(flag, (len(head) - HEADER.size) // 4)
    there = struct.unpack_from(f"<{count}f", head, HEADER.size) if flag else (label,)
    try:
        said = np.array(texts, np.float64).astype(np.float32)
    except ValueError:
        return True
    return len(said) == max(flag, 1) and np.array_equal(np.array(there, np.float32), said[: len(there)], equal_nan=True)


def _note_label(head: bytes, seen: _LabelsSeen) -> None:
    """Take the labels that a record begins with into account."""
    if len(head) < HEADER.size:
        return  # reading it says what it lacks
    flag, label, _, _ = HEADER.unpack_from(head)
    seen.widths.add(flag)
    value = float(label)
    if flag:
        if len(head) < HEADER.size + 4:
            return
        (value,) = struct.unpack_from("<f", head, HEADER.size)
    if math.isfinite(value) and value == int(value) and abs(value) < _MOST_WHOLE:
        seen.largest = max(seen.largest, abs(value))
    else:
        seen.is_whole = False
