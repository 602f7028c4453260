"""WebDataset: tar files whose members of one name are a sample, as webdataset, wids and DALI read them.

Fields: key (what members of a sample have in common), and one for each suffix that `features` names, else for every
suffix: pictures are called image where a sample has one, cls label (int64); txt is text, json what it holds, and
everything else its bytes. Pickled members (pkl, pth ...) are refused unless `features` names them as bytes, or leaves
them out.
The members of a sample follow each other; the name ends at the first dot behind the last slash. Source: webdataset
e0953f9 (base_plus_ext, group_by_keys). Of tar see packer.layouts.tar.
"""

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.layouts import tar
from packer.sources import base
from packer.sources._field_names import FieldNames, check_gaps
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources._parse.source_file_access import SourceRoot
from packer.sources._records.random_access_files import (
    HeaderReader,
    RecordFile,
    check_no_pointer,
    is_packed,
    is_pointer,
    open_records,
)
from packer.sources._records.record_fields import (
    PhotoSizes,
    RecordField,
    are_pictures,
    decoded,
    first_photos,
    in_order,
    is_gray_beside,
    kind_of_bytes,
    parse_fields,
)
from packer.sources._records.record_source import RecordSource, is_path

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures
_NAME = re.compile(r"\.tar(?:\.gz)?$|\.tgz$", re.IGNORECASE)
_BASE = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__(?:$|/)")
_PICTURES = ("jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "ppm", "pgm", "pnm")
_NUMBERS = ("cls", "cls2", "index", "inx", "id")
_TEXTS = ("txt", "text", "transcript")
_JSONS = ("json", "jsn")
_PICKLES = ("pkl", "pickle", "pyd", "pth", "pt")
_USUAL = {"cls": "label", "txt": "text", "jsn": "json"}
_START_BYTES = 512
_MOST_GROUPS = 5  # of samples that lack one thing, in a message


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(RecordSource):
    """One tar file, or a folder of them."""

    kind = "webdataset"
    noun = "tar file"
    reads_tars = True

    def __init__(
        self,
        root: Path,
        *,
        features: Sequence[str] = (),
        missing: str = "error",
        layout: str = "auto",
        follow_links: bool = False,
    ) -> None:
        """Find every sample.

        Raises InvalidRequest where there is no tar file with samples, for pickled members, and for a suffix that no
        sample has; BadInput for samples that lack a field, and for what git-lfs left.
        """
        base.check_choice("missing", missing, ("error", "skip"))
        asked = parse_fields(features)
        names = self._open(root, follow_links=follow_links, layout=layout)
        chosen = names if root.is_file() else [name for name in names if _NAME.search(name)]
        self._bases: list[str] = []
        self._kinds = array("i")  # of each sample, which of _suffixes it has
        self._suffixes: dict[tuple[str, ...], int] = {}
        self._passed = 0
        self._unread_kinds: Counter[str] = Counter()  # of members that are no files, as readers of WebDataset pass over
        files = [self._list(name, number) for number, name in enumerate(chosen)]
        if not len(self) and not self.unread:
            raise self._none_found(names, "names that end in .tar, with members such as 0001.jpg and 0001.cls")
        self._take(files)
        self._suffix_sets = list(self._suffixes)
        chosen_fields = self._chosen_fields(asked)
        self._leave_out_incomplete(chosen_fields, missing)
        self._fields = self._settled_fields(chosen_fields)
        self._keys = self._settled_keys()
        taken = set(chosen)
        self._settle([field.field for field in self._fields], [name for name in names if name not in taken])
        self._note(len(files), was_asked=bool(asked))

    @classmethod
    def is_surely(cls, names: Sequence[str]) -> bool:
        """Whether two that follow each other are of one sample, as of no folder of pictures."""
        return any(
            _split(first)[0] == _split(second)[0] and _split(first)[1] != _split(second)[1]
            for first, second in pairwise(name for name in names if _BASE.fullmatch(name) and not _META.match(name))
        )

    @classmethod
    def are_whole(cls, names: Sequence[str], *, is_cut: bool) -> bool:
        """Whether all samples have the members that any has."""
        files = [name for name in names if not _META.match(name)]
        samples = [{_split(name)[1] for name in group} for _, group in groupby(files, key=lambda name: _split(name)[0])]
        last = samples.pop() if is_cut and len(samples) > 1 else set()
        return all(suffixes == samples[0] for suffixes in samples) and last <= samples[0]

    @classmethod
    def recognise_content(cls, folder: SourceRoot, names: Sequence[str]) -> str | None:
        """How many files there are, if the first of them begins with a member."""
        chosen = names if len(names) == 1 else [name for name in names if _NAME.search(name)]
        for name in chosen:
            start = folder.start(name, _START_BYTES)
            named = _NAME.search(name) is not None
            if tar.is_header(start) or (named and (is_pointer(start) or is_packed(start))):
                return f"WebDataset: {counted(len(chosen), 'tar file')}"
        return None

    # ---- finding samples

    def _list(self, name: str, number: int) -> RecordFile:
        start = self.folder.start(name, _START_BYTES)
        check_no_pointer(start, self.folder.root / name)
        packed = is_packed(start) and not tar.is_header(start)
        on_disk, file = open_records(self.folder, name, is_packed=packed)
        reader = HeaderReader(file)
        last: list[tar.Member] = []
        try:
            for member in tar.members(reader.read, skip=file.data_from):
                parts = _parts(member)
                if parts is None:
                    self._passed += member.is_file
                    if not member.is_file and member.kind != "folder":
                        self._unread_kinds[member.kind] += 1
                    continue
                if last and parts[0] != _split(last[0].name)[0]:
                    self._add_sample(name, number, last)
                    last = []
                last.append(member)
        except tar.DamagedArchive as error:
            self._end(name, error.at, error.message, is_cut=False)
        except tar.CutArchive as error:
            self._end(name, error.at, error.message, is_cut=True)
        if last:
            self._add_sample(name, number, last)
        return RecordFile(name, on_disk.size, packed)

    def _add_sample(self, name: str, number: int, found: Sequence[tar.Member]) -> None:
        stem, suffixes = _split(found[0].name)[0], tuple(_split(member.name)[1] for member in found)
        if len(set(suffixes)) < len(suffixes):
            twice = next(suffix for suffix, count in Counter(suffixes).items() if count > 1)
            self.unread.append((f"{name}@{found[0].start}", f"sample {stem!r} has two members .{twice}"))
            return
        self._add(number, found[0].start, found[-1].end - found[0].start)
        self._bases.append(stem)
        self._kinds.append(self._suffixes.setdefault(tuple(sorted(suffixes)), len(self._suffixes)))

    def _settled_keys(self) -> list[str]:
        """The samples' names, behind their file's where two files have one, and numbered where one file has two."""
        found = self._bases
        if len(set(found)) < len(found) and len(self._stems) > 1:
            found = [f"{self._stems[number]}/{name}" for number, name in zip(self._numbers, found, strict=True)]
        if len(set(found)) == len(found):
            return found
        seen: Counter[str] = Counter()
        keys, taken = [], set(found)
        for name in found:
            seen[name] += 1
            key = name
            while seen[name] > 1 and key in taken:
                key = f"{name}~{seen[name]}"
                seen[name] += key in taken
            taken.add(key)
            keys.append(key)
        self.notes.append("names that come again behind other samples are numbered: a, a~2")
        return keys

    # ---- what samples hold

    def _chosen_fields(self, asked: Sequence[RecordField]) -> list[RecordField]:
        """The fields that the user named, else those of all suffixes; raises InvalidRequest."""
        there = sorted({suffix for suffixes in self._suffixes for suffix in suffixes})
        if not asked:
            members = sum(map(len, self._suffixes))
            advice = "a key ends at its first dot; rename the members, or name some in --features, such as image=jpg"
            check_gaps(self.root, len(self._suffixes), names=len(there), values=members, advice=advice)
        for field in asked:
            if not set(field.entries) & set(there):
                raise InvalidRequest(
                    f"option features: no member ends in .{';.'.join(field.entries)}; there are: {listed(there)}"
                )
        fields = list(asked) or self._guessed(there)
        pickled = [field for field in fields if field.kind is None and _kind(field.entries[0]) == "pickle"]
        if pickled:
            suffix = pickled[0].entries[0]
            others = ",".join(field.shown() for field in fields if field not in pickled)
            raise InvalidRequest(
                f"{shown(str(self.root))}: members .{suffix} are pickled, and packer reads no pickle; leave them out: "
                f"--features {shell_word(others or 'image=jpg')}; or keep their bytes unread: "
                f"{pickled[0].name}={suffix}:bytes"
            )
        return fields

    def _settled_fields(self, fields: Sequence[RecordField]) -> list[RecordField]:
        """The fields with the kinds that the samples have which are packed."""
        values: dict[str, list[bytes]] = {}
        for index, record in self._probes():
            try:
                for suffix, data in self._members(index, record).items():
                    values.setdefault(suffix, []).append(data)
            except BadInput:
                continue  # whoever packs the sample is told
        found = [[data for entry in field.entries for data in values.get(entry, ())] for field in fields]
        first, photos = first_photos(found)
        settled = [_with_kind(field, data, photos) for field, data in zip(fields, found, strict=True)]
        self._gray = [
            field
            for number, (field, given, data) in enumerate(zip(settled, fields, found, strict=True))
            if number != first and given.kind is None and field.kind == "image" and is_gray_beside(data, photos)
        ]
        return settled

    def _guessed(self, there: Sequence[str]) -> list[RecordField]:
        pictures = [suffix for suffix in _PICTURES if suffix in there]
        one_each = all(sum(suffix in pictures for suffix in suffixes) <= 1 for suffixes in self._suffixes)
        fields = []
        if pictures:
            fields.append(RecordField("image", tuple(pictures) if one_each else (pictures[0],)))
        names = FieldNames(field.name for field in fields)
        for suffix in there:
            if fields and suffix in fields[0].entries and pictures:
                continue
            name = suffix.rpartition(".")[0] if _kind(suffix) == "image" and "." in suffix else suffix
            fields.append(RecordField(names.of_entry(name, _USUAL.get(suffix, "")), (suffix,)))
        return in_order(fields)

    def _leave_out_incomplete(self, fields: Sequence[RecordField], missing: str) -> None:
        """Samples that lack a field are an error, or left out."""
        lacking = {
            number: [field for field in fields if not set(field.entries) & set(suffixes)]
            for suffixes, number in self._suffixes.items()
        }
        if not any(lacking[kind] for kind in set(self._kinds)):
            return
        rows = [row for row, kind in enumerate(self._kinds) if lacking[kind]]
        if missing == "error":
            first = rows[0]
            absent = listed(f".{';.'.join(field.entries)}" for field in lacking[self._kinds[first]])
            whole = [field for field in fields if not any(field in some for some in lacking.values())]
            leave = "leave them out with --missing skip, or " if len(rows) < len(self) else ""
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(rows), 'sample')} of {len(self)} lack a member, such as "
                f"{shown(self._bases[first])} ({absent}); {leave}take what all have: "
                f"--features {shell_word(','.join(field.shown() for field in whole) or 'FIELD=SUFFIX')}"
            )
        if len(rows) == len(self):
            groups = [
                f"{counted(count, 'sample')} (such as {shown(self._bases[self._kinds.index(kind)])}) without "
                + listed(f".{';.'.join(field.entries)}" for field in lacking[kind])
                for kind, count in Counter(self._kinds).most_common()
            ]
            groups[_MOST_GROUPS:] = (
                [counted(len(groups) - _MOST_GROUPS, "other set")] if len(groups) > _MOST_GROUPS else []
            )
            raise InvalidRequest(
                f"{shown(str(self.root))}: no sample has all members, and --missing skip leaves none to pack: "
                f"{'; '.join(groups)}; name those to take in --features, such as image=jpg, or give the tar files one "
                "by one"
            )
        dropped = set(rows)
        for row in rows:
            absent = listed(f".{';.'.join(field.entries)}" for field in lacking[self._kinds[row]])
            self.left_out.append((self._bases[row], f"no member {absent}"))
        self._keep([row for row in range(len(self)) if row not in dropped])

    def _keep(self, rows: Sequence[int]) -> None:
        self._bases = [self._bases[row] for row in rows]
        self._kinds = array("i", (self._kinds[row] for row in rows))
        self._numbers = array("i", (self._numbers[row] for row in rows))
        self._offsets = array("q", (self._offsets[row] for row in rows))
        self._sizes = array("q", (self._sizes[row] for row in rows))

    def _note(self, files: int, *, was_asked: bool) -> None:
        self.notes.append(f"{counted(len(self), 'sample')} in {counted(files, 'tar file')}")
        if self._passed:
            self.notes.append(f"{counted(self._passed, 'member')} without a suffix, or named __such__, passed over")
            self.left_out.append(("__members__", f"{counted(self._passed, 'member')} of no sample in the tar files"))
        for kind, count in sorted(self._unread_kinds.items()):
            self.notes.append(f"{counted(count, kind)} passed over, as readers of WebDataset do: no file of their own")
            self.left_out.append(("__members__", f"{counted(count, kind)} in the tar files"))
        if not any(field.name == "label" for field in self._fields):
            tops = sorted({top for name in self._bases if (top := name.rpartition("/")[0])})
            way = "--from folder takes them for such" if self.root.is_file() else "unpack them for that"
            folders = f": folders in a tar, such as {listed(tops[:2])}, are no classes; {way}"
            self.notes.append(f"no labels{folders if len(tops) > 1 else ''}")
        said = ",".join(field.shown() for field in self._fields)
        how = "as asked" if was_asked else "every suffix that there is; --features says it otherwise"
        self.notes.append(f"--features {shell_word(said)} ({how})")

    def key(self, index: int) -> str:
        return self._keys[self.checked(index)]

    def _members(self, index: int, record: bytes) -> dict[str, bytes]:
        """The data of a sample's members by suffix; raises BadInput."""
        found = {}
        try:
            for member in tar.members(_reading(record), until=len(record)):
                parts = _parts(member)
                if parts is not None:
                    found[parts[1]] = record[member.offset : member.end]
        except tar.CutArchive as error:
            raise BadInput(
                f"{self._files.path(self._numbers[index])}: {error.message}; it changed, run again"
            ) from error
        return found

    def _values(self, index: int, record: bytes) -> base.Sample:
        found = self._members(index, record)
        return {field.name: self._value(index, field, found) for field in self._fields}

    def _value(self, index: int, field: RecordField, found: dict[str, bytes]) -> Any:
        suffix = _present(field, found)
        if suffix is None:
            raise BadInput(f"{self.where(index)}: it has no member .{';.'.join(field.entries)}")
        data = found[suffix]
        try:
            return _number(data) if field.kind == "number" else decoded(field, data)
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: .{suffix}: {error.message}") from error

    def content(self, index: int, name: str, path: str) -> Any:
        field = next(field for field in self._fields if field.name == name)
        found = self._members(index, self.record(index))
        return found[_present(field, found) or ""]

    def _paths(self, index: int, values: base.Sample) -> dict[str, str]:
        """The members' own names, of all but numbers."""
        there = self._suffix_sets[self._kinds[index]]
        key = self.key(index)
        stem = key if is_path(key) else f"{index:08d}"
        return {
            field.name: f"{stem}.{next(entry for entry in field.entries if entry in there)}"
            for field in self._fields
            if field.kind != "number"
        }


