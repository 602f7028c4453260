"""REGRAD: the pictures of its version 2, with relations of objects, and the planar grasps of version 1.

A sample is `<split>/RGBImages/<scene>_<view>.jpg`; what belongs to it are `DepthImages/` and `SegmentationImages/`
beside these (`.png`), `<split>/mrts.json` (relations by scene), and `2D_Grasp/<split>/<scene>/<view>/<view>.json`,
wherever that lies. Order: by split, scene and view.

Fields: key (`train/00001_1`), rgb (bytes of the file), depth (PNG bytes, uint16, millimetres; 0 is no distance), mask
(PNG bytes: 0 background, 255 the table, else the number of an object), relations (json: object -> names of its
parents), grasp_rows (float64 (N, 10): object, center x, center y, width, height, angle, and the scores vertical,
center, antipodal and all of them, as in the file), grasp_scores (float32 (N,): the last), grasp_objects (int64 (N,)),
split (int64: names of folders). Hidden: files (field -> relative path), grasps_file (verbatim, empty where there is
none). What no sample has is no field. Labels count the pixels of the file as stored.

There are no `grasps` unless the option `like` says which angles cv2.minAreaRect gave: `cv44` (-90 to 0) or `cv45` (0 to
90). The rectangle is one in both; nothing says which of its sides is the opening, see
packer.sources._parse.regrad_labels. Files of the set were not looked at.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.layouts.json_text import json_value
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._parse.folder_layout import ordered_splits
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._parse.regrad_labels import (
    COLUMNS,
    RegradGrasps,
    read_regrad_grasps,
    read_relations,
    rectangles,
)
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 100
_FOLDERS = {"RGBImages": ("rgb", ".jpg"), "DepthImages": ("depth", ".png"), "SegmentationImages": ("mask", ".png")}
_PIXELS = ("rgb", "depth", "mask")
_NAMED = re.compile(r"([0-9]+)_([0-9]+)\.(?:jpg|png)")
_GRASPS = re.compile(r"(?:(?:.*/)?([^/]+)/)?([0-9]+)/([0-9]+)/\3\.json", re.DOTALL)
_RELATIONS = re.compile(r"(?:(?:.*/)?([^/]+)/)?mrts\.json", re.DOTALL)
_NO_SPLIT = "2D_Grasp"  # the folder above scenes where splits have none
_ANGLES = {"cv44": (-90.0, 0.0), "cv45": (0.0, 90.0)}  # in degrees, of cv2.minAreaRect before and since OpenCV 4.5.1
_ANGLE = 5  # its column

Place = tuple[str, str, str]  # split, scene, view
Paths = dict[str, list[str]]  # role, or split -> relative paths


class _RegradView(NamedTuple):
    place: Place
    paths: Mapping[str, str]  # role -> relative path

    @property
    def key(self) -> str:
        return _key(self.place)


def recognise(names: Sequence[str]) -> str | None:
    """How many views these files hold; None where no picture has a depth or mask beside it."""
    if not any("RGBImages/" in name for name in names):
        return None
    found, _, _ = _collect(names)
    views = [place for place, paths in found.items() if "rgb" in paths and paths.keys() & {"depth", "mask"}]
    scenes = {place[:2] for place in views}
    return f"REGRAD: {counted(len(views), 'view')} of {counted(len(scenes), 'scene')}" if views else None


class Source(base.Source):
    """The relational grasps data set."""

    kind = "regrad"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        like: str = "none",
        missing: str = "keep",
        labels: str = "strict",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the views, and read the relations.

        like: of which OpenCV the angles of the grasps are, `cv44` or `cv45`: those of the other are an error; `none`:
            there is no field `grasps`.
        missing: what a view without grasps is, where others have some: `keep`: a sample with no grasps; `skip`: left
            out; `error`. Grasps without a picture, and a picture without a depth or mask that others have, are left out
            by `skip` and an error otherwise.
        labels: `strict`: a grasp that is ill-formed is an error; `lenient`: it is left out.
        own_splits: whether the folders above the pictures are splits.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming the files, where they contradict each other or are missing.
        """
        base.check_choice("like", like, ("none", *_ANGLES))
        base.check_choice("missing", missing, ("keep", "skip", "error"))
        base.check_choice("labels", labels, ("strict", "lenient"))
        self._like, self._strict = like, labels == "strict"
        listing = self._open_root(root, follow_links=follow_links)
        found, relations, others = _collect(listing.names)
        if not any("rgb" in paths for paths in found.values()):
            raise InvalidRequest(
                f"{shown(str(self.root))}: no views of REGRAD: found {described(listing.names)}, expected pictures "
                "<split>/RGBImages/<scene>_<view>.jpg; give the folder that holds the splits, or say another --from"
            )
        views = _without_doubles(self.root, found, relations)
        self._tables = {split: same[0] for split, same in relations.items()}
        self._has_grasps = any("grasps_file" in view.paths for view in views)
        if like != "none" and not self._has_grasps:
            raise InvalidRequest(
                f"{shown(str(self.root))}: --like {like}: there are no grasps; put 2D_Grasp/ of version 1 below it"
            )
        self._views, self.left_out = _settle_missing(self.root, views, missing)
        self._relations = {
            split: _texts(read_relations(self.read(name), self.root / name)) for split, name in self._tables.items()
        }
        used = {path for view in self._views for path in view.paths.values()}
        lost = [name for paths in found.values() for same in paths.values() for name in same if name not in used]
        self._extras = sorted([*others, *lost, *self._tables.values()])
        names = [view.place[0] for view in self._views] if own_splits else []
        self._splits = ordered_splits(set(names)) if all(names) else ()
        self._split_of = list(map(self._splits.index, names)) if self._splits else []
        self.schema = self._schema()
        self.companions = [name for name in _PIXELS[1:] if name in self.schema]
        self.notes = [*listing.notes(), *self._found()]

    def __len__(self) -> int:
        return len(self._views)

    def __getitem__(self, index: int) -> base.Sample:
        view = self._views[self.checked(index)]
        sample: base.Sample = {"key": view.key}
        sample |= {role: self.read(view.paths[role]) for role in _PIXELS if role in self.schema}
        if self._tables:
            sample["relations"] = self._relations_of(view)
        if self._has_grasps:
            data, grasps = self._grasps(view)
            sample |= {"grasp_rows": grasps.rows, "grasps_file": data}
            sample |= {"grasp_scores": grasps.rows[:, -1].astype(np.float32)}
            sample |= {"grasp_objects": grasps.rows[:, 0].astype(np.int64)}
            if self._like != "none":
                sample["grasps"] = rectangles(grasps.rows)
        if self._splits:
            sample["split"] = np.int64(self._split_of[index])
        return sample | {"files": dict(view.paths)}

    def value(self, index: int, name: str) -> Any:
        view = self._views[self.checked(index)]
        if name == "key":
            return view.key
        if name == "split" and self._splits:
            return np.int64(self._split_of[index])
        if name in _PIXELS and name in view.paths:
            return self.read(view.paths[name])
        return super().value(index, name)

    def key(self, index: int) -> str:
        return self._views[self.checked(index)].key

    def files(self, index: int) -> tuple[Path, ...]:
        paths = self._views[self.checked(index)].paths
        return tuple(self.root / paths[role] for role in (*_PIXELS, "grasps_file") if role in paths)

    def stem(self, index: int) -> Path:
        return self.files(index)[0].with_suffix("")

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self._tables.values())

    def extras(self) -> Sequence[str]:
        return self._extras

    def missing(self, index: int) -> str | None:
        """Absent and dropped grasps, and relations that no file says; reads the label file."""
        view = self._views[self.checked(index)]
        reasons = []
        if self._tables and view.place[1] not in self._relations.get(view.place[0], {}):
            reasons.append("no relations: mrts.json does not have the scene")
        if self._has_grasps and "grasps_file" not in view.paths:
            reasons.append("no grasps: no file in 2D_Grasp/")
        elif self._has_grasps:
            try:
                grasps = self._grasps(view)[1]
            except BadInput:
                return None  # reading the sample says more
            if not grasps.total:
                reasons.append("no grasps: the file in 2D_Grasp/ is empty")
            if grasps.dropped:
                reasons.append(f"{grasps.dropped} of {grasps.total} grasps left out: not finite, or ill-formed")
        return "; ".join(reasons) or None

    def _relations_of(self, view: _RegradView) -> Mapping[str, Sequence[str]]:
        split, scene, _ = view.place
        text = self._relations.get(split, {}).get(scene)
        found: Mapping[str, Sequence[str]] = {} if text is None else json_value(text)
        return found

    def _grasps(self, view: _RegradView) -> tuple[bytes, RegradGrasps]:
        """The label file and its grasps, with angles as `like` says; raises BadInput."""
        name = view.paths.get("grasps_file")
        if name is None:
            return b"", RegradGrasps(np.zeros((0, COLUMNS)), 0)
        data = self.read(name)
        found = read_regrad_grasps(data, self.root / name, strict=self._strict)
        if self._like != "none":
            least, most = _ANGLES[self._like]
            angles = found.rows[:, _ANGLE]
            strange = angles[(angles < least) | (angles > most)]
            if len(strange):
                raise BadInput(
                    f"{shown(str(self.root / name))}: an angle of {strange[0]:g} degrees, expected {least:g} to "
                    f"{most:g} of --like {self._like}; say the other, or leave --like out"
                )
        return data, found

    def _schema(self) -> Schema:
        shared = self._views[0].paths
        fields = [Field("key", "text", "text"), Field("rgb", "image", "encoded")]
        if "depth" in shared:
            fields.append(Field("depth", "depth", "encoded", dtype="uint16", invalid=0.0))
        if "mask" in shared:
            fields.append(Field("mask", "mask", "encoded", dtype=base.probed_mask_dtype(self, "mask")))
        if self._tables:
            fields.append(Field("relations", "json", "json"))
        if self._has_grasps:
            fields += self._grasp_fields()
        if self._splits:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._splits))
        fields.append(Field("files", "json", "json", hidden=True))
        if self._has_grasps:
            fields.append(Field("grasps_file", "bytes", "encoded", hidden=True))
        return Schema(tuple(fields))

    def _grasp_fields(self) -> list[Field]:
        rows = Field("grasp_rows", "number", "raw:float64", dtype="float64", shape=(None, COLUMNS))
        corners = Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2))
        first = [rows] if self._like == "none" else [corners, replace(rows, of="grasps")]
        of = first[0].name
        return [
            *first,
            Field("grasp_scores", "number", "raw:float32", dtype="float32", shape=(None,), of=of),
            Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of=of),
        ]

    def _found(self) -> list[str]:
        """The notes."""
        scenes = {view.place[:2] for view in self._views}
        notes = [f"{counted(len(self), 'view')} of {counted(len(scenes), 'scene')}"]
        notes += [f"no {role}: no view has one" for role in _PIXELS if role not in self.schema]
        if not self._has_grasps:
            notes.append("no grasps: 2D_Grasp/ of version 1 is not there")
        else:
            bare = sum("grasps_file" not in view.paths for view in self._views)
            notes += [f"{counted(bare, 'view')} without a file in 2D_Grasp/: kept with no grasps"] * bool(bare)
            if self._like == "none":
                notes.append("no field grasps: angles are as in the files, see --like; grasp_rows has them")
        if not self._tables:
            notes.append("no relations: there is no mrts.json")
        if self._extras:
            notes.append(f"{described(self._extras, 'other file')} of no view")
        return notes


