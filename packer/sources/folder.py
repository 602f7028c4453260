"""Folder: images in folders that are their classes (torchvision's ImageFolder), or images without labels.

Fields: key (relative POSIX path), image (bytes of the file), label (int64; absent for images without classes), split
(int64; where the folders directly under the root are splits).
Classes are the names of the folders directly under the root, sorted, or, below folders that are splits, of the folders
in any of these; the order of the samples is ImageFolder's: class by class, inside it folder by folder and file by file,
all sorted by code point (torchvision.datasets.folder: find_classes, make_dataset); splits one after the other, so that
each has the order of an ImageFolder of its own.
With `decode_with="pillow"` pictures that packer does not read are arrays, and the hidden field `files` tells them from
kept files: `a.heic` is stored as the PNG `a.heic.png`.
"""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images.backends import pillow
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._parse import folder_layout, layout_hints, unread_formats
from packer.sources._parse.folder_listing import counted, described, linked, listed, shown, suffix_of
from packer.sources._parse.sidecar_pattern import Pattern
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.listing import Listing

SPECIFICITY = 0
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's IMG_EXTENSIONS
_SHOWN_CLASSES = 10


def recognise(names: Sequence[str]) -> str | None:
    """What an image folder with these files is; None where no file is an image, of whatever format."""
    images = [name for name in names if _is_image(name)]
    others = sum(_is_unread(name) for name in names) if len(images) < len(names) else 0
    if not images and not others:
        return None
    classes = {name.partition("/")[0] for name in images if "/" in name}
    inside = f" in {counted(len(classes), 'folder')}" if classes else ""
    more = f", {counted(others, 'picture')} in other formats" if others else ""
    return f"image folder: {counted(len(images), 'image')}{inside}{more}"


