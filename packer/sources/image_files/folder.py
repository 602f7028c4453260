"""Folder: images in one folder per class (torchvision's ImageFolder), or images without labels.

Fields: key (relative POSIX path), image (bytes of the file), label and split (int64). Images without classes have no
label. The field split exists if the folders directly under the root are splits.

The classes are the names of the folders directly under the root, or directly under the splits, sorted by code point.
Samples are ordered by split, class, folder and file name, as in an ImageFolder (torchvision.datasets.folder,
find_classes and make_dataset).

With `decode_with="pillow"`, Pillow decodes the images that packer cannot read. packer stores their pixels as PNG. The
hidden field `files` then contains the name of each stored file, such as `a.heic.png` for `a.heic`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.images.backends import pillow_other_formats as pillow
from packer.schema import Field, Schema
from packer.sources import _unread_images, base
from packer.sources._file_pattern import IMAGE_SUFFIXES, SidecarPattern, is_image
from packer.sources._message_texts import counted, described, linked, listed, shown, suffix_of
from packer.sources._name_words import (
    are_splits,
    is_companion,
    is_image_word,
    is_role,
    numbered_classes,
    ordered_splits,
    split_rank,
)
from packer.sources._option_table import UNCHECKED
from packer.sources._small_file_source import FileRole, FileSample, ListedSource
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import Listing

SPECIFICITY = 0
_COMPANIONS_SHARE = 4  # one in so many images with the name of a mask is enough to refuse the folder
_EQUAL_DIGITS = str.maketrans("123456789", "0" * 9)  # numbered names become equal, and are classified once


class Source(ListedSource):
    """An image folder."""

    kind = "folder"
    roles = (FileRole("image", "image", "", Field("image", "image", "encoded")),)
    _samples: "_SamplesByName"
    _classes: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self,
        root: Path | FileTree,
        *,
        folders: str = "auto",
        allow_empty: bool = False,
        decode_with: str = "none",
        companions: str = "error",
        ignore_suffixes: Sequence[str] = (),
        known_classes: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        """List the images, classes and splits of the folder.

        Args:
            root: The folder or the archive.
            folders: The meaning of the folders under the root. `class`: classes. `split/class`: splits that contain
                classes. `split`: splits without labels. `none`: no meaning. `auto`: classes, or `none` if all images
                are directly in the root. With `auto`, folder names such as `train` or `masks`, and folders that only
                contain folders, raise InvalidRequest. `unchecked`: as `auto`, without this check.
            allow_empty: True: a class folder may contain no image. False: an empty class raises InvalidRequest.
            decode_with: `pillow`: Pillow decodes images that packer cannot read. `none`: these images are unreadable.
            companions: The rule if a quarter of the images or more have names as masks do, such as `1_mask.png`.
                `error` raises InvalidRequest, `samples` reads each image as a sample.
            ignore_suffixes: Image files that are not samples: suffixes of file names, or path patterns with `{stem}`.
            known_classes: The class names in label order. Empty: the sorted names of the class folders.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.

        Raises:
            InvalidRequest: Images are absent, a class is empty, the meaning of the folders or images is not clear, or
                two options contradict each other.
            BadInput: A class folder is a link to another class folder, or is not in `known_classes`.
            MissingPackage: Pillow is required and not installed.
        """
        base.check_choice("folders", folders, ("auto", "class", "split/class", "split", "none", UNCHECKED))
        base.check_choice("decode_with", decode_with, ("none", "pillow"))
        base.check_choice("companions", companions, ("error", "samples"))
        listing = self._open_root(root, follow_links=follow_links)
        endings = tuple(text for text in ignore_suffixes if "{" not in text)
        patterns = [SidecarPattern(text) for text in ignore_suffixes if "{" in text]
        names = [
            name
            for name in listing.names
            if not name.endswith(endings) and not any(pattern.matches(name) for pattern in patterns)
        ]
        images = [name for name in names if is_image(name)]
        others = [name for name in names if not is_image(name)]
        unread = _unread_images.unread_images(others)
        if decode_with == "pillow":
            decoded = [name for name in unread if pillow.is_readable(name)]
            pillow.check_installed(decoded)
            images = sorted([*images, *decoded])
            unread = {name: kind for name, kind in unread.items() if not pillow.is_readable(name)}
            self.decodes = bool(decoded)
        if not images:
            problem = _unread_images.described(unread, has_decoder=True)
            found = problem if unread else f"found {described(listing.names)}"
            raise InvalidRequest(
                f"{shown(str(self.root))}: no images: {found}; expected names that end in {' '.join(IMAGE_SUFFIXES)}; "
                "give the folder that contains the images"
            )
        every_image = [*images, *unread]
        all_images = set(every_image)
        self.extras = [name for name in listing.names if name not in all_images]
        if companions == "error" and folders != UNCHECKED:
            _check_companions(self.root, every_image)
        self._layout = self._decided(every_image, folders)
        level = {"class": 1, "split": 1, "split/class": 2}.get(self._layout, 0)  # of the folder with the image
        if self._layout.startswith("split"):
            self._splits = ordered_splits({name.partition("/")[0] for name in every_image if "/" in name})
        if self._layout.endswith("class"):
            classes = _class_folders(listing, patterns, self._splits)
            filled = {name.split("/")[level - 1] for name in every_image if name.count("/") >= level}
            self._check_classes(listing, classes, filled, allow_empty=allow_empty)
            numbered = numbered_classes(shown(str(self.root)), classes, known_classes)
            self._classes = {name: number for number, name in enumerate(numbered)}
        elif known_classes:
            raise InvalidRequest(f"{shown(str(self.root))}: the images have no labels; omit --classes-from")
        self._samples = _SamplesByName(sorted((name for name in images if name.count("/") >= level), key=self._order))
        self.left_out = [(name, _reason(name, self._layout)) for name in images if name.count("/") < level]
        self.unread, self.unread_message = _unread_images.reported(unread, has_decoder=True)
        self.schema = self._schema()
        self.notes = [*listing.notes(), *self._notes()]

    def _decided(self, images: Sequence[str], folders: str) -> str:
        """Return the option `folders`. Replace `auto` and `unchecked` by `class` or `none`."""
        if folders not in ("auto", UNCHECKED):
            return folders
        loose = [name for name in images if "/" not in name]
        if len(loose) == len(images):
            return "none"
        if loose:
            raise InvalidRequest(
                f"{shown(str(self.root))}: {counted(len(loose), 'image')} directly in the root (such as "
                f"{shown(loose[0])}) and {len(images) - len(loose)} in folders: cannot decide whether folders are "
                "classes; add --folders class (skips the former) or --folders none (no labels)"
            )
        if folders == "auto":
            _check_folders(self.root, images)
        return "class"

    def _check_classes(
        self, listing: Listing, classes: Sequence[str], filled: Iterable[str], *, allow_empty: bool
    ) -> None:
        """Raise BadInput if a class folder is a link to another, InvalidRequest if an empty class is not allowed."""
        where = shown(str(self.root))
        twice = [f"{name} ({first or 'the folder itself'})" for name, first in listing.repeats if "/" not in name]
        if twice:
            raise BadInput(
                f"{where}: {linked(len(twice), 'class')} to a folder that is packed already: {listed(twice)}; each "
                "folder is packed once: copy it (cp -al takes no space), or remove the link"
            )
        empty = sorted(set(classes).difference(filled))
        if not filled:
            raise InvalidRequest(f"{where}: no image is in a folder, so that there are no classes; add --folders none")
        if empty and not allow_empty:
            raise InvalidRequest(
                f"{where}: {counted(len(empty), 'class')} of {len(classes)} without an image: {listed(empty)}; fill or "
                "remove the folders, or add --allow-empty"
            )

    def _schema(self) -> Schema:
        fields = [Field("key", "text", "text"), Field("image", "image", "encoded")]
        if self._classes:
            fields.append(Field("label", "number", "number", dtype="int64", shape=(), classes=tuple(self._classes)))
        if self._splits:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._splits))
        if self.decodes:
            fields.append(Field("files", "json", "json", hidden=True))
        return Schema(tuple(fields))

    def _order(self, name: str) -> tuple[int, str, str, str]:
        folder, _, file = name.rpartition("/")
        split = self._splits.index(name.partition("/")[0]) if self._splits else 0
        return split, self._class(name) if folder else "", folder, file

    def _class(self, name: str) -> str:
        return name.split("/")[1 if self._layout == "split/class" else 0]

    # ---- values

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        """Return one line with the number of images in all formats, or None without images."""
        images = [name for name in names if is_image(name)]
        others = sum(suffix_of(name) in _unread_images.SUFFIXES for name in names) if len(images) < len(names) else 0
        if not images and not others:
            return None
        classes = {name.partition("/")[0] for name in images if "/" in name}
        inside = f" in {counted(len(classes), 'folder')} (--folders sets their meaning)" if classes else ""
        more = f", {counted(others, 'image')} in other formats" if others else ""
        return f"image folder: {counted(len(images), 'image')}{inside}{more}"

    def key(self, index: int) -> str:
        return self._samples.names[self.checked(index)]

    def entry(self, index: int) -> base.SampleEntry:
        name = self._samples.names[self.checked(index)]
        return base.SampleEntry(name, (name,), base.stem_of(name))

    def split_of(self, sample: FileSample) -> str:
        return sample.key.partition("/")[0]

    def listed_values(self, sample: FileSample) -> base.Sample:
        return {"label": np.int64(self._classes[self._class(sample.key)])} if self._classes else {}

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        if not self.decodes:
            return {}
        if is_image(sample.key):
            return {"files": {"image": sample.key}}
        try:
            image = pillow.decode(files["image"], Path(sample.key).name)
        except DamagedImage as error:
            raise BadInput(f"{self.root / sample.key}: {error.message}") from error
        return {"image": image, "files": {"image": f"{sample.key}.png"}}

    # ---- notes

    def _notes(self) -> list[str]:
        names = self._samples.names
        classes = counted(len(self._classes), "class") if self._classes else "no classes"
        notes = [f"{counted(len(names), 'image')}, {classes}"]
        if self._splits:
            counts = Counter(name.partition("/")[0] for name in names)
            notes.append(f"splits: {listed(f'{name} {counts[name]}' for name in self._splits)}")
        if self._classes:
            counts = Counter(map(self._class, names))
            notes.append(f"classes: {listed(f'{name} {counts[name]}' for name in self._classes)}")
        if self.decodes:
            decoded = [name for name in names if not is_image(name)]
            notes.append(f"decoded by Pillow, stored as PNG: {described(decoded, 'image')}")
        if self.extras:
            notes.append(f"{described(self.extras, 'other file')}: not images, or sidecars of images")
        return notes


class _SamplesByName(Sequence[FileSample]):
    """The samples of sorted image names. Each access creates a sample, so that only names use memory."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Any) -> Any:
        name = self.names[index]
        return FileSample(name, {"image": name})


