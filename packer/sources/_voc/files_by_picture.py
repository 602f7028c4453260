"""Files by picture: which files of a tree in Pascal VOC's layout belong to one picture, told by their paths alone.

What a file is, is said by the last folder in its path that is named as a role; taken out of the path, and without its
suffix, it is the key: `VOC2007/JPEGImages/000001.jpg` and `VOC2007/Annotations/000001.xml` are both of
`VOC2007/000001`. What stands in `<filename>` and `<path>` pairs nothing: it is what whoever annotated had on their
disk.

| layout                                        | keys                                  |
|-----------------------------------------------|---------------------------------------|
| `JPEGImages/1.jpg`, `Annotations/1.xml`       | `1`: Pascal VOC, CVAT, VMRD           |
| `images/a/1.jpg`, `annotations/a/1.xml`       | `a/1`; also `annotations/xmls/a/1.xml` |
| `train/1.jpg`, `train/1.xml`                  | `train/1`: labelImg, Roboflow         |

Where any picture lies in a folder of pictures, those elsewhere are no samples.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from packer.errors import BadInput
from packer.sources._parse.folder_listing import counted, listed, shown, suffix_of

IMAGE, XML, MASK, OBJECT_MASK, GRASPS = "image", "annotation_file", "mask", "object_mask", "grasps_file"
_ROLES = {
    "jpegimages": IMAGE,
    "images": IMAGE,
    "annotations": XML,
    "segmentationclass": MASK,
    "segmentationobject": OBJECT_MASK,
    "grasps": GRASPS,
}
_PICTURES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
_SUFFIXES = {IMAGE: _PICTURES, XML: (".xml",), MASK: (".png",), OBJECT_MASK: (".png",), GRASPS: (".txt",)}
_INNER = {XML: ("xmls",)}  # folders inside that of a role which are no part of the key


class PictureFiles(NamedTuple):
    """The files of one picture. key: see the module. paths: role -> relative path."""

    key: str
    paths: dict[str, str]


class FoundFiles(NamedTuple):
    """What a tree holds: pictures in the order of their keys, those of other roles without a picture, all other files.

    unpaired: key -> path of the file that has no picture. bases: folders that hold folders of roles, sorted.
    """

    pictures: list[PictureFiles]
    unpaired: dict[str, str]
    others: list[str]
    bases: list[str]


def role_of(name: str) -> tuple[str, str, str | None, str]:
    """Folder above that of the role, key, role by the folder (None for none), and suffix, of one relative path."""
    folders = name.split("/")
    file = folders.pop()
    suffix = suffix_of(file)
    stem = file[: len(file) - len(suffix)]
    for at in range(len(folders) - 1, -1, -1):
        role = _ROLES.get(folders[at].lower())
        if role is not None:
            inner = folders[at + 1 :]
            if inner and inner[0].lower() in _INNER.get(role, ()):
                inner = inner[1:]
            return "/".join(folders[:at]), "/".join([*folders[:at], *inner, stem]), role, suffix
    return "/".join(folders), "/".join([*folders, stem]), None, suffix


def collect(root: Path, names: Iterable[str]) -> FoundFiles:
    """The files by the picture that they belong to; raises BadInput, naming all, for two of one role and key."""
    found: dict[str, dict[str, str]] = {}
    loose: list[tuple[str, str, str]] = []  # pictures in no folder of a role: key, folder, name
    others: list[str] = []
    twice: list[str] = []
    bases: set[str] = set()
    for name in names:
        base, key, role, suffix = role_of(name)
        if role is None and suffix == ".xml":
            role = XML  # beside its picture
        elif role is None and suffix in _PICTURES:
            loose.append((key, base, name))
            continue
        elif role is not None and suffix in _SUFFIXES[role]:
            bases.add(base)
        else:
            others.append(name)
            continue
        first = found.setdefault(key, {}).setdefault(role, name)
        if first != name:
            twice.append(f"{first} and {name}")
    has_folder = any(IMAGE in paths for paths in found.values())
    for key, base, name in loose:
        if has_folder:
            others.append(name)
            continue
        first = found.setdefault(key, {}).setdefault(IMAGE, name)
        bases.add(base)
        if first != name:
            twice.append(f"{first} and {name}")
    if twice:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(twice), 'file')} with the name of another: {listed(twice)}; an "
            "annotation belongs to one picture: rename or remove one of each"
        )
    pictures = [PictureFiles(key, paths) for key, paths in sorted(found.items()) if IMAGE in paths]
    unpaired = {key: paths[XML] for key, paths in sorted(found.items()) if IMAGE not in paths and XML in paths}
    rest = (paths for paths in found.values() if IMAGE not in paths)
    others += [name for paths in rest for name in paths.values()]
    return FoundFiles(pictures, unpaired, sorted(others), sorted(bases))


def annotated(names: Sequence[str], *, in_folders: bool) -> list[str]:
    """Annotation files that have a picture, in order.

    in_folders: only those in folders Annotations beside JPEGImages, which are VOC's by their names.
    """
    files = [name for name in names if name[-4:].lower() == ".xml"]
    if not files:  # most trees, of which some have a million names
        return []
    pictures = set()
    for name in names:
        _, key, role, suffix = role_of(name)
        if role in (IMAGE, None) and suffix in _PICTURES and (not in_folders or "JPEGImages/" in name):
            pictures.add(key)
    roles = (XML,) if in_folders else (XML, None)
    return [name for name in files for _, key, role, _ in (role_of(name),) if key in pictures and role in roles]