class Source(base.Source):
    """An image folder."""

    kind = "folder"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        classes: str = "auto",
        layout: str = "auto",
        allow_empty: bool = False,
        decode_with: str = "none",
        pairs: str = "refuse",
        ignore_suffixes: Sequence[str] = (),
        known_classes: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        """List the folder.

        classes: `folders`: a label per folder directly under the root; `none`: no labels; `auto`: labels where
            every image lies in a folder, none where every image lies directly in the root.
        layout: what the folders under the root are: `class`; `split/class`: splits with classes in them; `split`:
            splits, without labels; `auto`: classes, but refused where they are named as splits, or as pictures and
            masks; `unchecked`: as auto, never refused for its names.
        allow_empty: whether a class may have no image.
        decode_with: `pillow`: pictures that packer does not read are decoded by Pillow; `none`: nobody reads them.
        pairs: what pictures are that seem to belong to others, as `1_mask.png` to `1.jpg`: `refuse` the folder, or
            `samples` of their own.
        ignore_suffixes: ends of the names of files that are no samples although they may be images; with a
            placeholder the pattern of their paths (packer.sources._parse.sidecar_pattern).
        known_classes: names of classes in the order of their numbers; none for those that are found, sorted.
        follow_links: whether links out of the folder are followed.
        Raises BadInput where a class is a second name of another; InvalidRequest where there is no image, a class is
        empty, `auto` finds images in and beside folders or folders that are no classes, for pictures that seem to
        belong to others, and for a layout that contradicts classes; MissingPackage where Pillow is asked for and is not
        there.
        """
        base.check_choice("classes", classes, ("auto", "folders", "none"))
        base.check_choice("layout", layout, folder_layout.CHOICES)
        base.check_choice("decode_with", decode_with, ("none", "pillow"))
        base.check_choice("pairs", pairs, layout_hints.CHOICES)
        _check_agree(layout, classes)
        listing = self._open_root(root, follow_links=follow_links)
        root = self.root
        ignored = tuple(text for text in ignore_suffixes if "{" not in text)
        patterns = [Pattern(text) for text in ignore_suffixes if "{" in text]
        names = [
            name
            for name in listing.names
            if not name.endswith(ignored) and not any(pattern.matches(name) for pattern in patterns)
        ]
        listing = _without_folders(listing, _companion_folders(listing, patterns))
        images = [name for name in names if _is_image(name)]
        rest = [name for name in names if not _is_image(name)]
        unread = unread_formats.unread_pictures(self.folder, rest)
        self.decodes = False
        if decode_with == "pillow":
            decoded = [name for name in unread if pillow.is_readable(name)]
            pillow.check_installed(decoded)
            images = sorted([*images, *decoded])
            unread = {name: kind for name, kind in unread.items() if not pillow.is_readable(name)}
            self.decodes = bool(decoded)
        if not images:
            found = unread_formats.described(unread) if unread else f"found {described(listing.names)}"
            raise InvalidRequest(
                f"{shown(str(root))}: no images: {found}; "
                f"expected names that end in {' '.join(SUFFIXES)}; give the folder that holds the images"
            )
        pictures = [*images, *unread]
        is_checked = pairs == "refuse" and layout != folder_layout.UNCHECKED
        by_habit = layout == classes == "auto"
        try:
            paired_notes = layout_hints.check(root, images, unread, may_be_classes=by_habit) if is_checked else []
        except InvalidRequest as error:
            given = " (besides the --sidecar that is given, under another name)" if ignored or patterns else ""
            raise InvalidRequest(f"{error.message}{given}") from error
        layout = _settled(root, listing, pictures, layout=layout, classes=classes, may_have_roles=pairs == "samples")
        meant = _Names(root, listing, pictures, layout)
        if layout in ("class", "split/class"):
            meant.check(allow_empty=allow_empty)
        numbered = _numbered_as(root, meant.classes, tuple(known_classes), layout) if known_classes else meant.classes
        taken = set(pictures)
        left_out = {name: reason for name in images if (reason := meant.reason(name))}
        self._layout = layout
        self._classes = {name: number for number, name in enumerate(numbered)}
        self._splits = {name: number for number, name in enumerate(meant.splits)}
        self._names = sorted((name for name in images if name not in left_out), key=self._order)
        self.left_out = list(left_out.items())
        self.unread = [(name, unread_formats.reason(kind)) for name, kind in unread.items()]
        self.unread_message = unread_formats.described(unread) if unread else ""
        self._extras = [name for name in listing.names if name not in taken]
        self.schema = _schema(numbered, meant.splits, decodes=self.decodes)
        self.notes = [*listing.notes(), *self._found(), *paired_notes]

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> base.Sample:
        key = self.key(index)
        data = self.read(key)
        sample: base.Sample = {"key": key, "image": data}
        if self.decodes:
            is_decoded = not _is_image(key)
            sample["image"] = _decoded(data, self.root / key) if is_decoded else data
            sample["files"] = {"image": f"{key}.png" if is_decoded else key}
        if self._classes:
            sample["label"] = self._label(key)
        if self._splits:
            sample["split"] = self._split(key)
        return sample

    def value(self, index: int, name: str) -> Any:
        key = self.key(index)
        if name == "label" and self._classes:
            return self._label(key)
        if name == "split" and self._splits:
            return self._split(key)
        return key if name == "key" else super().value(index, name)

    def key(self, index: int) -> str:
        return self._names[self.checked(index)]

    def files(self, index: int) -> tuple[Path, ...]:
        return (self.root / self.key(index),)

    def file_names(self, index: int) -> tuple[str, ...]:
        return (self.key(index),)

    def stem(self, index: int) -> Path:
        return (self.root / self.key(index)).with_suffix("")

    def extras(self) -> Sequence[str]:
        return self._extras

    def _label(self, key: str) -> Any:
        return np.int64(self._classes[self._class(key)])

    def _split(self, key: str) -> Any:
        return np.int64(self._splits[key.partition("/")[0]])

    def _class(self, key: str) -> str:
        return key.split("/")[1 if self._layout == "split/class" else 0]

    def _order(self, name: str) -> tuple[int, str, str, str]:
        folder, _, file = name.rpartition("/")
        split = self._splits[name.partition("/")[0]] if self._splits else 0
        return split, self._class(name) if folder else "", folder, file

    def _found(self) -> list[str]:
        """The notes."""
        classes = counted(len(self._classes), "class") if self._classes else "no classes"
        notes = [f"{counted(len(self), 'image')}, {classes}"]
        if self._splits:
            counts = Counter(name.partition("/")[0] for name in self._names)
            notes.append("splits: " + ", ".join(f"{shown(name)} {counts[name]}" for name in self._splits))
        if self._classes:
            counts = Counter(map(self._class, self._names))
            first = [f"{shown(name)} {counts[name]}" for name in list(self._classes)[:_SHOWN_CLASSES]]
            more = len(self._classes) - len(first)
            notes.append(f"classes: {', '.join(first)}{f', ... and {more} more' if more else ''}")
        if (
            self._classes
            and all(map(str.isdecimal, self._classes))
            and list(self._classes) != sorted(self._classes, key=int)
        ):
            number = next(name for place, name in enumerate(self._classes) if int(name) != place)
            notes.append(
                "classes are numbered in the order of their names, as by ImageFolder: the label of "
                f"{shown(number)} is {self._classes[number]}"
            )
        if self._splits and self._classes:
            notes += self._not_in_every_split()
        if self.decodes:
            decoded = [name for name in self._names if not _is_image(name)]
            notes.append(f"decoded by Pillow, stored as PNG: {described(decoded, 'picture')}")
        if self._extras:
            notes.append(f"{described(self._extras, 'other file')}: no images, or sidecars of images")
        return notes

    def _not_in_every_split(self) -> list[str]:
        there = {(name.partition("/")[0], self._class(name)) for name in self._names}
        notes = []
        for split in self._splits:
            absent = [name for name in self._classes if (split, name) not in there]
            if absent:
                notes.append(f"split {shown(split)} has no image of {counted(len(absent), 'class')}: {listed(absent)}")
        return notes


