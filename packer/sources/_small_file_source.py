"""Small file source: base class of all sources whose samples are small files. Subclasses find the files.

A subclass fills `_samples` with the files of each sample, and declares label files (`LabelFile`). This module reads
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
    """One kind of file of a sample, such as the image or the label file.

    Attributes:
        name: Name of the role.
        example: Example of a file name, for messages.
        pattern: Regular expression that matches file names. A pattern with a slash matches relative paths. The group
            `key` is the key of the sample, unless `FileSource.key_of` is overridden.
        field: Field that stores the bytes of the file. If role and field differ in name, `read_values` computes the
            field from the file. None: the file is only parsed, or a field of `more_fields` with the name of the role
            stores the bytes.
        need: What happens if a sample does not have the file:

            - "always": an error.
            - "alike": an error, unless no sample has the file.
            - "labels": the option `missing` decides.
            - "select": the sample is skipped.
            - "shared": no sample gets the field.
            - "optional": the sample is complete without the file.
            - "unused": nothing. The file is never read.
        is_extra: True if a pack contains the file as an extra when the file belongs to no sample.
        is_many: True if a sample can have several of these files. `FileSample.lists` contains the paths.
        stands_in_for: Role that this file fills in samples without a file of that role. Empty for none.
        otherwise: Advice for users if samples lack the file, for messages.
        fallback: Pattern for sets in which no file matches `pattern`. Empty for none.
        parse: Function (bytes, path) -> value of the field, which may raise BadInput. None: the value is the bytes.
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
        """Compiled pattern."""
        return re.compile(self.pattern, re.DOTALL)

    @cached_property
    def _matches_paths(self) -> bool:
        return "/" in self.pattern

    def match(self, name: str) -> re.Match[str] | None:
        """Return the match of a relative path with the pattern, or None if the file does not have this role."""
        return self.regex.fullmatch(name if self._matches_paths else name[name.rfind("/") + 1 :])

    def within(self, names: Iterable[str]) -> "FileRole":
        """Return the role for a data set with the files `names`. If no file matches, `fallback` becomes the pattern."""
        is_found = not self.fallback or any(map(self.match, names))
        return self if is_found else replace(self, pattern=self.fallback)


class Parsed(NamedTuple):
    """Labels of one file.

    Attributes:
        values: Field name -> value.
        total: Number of labels in the file, including skipped labels.
        skipped: Number of invalid labels that were skipped.
        remark: Further reason why the sample is incomplete. Empty for none.
    """

    values: Mapping[str, Any]
    total: int
    skipped: int
    remark: str = ""


@dataclass(frozen=True)
class LabelFile:
    """Fields that are parsed from the files of one role.

    Attributes:
        role: Role of the files.
        fields: The fields, in order.
        parse: Function (bytes, path, strict) -> Parsed. If `strict` is true, `parse` raises BadInput for an invalid
            label, otherwise `parse` skips the label. For a sample without the file, the arguments are b"" and `Path()`.
        may_be_empty: True if a file without labels is complete, False if its sample is then incomplete.
    """

    role: str
    fields: tuple[Field, ...]
    parse: Callable[[bytes, Path, bool], Parsed]
    may_be_empty: bool = False


class FileSample(NamedTuple):
    """The files of a sample.

    Attributes:
        key: Key of the sample.
        paths: Role -> relative path of the file.
        lists: Role with `is_many` -> relative paths of the files.
        row: Position of the sample in a file with labels of many samples.
    """

    key: str
    paths: Mapping[str, str]
    lists: Mapping[str, Sequence[str]] = NO_LISTS
    row: int = 0

    def has(self, role: str) -> bool:
        """Return True if the sample has a file of `role`."""
        return role in self.paths or role in self.lists


class ListedSource(base.Source):
    """Base class of sources of small files. Subclasses set the attributes in the constructor.

    Attributes:
        roles: Kinds of files of a sample. The first role is the main image.
        labels: Label files of a sample.
        _samples: The samples, in order: a list, or a sequence that creates a sample at each access.
        _splits: Names of the splits. Empty for a source without splits.
        _is_strict: True if an invalid label raises BadInput.
    """

    roles: Sequence[FileRole]
    labels: Sequence[LabelFile] = ()
    _samples: Sequence[FileSample]
    _splits: tuple[str, ...] = ()
    _is_strict: bool = True

    def split_of(self, sample: FileSample) -> str:
        """Return the name of the split of a sample, "" for a source without splits."""
        return ""

    def listed_values(self, sample: FileSample) -> base.Sample:
        """Return the values of `more_fields` that are known without reading a file of the sample."""
        return {}

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        """Return the values of `more_fields` that are made from `files`, role -> bytes of the file. Raises BadInput."""
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
        """Return the relative path of the main file without suffix. Sidecars have this path and their own suffix."""
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
        """Return which labels are absent, empty or skipped, or None if none are. Reads the label files."""
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
                return None  # `read` raises the error later
            if not (parsed.total or label.may_be_empty or role.need == "optional"):
                reasons.append(f"{role.example} is empty")
            if parsed.skipped:
                reasons.append(
                    f"{parsed.skipped} of {parsed.total} labels in {role.example} skipped: malformed, or NaN"
                )
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
