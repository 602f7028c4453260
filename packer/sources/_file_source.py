"""File source: base class of all sources whose samples are groups of small files with a common key in their names.

A subclass declares its files (`FileRole`) and its label files (`LabelFile`). This module groups the files, applies the
options `missing`, `duplicates` and `labels`, orders the samples, and builds the schema, the values and the notes.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from packer.errors import BadInput, InvalidRequest
from packer.schema import PIXEL_KINDS, Field, Schema
from packer.sources import base
from packer.sources._message_texts import counted, described, listed, shown
from packer.sources._name_words import ordered_splits
from packer.sources._small_file_source import NO_LISTS, FileRole, FileSample, ListedSource
from packer.sources._trees.file_tree import FileTree

Groups = dict[tuple[str, str], dict[str, list[str]]]  # (folder, key) -> role -> relative paths


@dataclass(frozen=True)
class Policies:
    """Options that several file sources have.

    Attributes:
        missing: What happens to a sample without its label file. `keep` stores the sample without labels, `skip` skips
            the sample, `error` raises BadInput. If another required file is absent, `keep` raises BadInput, too.
        duplicates: What happens if a file of a sample is in two places. `error` raises BadInput, `first` uses the first
            path, `skip` skips the sample.
        bad_labels: `error` raises BadInput for an invalid label, `skip` skips the label.
    """

    missing: str = "error"
    duplicates: str = "error"
    bad_labels: str = "error"

    def __post_init__(self) -> None:
        base.check_choice("missing", self.missing, ("keep", "skip", "error"))
        base.check_choice("duplicates", self.duplicates, ("error", "first", "skip"))
        base.check_choice("bad_labels", self.bad_labels, ("error", "skip"))


class FileSource(ListedSource):
    """Base class of sources of small files. Subclasses set the class attributes and call `_list` in the constructor.

    Attributes:
        title: Name of the data set, for messages.
        noun: Word for a sample in messages.
        recognized_by: Sets of roles. A folder is this data set if a sample has files of all roles of one set.
        anchor: Role of the file that every sample has. Without this file, other files form no sample: label files are
            skipped, or raise BadInput with `missing="error"`. Empty: any file forms a sample.
        order_by: Role whose paths order the samples. Empty: keys order the samples, unless `order` is overridden.
        is_per_folder: True if equal keys in two folders are two samples, False if they are one sample.
        carries_skipped: True if the pack contains the files of skipped samples as extras, False if not.
        has_labels_last: True if the schema has `more_fields` before the fields of labels, False if after them.
        has_companions: True if all images except the main image are `companions`, see `packer.sources.base.Source`.
    """

    title: ClassVar[str]
    noun: ClassVar[str] = "image"
    recognized_by: ClassVar[Sequence[Sequence[str]]] = ()
    anchor: ClassVar[str] = ""
    order_by: ClassVar[str] = ""
    is_per_folder: ClassVar[bool] = False
    carries_skipped: ClassVar[bool] = True
    has_labels_last: ClassVar[bool] = False
    has_companions: ClassVar[bool] = True

    # ---- hooks of subclasses

    @classmethod
    def key_of(cls, match: re.Match[str]) -> str:
        """Return the key of the sample of a file, from the match of the file's path with the pattern of its role."""
        return match["key"]

    def choose(self, groups: Groups) -> None:
        """Adapt `roles` to the files, before incomplete samples are skipped. Does nothing by default.

        Args:
            groups: Paths of the files of all samples: (folder, key) -> role -> paths.

        Raises:
            InvalidRequest: An option requires files that are absent.
        """

    def order(self, sample: FileSample) -> Any:
        """Return the value that samples are sorted by: the path of `order_by`, or the key."""
        return sample.paths[self.order_by] if self.order_by else sample.key

    def split_names(self, found: set[str]) -> tuple[str, ...]:
        """Return the names of the splits in the order of their numbers. `found` has the results of `split_of`."""
        return ordered_splits(found)

    def more_fields(self) -> Sequence[Field]:
        """Return the fields that are neither files nor labels. The default is none."""
        return ()

    def prepare(self, present: set[str]) -> None:
        """Read files with values of many samples, or adapt `roles` and `labels`, before the schema is built.

        Args:
            present: Roles that have a file in at least one sample.

        Raises:
            BadInput: A file is invalid.
            InvalidRequest: An option requires files that are absent.
        """

    def more_notes(self) -> Sequence[str]:
        """Return additional notes for the user. The default is none."""
        return ()

    # ---- listing

    def _list(self, root: Path | FileTree, policies: Policies, *, follow_links: bool, own_splits: bool = True) -> None:
        """List the samples and build the schema, with the field `split` only if `own_splits` is true.

        Raises:
            InvalidRequest: The folder contains no sample.
            BadInput: Files are missing or duplicate. The message contains the keys of the samples.
        """
        self._is_strict = policies.bad_labels == "error"
        listing = self._open_root(root, follow_links=follow_links)
        groups, others = self._grouped(listing.names, self.roles)
        main = self.anchor or self.roles[0].name
        used = {role.name for role in self.roles if role.need != "unused"}
        complete = {
            at: roles for at, roles in groups.items() if (self.anchor in roles if self.anchor else used & roles.keys())
        }
        if not any(main in paths for paths in complete.values()):
            expected = ", ".join(role.example for role in self.roles if role.need in ("always", "labels"))
            raise InvalidRequest(
                f"{shown(str(self.root))}: no {self.noun}s of {self.title}: found {described(listing.names)}, expected "
                f"{expected}; give the folder that contains them, or another --from"
            )
        kinds = {role.name for role in self.roles if role.is_extra}
        self.choose(complete)
        unique, twice = self._without_duplicates(complete, policies.duplicates)
        self._samples, incomplete = self._complete(unique, self._lost(groups), policies.missing)
        self.left_out = [*twice, *incomplete]
        read = {path for sample in self._samples for path in sample.paths.values()}
        carried = groups if self.carries_skipped else groups.keys() - complete.keys()
        unused = (path for at in carried for role, paths in groups[at].items() if role in kinds for path in paths)
        self.extras = sorted({*others, *unused} - read)
        present = {role for sample in self._samples for role in (*sample.paths, *sample.lists)}
        self.prepare(present)
        self._present = [role for role in self.roles if role.name in present]
        splits = {self.split_of(sample) for sample in self._samples} if own_splits else {""}
        self._splits = self.split_names(splits) if all(splits) else ()
        self.schema = self._schema()
        if self.has_companions:
            self.companions = [
                role.field.name for role in self._present[1:] if role.field and role.field.kind in PIXEL_KINDS
            ]
        self.notes = [*listing.notes(), *self._notes(len(groups) - len(complete))]

    @classmethod
    def _grouped(cls, names: Sequence[str], roles: Sequence[FileRole]) -> tuple[Groups, list[str]]:
        """Return (folder, key) -> role -> paths of the files of a sample, and the list of files without a role."""
        groups: Groups = {}
        others = []
        matchers = [(role.name, role.within(names).match) for role in roles]
        for name in names:
            for role, find in matchers:
                match = find(name)
                if match is not None:
                    group = name.rpartition("/")[0] if cls.is_per_folder else "", cls.key_of(match)
                    groups.setdefault(group, {}).setdefault(role, []).append(name)
                    break
            else:
                others.append(name)
        return groups, others

    def _without_duplicates(self, groups: Groups, policy: str) -> tuple[list[FileSample], list[tuple[str, str]]]:
        """Return (samples with one path per role, (key, reason) of skipped ones) for the option `duplicates`."""
        by_key: dict[str, list[dict[str, list[str]]]] = {}
        for (_, key), roles in sorted(groups.items()):
            by_key.setdefault(key, []).append(roles)
        single = {role.name for role in self.roles if not role.is_many}
        many_names = [role.name for role in self.roles if role.is_many]
        reasons, samples = {}, []
        for key, several in by_key.items():
            double = [paths for roles in several for name, paths in roles.items() if len(paths) > 1 and name in single]
            if len(several) > 1 or double:
                same = sorted(double[0]) if double else [roles[min(roles)][0] for roles in several]
                reasons[key] = f"there twice: {', '.join(same)}"
                if policy == "skip":
                    continue
            many = {name: sorted(several[0][name]) for name in many_names if name in several[0]}
            samples.append(FileSample(key, self._one_path_each(several[0]), many or NO_LISTS))
        if reasons and policy == "error":
            options = "use --duplicates first or --duplicates skip, or " if "duplicates" in self.defaults() else ""
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(reasons), self.noun)} {listed(reasons.values())}; "
                f"{options}remove all files but one"
            )
        return samples, list(reasons.items()) if policy == "skip" else []

    def _one_path_each(self, roles: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Return one path per role. If there are several, those in the folder of the main file come first."""
        folders = {path.rpartition("/")[0] for path in roles.get(self.order_by or self.roles[0].name, ())}
        chosen = {name: paths[0] for name, paths in roles.items()}
        for name, paths in roles.items():
            if len(paths) > 1:
                chosen[name] = min(paths, key=lambda path: (path.rpartition("/")[0] not in folders, path))
        for role in self.roles:
            if role.stands_in_for and role.name in chosen:
                chosen.setdefault(role.stands_in_for, chosen[role.name])
        used = (
            role.name for role in self.roles if role.need != "unused" and not role.stands_in_for and not role.is_many
        )
        return {name: chosen[name] for name in used if name in chosen}

    def _lost(self, groups: Groups) -> dict[str, str]:
        """Return key -> reason for label files without the file of the role `anchor`."""
        example = next((role.example for role in self.roles if role.name == self.anchor), "")
        labels = {role.name for role in self.roles if role.need == "labels"}
        lost = (key for (_, key), roles in sorted(groups.items()) if self.anchor not in roles and labels & roles.keys())
        return {key: f"no {example}" for key in lost} if self.anchor else {}

    def _complete(
        self, samples: Sequence[FileSample], lost: Mapping[str, str], missing: str
    ) -> tuple[list[FileSample], list[tuple[str, str]]]:
        """Return (sorted samples, (key, reason) of skipped ones) for the option `missing` and the result of `_lost`."""
        passed = {
            sample.key: f"no {role.example}"
            for sample in samples
            for role in self.roles
            if role.need == "select" and not sample.has(role.name)
        }
        samples = [sample for sample in samples if sample.key not in passed]
        present = {role for sample in samples for role in (*sample.paths, *sample.lists)}
        needed = [
            role
            for role in self.roles
            if role.need == "always"
            or (role.need == "alike" and role.name in present)
            or (role.need == "labels" and missing != "keep")
        ]
        absent = {sample.key: [role for role in needed if not sample.has(role.name)] for sample in samples}
        reasons = {key: f"no {', '.join(role.example for role in roles)}" for key, roles in absent.items() if roles}
        wrong = {**reasons, **(lost if missing == "error" else {})}
        if wrong and (missing != "skip" or len(wrong) == len(samples)):
            advice = {role.otherwise: None for roles in absent.values() for role in roles if role.otherwise}
            skip = ["--missing skip leaves these out"] if "missing" in self.defaults() else []
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(wrong), self.noun)} of {len(samples)} lack files: "
                f"{listed(f'{key} ({reason})' for key, reason in wrong.items())}; "
                f"{', or '.join(['get them', *advice, *skip])}"
            )
        kept = sorted((sample for sample in samples if sample.key not in reasons), key=self.order)
        rare = {
            role.name for role in self.roles if role.need == "shared" and not all(role.name in s.paths for s in kept)
        }
        if rare:
            kept = [each._replace(paths={r: p for r, p in each.paths.items() if r not in rare}) for each in kept]
        return kept, [*{**passed, **reasons, **lost}.items()]

    def _schema(self) -> Schema:
        files = [self._probed(role.field) for role in self._present if role.field and not role.field.hidden]
        labels = [field for label in self.labels for field in label.fields]
        more = self.more_fields()
        middle = (*more, *labels) if self.has_labels_last else (*labels, *more)
        split = [Field("split", "number", "number", "int64", (), classes=self._splits)] if self._splits else []
        hidden = [role.field for role in self.roles if role.field and role.field.hidden]
        names = Field("files", "json", "json", hidden=True)
        return Schema((Field("key", "text", "text"), *files, *middle, *split, names, *hidden))

    def _probed(self, field: Field) -> Field:
        """Return the field. A mask gets the dtype that a few of its files have."""
        return replace(field, dtype=base.probed_mask_dtype(self, field.name)) if field.kind == "mask" else field

    def _notes(self, without_anchor: int) -> list[str]:
        notes = [counted(len(self), self.noun)]
        for role in self.roles:
            lacking = sum(role.name not in sample.paths for sample in self._samples)
            if role.name == self.anchor and without_anchor:
                notes.append(f"{counted(without_anchor, self.noun)} without {role.example}: no samples")
            if role.need == "alike" and lacking == len(self):
                otherwise = f"; {role.otherwise}" if role.otherwise else ""
                notes.append(f"no {role.name}: no {self.noun} has {role.example}{otherwise}")
            elif role.need in ("labels", "optional") and lacking and role.field is not None:
                notes.append(f"{counted(lacking, self.noun)} without {role.example}: kept without these labels")
        if self._splits:
            counts = Counter(map(self.split_of, self._samples))
            notes.append(f"splits: {listed(f'{name} {counts[name]}' for name in self._splits)}")
        notes += self.more_notes()
        return [*notes, *([f"{described(self.extras, 'other file')} of no {self.noun}"] if self.extras else [])]

    # ---- the contract of sources

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return a line with title and number of samples, or None if no sample has the roles of `recognized_by`."""
        if not cls._may_recognize(names):
            return None
        groups, _ = cls._grouped(names, cls.roles)
        count = sum(any(set(roles) <= paths.keys() for roles in cls.recognized_by) for paths in groups.values())
        return f"{cls.title}: {counted(count, cls.noun)}" if count else None

    @classmethod
    def _may_recognize(cls, names: Sequence[str]) -> bool:
        """Return False if the files cannot be this data set. This is much faster than grouping the files."""
        roles = {role.name: role for role in cls.roles}

        @cache
        def is_present(role: str) -> bool:
            return any(map(roles[role].within(names).match, names))

        return any(all(map(is_present, needed)) for needed in cls.recognized_by)
