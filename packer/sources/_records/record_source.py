"""Record source: base of the sources whose samples are records in large files, as in TFRecord, RecordIO or tar shards.

What the rest of packer asks a source about its files means this here:

| asked                  | of a folder of small files   | of record files                                       |
|------------------------|------------------------------|-------------------------------------------------------|
| `root`                 | the folder                   | one file, or a folder with some, and others           |
| `files(index)`         | the sample's files           | the one file that its record lies in                  |
| `extent(index)`        | None                         | that file, and which of its bytes                     |
| sizes, resuming        | size and time of each file   | bytes of the record; size and time of each large file |
| `where(index)`         | the file                     | the file and the byte that the record begins at       |
| the field `files`      | paths that are there         | paths that `extract` gives the stored bytes: the key, |
|                        |                              | with the suffix that fits them                        |
| `content(index, name)` | the bytes of that path       | the bytes in the record                               |

The constructor walks the files once, for the places of their records only (`_add`), then looks into a few of them for
the schema. 20 bytes are kept per record. Bytes that are no record end a file: a tail that a killed
writer left is listed in `left_out`, anything else in `unread`, so that it is refused unless bad samples are to be left
out.
"""

from abc import abstractmethod
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.files.safe_paths import components
from packer.files.terminal_output import shell_word
from packer.images import file_suffixes
from packer.schema import KEY, PIXEL_KINDS, Field, Schema
from packer.sources import base
from packer.sources._name_words import has_labels, ordered_splits, split_rank
from packer.sources._parse.folder_listing import are_empty, counted, described, listed, scan, shown
from packer.sources._parse.source_file_access import EMPTY, SourceRoot
from packer.sources._records.random_access_files import RecordFile, RecordFiles
from packer.sources._records.record_fields import (
    RecordField,
    about_few_colours,
    about_gray,
    about_unmoved,
    escaped,
    looks_like_labels,
)

FILES = Field("files", "json", "json", hidden=True)
LAYOUTS = ("auto", "split", "unchecked")
_PROBES = 32
_LOOKED_AT = 4  # records whose pictures are decoded


