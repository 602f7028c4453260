"""Folder: images in folders that are their classes (torchvision's ImageFolder), or images without labels.

Fields: key (relative POSIX path), image (bytes of the file), label (int64; absent for images without classes).
Classes are the names of the folders directly under the root, sorted; the order of the samples is ImageFolder's:
class by class, inside it folder by folder and file by file, all sorted by code point
(torchvision.datasets.folder: find_classes, make_dataset).
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from packer.errors import BadInput
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources.parsing.scanning import Listing, counted, described, linked, listed, scan, shown

SPECIFICITY = 0
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # torchvision's IMG_EXTENSIONS


def recognise(names: Sequence[str]) -> str | None:
    """What an image folder with these files is; None where no file is an image."""
    images = [name for name in names if _is_image(name)]
    if not images:
        return None
    classes = {name.partition("/")[0] for name in images if "/" in name}
    inside = f" in {counted(len(classes), 'folder')}" if classes else ""
    return f"image folder: {counted(len(images), 'image')}{inside}"


class Source(base.Source):
    """An image folder."""

    kind = "folder"

    def __init__(
        self,
        root: Path,
        *,
        classes: str = "auto",
        allow_empty: bool = False,
        ignore_suffixes: Sequence[str] = (),
        follow_links: bool = False,
    ) -> None:
        """List the folder.

        classes: `folders`: a label per folder directly under the root; `none`: no labels; `auto`: labels where
            every image lies in a folder, none where every image lies directly in the root.
        allow_empty: whether a class may have no image.
        ignore_suffixes: ends of the names of files that are no samples although they may be images.
        follow_links: whether links out of the folder are followed.
        Raises BadInput where there is no image, a class is empty or a second name of another, or `auto` finds images in
        and beside folders.
        """
        base.check_choice("classes", classes, ("auto", "folders", "none"))
        self.root = root
        self.follow_links = follow_links
        listing = scan(root, follow_links=follow_links)
        ignored = tuple(ignore_suffixes)
        images = [name for name in listing.names if _is_image(name) and not name.endswith(ignored)]
        if not images:
            raise BadInput(
                f"{shown(str(root))}: no images: found {described(listing.names)}, "
                f"expected names that end in {' '.join(SUFFIXES)}; give the folder that holds the images"
            )
        loose = [name for name in images if "/" not in name]
        self._classes: tuple[str, ...] = ()
        self.left_out = []
        if classes == "folders" or (classes == "auto" and not _is_flat(root, images, loose)):
            self._classes = tuple(name for name in listing.folders if "/" not in name)
            _check_second_names(root, listing)
            self.left_out = [(name, "image lies directly in the root, in no class folder") for name in loose]
            images = [name for name in images if "/" in name]
            _check_classes(root, self._classes, images, allow_empty=allow_empty)
        self._names = sorted(images, key=_imagefolder_order)
        taken = {*images, *loose}
        self._extras = [name for name in listing.names if name not in taken]
        self.schema = _schema(self._classes)
        ignored_files = len(listing.names) - len(images) - len(self.left_out)
        self.notes = [*listing.notes(), *_notes(self._names, self._classes, ignored_files)]

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> base.Sample:
        key = self.key(index)
        sample: base.Sample = {"key": key, "image": self.read(key)}
        if self._classes:
            sample["label"] = np.int64(bisect_left(self._classes, key.partition("/")[0]))
        return sample

    def key(self, index: int) -> str:
        return self._names[self.checked(index)]

    def files(self, index: int) -> tuple[Path, ...]:
        return (self.root / self.key(index),)

    def stem(self, index: int) -> Path:
        return (self.root / self.key(index)).with_suffix("")

    def extras(self) -> Sequence[str]:
        return self._extras


def _is_image(name: str) -> bool:
    return name.lower().endswith(SUFFIXES)


def _imagefolder_order(name: str) -> tuple[str, str, str]:
    folder, _, file = name.rpartition("/")
    return name.partition("/")[0] if folder else "", folder, file


def _is_flat(root: Path, images: Sequence[str], loose: Sequence[str]) -> bool:
    if loose and len(loose) < len(images):
        raise BadInput(
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


def _check_classes(root: Path, classes: Sequence[str], images: Iterable[str], *, allow_empty: bool) -> None:
    filled = {name.partition("/")[0] for name in images}
    empty = [name for name in classes if name not in filled]
    if not filled:
        raise BadInput(
            f"{shown(str(root))}: no image lies in a folder, so that there are no classes; say --classes none"
        )
    if empty and not allow_empty:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(empty), 'class')} of {len(classes)} without an image: {listed(empty)}; "
            "fill or remove the folders, or say --allow-empty"
        )


def _schema(classes: tuple[str, ...]) -> Schema:
    fields = [Field("key", "text", "text"), Field("image", "image", "encoded")]
    if classes:
        fields.append(Field("label", "number", "number", dtype="int64", shape=(), classes=classes))
    return Schema(tuple(fields))


def _notes(images: Sequence[str], classes: Sequence[str], ignored: int) -> list[str]:
    found = f"{counted(len(images), 'image')}, {counted(len(classes), 'class') if classes else 'no classes'}"
    rest = [f"{counted(ignored, 'other file')}: not an image, or a sidecar of one"] if ignored else []
    return [found, *rest]
