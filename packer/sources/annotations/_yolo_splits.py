"""YOLO splits: the images of each split, from the paths in a description, or from folder names.

A description contains paths of image folders, images, and image lists. Many paths belong to another machine or tool:
`/home/me/coco/images/train`, `../train/images` (Roboflow), `data/obj_train_data/1.jpg` (darknet, CVAT). The search for
a path tries the folder of the file with the path, the folder `path` of the description, and the root. If all three
fail, the longest suffix of the path that exists in the data set is used. The last component alone is not enough for a
folder: `test/images` does not match `images`.

Without a description, folders next to or below `images` are splits if the folder names are names of splits, as in
`images/train/1.jpg` or `train/images/1.jpg`.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from posixpath import dirname, join, normpath

from packer.errors import BadInput
from packer.sources._message_texts import counted, listed, shown
from packer.sources._name_words import ordered_splits, split_rank
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import Listing
from packer.sources.annotations._yolo_description import YoloDescription, read_text

_NEEDED = ("train", "val", "valid", "validation")  # splits that must exist
_MOST_PARTS = 64  # components of the longest suffix of a path


class DescribedPaths:
    """The paths in a `data.yaml` or `obj.data`, and in the image lists named there, as paths in the data set.

    Attributes:
        files: The relative paths of all files in the data set.
        lists: The image lists that `splits` has read.
        absent: Line of an image list that leads to no file -> `list:line number`.
        notes: Notes for the user.
    """

    def __init__(self, tree: FileTree, listing: Listing, description: YoloDescription) -> None:
        """Index the files of the data set."""
        self.files = set(listing.names)
        self.lists: list[str] = []
        self.absent: dict[str, str] = {}
        self.notes: list[str] = []
        self._tree = tree
        self._description = description
        self._folders = {"", *listing.folders}
        self._base = _joined("", description.base)
        self._elsewhere = _parts(description.base) if self._base not in self._folders else []

    def find(self, text: str, folder: str = "") -> str | None:
        """Return the relative path of the file or folder `text`, or None if absent.

        `folder` is the folder of the file that contains `text`, usually an image list.
        """
        for start in (folder, self._base, ""):
            path = _joined(start, text)
            if path in self.files or path in self._folders:
                return path
        parts = _parts(text)
        for count in range(max(len(parts) - _MOST_PARTS, 0), len(parts)):
            front, path = parts[:count], _joined("", "/".join(parts[count:]))
            is_start = front == self._elsewhere or set(front) <= {".."}
            if path in self.files or (path and path in self._folders and (is_start or count < len(parts) - 1)):
                return path
        return None

    def splits(self, images: Sequence[str], *, missing: str) -> dict[str, list[str]]:
        """Return split -> relative paths of images. An image that is listed twice is contained twice.

        Listed files that are not images are ignored, as in ultralytics.

        Args:
            images: The relative paths of all images, sorted.
            missing: `skip`: skip paths that do not exist. Other values: an absent path raises BadInput, except for the
                folders and lists of the splits `test` and `minival`.

        Raises:
            BadInput: Paths do not exist. The message lists these paths.
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
        return splits

    def _listed_images(self, name: str, images: set[str]) -> list[str]:
        """Return the images in the image list `name`. Add lines that lead to no file to `absent`."""
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
    """Return split -> images, by folder names. If an image is in no folder of a split, all images are in split ""."""
    words = [_split_word(name) for name in images]
    if not all(words):
        return {"": list(images)}
    pairs = list(zip(images, words, strict=True))
    return {split: [name for name, word in pairs if word == split] for split in ordered_splits(set(words))}


def without_duplicates(
    splits: Mapping[str, Sequence[str]], duplicates: str, where: str
) -> tuple[dict[str, list[str]], list[str]]:
    """Return (split -> sorted images, sorted skipped images). Each image is in at most one split.

    For an image that is listed twice, `duplicates` decides: `error` raises BadInput, `first` uses the first split, and
    `skip` skips the image. `where` is the path of the description, for error messages.
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
    """Return the split in a path such as `images/train/1.jpg` or `train/images/1.jpg`, or "" without a split."""
    above, found, below = f"/{image}".rpartition("/images/")
    near = (below.rpartition("/")[0].partition("/")[0], above.rpartition("/")[2]) if found else ()
    return next((name for name in near if split_rank(name) is not None), "")


def _parts(path: str) -> list[str]:
    return [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]


def _joined(folder: str, path: str) -> str:
    """Return `folder`/`path` relative to the root. The result begins with / or .. if `path` leads out of the root."""
    name = normpath(join(folder, path.replace("\\", "/")))
    return "" if name == "." else name