def _check_companions(root: Path, names: Sequence[str]) -> None:
    """Raise InvalidRequest if a quarter of the images or more seem to belong to other images, as masks do.

    Their paths contain a word for masks and similar files, or differ from another path only in the suffix. If all
    images seem to belong to other images, do nothing.
    """
    of_kinds = {name: is_companion(name) for name in {name.translate(_EQUAL_DIGITS) for name in names}}
    stems: set[str] = set()
    found = []
    for name in names:
        stem = base.stem_of(name)
        if of_kinds[name.translate(_EQUAL_DIGITS)] or stem in stems:
            found.append(name)
        stems.add(stem)
    if len(names) > len(found) >= len(names) / _COMPANIONS_SHARE:
        raise InvalidRequest(
            f"{shown(str(root))}: {len(found)} of {len(names)} images seem to belong to others, such as "
            f"{shown(found[0])}; if they do, declare them, such as --sidecar 'mask=masks/{{stem}}.png:mask' or "
            "--from pairs --role; if each image is a sample, add: --companions samples"
        )


def _check_folders(root: Path, images: Sequence[str]) -> None:
    """Raise InvalidRequest if the folders seem to be splits, or images and masks, or contain only folders."""
    tops = sorted({name.partition("/")[0] for name in images})
    has_roles = all(map(is_role, tops)) and any(map(is_image_word, tops))
    has_splits = are_splits(tops) or sum(split_rank(name) is not None for name in tops) > 1
    if has_roles or has_splits or all(name.count("/") > 1 for name in images):
        raise InvalidRequest(
            f"{shown(str(root))}: cannot decide whether these folders are classes: {listed(tops)}; for classes, add: "
            "--folders class; for splits that contain classes, add: --folders split/class; for splits without labels, "
            "add: --folders split; for no labels, add: --folders none; or give the folder of the classes as SOURCE"
        )


def _class_folders(listing: Listing, patterns: Sequence[SidecarPattern], splits: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the class folders. Folders that contain only sidecars (`patterns`) are excluded."""
    elsewhere = [pattern for pattern in patterns if not pattern.text.startswith(("{folder}/", "{top}/"))]
    tops: dict[str, bool] = {}  # folder -> whether all its files are sidecars
    for name in listing.names if elsewhere else ():
        top, slash, _ = name.partition("/")
        if slash:
            tops[top] = tops.get(top, True) and any(pattern.matches(name) for pattern in elsewhere)
    sidecars = {pattern.top for pattern in elsewhere} | {top for top, is_sidecar in tops.items() if is_sidecar}
    folders = [name.split("/") for name in listing.folders if name.partition("/")[0] not in sidecars]
    if not splits:
        return tuple(parts[0] for parts in folders if len(parts) == 1)
    return tuple(sorted({parts[1] for parts in folders if len(parts) == 2 and parts[0] in splits}))


def _reason(name: str, layout: str) -> str:
    if "/" not in name:
        return f"image is directly in the root, in no {layout.partition('/')[0]} folder"
    return f"image is directly in {shown(name.partition('/')[0])}, in no class folder"
