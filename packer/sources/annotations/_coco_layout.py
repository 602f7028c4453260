"""COCO layout: detection of annotation files, of their tasks and splits, and of the image folders.

The name of an annotation file contains the task and the split: `instances_train2017.json`. If the file name has no
split, the name of the parent folder is the split: `train/_annotations.coco.json` (Roboflow), `train/labels.json`
(FiftyOne). JSON files with other names are annotation files if the first bytes contain COCO members.

Image names in an annotation file are relative to an image folder that the file does not name. Candidates are all
folders that contain images with these names, except folders of other splits. The search for the image folder prefers:
1. The folder of the annotation file, or a folder with the path of the annotation file without `.json`.
2. The folder whose path has the most words in common with the path of the annotation file (`images/train2017`).
3. The folder with the most images.
"""

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from packer.errors import BadInput
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import split_rank
from packer.sources._trees.file_tree import FileTree

# task -> kind of annotations; the default task is the first task in this order that has a file
TASKS: Mapping[str, str] = {
    "instances": "objects",
    "keypoints": "objects",
    "panoptic": "panoptic",
    "stuff": "objects",
    "captions": "captions",
    "labels": "labels",
    "image_info": "",
}
_NAME = re.compile(rf"(?:person_(?=keypoints))?({'|'.join(TASKS)})_(.+)\.json")
_CERTAIN = re.compile(r"(instances|person_keypoints|captions|panoptic|stuff|image_info)_.+\.json|.*\.coco\.json")
_WITHOUT_SPLIT = re.compile(r"[_-]?(annotations?)?(\.coco)?|labels|result|coco|instances|data|default", re.IGNORECASE)
_ENDING = re.compile(r"[_-]?(annotations?)?(\.coco)?\.json$", re.IGNORECASE)
_IMAGE = re.compile(r"\.(jpe?g|png|bmp|webp|tiff?|ppm|pgm)$", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
_ABSOLUTE = re.compile(r"[/\\]|[A-Za-z][A-Za-z0-9+.-]+://|[A-Za-z]:[\\/]")
_MOST_IN_FOLDER = 50  # JSON files in one folder; in a folder with more files, each file labels one image
_PROBED_BYTES = 1 << 16
_BEGIN = re.compile(rb'"(?:images|annotations)"\s*:\s*\[\s*[{\]]')
_MEMBER = re.compile(rb'"(?:file_name|image_id)"\s*:')


def named_files(names: Iterable[str]) -> list[str]:
    """Return the paths in `names` that match a file name of COCO, such as `instances_train2017.json`."""
    return [name for name in names if name.endswith(".json") and _CERTAIN.fullmatch(posixpath.basename(name))]


def annotation_files(tree: FileTree, names: Iterable[str]) -> list[str]:
    """Return the annotation files in `names`: JSON files with COCO's file names, or with COCO members at the start."""
    found = [name for name in names if name.endswith(".json")]
    counts = Counter(map(posixpath.dirname, found))
    certain = set(named_files(found))
    return [
        name
        for name in found
        if name in certain or (counts[posixpath.dirname(name)] <= _MOST_IN_FOLDER and _begins(tree, name))
    ]


def _begins(tree: FileTree, name: str) -> bool:
    if not tree.state(name).is_regular:
        return False
    data = tree.start(name, _PROBED_BYTES)
    is_object = data.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")
    return is_object and _BEGIN.search(data) is not None and _MEMBER.search(data) is not None


def is_image(name: str) -> bool:
    """Return whether a file name has the suffix of an image format."""
    return _IMAGE.search(name) is not None


def named_task(name: str) -> str | None:
    """Return the task (a key of `TASKS`) in the name of an annotation file, or None if the name contains no task."""
    match = _NAME.fullmatch(posixpath.basename(name))
    return match[1] if match else None


def tasks_of(kinds: Collection[str], *, has_categories: bool) -> frozenset[str]:
    """Return the tasks (keys of `TASKS`) of an annotation file from the `kinds` of the annotations.

    Without annotations, a file counts as a file of "objects" if `has_categories` is true, otherwise of "image_info".
    """
    kinds = kinds or ({"objects"} if has_categories else {""})
    return frozenset(task for task, kind in TASKS.items() if kind in kinds)


def split_names(tasks: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the split of each annotation file in `tasks`, or "" for none.

    `tasks` is annotation file -> tasks of the file. Two files with the same task always have different splits.
    """
    folders = [posixpath.dirname(name).split("/") for name in tasks]
    columns = [column for column in zip(*folders, strict=False) if len(set(column)) > 1]
    for splits in (
        [_name_split(name) for name in tasks],
        [_folder_split(name) for name in tasks],
        list(columns[0]) if columns else [""] * len(folders),
    ):
        pairs = [(split, task) for split, several in zip(splits, tasks.values(), strict=True) for task in several]
        if len(set(pairs)) == len(pairs):
            return splits
    return [name.removesuffix(".json") for name in tasks]


def _name_split(name: str) -> str:
    base = posixpath.basename(name)
    match = _NAME.fullmatch(base)
    split = match[2] if match else _ENDING.sub("", base)
    return _folder_split(name) if _WITHOUT_SPLIT.fullmatch(split) else split


def _folder_split(name: str) -> str:
    folders = [part for part in posixpath.dirname(name).split("/") if not _WITHOUT_SPLIT.fullmatch(part)]
    return folders[-1] if folders and folders[-1] != ".." else ""


class ImageFolders:
    """An index of the files of a data set that finds the folder to which image names are relative."""

    def __init__(self, files: Iterable[str]) -> None:
        """Index the relative paths `files`."""
        self._paths: Mapping[str, list[str]] = defaultdict(list)
        for path in files:
            self._paths[path[path.rfind("/") + 1 :]].append(path)

    def paths(self, names: Sequence[str], label_file: str, split: str, other_splits: Collection[str]) -> list[str]:
        """Return one path, relative to the root, for each image name. Empty: the image is absent.

        Args:
            names: The image names in the annotation file. Names that begin with `../` are relative to the folder of the
                annotation file.
            label_file: The path of the annotation file.
            split: The split of the annotation file. Empty: no split.
            other_splits: The other splits of the data set. Their folders are not searched.

        Raises:
            BadInput: A name leads out of the data set, or two folders match the image names equally well.
        """
        own = posixpath.dirname(label_file)
        usual = [posixpath.normpath(self._with_slashes(name)) for name in names]
        paths = [posixpath.normpath(f"{own}/{name}".lstrip("/")) if name.startswith("../") else name for name in usual]
        wrong = [
            name
            for name, path in zip(names, paths, strict=True)
            if _ABSOLUTE.match(name) or "\0" in name or path.startswith("../")
        ]
        if wrong:
            raise BadInput(
                f"{shown(label_file)}: {counted(len(wrong), 'file_name')} outside of the data set: {listed(wrong)}; "
                "expected relative paths; give the folder that contains the annotation file and the images"
            )
        inside = [name for name in usual if not name.startswith("../")]
        folder = self._folder(inside, label_file, split, other_splits)
        whole = [
            path if name.startswith("../") or not folder else f"{folder}/{name}"
            for name, path in zip(usual, paths, strict=True)
        ]
        return [path if path in self._paths.get(path[path.rfind("/") + 1 :], ()) else "" for path in whole]

    def _with_slashes(self, name: str) -> str:
        """Return a name with slashes for backslashes, unless a file of the data set has the backslashes in its name."""
        return name if "\\" not in name or name[name.rfind("/") + 1 :] in self._paths else name.replace("\\", "/")

    def _folder(self, names: Iterable[str], label_file: str, split: str, other_splits: Collection[str]) -> str:
        """Return the folder that the names are relative to, or a text that is not a folder if none matches."""
        counts: Counter[str] = Counter()
        for name in names:
            for path in self._paths.get(name[name.rfind("/") + 1 :], ()):
                if path == name:
                    counts[""] += 1
                elif path.endswith(f"/{name}"):
                    counts[path[: -len(name) - 1]] += 1
        own = {posixpath.dirname(label_file), label_file.removesuffix(".json")}
        words = _words(label_file.removesuffix(".json"))
        ranks = {
            folder: (folder in own, len(words & _words(folder)), count)
            for folder, count in counts.items()
            if folder in own or not _is_of_another(folder, split, other_splits)
        }
        highest = max(ranks.values(), default=None)
        best = sorted(folder for folder, rank in ranks.items() if rank == highest)
        if len(best) > 1:
            raise BadInput(
                f"{shown(label_file)}: images with its names are in {' and '.join(shown(each or '.') for each in best)}"
                "; give a folder that contains one of them, or move the other away"
            )
        return best[0] if best else "\0"


def _is_of_another(folder: str, split: str, other_splits: Collection[str]) -> bool:
    """Return whether a folder belongs to another split, such as `images/val` for the split `train2017`."""
    words = _words(folder)
    rank = split_rank(split)
    ranks = {split_rank(part) for part in folder.split("/")} - {None}
    is_other = rank is not None and bool(ranks) and rank not in ranks
    return is_other or any(len(words & _words(other)) > len(words & _words(split)) for other in other_splits)


def _words(path: str) -> set[str]:
    """Return the words and numbers in a path: `train` and `2017` for `train2017`."""
    return {word.lower() for word in _WORD.findall(path)}
