"""OCID-Grasp: the pictures of OCID with grasps and classes of objects, of any depth of folders.

A sequence is a folder that holds `rgb/` and `Annotations/`, however many folders it lies under: ARID20 has
`ARID20/table/top/seq01`, ARID10 and YCB10 one more. A sample is a picture `<sequence>/rgb/<name>.png`; what belongs to
it has the same name in the folders beside: `depth/`, `seg_mask_labeled_combi/` (classes), `seg_mask_instances_combi/`,
`Annotations/<name>.txt` (all grasps) and `Annotations_per_class/<name>/<class>/<name>.txt` (the same by class). Order:
by the path of `Annotations/<name>.txt`, as the grasp networks' loaders have it.

Fields: key (`<sequence>/<name>`), rgb (PNG bytes), depth (PNG bytes, uint16, millimetres, 0 is no measurement), mask
(PNG bytes: 0 background, 1 to 30 classes, 31 objects of no class), instances (PNG bytes), grasps (float32 (N, 4, 2),
corners x, y; p0 -> p1 is the opening axis), grasp_objects (int64 (N,): the class of what each grasp holds, -1 where no
file says it), split (int64, of `data_split/*.txt`). Hidden: files (field -> relative path), grasps_file (verbatim,
empty where there is none). A depth or mask that no picture has is no field, nor is a split without lists. Labels count
the pixels of the file as stored: PNG files of this set have no EXIF orientation.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._parse.folder_layout import ordered_splits
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._label_files import Labels, read_rectangles

SPECIFICITY = 100
UNLISTED = "unlisted"  # the split of pictures that no list names, where there are lists
_FOLDERS = {"rgb": "rgb", "depth": "depth", "seg_mask_labeled_combi": "mask"}
_FOLDERS |= {"seg_mask_instances_combi": "instances", "Annotations": "grasps_file"}
_PER_CLASS = "Annotations_per_class"
_PIXELS = ("rgb", "depth", "mask", "instances")
_CLASS = re.compile(r"[0-9]{1,9}")
_LIST = re.compile(r"(?P<base>(?:.*/)?)data_split/(?P<split>[^/]+?)(?:_(?P<number>[0-9]+))?\.txt", re.DOTALL)
_POINT_CLOUD = ".pcd"

Place = tuple[str, str]  # sequence, with its slash, and name


class _OcidFiles(NamedTuple):
    """roles: which a picture has files of. classes: folders of its grasps by class."""

    roles: set[str]
    classes: list[str]


class _OcidPicture(NamedTuple):
    place: Place
    roles: frozenset[str]
    classes: tuple[str, ...]

    @property
    def key(self) -> str:
        return "".join(self.place)

    def path(self, role: str) -> str:
        return _path(self.place, role)

    def class_path(self, number: str) -> str:
        sequence, name = self.place
        return f"{sequence}{_PER_CLASS}/{name}/{number}/{name}.txt"


def recognise(names: Sequence[str]) -> str | None:
    """How many pictures these files hold; None where none has grasps beside it, or nothing tells classes apart."""
    found, _ = _collect(names)
    labelled = [place for place, files in found.items() if {"rgb", "grasps_file"} <= files.roles]
    if not any(found[place].classes or "mask" in found[place].roles for place in labelled):
        return None
    sequences = {sequence for sequence, _ in labelled}
    return f"OCID grasps: {counted(len(labelled), 'picture')} in {counted(len(sequences), 'sequence')}"


class Source(base.Source):
    """OCID-Grasp."""

    kind = "ocid-grasp"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        labels: str = "strict",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the pictures.

        missing: what a picture without grasps is: `keep`: a sample with no grasps; `skip`: left out; `error`. One
            without a depth or mask that others have, and labels without a picture, are left out by `skip` and an error
            otherwise; a picture of a list that is not there is an error by `error` and told otherwise.
        labels: `strict`: a line that is no corner is an error; `lenient`: its rectangle is left out.
        own_splits: whether the samples have the splits of `data_split/`.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming the files, where they contradict each other or are missing.
        """
        base.check_choice("missing", missing, ("keep", "skip", "error"))
        base.check_choice("labels", labels, ("strict", "lenient"))
        self._strict = labels == "strict"
        listing = self._open_root(root, follow_links=follow_links)
        found, others = _collect(listing.names)
        if not any("rgb" in files.roles for files in found.values()):
            raise InvalidRequest(
                f"{shown(str(self.root))}: no OCID grasps: found {described(listing.names)}, expected pictures "
                ".../seq01/rgb/*.png with labels .../seq01/Annotations/*.txt; give the folder that holds ARID10 or "
                "ARID20, or say another --from"
            )
        self._pictures, self.left_out = _settle_missing(self.root, found, missing)
        self._has_classes = any(picture.classes for picture in self._pictures)
        self._tables = _lists(self.root, others) if own_splits else {}
        self._splits, self._split_of, absent = self._read_lists(missing)
        self.schema = self._schema()
        self.companions = [name for name in _PIXELS[1:] if name in self.schema]
        kept = {picture.place for picture in self._pictures}
        per_class = [picture.class_path(number) for picture in self._pictures for number in picture.classes]
        lost = [_path(place, role) for place, files in found.items() if place not in kept for role in files.roles]
        clouds = [name for name in others if name.endswith(_POINT_CLOUD)]
        rest = [name for name in others if not name.endswith(_POINT_CLOUD)]
        self._extras = sorted([*rest, *per_class, *lost])
        self.notes = [*listing.notes(), *self._found(), *absent, *_others(self._tables, rest, clouds)]

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> base.Sample:
        picture = self._pictures[self.checked(index)]
        data, labels, objects, _ = self._labels(picture)
        roles = [role for role in (*_PIXELS, "grasps_file") if role in picture.roles]
        sample: base.Sample = {"key": picture.key}
        sample |= {role: self.read(picture.path(role)) for role in roles if role != "grasps_file"}
        sample["grasps"] = labels.values.astype(np.float32)
        if self._has_classes:
            sample["grasp_objects"] = objects
        if self._splits:
            sample["split"] = np.int64(self._split_of[index])
        return sample | {"files": {role: picture.path(role) for role in roles}, "grasps_file": data}

    def value(self, index: int, name: str) -> Any:
        picture = self._pictures[self.checked(index)]
        if name == "key":
            return picture.key
        if name == "split" and self._splits:
            return np.int64(self._split_of[index])
        if name in _PIXELS and name in picture.roles:
            return self.read(picture.path(name))
        return super().value(index, name)

    def key(self, index: int) -> str:
        return self._pictures[self.checked(index)].key

    def files(self, index: int) -> tuple[Path, ...]:
        picture = self._pictures[self.checked(index)]
        roles = [role for role in (*_PIXELS, "grasps_file") if role in picture.roles]
        paths = [*map(picture.path, roles), *map(picture.class_path, picture.classes)]
        return tuple(self.root / path for path in paths)

    def stem(self, index: int) -> Path:
        return self.files(index)[0].with_suffix("")

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self._tables.values())

    def extras(self) -> Sequence[str]:
        """Grasps by class, lists and what else is there; the point clouds, 10 MB each, are not among them."""
        return self._extras

    def missing(self, index: int) -> str | None:
        """Absent and dropped grasps, and those whose class is not known; reads the label files."""
        picture = self._pictures[self.checked(index)]
        if "grasps_file" not in picture.roles:
            return "no grasps: no file in Annotations/"
        try:
            _, labels, objects, unmatched = self._labels(picture)
        except BadInput:
            return None  # reading the sample says more
        if not labels.total:
            return "no grasps: the file in Annotations/ is empty"
        reasons = []
        if labels.dropped:
            reasons.append(f"{labels.dropped} of {labels.total} grasps left out: not numbers")
        unknown = int((objects < 0).sum())
        if self._has_classes and unknown:
            reasons.append(f"{unknown} of {labels.total} grasps in no file of {_PER_CLASS}: class -1")
        if unmatched:
            reasons.append(f"{counted(unmatched, 'grasp')} of {_PER_CLASS} not in Annotations/: left out")
        return "; ".join(reasons) or None

    def _labels(self, picture: _OcidPicture) -> tuple[bytes, Labels, npt.NDArray[np.int64], int]:
        """The label file, its grasps, the class of each, and how many grasps are in a file by class alone."""
        name = picture.path("grasps_file")
        data = self.read(name) if "grasps_file" in picture.roles else b""
        labels = read_rectangles(data, self.root / name, strict=self._strict)
        classes: dict[bytes, list[int]] = {}  # one rectangle may be there once for each of several objects
        for number in reversed(picture.classes):
            path = picture.class_path(number)
            rectangles = read_rectangles(self.read(path), self.root / path, strict=self._strict)
            for corners in rectangles.values:
                classes.setdefault(corners.tobytes(), []).append(int(number))
        of_each = [classes[key].pop() if classes.get(key := each.tobytes()) else -1 for each in labels.values]
        return data, labels, np.array(of_each, np.int64), sum(map(len, classes.values()))

    def _read_lists(self, missing: str) -> tuple[tuple[str, ...], list[int], list[str]]:
        """Names of the splits, the split of each sample, and notes; raises BadInput."""
        if not self._tables:
            return (), [], []
        places = {picture.key for picture in self._pictures}
        left_out = {key for key, _ in self.left_out}
        split_of: dict[str, str] = {}
        absent, twice = [], []
        for split, name in self._tables.items():
            above = name.rpartition("data_split/")[0]
            for key in _listed_keys(self.read(name), self.root / name):
                full = above + key
                if full not in places:
                    absent += [full] if full not in left_out else []
                elif split_of.setdefault(full, split) != split:
                    twice.append(f"{full} ({split_of[full]}, {split})")
        if twice:
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(twice), 'picture')} in two lists of data_split/: "
                f"{listed(twice)}; mend the lists"
            )
        said = f"{counted(len(absent), 'picture')} of the lists in data_split/ not there: {listed(absent)}"
        if absent and missing == "error":
            raise BadInput(f"{shown(str(self.root))}: {said}; get them, or say --missing keep")
        used = set(self._tables)
        used |= {UNLISTED} if len(split_of) < len(places) else set()
        names = ordered_splits(used)
        rows = [names.index(split_of.get(picture.key, UNLISTED)) for picture in self._pictures]
        return names, rows, [said] if absent else []

    def _schema(self) -> Schema:
        shared = frozenset().union(*(picture.roles for picture in self._pictures))
        fields = [Field("key", "text", "text"), Field("rgb", "image", "encoded")]
        if "depth" in shared:
            fields.append(Field("depth", "depth", "encoded", dtype="uint16", invalid=0.0))
        fields += [
            Field(name, "mask", "encoded", dtype=base.probed_mask_dtype(self, name))
            for name in _PIXELS[2:]
            if name in shared
        ]
        fields.append(Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2)))
        if self._has_classes:
            fields.append(Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="grasps"))
        if self._splits:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._splits))
        fields.append(Field("files", "json", "json", hidden=True))
        fields.append(Field("grasps_file", "bytes", "encoded", hidden=True))
        return Schema(tuple(fields))

    def _found(self) -> list[str]:
        """What the set is."""
        sequences = {picture.place[0] for picture in self._pictures}
        notes = [f"{counted(len(self), 'picture')} in {counted(len(sequences), 'sequence')}"]
        notes += [f"no {role}: no picture has one" for role in _PIXELS if role not in self.schema]
        bare = sum("grasps_file" not in picture.roles for picture in self._pictures)
        if bare:
            notes.append(f"{counted(bare, 'picture')} without a file in Annotations/: kept with no grasps")
        if not self._has_classes:
            notes.append(f"no grasp_objects: there is no {_PER_CLASS}/")
        if self._splits:
            counts = Counter(self._split_of)
            said = ", ".join(f"{shown(name)} {counts[row]}" for row, name in enumerate(self._splits))
            notes.append(f"splits of data_split/: {said}")
        return notes