class _Names:
    """Names of classes and splits of a settled layout, and which images have none."""

    def __init__(self, root: Path, listing: Listing, pictures: Sequence[str], layout: str) -> None:
        self._root = root
        self._listing = listing
        self._pictures = pictures
        self._layout = layout
        self._depth = 2 if layout == "split/class" else 1 if layout in ("class", "split") else 0
        self.splits: tuple[str, ...] = ()
        self.classes: tuple[str, ...] = ()
        if layout.startswith("split"):
            self.splits = folder_layout.ordered_splits({name.partition("/")[0] for name in pictures if "/" in name})
        if layout == "class":
            self.classes = tuple(name for name in listing.folders if "/" not in name)
        elif layout == "split/class":
            inner = (name.split("/") for name in listing.folders if name.count("/") == 1)
            self.classes = tuple(sorted({name for split, name in inner if split in self.splits}))

    def reason(self, name: str) -> str | None:
        """Why an image is left out, None for one that is a sample."""
        above = name.count("/")
        if above >= self._depth:
            return None
        if not above:
            noun = "class" if self._layout == "class" else "split"
            return f"image lies directly in the root, in no {noun} folder"
        return f"image lies directly in {shown(name.partition('/')[0])}, in no class folder"

    def check(self, *, allow_empty: bool) -> None:
        """Raise BadInput for classes that are links to others, InvalidRequest for those without an image."""
        _check_second_names(self._root, self._listing)
        if self._layout == "split/class":
            folder_layout.check_inner_classes(self._root, self.classes)
        level = self._depth - 1
        labelled = [name for name in self._pictures if name.count("/") > level]
        filled = {name.split("/")[level] for name in labelled}
        _check_classes(self._root, self.classes, filled, allow_empty=allow_empty)


def _numbered_as(root: Path, found: Sequence[str], known: tuple[str, ...], layout: str) -> tuple[str, ...]:
    """The known classes; raises BadInput where one that was found is not among them."""
    if layout not in ("class", "split/class"):
        raise InvalidRequest(f"{shown(str(root))}: no classes to number as in another pack: the images have no labels")
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(unknown), 'class')} that the pack of --classes-from does not have: "
            f"{listed(unknown)}; it has {_some(known)}; rename or remove the folders, or number the classes anew"
        )
    return known


def _some(names: Sequence[str]) -> str:
    more = f", ... and {len(names) - _SHOWN_CLASSES} more" if len(names) > _SHOWN_CLASSES else ""
    return ", ".join(map(shown, names[:_SHOWN_CLASSES])) + more


