"""GraspNet-1Billion with its planar grasps (rectangles), from one camera or from both.

A sample is a picture `scene_NNNN/<realsense|kinect>/rgb/NNNN.png`, below any folders; beside it lie `depth/` and
`label/`. Its grasps are `rect/NNNN.npy` beside these, or `scene_NNNN/<camera>/NNNN.npy` below `rect_labels/` as they
are downloaded; where both are there, the former. Order: by scene, camera and number.

Fields: key (`scene_0000/realsense/0000`), rgb (PNG bytes), depth (PNG bytes, uint16, millimetres, 0 is no
measurement), mask (PNG bytes: 0 background, else an object), grasps (float32 (N, 4, 2), corners x, y; p0 -> p1 is the
opening axis), grasp_rows (float64 (N, 7): center x, center y, open x, open y, height, score, object, as in the file,
but for those that are not finite), grasp_scores (float32 (N,)), grasp_objects (int64 (N,)), camera (text), split
(int64: train is scenes 0 to 99, test_seen to 129, test_similar to 159, test_novel to 189, other beyond). Hidden: files
(field -> relative path), grasps_file (verbatim, empty where there is none). A depth or mask that no picture has is no
field. Labels count the pixels of the file as stored.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._parse.graspnet_rows import COLUMNS, GraspNetRows, read_graspnet_rows
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 100
_CAMERA = r"(?:.*/)?scene_([0-9]{4})/(realsense|kinect)"
_FILE = re.compile(rf"{_CAMERA}/(?:(rgb|depth|label)/([0-9]{{4}})\.png|(rect/)?([0-9]{{4}})\.npy)", re.DOTALL)
_PIXELS = {"rgb": "rgb", "depth": "depth", "label": "mask"}
_NAMES = {"rgb": "rgb/{}.png", "depth": "depth/{}.png", "mask": "label/{}.png", "grasps_file": "rect/{}.npy"}
_SPLITS = (("train", 100), ("test_seen", 130), ("test_similar", 160), ("test_novel", 190))  # the scene that ends each
_OTHER = "other"

Place = tuple[str, str, str]  # scene, camera, number
Paths = dict[str, list[str]]  # role -> relative paths


class _RectPicture(NamedTuple):
    place: Place
    paths: Mapping[str, str]  # role -> relative path

    @property
    def key(self) -> str:
        scene, camera, number = self.place
        return f"scene_{scene}/{camera}/{number}"


def recognise(names: Sequence[str]) -> str | None:
    """How many pictures with rectangles these files hold; None where no picture has any."""
    found, _ = _collect(names)
    labelled = [place for place, paths in found.items() if "rgb" in paths and paths.keys() & {"grasps_file", "loose"}]
    scenes = {scene for scene, _, _ in labelled}
    if not labelled:
        return None
    return f"GraspNet rectangles: {counted(len(labelled), 'picture')} of {counted(len(scenes), 'scene')}"


class Source(base.Source):
    """GraspNet-1Billion with its planar grasps."""

    kind = "graspnet-rect"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        own_splits: bool = True,
        follow_links: bool = False,
    ) -> None:
        """List the pictures.

        missing: what a picture without grasps is: `keep`: a sample with no grasps; `skip`: left out; `error`. Grasps
            without a picture, and a picture without a depth or mask that others have, are left out by `skip` and an
            error otherwise.
        own_splits: whether the samples have the splits of their scenes.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming the files, where they contradict each other or are missing.
        """
        base.check_choice("missing", missing, ("keep", "skip", "error"))
        listing = self._open_root(root, follow_links=follow_links)
        found, others = _collect(listing.names)
        if not any("rgb" in paths for paths in found.values()):
            raise InvalidRequest(
                f"{shown(str(self.root))}: no GraspNet rectangles: found {described(listing.names)}, expected pictures "
                "scene_NNNN/realsense/rgb/NNNN.png with rect/NNNN.npy; give the folder that holds scenes/, or say "
                "another --from"
            )
        pictures = _without_doubles(self.root, found)
        self._pictures, self.left_out = _settle_missing(self.root, pictures, missing)
        used = {path for picture in self._pictures for path in picture.paths.values()}
        lost = [name for paths in found.values() for same in paths.values() for name in same if name not in used]
        self._extras = sorted([*others, *lost])
        names = [_split(picture.place[0]) for picture in self._pictures] if own_splits else []
        self._splits = tuple(name for name in (*(name for name, _ in _SPLITS), _OTHER) if name in set(names))
        self._split_of = list(map(self._splits.index, names))
        self.schema = self._schema()
        self.companions = [name for name in ("depth", "mask") if name in self.schema]
        self.notes = [*listing.notes(), *self._found()]

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> base.Sample:
        picture = self._pictures[self.checked(index)]
        data, labels = self._labels(picture)
        sample: base.Sample = {"key": picture.key, "camera": picture.place[1]}
        sample |= {role: self.read(picture.paths[role]) for role in _PIXELS.values() if role in self.schema}
        sample |= {"grasps": labels.corners, "grasp_rows": labels.rows}
        sample |= {"grasp_scores": labels.rows[:, 5].astype(np.float32)}
        sample |= {"grasp_objects": labels.rows[:, 6].astype(np.int64)}
        if self._splits:
            sample["split"] = np.int64(self._split_of[index])
        return sample | {"files": dict(picture.paths), "grasps_file": data}

    def value(self, index: int, name: str) -> Any:
        picture = self._pictures[self.checked(index)]
        if name == "key":
            return picture.key
        if name == "split" and self._splits:
            return np.int64(self._split_of[index])
        if name in _PIXELS.values() and name in picture.paths:
            return self.read(picture.paths[name])
        return super().value(index, name)

    def key(self, index: int) -> str:
        return self._pictures[self.checked(index)].key

    def files(self, index: int) -> tuple[Path, ...]:
        paths = self._pictures[self.checked(index)].paths
        return tuple(self.root / paths[role] for role in _NAMES if role in paths)

    def stem(self, index: int) -> Path:
        return self.files(index)[0].with_suffix("")

    def extras(self) -> Sequence[str]:
        return self._extras

    def missing(self, index: int) -> str | None:
        """Absent and dropped grasps; reads the label file."""
        picture = self._pictures[self.checked(index)]
        if "grasps_file" not in picture.paths:
            return "no grasps: no file of rectangles"
        try:
            labels = self._labels(picture)[1]
        except BadInput:
            return None  # reading the sample says more
        if not labels.total:
            return "no grasps: the file of rectangles is empty"
        reasons = [f"{labels.dropped} of {labels.total} grasps left out: not finite"] if labels.dropped else []
        if labels.flat:
            reasons.append(
                f"{labels.flat} of {labels.total} grasps with an opening of 0, or a height of 0 or below: kept"
            )
        return "; ".join(reasons) or None

    def _labels(self, picture: _RectPicture) -> tuple[bytes, GraspNetRows]:
        name = picture.paths.get("grasps_file")
        if name is None:
            return b"", GraspNetRows(np.zeros((0, COLUMNS)), np.zeros((0, 4, 2), np.float32), 0)
        data = self.read(name)
        return data, read_graspnet_rows(data, self.root / name)

    def _schema(self) -> Schema:
        shared = self._pictures[0].paths
        fields = [Field("key", "text", "text"), Field("rgb", "image", "encoded")]
        if "depth" in shared:
            fields.append(Field("depth", "depth", "encoded", dtype="uint16", invalid=0.0))
        if "mask" in shared:
            fields.append(Field("mask", "mask", "encoded", dtype=base.probed_mask_dtype(self, "mask")))
        fields += [
            Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2)),
            Field("grasp_rows", "number", "raw:float64", dtype="float64", shape=(None, COLUMNS), of="grasps"),
            Field("grasp_scores", "number", "raw:float32", dtype="float32", shape=(None,), of="grasps"),
            Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="grasps"),
            Field("camera", "text", "text"),
        ]
        if self._splits:
            fields.append(Field("split", "number", "number", dtype="int64", shape=(), classes=self._splits))
        fields.append(Field("files", "json", "json", hidden=True))
        fields.append(Field("grasps_file", "bytes", "encoded", hidden=True))
        return Schema(tuple(fields))

    def _found(self) -> list[str]:
        """The notes."""
        scenes = {picture.place[0] for picture in self._pictures}
        cameras = Counter(picture.place[1] for picture in self._pictures)
        said = ", ".join(f"{camera} {count}" for camera, count in sorted(cameras.items()))
        notes = [f"{counted(len(self), 'picture')} of {counted(len(scenes), 'scene')}: {said}"]
        notes += [f"no {role}: no picture has one" for role in ("depth", "mask") if role not in self.schema]
        bare = sum("grasps_file" not in picture.paths for picture in self._pictures)
        if bare:
            notes.append(f"{counted(bare, 'picture')} without rectangles: kept with no grasps")
        if self._splits:
            counts = Counter(self._split_of)
            notes.append("splits: " + ", ".join(f"{name} {counts[row]}" for row, name in enumerate(self._splits)))
        if self._extras:
            notes.append(f"{described(self._extras, 'other file')} of no picture")
        return notes


def _split(scene: str) -> str:
    return next((name for name, end in _SPLITS if int(scene) < end), _OTHER)


def _collect(names: Iterable[str]) -> tuple[dict[Place, Paths], list[str]]:
    """The files by scene, camera, number and role (`loose`: grasps as downloaded), and all other files."""
    found: dict[Place, Paths] = {}
    others = []
    for name in names:
        match = _FILE.fullmatch(name)
        if match is None:
            others.append(name)
            continue
        scene, camera, folder, number, rect, labelled = match.groups()
        role = _PIXELS[folder] if folder else "grasps_file" if rect else "loose"
        found.setdefault((scene, camera, number or labelled), {}).setdefault(role, []).append(name)
    return found, others


def _without_doubles(root: Path, found: Mapping[Place, Paths]) -> list[_RectPicture]:
    """One path of each role; raises BadInput for several."""
    twice = [same for paths in found.values() for same in paths.values() if len(same) > 1]
    if twice:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(twice), 'file')} there twice: "
            f"{listed(' and '.join(sorted(same)) for same in sorted(twice))}; remove all but one"
        )
    pictures = []
    for place, paths in sorted(found.items()):
        one = {role: paths[role][0] for role in _NAMES if role in paths}
        if "loose" in paths:
            one.setdefault("grasps_file", paths["loose"][0])
        pictures.append(_RectPicture(place, one))
    return pictures


def _settle_missing(
    root: Path, pictures: Sequence[_RectPicture], missing: str
) -> tuple[list[_RectPicture], list[tuple[str, str]]]:
    """The pictures that are complete enough, and those that are left out with the reason; raises BadInput."""
    used = {"rgb"}.union(*(picture.paths for picture in pictures)) - {"grasps_file"}
    used |= {"grasps_file"} if missing != "keep" else set()
    lacking = {
        picture.key: "no "
        + ", ".join(_NAMES[role].format(picture.place[2]) for role in sorted(used - set(picture.paths)))
        for picture in pictures
        if used - set(picture.paths)
    }
    if lacking and (missing != "skip" or len(lacking) == len(pictures)):
        raise BadInput(
            f"{shown(str(root))}: {counted(len(lacking), 'picture')} of {len(pictures)} lack files that others have: "
            f"{listed(f'{key} ({reason})' for key, reason in lacking.items())}; "
            "get them, or say --missing skip, which leaves these out"
        )
    return [picture for picture in pictures if picture.key not in lacking], list(lacking.items())