def _path(place: Place, role: str) -> str:
    sequence, name = place
    folder = next(folder for folder, named in _FOLDERS.items() if named == role)
    return f"{sequence}{folder}/{name}.{'txt' if role == 'grasps_file' else 'png'}"


def _collect(names: Iterable[str]) -> tuple[dict[Place, _OcidFiles], list[str]]:
    """Sequence and name of every picture with what it has, and all other files.

    The last folders of a path count alone: what the folders above are called, and how many they are, says nothing.
    """
    found: dict[Place, _OcidFiles] = {}
    others = []
    for path in names:
        place, role, number = _placed(path)
        if place is None:
            others.append(path)
            continue
        files = found.setdefault(place, _OcidFiles(set(), []))
        if role:
            files.roles.add(role)
        else:
            files.classes.append(number)
    return found, others


def _placed(path: str) -> tuple[Place | None, str, str]:
    """Of which picture a file is, and its role, or the class whose grasps it holds; None for other files."""
    above, _, file = path.rpartition("/")
    name, dot, suffix = file.rpartition(".")
    before, _, folder = above.rpartition("/")
    role = _FOLDERS.get(folder)
    if role is not None and name and suffix == ("txt" if role == "grasps_file" else "png"):
        return (_with_slash(before), name), role, ""
    parts = above.rsplit("/", 3)
    if _CLASS.fullmatch(folder) and dot and suffix == "txt" and parts[-3:-1] == [_PER_CLASS, name]:
        return (_with_slash("/".join(parts[:-3])), name), "", folder
    return None, "", ""