def _companion_folders(listing: Listing, patterns: Sequence[Pattern]) -> set[str]:
    """The folders directly in the root that only hold files of sidecars: what a pattern names, and `cat_mask`."""
    beside = [pattern for pattern in patterns if not pattern.text.startswith(("{folder}/", "{top}/"))]
    is_beside: dict[str, bool] = {}
    for name in listing.names if beside else ():
        top, slash, _ = name.partition("/")
        if slash:
            is_beside[top] = is_beside.get(top, True) and any(pattern.matches(name) for pattern in beside)
    return {pattern.top for pattern in beside if pattern.top} | {top for top, is_one in is_beside.items() if is_one}


def _without_folders(listing: Listing, tops: Container[str]) -> Listing:
    """The listing without the folders below these directly in the root: the files there belong to a sidecar."""
    return replace(listing, folders=[name for name in listing.folders if name.partition("/")[0] not in tops])


def _check_agree(layout: str, classes: str) -> None:
    wants_none = {"class": False, "split/class": False, "split": True}.get(layout)
    if classes != "auto" and wants_none is not None and wants_none != (classes == "none"):
        raise InvalidRequest(f"--layout {layout} and --classes {classes} contradict each other; leave --classes away")


def _settled(
    root: Path, listing: Listing, pictures: Sequence[str], *, layout: str, classes: str, may_have_roles: bool
) -> str:
    """The layout with `auto` decided: `class`, `split/class`, `split`, or `flat` for no labels."""
    if layout not in ("auto", folder_layout.UNCHECKED):
        return layout
    loose = [name for name in pictures if "/" not in name]
    if classes == "none" or (classes == "auto" and _is_flat(root, pictures, loose)):
        return "flat"
    if layout == "auto":
        if not may_have_roles or len({name.partition("/")[0] for name in pictures}) == 1:
            layout_hints.check_roles(root, listing, pictures)
        folder_layout.check_classes(root, pictures, may_have_roles=may_have_roles)
    return "class"


def _decoded(data: bytes, path: Path) -> Any:
    try:
        return pillow.decode(data, path.name)
    except DamagedImage as error:
        raise BadInput(f"{path}: {error.message}") from error


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _is_unread(name: str) -> bool:
    return suffix_of(name) in unread_formats.SUFFIXES


def _is_flat(root: Path, images: Sequence[str], loose: Sequence[str]) -> bool:
    if loose and len(loose) < len(images):
        raise InvalidRequest(
            f"{shown(str(root))}: {counted(len(loose), 'image')} directly in the root (such as {shown(loose[0])}) and "
            f"{len(images) - len(loose)} in folders: cannot tell whether folders are classes; "
            "say --classes folders (leaves the former out) or --classes none (no labels)"
        )
    return bool(loose)


def _check_second_names(root: Path, listing: Listing) -> None:
    """Raise BadInput for a class that is a link to another: the labels would not be those of ImageFolder."""
    twice = [f"{name} ({first or 'the folder itself'})" for name, first in listing.repeats if "/" not in name]
    if twice:
        raise BadInput(
            f"{shown(str(root))}: {linked(len(twice), 'class')} to a folder that is packed already: "
            f"{listed(twice)}; each folder is packed once: copy it (cp -al takes no space), or remove the link"
        )


def _check_classes(root: Path, classes: Sequence[str], filled: Iterable[str], *, allow_empty: bool) -> None:
    filled = set(filled)
    empty = [name for name in classes if name not in filled]
    if not filled:
        raise InvalidRequest(
            f"{shown(str(root))}: no image lies in a folder, so that there are no classes; say --classes none"
        )
    if empty and not allow_empty:
        raise InvalidRequest(
            f"{shown(str(root))}: {counted(len(empty), 'class')} of {len(classes)} without an image: {listed(empty)}; "
            "fill or remove the folders, or say --allow-empty"
        )


def _schema(classes: tuple[str, ...], splits: tuple[str, ...], *, decodes: bool) -> Schema:
    fields = [Field("key", "text", "text"), Field("image", "image", "encoded")]
    if classes:
        fields.append(Field("label", "number", "number", dtype="int64", shape=(), classes=classes))
    if splits:
        fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=splits))
    if decodes:
        fields.append(Field("files", "json", "json", hidden=True))
    return Schema(tuple(fields))
