"""YOLO splits: the images of each split, from the paths in a description and in its lists, or from folders.

Paths are often those of another machine or tool: `/home/me/coco/images/train`, `../train/images` (Roboflow),
`data/obj_train_data/1.jpg` (darknet, CVAT). A path is resolved in the folder of its file, in `path` and in the root. If
none has it, the longest end of the path that exists in the set counts. The last part alone does not name a folder:
`test/images` is not `images`.

Without a description, folders next to or below `images` are the splits if their names are those of splits:
`images/train/1.jpg`, `train/images/1.jpg`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from posixpath import dirname, join, normpath

from packer.errors import BadInput
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import ordered_splits, split_rank
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.listing import Listing
from packer.sources.annotations._yolo_description import YoloDescription, read_text

_NEEDED = ("train", "val", "valid", "validation")  # splits that must exist
_MOST_PARTS = 64  # at the end of a path


class DescribedPaths:
    """The paths of a description and its lists, and the files of the set that they refer to.

    Attributes:
        files: All files of the set.
        lists: The lists that were read.
        absent: Lines of lists without a file -> list and line.
        notes: Facts that users should know.
    """

    def __init__(self, tree: FileTree, listing: Listing, description: YoloDescription) -> None:
        """Index the files of the set."""
        self.files = set(listing.names)
        self.lists: list[str] = []
        self.absent: dict[str, str] = {}
        self.notes: list[str] = []
        self._tree = tree
        self._description = description
        self._folders = {"", *listing.folders}
        self._base = _joined("", description.base)
        self._elsewhere = _parts(description.base) if self._base not in self._folders else []
        self._removed: Counter[str] = Counter()  # beginning -> how many paths were found without it

    def find(self, text: str, folder: str = "") -> str | None:
        """Return the relative path of a file or folder; None if it does not exist. folder: of the file with `text`."""
        for start in (folder, self._base, ""):
            path = _joined(start, text)
            if path in self.files or path in self._folders:
                return path
        parts = _parts(text)
        for count in range(max(len(parts) - _MOST_PARTS, 0), len(parts)):
            front, path = parts[:count], _joined("", "/".join(parts[count:]))
            is_start = front == self._elsewhere or set(front) <= {".."}
            if path in self.files or (path and path in self._folders and (is_start or count < len(parts) - 1)):
                if not set(front) <= {".."}:
                    self._removed["/" * text.startswith("/") + "/".join(front) + "/"] += 1
                return path
        return None

    def splits(self, images: Sequence[str], *, missing: str) -> dict[str, list[str]]:
        """Return the images of each split; an image that is listed twice is there twice.

        Files that are not images are ignored, as in ultralytics.

        Args:
            images: The paths of all images, sorted.
            missing: `skip`: skip paths that do not exist. Else they are an error, except for the folder of a `test`.

        Raises:
            BadInput: Paths do not exist; the message lists them.
        """
        paths_of = self._description.splits
        known_images = set(images)
        splits: dict[str, list[str]] = {}
        lost = {}
        for split, texts in paths_of.items():
            first = next(other for other in paths_of if paths_of[other] == texts)
            if first != split:
                self.notes.append(f"split {split} has the paths of {first}: packed once, as {first}")
                continue
            found = splits[split] = []
            for text in texts:
                path = self.find(text)
                if path is None and split in _NEEDED and missing != "skip":
                    lost[text] = split
                elif path is None:
                    self.notes.append(f"split {split}: {shown(text)} does not exist: skipped")
                elif path in self._folders:
                    start, end = (f"{path}/", f"{path}0") if path else ("", "\U0010ffff")  # "0" follows "/"
                    found += images[bisect_left(images, start) : bisect_left(images, end)]
                else:
                    found += self._listed_images(path, known_images) if path.endswith(".txt") else known_images & {path}
        lost |= {} if missing == "skip" else self.absent
        if lost:
            raise BadInput(
                f"{shown(str(self._tree.root))}: {counted(len(lost), 'path')} not found: "
                f"{listed(f'{text} ({place})' for text, place in lost.items())}; download the files, correct the "
                "paths, or skip them with --missing skip"
            )
        if self._removed:
            removed = (f"{beginning} ({count})" for beginning, count in sorted(self._removed.items()))
            self.notes.append(f"paths found without their beginnings, which do not exist here: {listed(removed)}")
        return splits

    def _listed_images(self, name: str, images: set[str]) -> list[str]:
        """Return the images of a list. Raises BadInput."""
        self.lists.append(name)
        found = []
        for number, line in enumerate(read_text(self._tree.read(name), self._tree.root / name).split("\n"), start=1):
            path = self.find(line.strip(), dirname(name))
            if path in images:
                found.append(path)
            elif line.strip() and path not in self.files:
                self.absent.setdefault(line.strip(), f"{name}:{number}")
        return found


def folder_splits(images: Sequence[str]) -> dict[str, list[str]]:
    """Return the images of each split that folders name; those of "" if an image is in no such folder."""
    words = [_split_word(name) for name in images]
    if not all(words):
        return {"": list(images)}
    pairs = list(zip(images, words, strict=True))
    return {split: [name for name, word in pairs if word == split] for split in ordered_splits(set(words))}


def without_duplicates(
    splits: Mapping[str, Sequence[str]], duplicates: str, where: str
) -> tuple[dict[str, list[str]], list[str]]:
    """Return the sorted images of each split, each image in one of them, and the images that are skipped.

    `duplicates` is the policy for an image that is listed twice: `error`, `first` or `skip`. `where` names the
    description in the message. Raises BadInput.
    """
    counts = Counter(name for names in splits.values() for name in names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    members = {split: set(names) for split, names in splits.items()}
    if twice and duplicates == "error":
        places = (f"{name} ({', '.join(split for split in splits if name in members[split])})" for name in twice)
        raise BadInput(
            f"{where}: {counted(len(twice), 'image')} listed twice: {listed(places)}; use --duplicates first or "
            "--duplicates skip, or correct the paths"
        )
    skipped = twice if duplicates == "skip" else []
    used = set(skipped)
    unique = {}
    for split, names in members.items():
        unique[split] = sorted(names - used)
        used |= names
    return {split: left for split, left in unique.items() if left}, skipped


def _split_word(image: str) -> str:
    """Return the folder next to or below the last `images` above an image if it is named as a split; else ""."""
    above, found, below = f"/{image}".rpartition("/images/")
    near = (below.rpartition("/")[0].partition("/")[0], above.rpartition("/")[2]) if found else ()
    return next((name for name in near if split_rank(name) is not None), "")


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]


def _joined(folder: str, path: str) -> str:
    """Return the path of `path` in a folder, relative to the root; it begins with / or .. if it leads out of it."""
    name = normpath(join(folder, path.replace("\\", "/")))
    return "" if name == "." else name
