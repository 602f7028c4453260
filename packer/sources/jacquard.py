"""Jacquard: the Jacquard grasping data set, unpacked in any nesting of folders.

A view is every `<i>_<object>_RGB.png`, `_perfect_depth.tiff`, `_stereo_depth.tiff`, `_mask.png` and `_grasps.txt` with
one beginning in one folder; the beginning is its key. Order: by relative path, as the grasp networks' loaders have it:
`Jacquard_Dataset_10` stands before `Jacquard_Dataset_2`, so the order, and any cut of it, differs between nestings.

Fields: key, rgb (PNG bytes), depth (TIFF bytes, float32, metres), depth_stereo (the same; -1 marks a pixel without a
measurement), mask (PNG bytes), grasps (float32 (N, 4, 2), corners x, y; p0 -> p1 is the opening axis), grasp_rows
(float64 (N, 5): x, y, theta in degrees, opening, jaw; every row of the file in its order, except those that are not
finite), object_id (text). Hidden: files (field -> relative path), grasps_file (verbatim, empty where there is none).
A depth or mask that no view has is no field.

Jacquard V2 (`JacquardV2_Dataset_<n>`) has the same names and rows. Files that its authors corrected have a row before
the others, lines that end in LF, and nothing behind the last one: the networks' loaders, which cut the last character
of every line, lose a digit of it, this source does not.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._parse.grasp_labels import Labels, read_rows
from packer.sources._parse.grasp_labels import corners as corners
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 100
_FILE = re.compile(r"([0-9]+)_(.+)_(RGB\.png|grasps\.txt|mask\.png|perfect_depth\.tiff|stereo_depth\.tiff)", re.DOTALL)
_SUFFIXES = {"rgb": "RGB.png", "depth": "perfect_depth.tiff", "depth_stereo": "stereo_depth.tiff"}
_SUFFIXES |= {"mask": "mask.png", "grasps_file": "grasps.txt"}
_ROLES = {suffix: role for role, suffix in _SUFFIXES.items()}
_OPTIONAL = {
    "depth": Field("depth", "depth", "encoded", dtype="float32"),
    "depth_stereo": Field("depth_stereo", "depth", "encoded", dtype="float32", invalid=-1.0),
    "mask": Field("mask", "mask", "encoded"),
}

Found = dict[tuple[str, str], frozenset[str]]  # folder and key -> roles


class _View(NamedTuple):
    key: str
    folder: str
    roles: frozenset[str]

    def path(self, role: str) -> str:
        return f"{self.folder}{self.key}_{_SUFFIXES[role]}"


def recognise(names: Sequence[str]) -> str | None:
    """How many views these files hold; None where no picture has a depth or grasps beside it."""
    found, _ = _collect(names)
    views = [place for place, roles in found.items() if "rgb" in roles and roles & {"grasps_file", "depth"}]
    objects = {_object(key) for _, key in views}
    return f"Jacquard grasps: {counted(len(views), 'view')} of {counted(len(objects), 'object')}" if views else None


class Source(base.Source):
    """The Jacquard grasping data set."""

    kind = "jacquard"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        duplicates: str = "error",
        labels: str = "strict",
        follow_links: bool = False,
    ) -> None:
        """List the views.

        missing: what a view without grasps is: `keep`: a sample with no grasps; `skip`: left out; `error`. A view
            without a depth or mask that others have is left out by `skip` and an error otherwise.
        duplicates: what a view that lies in two folders is: `error`; `first`: the first path counts; `skip`: left out.
        labels: `strict`: a line that is no grasp is an error; `lenient`: it is left out.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming the views, where files contradict each other or are missing.
        """
        base.check_choice("missing", missing, ("keep", "skip", "error"))
        base.check_choice("duplicates", duplicates, ("error", "first", "skip"))
        base.check_choice("labels", labels, ("strict", "lenient"))
        self._strict = labels == "strict"
        listing = self._open_root(root, follow_links=follow_links)
        root = self.root
        found, self._extras = _collect(listing.names)
        if not found:
            raise InvalidRequest(
                f"{shown(str(root))}: no Jacquard views: found {described(listing.names)}, expected names such as "
                "0_<object>_RGB.png; give the folder that holds the data set, or say another --from"
            )
        views, twice = _settle_duplicates(root, found, duplicates)
        self._views, incomplete = _settle_missing(root, views, missing)
        self.left_out = [*twice, *incomplete]
        shared = frozenset.intersection(*(view.roles for view in self._views)) if self._views else frozenset()
        self.schema = _schema(shared)
        self.notes = [*listing.notes(), *self._found()]

    def __len__(self) -> int:
        return len(self._views)

    def __getitem__(self, index: int) -> base.Sample:
        view = self._views[self.checked(index)]
        data, labels = self._labels(view)
        roles = [role for role in _SUFFIXES if role in view.roles]
        sample: base.Sample = {
            "key": view.key,
            "grasps": corners(labels.values),
            "grasp_rows": labels.values,
            "object_id": _object(view.key),
            "files": {role: view.path(role) for role in roles},
            "grasps_file": data,
        }
        pixels = {role: self.read(view.path(role)) for role in roles if role != "grasps_file"}
        return sample | pixels

    def value(self, index: int, name: str) -> Any:
        key = self.key(index)
        known = {"key": key, "object_id": _object(key)}
        return known[name] if name in known else super().value(index, name)

    def key(self, index: int) -> str:
        return self._views[self.checked(index)].key

    def files(self, index: int) -> tuple[Path, ...]:
        view = self._views[self.checked(index)]
        return tuple(self.root / view.path(role) for role in _SUFFIXES if role in view.roles)

    def stem(self, index: int) -> Path:
        view = self._views[self.checked(index)]
        return self.root / (view.folder + view.key)

    def extras(self) -> Sequence[str]:
        return self._extras

    def missing(self, index: int) -> str | None:
        """Absent and dropped grasps; reads the label file."""
        view = self._views[self.checked(index)]
        if "grasps_file" not in view.roles:
            return "no grasps: no _grasps.txt"
        try:
            labels = self._labels(view)[1]
        except BadInput:
            return None  # reading the sample says more
        if not labels.total:
            return "no grasps: _grasps.txt is empty"
        return f"{labels.dropped} of {labels.total} grasps left out: not numbers" if labels.dropped else None

    def _labels(self, view: _View) -> tuple[bytes, Labels]:
        name = view.path("grasps_file")
        data = self.read(name) if "grasps_file" in view.roles else b""
        return data, read_rows(data, self.root / name, columns=5, separator=";", strict=self._strict)

    def _found(self) -> list[str]:
        """The notes."""
        objects = {_object(view.key) for view in self._views}
        notes = [f"{counted(len(self), 'view')} of {counted(len(objects), 'object')}"]
        notes += [f"no {role}: no view has a _{_SUFFIXES[role]}" for role in _OPTIONAL if role not in self.schema]
        bare = sum("grasps_file" not in view.roles for view in self._views)
        if bare:
            notes.append(f"{counted(bare, 'view')} without _grasps.txt: kept with no grasps")
        strange = [view for view in self._views if view.folder[:-1].rpartition("/")[2] != _object(view.key)]
        if strange:
            first = shown(strange[0].folder + strange[0].key)
            notes.append(
                f"{counted(len(strange), 'view')} in a folder that is not named as its object, such as {first}"
            )
        if self._extras:
            notes.append(f"{described(self._extras, 'other file')} of no view")
        return notes


def _object(key: str) -> str:
    return key.partition("_")[2]


def _collect(names: Iterable[str]) -> tuple[Found, list[str]]:
    """Folder and key of every view with the files that it has, and all other files."""
    found: dict[tuple[str, str], set[str]] = {}
    others = []
    for name in names:
        folder, slash, file = name.rpartition("/")
        match = _FILE.fullmatch(file)
        if match is None:
            others.append(name)
        else:
            found.setdefault((folder + slash, f"{match[1]}_{match[2]}"), set()).add(_ROLES[match[3]])
    sets: dict[frozenset[str], frozenset[str]] = {}  # one object per set: 50 000 views have five different ones
    return {place: sets.setdefault(frozenset(roles), frozenset(roles)) for place, roles in found.items()}, others


def _settle_duplicates(root: Path, found: Found, duplicates: str) -> tuple[list[_View], list[tuple[str, str]]]:
    """The views, each key once, in order of their paths, and those that are left out."""
    folders: dict[str, list[str]] = {}
    for folder, key in sorted(found, key=lambda place: "".join(place) + "_grasps.txt"):
        folders.setdefault(key, []).append(folder)
    twice = {
        key: "there twice: " + ", ".join(f"{place}{key}_*" for place in places)
        for key, places in folders.items()
        if len(places) > 1
    }
    if twice and duplicates == "error":
        raise BadInput(
            f"{shown(str(root))}: {counted(len(twice), 'view')} in two folders: "
            f"{listed(twice.values())}; "
            "say --duplicates first or --duplicates skip, or remove one of the folders"
        )
    left_out = twice if duplicates == "skip" else {}
    kept = {key: places[0] for key, places in folders.items() if key not in left_out}
    views = [_View(key, folder, found[folder, key]) for key, folder in kept.items()]
    return views, list(left_out.items())


def _settle_missing(root: Path, views: Sequence[_View], missing: str) -> tuple[list[_View], list[tuple[str, str]]]:
    """The views that are complete enough, and those that are left out with the reason; raises BadInput."""
    used = frozenset.union(*(view.roles for view in views)) | {"rgb"} if views else frozenset()
    used = used - {"grasps_file"} if missing == "keep" else used | {"grasps_file"}
    lacking = {view.key: sorted(_SUFFIXES[role] for role in used - view.roles) for view in views if used - view.roles}
    reasons = {key: f"no {', '.join(suffixes)}" for key, suffixes in lacking.items()}
    if reasons and missing != "skip":
        raise BadInput(
            f"{shown(str(root))}: {counted(len(reasons), 'view')} of {len(views)} lack files that others have: "
            f"{listed(f'{key} ({reason})' for key, reason in reasons.items())}; "
            "get them, or say --missing skip, which leaves these views out"
        )
    return [view for view in views if view.key not in reasons], list(reasons.items())


def _schema(shared: frozenset[str]) -> Schema:
    return Schema(
        (
            Field("key", "text", "text"),
            Field("rgb", "image", "encoded"),
            *(field for role, field in _OPTIONAL.items() if role in shared),
            Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2)),
            Field("grasp_rows", "number", "raw:float64", dtype="float64", shape=(None, 5)),
            Field("object_id", "text", "text"),
            Field("files", "json", "json", hidden=True),
            Field("grasps_file", "bytes", "encoded", hidden=True),
        )
    )