def _key(place: Place) -> str:
    split, scene, view = place
    return f"{split}/{scene}_{view}" if split else f"{scene}_{view}"


def _texts(relations: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, str]:
    """Relations by scene as text, a tenth of what the lists take: there are tens of thousands of scenes."""
    return {scene: json.dumps(objects) for scene, objects in relations.items()}


def _collect(names: Iterable[str]) -> tuple[dict[Place, Paths], Paths, list[str]]:
    """The files by split, scene, view and role, the files of relations of each split, and all other files."""
    found: dict[Place, Paths] = {}
    relations: Paths = {}
    others = []
    for name in names:
        place, role = _placed(name)
        if place is not None:
            found.setdefault(place, {}).setdefault(role, []).append(name)
            continue
        match = _RELATIONS.fullmatch(name)
        if match is not None:
            relations.setdefault(match[1] or "", []).append(name)
        else:
            others.append(name)
    splits = {place[0] for place, paths in found.items() if "rgb" in paths}
    others += [name for split, same in relations.items() if split not in splits for name in same]
    return found, {split: same for split, same in relations.items() if split in splits}, sorted(others)


def _placed(name: str) -> tuple[Place | None, str]:
    """Of which view a file is, and its role; None for other files."""
    above, _, file = name.rpartition("/")
    before, _, folder = above.rpartition("/")
    role, suffix = _FOLDERS.get(folder, ("", ""))
    match = _NAMED.fullmatch(file)
    if match is not None and role and file.endswith(suffix):
        return (before.rpartition("/")[2], match[1], match[2]), role
    match = _GRASPS.fullmatch(name)
    if match is None:
        return None, ""
    split = match[1] or ""
    return ("" if split == _NO_SPLIT else split, match[2], match[3]), "grasps_file"


