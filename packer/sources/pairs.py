"""Pairs: pictures with masks, or other files, in folders of their own or under names of their own, matched by name.

What the files of a sample are is said by roles, `mask=masks/gt_{stem}.png:mask` (packer.sources._parse.role_pattern),
or by the name of a published layout (packer.sources._parse.pair_layouts). Files are of one sample where what the
placeholders stand for is equal; a file that is missing moves no other. Order: split by split, then by folder and stem.

Fields: key (split, folder and stem as one path), one of each role in its order, pictures as the bytes of their files;
folder (text) and split (int64) where the patterns have them; of VOC the split is that of the lists in
ImageSets/Segmentation, which order nothing. Hidden: files (field -> relative path),
and roles of files that are kept verbatim. Of ADE20K in full also mask (uint16), instances (uint8) and objects (json),
made of these.
A mask lies over its picture as the user says for sidecars, where the picture is not upright by its EXIF orientation.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.files.terminal_output import shell_word
from packer.layouts.json_text import json_value
from packer.schema import PIXEL_KINDS, Field, Schema
from packer.sources import base
from packer.sources._name_words import ordered_splits
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._parse.pair_layouts import LAYOUTS, NAMES, PairLayout, layouts_of
from packer.sources._parse.pair_roles import Files, Role, check_roles, collect
from packer.sources._parse.role_pattern import SampleName
from packer.sources._trees.file_tree import FileTree
from packer.sources.annotations._image_sets import NO_SETS, UNLISTED, ImageSets, read_image_sets

SPECIFICITY = 20
_FULL = "seg_file"  # of ADE20K in full: the role whose colours are classes and objects
_JPEG = (".jpg", ".jpeg")
_CLASS_COLOURS = (Field("mask", "mask", "png", dtype="uint16"), Field("instances", "mask", "png", dtype="uint8"))
_OBJECTS = Field("objects", "json", "json")


class _Paired(NamedTuple):
    """paths: of the files of each role, "" where the sample does without it."""

    name: SampleName
    paths: tuple[str, ...]


def recognise(names: Sequence[str]) -> str | None:
    """Which published layout these files are of; None where they are of none."""
    found = list(layouts_of(names))
    if not found:
        return None
    return f"pairs like {' or '.join(layout.name for layout in found)}: pictures with masks, matched by name"


class Source(base.Source):
    """Pictures with masks, matched by name."""

    kind = "pairs"
    telling_options = ("roles", "like")

    def __init__(
        self,
        root: Path | FileTree,
        *,
        like: str = "auto",
        roles: Sequence[str] = (),
        missing: str = "error",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the files.

        like: the published layout that they are in; `auto` tells it by their names.
        roles: `NAME=PATH:KIND` each, instead of a layout, the picture first.
        missing: what a sample is that lacks a file which others have: an `error`, or left out (`skip`).
        own_splits: whether the samples have the splits of the patterns, or of the lists in ImageSets.
        follow_links: whether links out of the folder are followed.
        Raises InvalidRequest where there are no such files, for roles that do not fit together, and for a label map in
        colours that is named as a mask; BadInput, naming the files, for samples that lack some, and for two files that
        are one role of one sample.
        """
        base.check_choice("like", like, ("auto", *NAMES))
        base.check_choice("missing", missing, ("error", "skip"))
        listing = self._open_root(root, follow_links=follow_links)
        names = listing.names
        self._layout = None if roles else _layout(self.root, names, None if like == "auto" else like)
        if self._layout is None and like != "auto":
            raise InvalidRequest(f"--like {like} and --role: a layout has roles of its own; leave one of them out")
        wanted = self._layout.roles if self._layout is not None else tuple(map(Role.parse, roles))
        check_roles(wanted)
        try:
            files = collect(names, wanted)
        except BadInput as error:
            raise BadInput(f"{shown(str(self.root))}: {error.message}") from error
        places = _places_of_roles(self.root, names, wanted, files, is_layout=self._layout is not None)
        self._roles = tuple(wanted[place] for place in places)
        self._check_class_colours(names, wanted, files)
        whole, lacking = _settle_missing(self.root, wanted, places, files, missing)
        ranks = {split: rank for rank, split in enumerate(ordered_splits({name.split for name in whole}))}
        whole.sort(key=lambda name: (ranks[name.split], name))
        self._samples = [_Paired(name, tuple(files.paths[name][place] for place in places)) for name in whole]
        self._counts = {role: [counts.get(name, 0) for name in whole] for role, counts in files.counts.items()}
        self.left_out = [(name.key, reason) for name, reason in sorted(lacking.items())]
        self._splits = tuple(ranks) if own_splits and "split" in wanted[0].pattern.places else ()
        self._sets = self._image_sets(names, files, whole) if own_splits else NO_SETS
        self._splits = self._sets.names or self._splits
        self._has_folders = any(name.folder for name in whole)
        self.schema = self._schema()
        pictures = [field.name for field in self.schema if field.kind in PIXEL_KINDS]
        self._main = next(place for place, role in enumerate(self._roles) if role.name == pictures[0])
        self.companions = pictures[1:]
        used = {path for paths in files.paths.values() for path in paths}
        self._extras = [name for name in names if name not in used]
        self.notes = [*listing.notes(), *self._found(wanted), *self._sets.notes]

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> base.Sample:
        sample = self._samples[self.checked(index)]
        read = {role.name: self._value(role, path) for role, path in zip(self._roles, sample.paths, strict=True)}
        known = {name: self._known(index, name) for name in ("key", "folder", "split", *self._counts)}
        files = {role.name: path for role, path in zip(self._roles, sample.paths, strict=True) if path}
        made: base.Sample = {}
        if self._has_class_colours:
            where = str(self.root / files[_FULL])
            made |= zip((field.name for field in _CLASS_COLOURS), _colours(read[_FULL], where), strict=True)
        if self._layout is not None and self._layout.objects is not None:
            made[_OBJECTS.name] = self._objects(read["objects_file"], files["objects_file"])
        everything = {**read, **known, **made, "files": files}
        return {name: everything[name] for name in self.schema.names}

    def value(self, index: int, name: str) -> Any:
        self.checked(index)
        if name in ("key", "folder", "split", *self._counts):
            return self._known(index, name)
        for role, path in zip(self._roles, self._samples[index].paths, strict=True):
            if role.name == name:
                return self._value(role, path)
        return super().value(index, name)

    def key(self, index: int) -> str:
        return self._samples[self.checked(index)].name.key

    def files(self, index: int) -> tuple[Path, ...]:
        paths = self._samples[self.checked(index)].paths
        main = paths[self._main]
        return (self.root / main, *(self.root / path for path in paths if path and path != main))

    def stem(self, index: int) -> Path:
        return self.files(index)[0].with_suffix("")

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self._sets.tables)

    def extras(self) -> Sequence[str]:
        return self._extras

    def invalid_option(self, name: str, values: Any) -> str | None:
        role = next((role for role in self._roles if role.name == name), None)
        if role is None:
            return None
        return f"--role {shell_word(f'{name}={role.pattern.text}:depth:{values[name]}')}"

    @property
    def _has_class_colours(self) -> bool:
        """Whether classes and objects are to be made of the colours of a file."""
        return self._layout is not None and any(role.name == _FULL for role in self._roles)

    def _known(self, index: int, name: str) -> Any:
        """What the names of a sample's files say."""
        sample = self._samples[index].name
        if name == "key":
            return sample.key
        if name == "folder":
            return sample.folder
        if name == "split":
            return np.int64(self._splits.index(self._split_of(sample)) if self._splits else 0)
        return np.int64(self._counts[name][index])

    def _split_of(self, name: SampleName) -> str:
        """The name of a sample's split."""
        return self._sets.splits.get(name.key, UNLISTED) if self._sets.names else name.split

    def _image_sets(self, names: Sequence[str], files: Files, whole: Sequence[SampleName]) -> ImageSets:
        """What the lists beside VOC's pictures say of those that are samples; raises BadInput."""
        if self._layout is None or self._layout.name != "voc":
            return NO_SETS
        place = next(at for at, role in enumerate(self._layout.roles) if role.name == "image")
        return read_image_sets(
            self.folder,
            names,
            pictures={paths[place]: name.key for name, paths in files.paths.items() if paths[place]},
            samples=[name.key for name in whole],
            task="Segmentation",
        )

    def _value(self, role: Role, path: str) -> Any:
        data = self.read(path) if path else b""
        if role.field.kind not in ("text", "json"):
            return data
        try:
            if role.field.kind == "text":
                return data.decode("utf-8")
            return json_value(data.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{shown(str(self.root / path))}: cannot read as {role.field.kind}: {shown(str(error))}; mend the file "
                "or leave it out"
            ) from error

    def _objects(self, data: bytes, path: str) -> Any:
        from packer.sources._parse import ade20k_labels  # pictures, which listing a folder does without

        read = ade20k_labels.annotation if self._layout is not None and self._layout.objects == "json" else None
        return (read or ade20k_labels.attribute_rows)(data, str(self.root / path))

    def _schema(self) -> Schema:
        fields = [role.field for role in self._roles]
        made = list(_CLASS_COLOURS) if self._has_class_colours else []
        if self._layout is not None and self._layout.objects is not None:
            made.append(_OBJECTS)
        counts = [Field(name, "number", "number", dtype="int64", shape=()) for name in self._counts]
        names = [Field("folder", "text", "text")] if self._has_folders else []
        if self._splits:
            names.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._splits))
        shown_fields = [field for field in fields if not field.hidden]
        hidden = [Field("files", "json", "json", hidden=True), *(field for field in fields if field.hidden)]
        return Schema((Field("key", "text", "text"), *shown_fields, *made, *counts, *names, *hidden))

    def _check_class_colours(self, names: Sequence[str], wanted: Sequence[Role], files: Files) -> None:
        """Raise InvalidRequest for `_seg.png` of ADE20K in full as a mask: its classes are mixed of two colours."""
        for place, role in enumerate(wanted):
            if role.field.kind != "mask" or "_seg.png" not in role.pattern.text:
                continue
            there = set(names)
            path = next((paths[place] for paths in files.paths.values() if paths[place]), "")
            for ending, year in (("_atr.txt", "2017"), (".json", "2020")):
                beside = path.removesuffix("_seg.png") + ending
                if beside in there and self._is_in_colours(path):
                    raise InvalidRequest(
                        f"{shown(str(self.root / path))}: is no mask but in colours, with {shown(beside)} beside it: "
                        f"in ADE20K in full the class is R//10*256+G: say --like ade20k-full-{year}"
                    )

    def _is_in_colours(self, path: str) -> bool:
        from packer import images  # NumPy and decoders, which listing a folder does without

        try:
            header = images.sniff(self.read(path))
        except DamagedImage:
            return False  # whoever packs it says so
        return header.channels >= 3 and not header.palette

    def _found(self, wanted: Sequence[Role]) -> list[str]:
        """The notes."""
        fields = ", ".join(shown(field.name) for field in self.schema if field.name != "key" and not field.hidden)
        like = f", laid out like {self._layout.name}" if self._layout is not None else ""
        notes = [f"{counted(len(self), 'sample')} of {fields}{like}"]
        if self._splits:
            counts = Counter(self._split_of(sample.name) for sample in self._samples)
            notes.append("splits: " + ", ".join(f"{shown(name)} {counts[name]}" for name in self._splits))
        remarks = self._layout.remarks if self._layout is not None else {}
        there = {*self.schema.names, *(f"split {name}" for name in self._splits)}
        notes += [f"{name}: {remark}" for name, remark in remarks.items() if name in there]
        for role in wanted:
            if role.name not in there and not role.may_lack:
                absent = f"no {role.name}"
                notes.append(f"{absent}: {remarks.get(absent) or f'no file is {role.pattern.text}'}")
        for place, role in enumerate(self._roles):
            lossy = sum(sample.paths[place].lower().endswith(_JPEG) for sample in self._samples)
            if role.field.kind == "mask" and lossy:
                notes.append(
                    f"{shown(role.name)}: {counted(lossy, 'file')} in JPEG, which blurs values around edges: threshold "
                    "them, or convert to PNG"
                )
        colours = sum(name.endswith("_color.png") for name in self._extras)
        if colours and self._layout is not None and self._layout.name == "cityscapes":
            notes.append(
                f"{counted(colours, 'file')} *_color.png: colours for the eye, no masks; left with other files"
            )
        if self._extras:
            notes.append(f"{described(self._extras, 'other file')} of no sample")
        return notes


