"""Pairs: images with masks or other files. Files whose names contain the same stem form a sample.

A role maps a path pattern to a field, such as `mask=masks/gt_{stem}.png:mask` (packer.sources._file_pattern). The user
or a published layout (`_pair_layouts`) declares the roles. Files with the same stem, folder and split form one sample.
Samples are ordered by split, folder and stem.

Fields: key (split, folder and stem as one path), and one field per role. Image fields contain the bytes of the files.
The fields folder (text) and split (int64) exist if the patterns contain `{folder}` and `{split}`. In the VOC layout,
the lists in ImageSets/Segmentation are the splits. The full ADE20K layout adds mask (uint16), instances (uint8) and
objects (json). Hidden: files (field -> relative path), and the fields of files that packer stores unchanged.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import PIXEL_KINDS, Field
from packer.sources import base
from packer.sources._file_pattern import RolePattern, SampleName
from packer.sources._file_source import FileSource, Groups, Policies
from packer.sources._message_texts import described, listed, shown
from packer.sources._name_words import ordered_splits, split_rank
from packer.sources._small_file_source import FileRole, FileSample, Need
from packer.sources._text_value_parsers import text_value
from packer.sources._trees.file_tree import FileTree
from packer.sources.annotations._image_sets import NO_SETS, UNLISTED, ImageSets, read_image_sets
from packer.sources.image_files._pair_layouts import LAYOUTS, PairLayout, PairRole, check_roles, layouts_of

SPECIFICITY = 20
_NAMES = tuple(dict.fromkeys(layout.name for layout in LAYOUTS))
_COLORS = "seg_file"  # in ADE20K in full: the role whose colors are classes and objects
_CLASSES = (Field("mask", "mask", "png", dtype="uint16"), Field("instances", "mask", "png", dtype="uint8"))
_OBJECTS = Field("objects", "json", "json")
_OPTIONAL = "polygons_file"


class Source(FileSource):
    """Images with masks, matched by name."""

    kind = "pairs"
    title = "images with masks"
    noun = "sample"
    carries_skipped = False
    _layout: PairLayout | None = None
    _sets: ImageSets = NO_SETS
    _groups: Groups
    _names: Mapping[str, SampleName]

    def __init__(
        self,
        root: Path | FileTree,
        *,
        layout: str = "auto",
        roles: Sequence[str] = (),
        missing: str = "error",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the files and group the files into samples.

        Args:
            root: The folder or the archive.
            layout: The published layout. `auto`: the layout whose patterns match the file names.
            roles: Texts `NAME=PATTERN:KIND` that replace the published layout. The first role is an image.
            missing: For a sample without a required file, `error` raises BadInput and `skip` skips the sample.
            own_splits: True: the splits come from the patterns, or from VOC's lists in ImageSets. False: no splits.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            InvalidRequest: Files are absent, or the roles do not form samples.
            BadInput: A sample has no file for a required role, a file matches two roles, or a role has two files.
        """
        base.check_choice("layout", layout, ("auto", *_NAMES))
        base.check_choice("missing", missing, ("error", "skip"))
        if roles and layout != "auto":
            raise InvalidRequest(f"--layout {layout} and --role: a layout has its own roles; omit one of them")
        declared = tuple(map(PairRole.parse, roles))
        if not roles:
            names = self._open_root(root, follow_links=follow_links).names
            self._layout = _layout(self.root, names, None if layout == "auto" else layout)
            declared, root = self._layout.roles, self.folder
        check_roles(declared)
        self._has_sets = own_splits and self._layout is not None and self._layout.name == "voc"
        self._counts = {role.field: role.pattern for role in declared if role.is_count}
        self.roles = [_file_role(role, self._layout) for role in declared]
        self._list(root, Policies(missing=missing), follow_links=follow_links, own_splits=own_splits)
        self.companions = [field.name for field in self.schema if field.kind in PIXEL_KINDS][1:]

    # ---- grouping

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return one line with the published layouts that match the file names, or None if no layout matches."""
        layouts = " or ".join(layout.name for layout in layouts_of(names))
        return f"pairs like {layouts}: images with masks, matched by name" if layouts else None

    @classmethod
    def key_of(cls, match: Any) -> str:
        return "/".join(filter(None, match.group(*SampleName._fields)))

    @classmethod
    def _grouped(cls, names: Sequence[str], roles: Sequence[FileRole]) -> tuple[Groups, list[str]]:
        """Return the files grouped by sample, and the other files. If several patterns match, the longest decides."""
        weights = {role.name: RolePattern(role.example).weight for role in roles}
        ordered = sorted(roles, key=lambda role: -weights[role.name])
        groups, others = super()._grouped(names, ordered)
        unclear = [
            f"{name} ({first.name}, {second.name})"
            for first, second in combinations(ordered, 2)
            if weights[first.name] == weights[second.name]
            for paths in groups.values()
            for name in paths.get(first.name, ())
            if second.match(name)
        ]
        if unclear:
            raise BadInput(f"two roles match the same files: {listed(unclear)}; add a suffix to one of the patterns")
        counts = [role.name for role in roles if role.need == "unused"]
        others += [name for paths in groups.values() for role in counts for name in paths.pop(role, ())]
        return {at: paths for at, paths in groups.items() if paths} if counts else groups, others

    def choose(self, groups: Groups) -> None:
        self._groups = groups
        self._names = {at[1]: self._name(paths) for at, paths in groups.items()}
        present = {role for paths in groups.values() for role in paths}
        self.roles = [role for role in self.roles if role.need != "optional" or role.name in present]
        for role in self.roles:
            if role.need == "always" and role.name not in present:
                path = RolePattern(role.example).path(next(iter(self._names.values())))
                where = f"{shown(str(self.root))}: --role {role.name}={shown(role.example)}"
                raise InvalidRequest(f"{where} matches nothing: expected files such as {shown(path)}")

    def _name(self, paths: Mapping[str, Sequence[str]]) -> SampleName:
        matches = (role.match(paths[role.name][0]) for role in self.roles if role.name in paths)
        return next(SampleName.of(match) for match in matches if match)

    def order(self, sample: FileSample) -> Any:
        name = self._names[sample.key]
        rank = split_rank(name.split)
        return len(_NAMES) if rank is None else rank, name

    def split_of(self, sample: FileSample) -> str:
        return self._sets.splits.get(sample.key, UNLISTED) if self._sets.names else self._names[sample.key].split

    def split_names(self, found: set[str]) -> tuple[str, ...]:
        return self._sets.names or ordered_splits(found)

    def prepare(self, present: set[str]) -> None:
        counted_files = {field: Counter[str]() for field in self._counts}
        for field, pattern in self._counts.items():
            counted_files[field].update(match.key for match in map(pattern.match, self.extras) if match)
        self._numbers = {field: counts for field, counts in counted_files.items() if counts}
        self._has_folders = any(self._names[sample.key].folder for sample in self._samples)
        if self._has_sets:
            self._sets = read_image_sets(
                self.folder,
                self.extras,
                images={paths["image"][0]: key for (_, key), paths in self._groups.items() if "image" in paths},
                samples=[sample.key for sample in self._samples],
                task="Segmentation",
            )
            self.tables = self._sets.tables

    # ---- fields and values

    def _probed(self, field: Field) -> Field:
        return field  # the declaration has the dtype of a mask

    def more_fields(self) -> Sequence[Field]:
        objects = [_OBJECTS] if self._layout is not None and self._layout.objects is not None else []
        folder = [Field("folder", "text", "text")] if self._has_folders else []
        return [*(_CLASSES if objects else ()), *objects, *self._numbers, *folder]

    def listed_values(self, sample: FileSample) -> base.Sample:
        values: base.Sample = {field.name: np.int64(counts[sample.key]) for field, counts in self._numbers.items()}
        return {**values, "folder": self._names[sample.key].folder} if self._has_folders else values

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        if self._layout is None or self._layout.objects is None:
            return {}
        from packer.sources.image_files import _ade20k_labels  # images, which listing a folder does not need

        colors, objects = (str(self.root / sample.paths[role]) for role in (_COLORS, "objects_file"))
        classes, instances = _ade20k_labels.classes_and_instances(files[_COLORS], colors)
        is_json = self._layout.objects == "json"
        read = _ade20k_labels.annotation if is_json else _ade20k_labels.attribute_rows
        return {"mask": classes, "instances": instances, "objects": read(files["objects_file"], objects)}

    def more_notes(self) -> Sequence[str]:
        fields = ", ".join(field.name for field in self.schema if field.name != "key" and not field.hidden)
        notes = [f"fields: {fields}{f', laid out like {self._layout.name}' if self._layout is not None else ''}"]
        return [*notes, *self._sets.notes]


def _file_role(role: PairRole, layout: PairLayout | None) -> FileRole:
    need: Need = "always" if layout is None or role.name == "image" else "alike"
    need = "unused" if role.is_count else "optional" if layout is not None and role.name == _OPTIONAL else need
    return FileRole(
        role.name,
        role.pattern.text,
        role.pattern.expression,
        None if role.is_count else role.field,
        need,
        parse=partial(text_value, kind=role.field.kind) if role.field.kind in ("text", "json") else None,
    )


def _layout(root: Path, names: Sequence[str], name: str | None) -> PairLayout:
    """Return the layout that matches the files. Raise InvalidRequest if none or several match."""
    layouts = list(layouts_of(names, name))
    where = shown(str(root))
    if len(layouts) > 1:
        options = " or ".join(f"--layout {layout.name}" for layout in layouts)
        raise InvalidRequest(f"{where}: cannot decide between two layouts of images and masks: add {options}")
    if layouts:
        return layouts[0]
    variants = [layout for layout in LAYOUTS if layout.name == name]
    expected = "; or ".join(" and ".join(role.pattern.text for role in one.roles[:2]) for one in variants)
    expected = expected or f"a layout that --layout names ({', '.join(_NAMES)})"
    raise InvalidRequest(
        f"{where}: no images with masks: found {described(names)}, expected {expected}; or declare the files, such as "
        "--role 'image=images/{stem}.jpg:image' --role 'mask=masks/{stem}.png:mask'"
    )
