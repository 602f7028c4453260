"""WebDataset: tar files in which members with a common name form a sample, as webdataset, wids and DALI read them.

Fields: key (the common name of the members), and one field for each suffix that `features` names. Without the option,
each suffix becomes a field. Images become the field image, cls becomes label (int64), txt a text, json the parsed
value, and other suffixes bytes. Pickled members (pkl, pth ...) are an error. To pack the tar, let `features` declare
the pickled suffixes as bytes, or declare only the other suffixes.
The members of a sample are adjacent. Their common name ends at the first dot after the last slash, as in webdataset
e0953f9 (base_plus_ext, group_by_keys). packer.layouts.tar describes the layout of tar.
"""

import re
from array import array
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.layouts import tar
from packer.schema import Field
from packer.sources import base
from packer.sources._extract_destinations import is_path
from packer.sources._field_names import FieldNames, check_gaps
from packer.sources._message_texts import counted, listed, shown
from packer.sources.records._random_access_files import HeaderReader, OpenFile, UnpackedFile
from packer.sources.records._record_fields import (
    RecordField,
    are_images,
    decoded,
    in_order,
    kind_of_bytes,
    typed_features,
)
from packer.sources.records._record_source import RecordSource

SPECIFICITY = -1
_BASE = re.compile(r"((?:.*/|)[^.]+)[.]([^/]*)", re.DOTALL)
_META = re.compile(r"__[^/]*__(?:$|/)")
_KINDS = {
    "image": ("jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "ppm", "pgm", "pnm"),
    "number": ("cls", "cls2", "index", "inx", "id"),
    "text": ("txt", "text", "transcript"),
    "json": ("json", "jsn"),
    "pickle": ("pkl", "pickle", "pyd", "pth", "pt"),
}
_KIND_OF = {suffix: kind for kind, suffixes in _KINDS.items() for suffix in suffixes}
_USUAL = {"cls": "label", "txt": "text", "jsn": "json"}


class Source(RecordSource):
    """A tar file, or a folder of tar files."""

    kind = "webdataset"
    title = "WebDataset"
    noun, row = "tar file", "sample"
    expected = "names that end in .tar, with members such as 0001.jpg and 0001.cls"
    file_name = re.compile(r"\.tar(?:\.gz)?$|\.tgz$", re.IGNORECASE)
    guessed = "every suffix that there is; --feature declares it"
    may_be_packed = True

    def __init__(
        self,
        root: Path,
        *,
        features: Sequence[str] = (),
        missing: str = "error",
        named_splits: bool = False,
        follow_links: bool = False,
    ) -> None:
        """Find all samples.

        Args:
            root: A tar file, or a folder of tar files.
            features: The fields, each FIELD=SUFFIX or FIELD=SUFFIX:KIND.
            missing: For a sample without the member of a field, `error` raises BadInput and `skip` skips the sample.
            named_splits: True adds the field split. False: file names of several splits raise InvalidRequest.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            InvalidRequest: The files contain no sample, a member is pickled, or no sample has a suffix of `features`.
            BadInput: A sample has no member for a field, or a file cannot be read.
        """
        base.check_choice("missing", missing, ("error", "skip"))
        self._skips = missing == "skip"
        self._kinds = array("i")  # of each sample: the position of its suffixes in _suffixes
        self._suffixes: dict[tuple[str, ...], int] = {}
        self._others: Counter[str] = Counter()  # number of members outside samples
        self._list(root, features=features, named_splits=named_splits, follow_links=follow_links)

    @classmethod
    def begins(cls, start: bytes) -> bool:
        return tar.is_header(start)

    # ---- finding samples

    def find(self, name: str, file: OpenFile | UnpackedFile, size: int | None) -> None:
        found: list[tuple[str, str, tar.Member]] = []
        try:
            for member in tar.members(HeaderReader(file).read, skip=file.data_from):
                parts = _split(member.name) if member.is_file else None
                if parts is None:
                    if member.kind != "folder":
                        self._others["member" if member.is_file else member.kind] += 1
                    continue
                if found and parts[0] != found[0][0]:
                    self._add_sample(name, found)
                    found = []
                found.append((*parts, member))
        except tar.CutArchive as error:
            self._end(name, error.at, error.message, is_cut=not isinstance(error, tar.DamagedArchive))
        if found:
            self._add_sample(name, found)

    def _add_sample(self, name: str, found: Sequence[tuple[str, str, tar.Member]]) -> None:
        stem, _, first = found[0]
        suffixes = Counter(suffix for _, suffix, _ in found)
        ((most, count),) = suffixes.most_common(1)
        if count > 1:
            self.unread.append((f"{name}@{first.start}", f"sample {stem!r} has two members .{most}"))
            return
        self._add(first.start, found[-1][2].end - first.start, stem)
        self._kinds.append(self._suffixes.setdefault(tuple(sorted(suffixes)), len(self._suffixes)))

    def _number_names(self) -> None:
        """Append a number to a sample name that occurs again in its file."""
        seen: Counter[str] = Counter()
        keys, taken = [], set(self._names)
        for name in self._names:
            seen[name] += 1
            key = name
            while seen[name] > 1 and key in taken:
                key = f"{name}~{seen[name]}"
                seen[name] += key in taken
            taken.add(key)
            keys.append(key)
        self._names = keys
        self.notes.append("names that come again after other samples are numbered: a, a~2")

    # ---- what samples contain

    def choose_fields(self) -> Sequence[Field]:
        suffixes = sorted({suffix for each in self._suffixes for suffix in each})
        for field in self._asked:
            if not set(field.entries) & set(suffixes):
                raise InvalidRequest(
                    f"option features: no member ends in .{';.'.join(field.entries)}; there are: {listed(suffixes)}"
                )
        fields = self._asked or self._fields_of(suffixes)
        pickled = [field for field in fields if field.kind is None and _kind(field.entries[0]) == "pickle"]
        if pickled:
            suffix = pickled[0].entries[0]
            others = [field.shown() for field in fields if field not in pickled]
            raise InvalidRequest(
                f"{shown(str(self.root))}: members .{suffix} are pickled, and packer reads no pickle; leave them out: "
                f"{typed_features(others or ['image=jpg'])}; or keep their bytes: {pickled[0].name}={suffix}:bytes"
            )
        self._skip_incomplete(fields)
        self._sets = list(self._suffixes)
        self._name_by_file()
        if len(set(self._names)) < len(self._names):
            self._number_names()
        chosen = self._typed(fields, self._members_of_some())
        self._note()
        return chosen

    def _fields_of(self, suffixes: Sequence[str]) -> list[RecordField]:
        """Return a field for each suffix. If no sample contains two images, all image suffixes share one field."""
        check_gaps(
            self.root,
            len(self._suffixes),
            names=len(suffixes),
            values=sum(map(len, self._suffixes)),
            advice="a key ends at its first dot; rename the members, or name some with --feature, such as image=jpg",
        )
        images = tuple(suffix for suffix in _KINDS["image"] if suffix in suffixes)
        if any(sum(suffix in images for suffix in each) > 1 for each in self._suffixes):
            images = images[:1]
        fields = [RecordField("image", images)] if images else []
        names = FieldNames(field.name for field in fields)
        for suffix in suffixes:
            if suffix not in images:
                name = suffix.rpartition(".")[0] if _kind(suffix) == "image" and "." in suffix else suffix
                fields.append(RecordField(names.of_entry(name, _USUAL.get(suffix, "")), (suffix,)))
        return in_order(fields)

    def _members_of_some(self) -> dict[str, list[bytes]]:
        """Return suffix -> bytes of the members in a few samples."""
        found: dict[str, list[bytes]] = {}
        for index, record in self._probes():
            try:
                for suffix, data in self.entries(index, record).items():
                    found.setdefault(suffix, []).append(data)
            except BadInput:
                continue  # packing the sample reports the error
        return found

    def typed(self, field: RecordField, values: Sequence[Any]) -> RecordField:
        kind = field.kind or _kind(field.entries[0])
        if kind == "numbers":
            raise InvalidRequest(f"option features: {field.shown()}: a member of a tar has one number, or is json")
        if kind in (None, "image") and field.kind is None:
            found = kind_of_bytes(values, field.entries[0]) if values else "bytes"
            is_wide_mask = found == "bytes" and bool(values) and are_images(values)
            kind = found if is_wide_mask or found in ("depth", "mask") else kind or "bytes"
        return replace(field, kind=kind, dtype="int64" if kind == "number" else field.dtype)

    def _skip_incomplete(self, fields: Sequence[RecordField]) -> None:
        """Skip samples without a member of a field. BadInput unless `missing="skip"`, InvalidRequest if none remain."""
        absent = [
            ", ".join(_suffix_list(field) for field in fields if not set(field.entries) & set(suffixes))
            for suffixes in self._suffixes
        ]
        rows = [row for row, kind in enumerate(self._kinds) if absent[kind]]
        if not rows:
            return
        if not self._skips or len(rows) == len(self):
            reasons = listed(f"{self._names[row]} ({absent[self._kinds[row]]})" for row in rows)
            complete = [field for field in fields if all(set(field.entries) & set(each) for each in self._suffixes)]
            line = typed_features([field.shown() for field in complete] or ["FIELD=SUFFIX"])
            skip = "leave them out with --missing skip, or " if len(rows) < len(self) else ""
            error = InvalidRequest if self._skips else BadInput
            raise error(
                f"{shown(str(self.root))}: {counted(len(rows), 'sample')} of {len(self)} lack a member: {reasons}; "
                f"{skip}take what all have: {line}"
            )
        self.left_out += [(self._names[row], f"no member {absent[self._kinds[row]]}") for row in rows]
        self._keep([row for row, kind in enumerate(self._kinds) if not absent[kind]])
        self._kinds = array("i", (kind for kind in self._kinds if not absent[kind]))

    def _note(self) -> None:
        """Add notes on members outside samples and on absent labels."""
        for kind, count in sorted(self._others.items()):
            what = "without a suffix, or named __such__, " if kind == "member" else "of no sample, "
            self.notes.append(f"{counted(count, kind)} {what}passed over")
            self.left_out.append(("__members__", f"{counted(count, kind)} of no sample in the tar files"))
        if not any(field.name == "label" for field in self._fields):
            self.notes.append("no labels")

    def entries(self, index: int, record: bytes) -> dict[str, Any]:
        try:
            members = list(tar.members(lambda offset, size: record[offset : offset + size], until=len(record)))
        except tar.CutArchive as error:
            raise BadInput(f"{error.message}; it changed, run again") from error
        found = ((_split(member.name), member) for member in members if member.is_file)
        return {parts[1]: record[member.offset : member.end] for parts, member in found if parts}

    def value_of(self, field: RecordField, entries: Mapping[str, Any]) -> Any:
        suffix = _present(field, entries)
        if suffix is None:
            raise BadInput(f"it has no member {_suffix_list(field)}")
        try:
            return _number(entries[suffix]) if field.kind == "number" else decoded(field, entries[suffix])
        except BadInput as error:
            raise BadInput(f".{suffix}: {error.message}") from error

    def file_paths(self, index: int, values: base.Sample) -> dict[str, str]:
        """Return field name -> path of the extracted member. Numbers are not extracted as files."""
        suffixes = self._sets[self._kinds[index]]
        key = self.key(index)
        stem = key if is_path(key) else f"{index:08d}"
        return {field.name: f"{stem}.{_present(field, suffixes)}" for field in self._fields if field.kind != "number"}


def _split(name: str) -> tuple[str, str] | None:
    """Return (sample name, suffix) of a member, or None if the member does not belong to a sample."""
    match = None if _META.match(name) else _BASE.fullmatch(name)
    return (match[1], match[2].lower()) if match else None


def _present(field: RecordField, suffixes: Container[str]) -> str | None:
    return next((entry for entry in field.entries if entry in suffixes), None)


def _suffix_list(field: RecordField) -> str:
    return f".{';.'.join(field.entries)}"


def _kind(suffix: str) -> str | None:
    """Return the kind of members with a suffix, or None if the kind depends on their bytes."""
    return _KIND_OF.get(suffix.rpartition(".")[2])


def _number(data: bytes) -> np.int64:
    text = data.strip()
    if not re.fullmatch(rb"[+-]?[0-9]{1,19}", text) or not -(1 << 63) <= int(text) < 1 << 63:
        raise BadInput(f"expected a whole number, found {data[:40]!r}; type ...:text with --feature to keep it as text")
    number: np.int64 = np.int64(int(text))
    return number


def suffixes_of_samples(names: Sequence[str]) -> list[set[str]]:
    """Return the set of suffixes of each sample. `names` are the members of a tar file, in order."""
    members = [_split(name) or (name, "") for name in names if not _META.match(name)]
    return [{suffix for _, suffix in group} for _, group in groupby(members, key=lambda member: member[0])]