def _without_doubles(root: Path, found: Mapping[Place, Paths], relations: Paths) -> list[_RegradView]:
    """One path of each role, in order; raises BadInput for several."""
    twice = [same for paths in (*found.values(), relations) for same in paths.values() if len(same) > 1]
    if twice:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(twice), 'file')} there twice: "
            f"{listed(' and '.join(sorted(same)) for same in sorted(twice))}; remove all but one"
        )

    def order(place: Place) -> tuple[str, int, int, Place]:
        return place[0], int(place[1]), int(place[2]), place

    return [
        _RegradView(place, {role: same[0] for role, same in found[place].items()}) for place in sorted(found, key=order)
    ]


def _settle_missing(
    root: Path, views: Sequence[_RegradView], missing: str
) -> tuple[list[_RegradView], list[tuple[str, str]]]:
    """The views that are complete enough, and those that are left out with the reason; raises BadInput."""
    used = {"rgb"}.union(*(view.paths for view in views))
    used -= {"grasps_file"} if missing == "keep" else set()
    lacking = {
        view.key: "no " + ", ".join(_expected(view.place, role) for role in sorted(used - view.paths.keys()))
        for view in views
        if used - view.paths.keys()
    }
    if lacking and (missing != "skip" or len(lacking) == len(views)):
        raise BadInput(
            f"{shown(str(root))}: {counted(len(lacking), 'view')} of {len(views)} lack files that others have: "
            f"{listed(f'{key} ({reason})' for key, reason in lacking.items())}; "
            "get them, or say --missing skip, which leaves these out"
        )
    return [view for view in views if view.key not in lacking], list(lacking.items())


def _expected(place: Place, role: str) -> str:
    _, scene, view = place
    if role == "grasps_file":
        return f"2D_Grasp/.../{scene}/{view}/{view}.json"
    folder, suffix = next((folder, suffix) for folder, (named, suffix) in _FOLDERS.items() if named == role)
    return f"{folder}/{scene}_{view}{suffix}"