def _layout(root: Path, names: Sequence[str], like: str | None) -> PairLayout:
    """The layout that the files are of; raises InvalidRequest for none and for several."""
    found = list(layouts_of(names, like))
    if len(found) > 1:
        said = " or ".join(f"--like {layout.name}" for layout in found)
        raise InvalidRequest(f"{shown(str(root))}: cannot decide how pictures and masks are laid out: say {said}")
    if found:
        return found[0]
    variants = [layout for layout in LAYOUTS if layout.name == like]
    wanted = (
        f"as of {like}: " + "; or ".join(" and ".join(role.pattern.text for role in one.roles[:2]) for one in variants)
        if like is not None
        else f"in a layout that --like names ({', '.join(NAMES)})"
    )
    raise InvalidRequest(
        f"{shown(str(root))}: no pictures with masks: found {described(names)}, expected {wanted}; or say where they "
        "are, as in --role 'image=images/{stem}.jpg:image' --role 'mask=masks/{stem}.png:mask'"
    )


def _places_of_roles(
    root: Path, names: Sequence[str], wanted: Sequence[Role], files: Files, *, is_layout: bool
) -> list[int]:
    """Which roles some sample has a file of; raises InvalidRequest for one of the user's that none has."""
    present = [place for place in range(len(wanted)) if any(paths[place] for paths in files.paths.values())]
    for place, role in enumerate(wanted):
        if place not in present and not files.counts.get(role.name) and not is_layout:
            sample = next(iter(files.paths), None)
            example = f"expected files such as {shown(role.pattern.path(sample))}, " if sample is not None else ""
            raise InvalidRequest(
                f"{shown(str(root))}: --role {shown(role.name)}={shown(role.pattern.text)} matches nothing: "
                f"{example}found {described(names)}, such as {listed(names[:5]) or 'none'}"
            )
    return present