def _with_slash(folder: str) -> str:
    return f"{folder}/" if folder else ""


def _settle_missing(
    root: Path, found: dict[Place, _OcidFiles], missing: str
) -> tuple[list[_OcidPicture], list[tuple[str, str]]]:
    """The pictures that are complete enough, in order, and those that are left out with the reason; BadInput."""
    used = {role for files in found.values() for role in files.roles} - {"grasps_file"} | {"rgb"}
    used |= {"grasps_file"} if missing != "keep" else set()
    same = cache(frozenset[str])  # one object per set: thousands of pictures have a few different ones
    pictures, lacking = [], {}
    for place in sorted(found, key=lambda place: _path(place, "grasps_file")):
        files = found[place]
        absent = sorted(used - files.roles)
        if absent:
            lacking["".join(place)] = "no " + ", ".join(_path(place, role) for role in absent)
        else:
            classes = tuple(sorted(files.classes, key=lambda number: (int(number), number)))
            pictures.append(_OcidPicture(place, same(frozenset(files.roles)), classes))
    if lacking and (missing != "skip" or not pictures):
        raise BadInput(
            f"{shown(str(root))}: {counted(len(lacking), 'picture')} of {len(found)} lack files that others have: "
            f"{listed(f'{key} ({reason})' for key, reason in lacking.items())}; "
            "get them, or say --missing skip, which leaves these out"
        )
    return pictures, list(lacking.items())


