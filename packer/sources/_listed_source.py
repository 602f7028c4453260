"""Listed source: the base of all sources whose samples are small files, however the files are found.

A subclass fills `_samples` with the files of each sample, and declares its label files (`LabelFile`). This module reads
the files and labels of a sample, and implements the methods of `packer.sources.base.Source`.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from packer.errors import BadInput
from packer.schema import Field
from packer.sources import base

Need = Literal["always", "alike", "labels", "select", "shared", "optional", "unused"]
NO_LISTS: Mapping[str, Sequence[str]] = {}


@dataclass(frozen=True)
class FileRole:
    """One kind of file of a sample.

    Attributes:
        name: The role.
        example: The name of one file, for messages.
        pattern: A regular expression over the file name, or over the relative path if it contains a slash. Its group
            `key` is the key of the sample; see `FileSource.key_of`.
        field: The field that stores the bytes of the file, or, if it has another name, the field that `read_values`
            computes from the file. None: the file is only parsed, or a field of `more_fields` with the name of the role
            stores its bytes.
        need: What happens if a sample does not have the file:

            - "always": an error.
            - "alike": an error, unless no sample has it.
            - "labels": the option `missing` decides.
            - "select": the sample is skipped.
            - "shared": no sample gets the field.
            - "optional": the sample is complete without it.
            - "unused": nothing; the file is never read.
        is_extra: Whether a pack carries the file as an extra if it belongs to no sample.
        is_many: A sample can have several of these files. `FileSample.lists` contains their paths.
        stands_in_for: The role that this file fills in samples without a file of that role.
        otherwise: What users can do if samples lack the file, for messages.
        fallback: The pattern for sets in which no file matches `pattern`.
        parse: (bytes, path) -> the value of the field. None: the value is the bytes. Raises BadInput.
    """

    name: str
    example: str
    pattern: str
    field: Field | None = None
    need: Need = "always"
    is_extra: bool = True
    is_many: bool = False
    stands_in_for: str = ""
    otherwise: str = ""
    fallback: str = ""
    parse: Callable[[bytes, str], Any] | None = None

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return re.compile(self.pattern, re.DOTALL)

    @cached_property
    def _matches_paths(self) -> bool:
        return "/" in self.pattern

    def match(self, name: str) -> re.Match[str] | None:
        """Return the match of a relative path; None if the file does not have this role."""
        return self.regex.fullmatch(name if self._matches_paths else name[name.rfind("/") + 1 :])

    def within(self, names: Iterable[str]) -> "FileRole":
        """Return the role with the pattern for a set with these files."""
        is_found = not self.fallback or any(map(self.match, names))
        return self if is_found else replace(self, pattern=self.fallback)


class Parsed(NamedTuple):
    """Labels of one file.

    Attributes:
        values: The value of each field.
        total: The number of labels in the file, skipped labels included.
        skipped: The number of labels that are not valid and were skipped.
        remark: A further reason why the sample is incomplete; empty for none.
    """

    values: Mapping[str, Any]
    total: int
    skipped: int
    remark: str = ""


@dataclass(frozen=True)
class LabelFile:
    """Fields that are parsed from the files of one role.

    Attributes:
        role: The role.
        fields: The fields, in order.
        parse: (bytes, path, strict) -> Parsed. A sample without the file has the labels of empty bytes and `Path()`.
            Raises BadInput; with `strict` false it skips labels that are not valid.
        may_be_empty: Whether a sample whose file has no labels is complete.
    """

    role: str
    fields: tuple[Field, ...]
    parse: Callable[[bytes, Path, bool], Parsed]
    may_be_empty: bool = False


class FileSample(NamedTuple):
    """A sample.

    Attributes:
        key: Its key.
        paths: The relative path of its file of each role.
        lists: The relative paths of roles with many files.
        row: Its number in the source, for labels of many samples in one file.
    """

    key: str
    paths: Mapping[str, str]
    lists: Mapping[str, Sequence[str]] = NO_LISTS
    row: int = 0

    def has(self, role: str) -> bool:
        """Return True if the sample has a file of the role."""
        return role in self.paths or role in self.lists


class ListedSource(base.Source):
    """A source of small files; subclasses fill the attributes in their constructor.

    Attributes:
        roles: The files of a sample; the first one is the main image.
        labels: The label files.
        _samples: The samples, in order; a sequence that builds them when they are read may replace a list.
        _splits: The names of the splits; empty if there are none.
        _is_strict: Whether a label that is not valid is an error.
    """

    roles: Sequence[FileRole]
    labels: Sequence[LabelFile] = ()
    _samples: Sequence[FileSample]
    _splits: tuple[str, ...] = ()
    _is_strict: bool = True

    def split_of(self, sample: FileSample) -> str:
        """Return the split that the paths of a sample name; empty for none."""
        return ""

    def listed_values(self, sample: FileSample) -> base.Sample:
        """Return the values of `more_fields` that need no file of the sample."""
        return {}

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        """Return the other values of `more_fields`. Raises BadInput."""
        return {}

    def __len__(self) -> int:
        return len(self._samples)

    def key(self, index: int) -> str:
        return self._samples[self.checked(index)].key

    def entry(self, index: int) -> base.SampleEntry:
        sample = self._samples[self.checked(index)]
        files = (*sample.paths.values(), *(path for paths in sample.lists.values() for path in paths))
        return base.SampleEntry(sample.key, files, self.stem_of(sample))

    def stem_of(self, sample: FileSample) -> str:
        """Return the path that names of sidecars begin with."""
        return base.stem_of(sample.paths[self.roles[0].name])

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        sample = self._samples[self.checked(index)]
        is_complete = len(names) > 1 and len(names) >= len(self.schema.names)
        found: base.Sample = {"key": sample.key}
        if "files" in names:
            found["files"] = {role: path for role, path in sample.paths.items() if role in self.schema}
        labels = [label for label in self.labels if any(field.name in names for field in label.fields)]
        direct = {*found, *sample.paths, *(field.name for label in labels for field in label.fields)}
        others = [name for name in names if name not in direct]
        listed = self._listed_values(sample) if others else {}
        is_computed = is_complete or not listed.keys() >= {*others}
        if self.decodes:
            is_computed |= "image" in names or "files" in names
        needed = sample.paths.keys() if is_computed else {*names, *(label.role for label in labels)}
        files = {role: self.read_file(path) for role, path in sample.paths.items() if role in needed}
        for role in self.roles:
            if role.name in names:
                found[role.name] = self._file_value(role, sample, files.get(role.name, b""))
        for label in labels:
            found |= self._parsed(sample, label, files.get(label.role, b"")).values
        found |= listed
        return found | self.read_values(sample, files) if is_computed else found

    def missing(self, index: int) -> str | None:
        """Return which labels are absent, empty or skipped; reads the label files."""
        sample = self._samples[self.checked(index)]
        reasons = []
        for label in self.labels:
            role = next(role for role in self.roles if role.name == label.role)
            if label.role not in sample.paths:
                reasons += [f"no {role.example}"] if role.need == "labels" else []
                continue
            if label.may_be_empty and self._is_strict:
                continue  # strict reading skips no label
            try:
                parsed = self._parsed(sample, label, self.read_file(sample.paths[label.role]))
            except BadInput:
                return None  # reading the sample raises it
            if not (parsed.total or label.may_be_empty or role.need == "optional"):
                reasons.append(f"{role.example} is empty")
            if parsed.skipped:
                reasons.append(f"{parsed.skipped} of {parsed.total} labels in {role.example} skipped: not valid")
            reasons += [parsed.remark] if parsed.remark else []
        return "; ".join(reasons) or None

    def _file_value(self, role: FileRole, sample: FileSample, data: bytes) -> Any:
        return role.parse(data, str(self.folder.root / sample.paths[role.name])) if role.parse else data

    def _parsed(self, sample: FileSample, label: LabelFile, data: bytes) -> Parsed:
        path = self.folder.root / sample.paths[label.role] if label.role in sample.paths else Path()
        return label.parse(data, path, self._is_strict)

    def _listed_values(self, sample: FileSample) -> base.Sample:
        split = {"split": np.int64(self._splits.index(self.split_of(sample)))} if self._splits else {}
        return {**split, **self.listed_values(sample)}