def _parts(member: tar.Member) -> tuple[str, str] | None:
    """Name of the sample and suffix; None for a member of none."""
    if not member.is_file or _META.match(member.name):
        return None
    return _split(member.name) if _BASE.fullmatch(member.name) else None


def _split(name: str) -> tuple[str, str]:
    match = _BASE.fullmatch(name)
    return (match[1], match[2].lower()) if match else (name, "")


def _present(field: RecordField, found: dict[str, bytes]) -> str | None:
    return next((entry for entry in field.entries if entry in found), None)


def _reading(record: bytes) -> tar.Read:
    return lambda offset, size: record[offset : offset + size]


def _kind(suffix: str) -> str | None:
    """What members of a suffix are; None where only their bytes tell."""
    last = suffix.rpartition(".")[2]
    for kind, suffixes in (("image", _PICTURES), ("number", _NUMBERS), ("text", _TEXTS), ("json", _JSONS)):
        if last in suffixes:
            return kind
    return "pickle" if last in _PICKLES else None


def _with_kind(field: RecordField, values: Sequence[bytes], photos: PhotoSizes) -> RecordField:
    kind = field.kind or _kind(field.entries[0])
    if kind is None or kind == "image":
        found = kind_of_bytes(values, field.entries[0], photos) if values else "bytes"
        is_map = found == "bytes" and bool(values) and are_pictures(values)  # of 16 bit, by its name or its few values
        kind = found if is_map or found in ("depth", "mask") else kind or "bytes"
    if kind == "numbers":
        raise InvalidRequest(f"option features: {field.shown()}: a member of a tar holds one number, or is json")
    return replace(field, kind=kind, dtype="int64" if kind == "number" else field.dtype)


def _number(data: bytes) -> np.int64:
    text = data.strip()
    if not re.fullmatch(rb"[+-]?[0-9]{1,19}", text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise BadInput(f"expected a whole number, found {data[:40]!r}; a text is taken by ...:text in --features")
    number: np.int64 = np.int64(int(text))
    return number