class RecordSource(base.Source):
    """See the module; a subclass calls `_open`, `_add` for each record, `_take` for the files, then `_settle`."""

    holds_records = True
    noun: ClassVar[str]  # of one of its files, such as `TFRecord file`
    notes: list[str]
    left_out: list[tuple[str, str]]
    unread: list[tuple[str, str]]

    _folder: SourceRoot
    _files: RecordFiles
    _fields: Sequence[RecordField] = ()  # where the user may say which entry is which field
    _gray: Sequence[RecordField] = ()  # of these, pictures that were taken for images and may be labels

    # ---- while it is made

    def _open(self, root: Path, *, follow_links: bool, layout: str) -> list[str]:
        """Relative paths of everything that is there, in order; raises InvalidRequest, BadInput."""
        base.check_choice("layout", layout, LAYOUTS)
        self.root = root
        self.follow_links = follow_links
        self._layout = layout
        self._folder, names, notes = opened(root, follow_links=follow_links)
        self.notes = notes
        self.left_out = []
        self.unread = []
        self._numbers = array("i")
        self._offsets = array("q")
        self._sizes = array("q")
        return names

    def _none_found(self, names: Sequence[str], expected: str) -> InvalidRequest:
        found = f"found {described(names)}" if names else "there is no file in it"
        found += ", all empty" if are_empty(self._folder, names) else ""
        return InvalidRequest(f"{shown(str(self.root))}: no {self.noun}s: {found}; expected {expected}")

    def _add(self, number: int, offset: int, size: int) -> None:
        self._numbers.append(number)
        self._offsets.append(offset)
        self._sizes.append(size)

    def _end(self, name: str, at: int, reason: str, *, is_cut: bool) -> None:
        """Note that the records of a file end before it does. is_cut: as a writer that was killed leaves it."""
        key = f"{name}@{at}"
        if is_cut:
            self.left_out.append((key, reason))
            self.notes.append(f"{shown(name)}: {reason}; what is before it is taken")
        else:
            self.unread.append((key, reason))

    def invalid_option(self, name: str, values: Mapping[str, str]) -> str | None:
        if not any(field.name == name for field in self._fields):
            return None
        fields = [
            replace(field, invalid=float(values[field.name])) if field.name in values else field
            for field in self._fields
        ]
        return f"--features {shell_word(','.join(field.shown() for field in fields))}"

    def _take(self, files: Sequence[RecordFile]) -> None:
        """The files that the records lie in, from here on to be read; raises BadInput, InvalidRequest."""
        self._files = RecordFiles(self._folder, files)
        self._check_sizes(files)
        ends = zip(self._numbers, map(sum, zip(self._offsets, self._sizes, strict=True)), strict=True)
        self._folder.unpacks_again = self._files.unpacks_again(ends)
        self._firsts = _firsts(self._numbers, len(files))
        self._stems = _stems([file.name for file in files])
        self._splits = self._settled_splits([file.name for file in files])
        if self.unread:
            self.unread_message = (
                f"{counted(len(self.unread), 'place')} with what is no sound record: {listed(_reasons(self.unread))}; "
                "get the files again"
            )
            if not len(self):
                raise BadInput(f"{shown(str(self.root))}: {self.unread_message}")

    def _settle(self, fields: Sequence[Field], extras: Sequence[str]) -> None:
        """Take the fields that a record gives, and what else lies in the folder."""
        self._firsts = _firsts(self._numbers, len(self._files.files))
        self._extras = list(extras)
        fields = [Field(KEY, "text", "text"), *fields]
        if self._splits:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._split_names))
        if any(_is_file(field) for field in fields):
            fields.append(FILES)
        self.schema = Schema(tuple(fields))
        self.notes += [
            f"{shown(field.name)}: named as labels, taken as an image: geometries and --resize mix its colours; pack "
            f"class numbers (one channel, or a palette) for a mask, or take {shown(field.entries[0])} as bytes"
            for field in self._fields
            if field.kind == "image" and any(map(has_labels, field.entries))
        ]
        self.notes += [
            "image: pictures of one channel of 16 bit or floats: taken as a depth, float32 of shape (1, H, W), "
            "and not as an image, which has 8 bit"
            for field in self._fields
            if (field.name, field.kind) == ("image", "depth")
        ]
        self.notes += about_gray(self._gray, self._fields)
        self.notes += self._about_few_colours()
        self._files = RecordFiles(self._folder, self._files.files)  # closes what was opened for a look
        self._main = next((field.name for field in self.schema if field.kind in PIXEL_KINDS), None)
        self.companions = beside_first_picture(self.schema)
        if self._main is not None:
            self.notes += about_unmoved(self.schema)

    def _about_few_colours(self) -> list[str]:
        """A note on each field of images that may be label maps, of which no other note says so."""
        noted = {field.name for field in self._gray}
        noted |= {field.name for field in self._fields if any(map(has_labels, field.entries))}
        names = [field.name for field in self.schema if field.kind == "image" and field.name not in noted]
        found: dict[str, list[bytes]] = {}
        for index, record in self._probes(_LOOKED_AT if names else 0):
            try:
                values = self._values(index, record)
            except BadInput:
                continue  # whoever packs the sample is told
            for name in names:
                if isinstance(values.get(name), bytes):
                    found.setdefault(name, []).append(values[name])
        return [about_few_colours(name, self._instead(name)) for name, data in found.items() if _are_flat(data)]

    def _instead(self, name: str) -> str:
        """What to do about label maps that were taken as images."""
        field = next((field for field in self._fields if field.name == name), None)
        if field is None:
            return "pack them without --resize and read them without a geometry, which keeps their values"
        typed = shell_word(f"{name}={';'.join(map(escaped, field.entries))}:mask")
        return f"say {typed} in --features, once they are class numbers (one channel, or a palette) and no colours"

    def _check_sizes(self, files: Sequence[RecordFile]) -> None:
        """Records that lie over each other could make a small file an endless pack."""
        totals: Counter[int] = Counter()
        for number, size in zip(self._numbers, self._sizes, strict=True):
            totals[number] += size
        for number, total in totals.items():
            if total > files[number].size and not files[number].is_packed:
                raise BadInput(
                    f"{self._folder.root / files[number].name}: damaged: its records have {total} bytes together, "
                    f"the file {files[number].size}"
                )

    def _settled_splits(self, names: Sequence[str]) -> list[int]:
        """For each file the number of its split; empty where there are no splits."""
        tops = [PurePosixPath(name).name if len({*map(_top, names)}) == 1 else _top(name) for name in names]
        words = [_split_word(top) for top in tops]
        there = sorted({word for word in words if word})
        if self._layout == "unchecked" or (self._layout == "auto" and len(there) <= 1):
            return []
        if self._layout == "auto":
            found = ", ".join(f"{word} {words.count(word)}" for word in there)
            raise InvalidRequest(
                f"{shown(str(self.root))}: the files seem to be of several splits ({found}); give a folder or a file "
                "of one, or say --layout split, which packs all with the field split"
            )
        named = [word or "other" for word in words]
        self._split_names = ordered_splits(set(named))
        return [self._split_names.index(name) for name in named]

    def _probes(self, count: int = _PROBES) -> Iterator[tuple[int, bytes]]:
        """The first records and some spread over all, which the schema is guessed from."""
        total = len(self._offsets)
        half = count // 2
        for index in sorted({*range(min(half, total)), *(number * total // half for number in range(half))}):
            if self._sizes[index] <= self._folder.most_bytes:
                yield index, self.record(index)

    # ---- what packer asks

    @property
    def folder(self) -> SourceRoot:
        return self._folder

    def __len__(self) -> int:
        return len(self._offsets)

    def record(self, index: int) -> bytes:
        """The bytes of a sample's record; raises BadInput."""
        at = self.checked(index)
        self._folder.check_size(self._files.files[self._numbers[at]].name, self._sizes[at])
        return self._files.read(self._numbers[at], self._offsets[at], self._sizes[at])

    def __getitem__(self, index: int) -> base.Sample:
        values = self._values(index, self.record(index))
        sample: base.Sample = {KEY: self.key(index), **values}
        if self._splits:
            sample["split"] = np.int64(self._splits[self._numbers[index]])
        if FILES in self.schema.fields:
            sample[FILES.name] = self._paths(index, values)
        return sample

    def value(self, index: int, name: str) -> Any:
        return self.key(index) if name == KEY else super().value(index, name)

    @abstractmethod
    def _values(self, index: int, record: bytes) -> base.Sample:
        """The fields that a record gives; raises BadInput."""

    def key(self, index: int) -> str:
        return self._numbered(index)

    def _numbered(self, index: int) -> str:
        """A key for a record that has no name: its number in its file, and the file where there are several."""
        number = self._numbers[self.checked(index)]
        within = f"{index - self._firsts[number]:08d}"
        return within if len(self._firsts) == 1 else f"{self._stems[number]}/{within}"

    def files(self, index: int) -> tuple[Path, ...]:
        return (self._files.path(self._numbers[self.checked(index)]),)

    def stem(self, index: int) -> Path:
        return self._folder.root / self.key(index)

    def extent(self, index: int) -> base.Extent:
        at = self.checked(index)
        return base.Extent(self._files.files[self._numbers[at]].name, self._offsets[at], self._sizes[at])

    def where(self, index: int, path: str | None = None) -> str:
        return f"{self.files(index)[0]}: record at byte {self._offsets[index]} ({shown(self.key(index))})"

    def content(self, index: int, name: str, path: str) -> Any:
        return self.value(index, name)

    def extras(self) -> Sequence[str]:
        return self._extras

    def _paths(self, index: int, values: base.Sample) -> dict[str, str]:
        """What `extract` calls the values that are files."""
        key = self.key(index)
        stem = key if is_path(key) else f"{index:08d}"
        paths = {}
        for field in self.schema:
            value = values.get(field.name)
            if value is None or not _is_file(field):
                continue
            suffixes = _suffixes(field, value)
            is_named = field.name == self._main and stem.lower().endswith(tuple(suffixes))
            middle = "" if field.name == self._main else f".{field.name}"
            paths[field.name] = stem if is_named else f"{stem}{middle}{suffixes[0]}"
        return paths


def opened(root: Path, *, follow_links: bool) -> tuple[SourceRoot, list[str], list[str]]:
    """The folder, the relative paths of what is in it, and notes; of a file that the user names, the file alone.

    Raises InvalidRequest where there is neither.
    """
    if root.is_file():
        if not root.stat().st_size:
            raise InvalidRequest(f"{shown(str(root))}: {EMPTY}")
        place = root.resolve() if root.is_symlink() else root  # who names a link means what it leads to
        return SourceRoot(place.parent, follow_links), [place.name], []
    if not root.is_dir():
        raise InvalidRequest(f"{shown(str(root))}: no such folder or file; give what holds the data set")
    listing = scan(root, follow_links=follow_links)
    return SourceRoot(root, follow_links), listing.names, listing.notes()


def beside_first_picture(schema: Schema) -> tuple[str, ...]:
    """The pictures that a record has beside its first."""
    return tuple(field.name for field in schema if field.kind in PIXEL_KINDS)[1:]


def _are_flat(pictures: Sequence[bytes]) -> bool:
    return all(map(looks_like_labels, pictures))


def _firsts(numbers: "array[int]", count: int) -> "array[int]":
    """Of each file, the index of its first record; files come in order."""
    return array("q", (bisect_right(numbers, number - 1) for number in range(count)))


def _stems(names: Sequence[str]) -> list[str]:
    """Paths without what all suffixes say, where they stay different."""
    stems = [name[: -len("".join(PurePosixPath(name).suffixes))] or name for name in names]
    found = [stem if PurePosixPath(name).suffixes else name for stem, name in zip(stems, names, strict=True)]
    return found if len(set(found)) == len(found) else list(names)


def _top(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _split_word(name: str) -> str | None:
    """The word of a file's name that says a split: `train` of `train-00000-of-00010.tfrecord`; None for none."""
    for word in PurePosixPath(name).name.replace("_", "-").replace(".", "-").split("-"):
        if word and split_rank(word) is not None:
            return word.lower()
    return None


def _reasons(entries: Sequence[tuple[str, str]]) -> list[str]:
    return [f"{key.rpartition('@')[0]}: {reason}" for key, reason in entries]


def _is_file(field: Field) -> bool:
    return field.kind in (*PIXEL_KINDS, "text", "bytes") and field.name != KEY


def is_path(key: str) -> bool:
    """Whether `extract` would write a file of that name."""
    try:
        components(key)
    except InvalidRequest:
        return False
    return True


def _suffixes(field: Field, value: Any) -> tuple[str, ...]:
    """File suffixes that fit a value, the usual one first."""
    if field.kind in ("text", "bytes"):
        return (".txt",) if field.kind == "text" else (".bin",)
    found = file_suffixes(value) if isinstance(value, bytes) else (".png",)
    return found or (".bin",)
