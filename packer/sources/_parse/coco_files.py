"""COCO files: which JSON files of a data set are annotation files, what each is for, and which split it holds.

Names say it (`instances_train2017.json`), or what is in a file: its first 64 KiB, then all of it. A name that says no
split leaves it to the folder: `train/_annotations.coco.json` (Roboflow), `train/labels.json` (FiftyOne).
"""

import posixpath
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from packer.sources._parse.coco_annotations import AnnotationFile
from packer.sources._parse.folder_listing import counted, listed
from packer.sources._trees.file_tree import FileTree

TASKS = ("instances", "keypoints", "panoptic", "stuff", "captions", "labels", "image_info")  # the first is read
OBJECT_TASKS = ("instances", "keypoints", "stuff")
_PREFIXES = {"person_keypoints": "keypoints", **{task: task for task in TASKS}}
_NAMED = re.compile(rf"({'|'.join(_PREFIXES)})_(.+)\.json")
_SURELY = re.compile(r"(instances|person_keypoints|captions|panoptic|stuff|image_info)_.+\.json|.*\.coco\.json")
_SAYS_NO_SPLIT = re.compile(r"[_-]?(annotations?)?(\.coco)?|labels|result|coco|instances|data|default", re.IGNORECASE)
_ENDING = re.compile(r"[_-]?(annotations?)?(\.coco)?\.json$", re.IGNORECASE)
_PICTURE = re.compile(r"\.(jpe?g|png|bmp|webp|tiff?|ppm|pgm)$", re.IGNORECASE)
_MOST_BESIDE = 50  # JSON files in one folder that may be annotation files; where there are more, each is of a picture
_LOOKED_AT_BYTES = 1 << 16
_BEGINS = re.compile(rb'"(?:images|annotations)"\s*:\s*\[\s*[{\]]')
_MENTIONS = re.compile(rb'"(?:file_name|image_id)"\s*:')


def named_files(names: Sequence[str]) -> list[str]:
    """Those that are annotation files by their names."""
    return [name for name in names if name.endswith(".json") and _SURELY.fullmatch(posixpath.basename(name))]


def annotation_files(tree: FileTree, names: Sequence[str]) -> list[str]:
    """Those that are annotation files by their names, or by how they begin."""
    found = [name for name in names if name.endswith(".json")]
    beside = Counter(map(posixpath.dirname, found))
    surely = set(named_files(found))
    return [
        name
        for name in found
        if name in surely or (beside[posixpath.dirname(name)] <= _MOST_BESIDE and _is_begun(tree, name))
    ]


def _is_begun(tree: FileTree, name: str) -> bool:
    if not tree.state(name).is_regular:
        return False
    data = tree.start(name, _LOOKED_AT_BYTES)
    is_object = data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    return is_object and _BEGINS.search(data) is not None and _MENTIONS.search(data) is not None


def has_pictures(names: Sequence[str]) -> bool:
    """Whether any of these is a picture by its name."""
    return any(_PICTURE.search(name) is not None for name in names)


def described_files(tables: Sequence[str]) -> str:
    """What was recognised."""
    return f"COCO: {counted(len(tables), 'annotation file')}: {listed(tables)}"


def task_by_name(name: str) -> str | None:
    """What an annotation file is for; None where its name does not say it."""
    match = _NAMED.fullmatch(posixpath.basename(name))
    return _PREFIXES[match[1]] if match else None


def tasks_of(name: str, content: AnnotationFile) -> frozenset[str]:
    """What an annotation file is for by its name, else by what it holds."""
    said = task_by_name(name)
    if said is not None:
        return frozenset((said,))
    found = set(content.kinds)
    if not found:
        found.add("objects" if content.categories else "image_info")
    return frozenset((found - {"objects"}) | (set(OBJECT_TASKS) if "objects" in found else set()))


def split_names(tasks: Mapping[str, frozenset[str]]) -> list[str]:
    """What each annotation file holds: `train2017`; files of one split are for different tasks. Empty for nothing said.

    tasks: of each file. By the names of the files, or by those of their folders where names are the same.
    """
    for found in (
        [_by_name(name) for name in tasks],
        [_by_folder(name) for name in tasks],
        _by_difference([posixpath.dirname(name).split("/") for name in tasks]),
    ):
        pairs = [(split, task) for split, of in zip(found, tasks.values(), strict=True) for task in of]
        if len(set(pairs)) == len(pairs):
            return found
    return [name.removesuffix(".json") for name in tasks]


def _by_difference(folders: Sequence[Sequence[str]]) -> list[str]:
    """The first folders on the paths that are not the same: of `train/v2.0/panoptic` and `val/v2.0/panoptic`."""
    columns = [list(column) for column in zip(*folders, strict=False)]
    return next((column for column in columns if len(set(column)) > 1), [""] * len(folders))


def _by_name(name: str) -> str:
    base = posixpath.basename(name)
    match = _NAMED.fullmatch(base)
    split = match[2] if match else _ENDING.sub("", base)
    return _by_folder(name) if _SAYS_NO_SPLIT.fullmatch(split) else split


def _by_folder(name: str) -> str:
    folders = [part for part in posixpath.dirname(name).split("/") if not _SAYS_NO_SPLIT.fullmatch(part)]
    return folders[-1] if folders and folders[-1] != ".." else ""