def _lists(root: Path, names: Iterable[str]) -> dict[str, str]:
    """Split -> its list in `data_split/`, that of the lowest number where there are several; raises BadInput."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in names:
        match = _LIST.fullmatch(name)
        if match is not None:
            found.setdefault(match["split"], []).append((int(match["number"] or 0), name))
    folders = {name.rpartition("/")[0] for numbered in found.values() for _, name in numbered}
    if len(folders) > 1:
        raise BadInput(f"{shown(str(root))}: lists of splits in several folders: {listed(sorted(folders))}; keep one")
    return {split: min(numbered)[1] for split, numbered in found.items()}


def _listed_keys(data: bytes, path: Path) -> Iterable[str]:
    """The keys of the lines `sequence,name.png`, below the folder that holds the lists; raises BadInput."""
    for number, line in enumerate(data.decode("utf-8-sig", errors="surrogateescape").splitlines(), start=1):
        if not line.strip():
            continue
        sequence, comma, file = line.strip().partition(",")
        name, dot, suffix = file.strip().rpartition(".")
        if not (comma and sequence.strip("/ ") and name and dot and suffix == "png" and "/" not in name):
            raise BadInput(
                f"{shown(str(path))}:{number}: cannot read the list: found {shown(line[:80])!r}, expected "
                "SEQUENCE,NAME.png; mend the file"
            )
        yield f"{sequence.strip().strip('/').removeprefix('./')}/{name}"


def _others(lists: dict[str, str], rest: Sequence[str], clouds: Sequence[str]) -> list[str]:
    """Notes of what is of no picture."""
    others = sorted(set(rest) - set(lists.values()))
    notes = [f"{described(others, 'other file')} of no picture"] if others else []
    if clouds:
        notes.append(f"{counted(len(clouds), 'point cloud')} (.pcd): not packed")
    return notes
