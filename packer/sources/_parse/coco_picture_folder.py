"""COCO picture folder: which folder the names of pictures in an annotation file are relative to.

Annotation files name pictures without saying where they lie: `9.jpg` of `annotations/instances_train2017.json` is
`train2017/9.jpg`, elsewhere `images/train2017/9.jpg` or beside the file. All pictures of a file are looked for in one
folder: a name that another split has, too, is never taken from there. That folder is, in this order,

1. the annotation file's own, or the one that is called as it (`panoptic_train2017/` of `panoptic_train2017.json`);
2. one with the name of the split in its path; one of another split never;
3. the one that holds the most of the names.

Names with `..` count from the annotation file's folder, and lead to nothing outside of the data set.
"""

import posixpath
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from packer.errors import BadInput
from packer.sources._name_words import split_rank
from packer.sources._parse.folder_listing import counted, listed, shown

_WORD = re.compile(r"[A-Za-z]+|[0-9]+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|[A-Za-z]:[\\/]")


class PictureFolders:
    """The files of a data set by their names without folders."""

    def __init__(self, files: Iterable[str]) -> None:
        self._paths: Mapping[str, list[str]] = defaultdict(list)
        for path in files:
            self._paths[path[path.rfind("/") + 1 :]].append(path)

    def paths(self, names: Sequence[str], table: str, split: str, other_splits: Collection[str]) -> list[str]:
        """The path of each name, empty for one that is not there.

        table: the path of the annotation file. split: what it holds by its name; empty for none.
        Raises BadInput where a name is no relative path in the data set, and where two folders may be meant.
        """
        self._check(names, table)
        own = posixpath.dirname(table)
        usual = [posixpath.normpath(self._with_slashes(name)) for name in names]
        found = [posixpath.normpath(posixpath.join(own, name)) if name.startswith("../") else "" for name in usual]
        outside = [name for name, path in zip(names, found, strict=True) if path.startswith("../")]
        if outside:
            raise BadInput(
                f"{shown(table)}: {counted(len(outside), 'picture')} outside of the data set: {listed(outside)}; give "
                "the folder that holds the annotation file and the pictures"
            )
        inside = [name for name, path in zip(usual, found, strict=True) if not path]
        folder = self._folder(inside, table, split, other_splits)
        return [
            path if path and path in self._paths.get(posixpath.basename(path), ()) else self._in(folder, name, path)
            for name, path in zip(usual, found, strict=True)
        ]

    def _in(self, folder: str | None, name: str, path: str) -> str:
        if folder is None or path:
            return ""
        found = f"{folder}/{name}" if folder else name
        return found if found in self._paths.get(posixpath.basename(name), ()) else ""

    def _with_slashes(self, name: str) -> str:
        """A name that was written on Windows with the separators that the others have."""
        return name if "\\" not in name or name[name.rfind("/") + 1 :] in self._paths else name.replace("\\", "/")

    def _check(self, names: Sequence[str], table: str) -> None:
        unfit = [name for name in names if name.startswith(("/", "\\")) or "\0" in name or _URL.match(name)]
        if unfit:
            raise BadInput(
                f"{shown(table)}: {counted(len(unfit), 'picture')} whose file_name is no relative path: "
                f"{listed(unfit)}; write the names as they are from the folder of the pictures"
            )

    def _folder(self, names: Sequence[str], table: str, split: str, other_splits: Collection[str]) -> str | None:
        """The folder that the names are relative to; None where none of them is anywhere."""
        counts: Counter[str] = Counter()
        for name in names:
            for path in self._paths.get(posixpath.basename(name), ()):
                if path == name:
                    counts[""] += 1
                elif path.endswith(f"/{name}"):
                    counts[path[: -len(name) - 1]] += 1
        ranks: dict[str, tuple[int, int, int]] = {}
        for folder, count in counts.items():
            fit = _fit(folder, split)
            is_own = folder in (posixpath.dirname(table), table.removesuffix(".json"))
            if is_own or not (
                _is_of_another(folder, split) or any(_fit(folder, other) > fit for other in other_splits)
            ):
                ranks[folder] = (3 if is_own else fit, _shared_depth(folder, table), count)
        if not ranks:
            return None
        highest = max(ranks.values())
        best = sorted(folder for folder, rank in ranks.items() if rank == highest)
        if len(best) > 1:
            raise BadInput(
                f"{shown(table)}: its pictures may be those in {' or '.join(shown(folder or '.') for folder in best)}: "
                "cannot decide; give a folder that holds one of them, or move the other away"
            )
        return best[0]


def _fit(folder: str, split: str) -> int:
    """How surely a folder is that of a split by its path: 2 called so, 1 with its words in it, 0 not."""
    if not split:
        return 0
    parts = folder.split("/")
    if split in parts:
        return 2
    words = _words(split)
    return int(any(words <= _words(part) for part in parts)) if words else 0


def _is_of_another(folder: str, split: str) -> bool:
    """Whether the path says that it holds validation pictures, say, and the split is of training."""
    rank = split_rank(split)
    said = {found for part in folder.split("/") if (found := split_rank(part)) is not None}
    return rank is not None and bool(said) and rank not in said


def _words(name: str) -> set[str]:
    """The words of a name in small letters, numbers left out: `train` of `train2017`."""
    return {word.lower() for word in _WORD.findall(name) if word.isalpha()}


def _shared_depth(folder: str, table: str) -> int:
    """How many folders from the root on lie above both a folder and the one that the annotation file's lies in."""
    above = posixpath.dirname(posixpath.dirname(table)).split("/")
    count = 0
    for left, right in zip(folder.split("/"), above, strict=False):
        if left != right or not left:
            break
        count += 1
    return count