def _settle_missing(
    root: Path, wanted: Sequence[Role], places: Sequence[int], files: Files, missing: str
) -> tuple[list[SampleName], dict[SampleName, str]]:
    """The samples that have a file of every role, and those that do not, with the reason; raises BadInput."""
    needed = [place for place in places if not wanted[place].may_lack]
    lacking: dict[SampleName, str] = {}
    for name, paths in files.paths.items():
        absent = [wanted[place] for place in needed if not paths[place]]
        if absent:
            lacking[name] = ", ".join(f"no {role.name} {role.pattern.path(name)}" for role in absent)
    if lacking and (missing == "error" or len(lacking) == len(files.paths)):
        way_out = "; get them, or say --missing skip, which leaves these samples out" if missing == "error" else ""
        raise BadInput(
            f"{shown(str(root))}: {counted(len(lacking), 'sample')} of {len(files.paths)} lack a file that others "
            f"have: {listed(_with_reasons(lacking))}{way_out}"
        )
    return [name for name in files.paths if name not in lacking], lacking


def _with_reasons(lacking: dict[SampleName, str]) -> Iterable[str]:
    return (f"{name.key} ({reason})" for name, reason in sorted(lacking.items()))


def _colours(data: bytes, where: str) -> tuple[Any, Any]:
    from packer.sources._parse import ade20k_labels  # pictures, which listing a folder does without

    return ade20k_labels.classes_and_instances(data, where)
