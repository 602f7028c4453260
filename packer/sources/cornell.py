"""Cornell: the Cornell grasping data set, in any of the layouts that it is passed on in.

A scene is every `pcdNNNNr.png`, `pcdNNNNd.tiff`, `pcdNNNNcpos.txt`, `pcdNNNNcneg.txt` and `pcdNNNN.txt` with one
number, wherever they lie; a sample is a scene with a picture and a cpos file. Order: by the path of the cpos file, as
the grasp networks' loaders have it (their splits are cuts of that list).

Fields: key (four digits), rgb (PNG bytes), depth (float32, metres; TIFF bytes or computed), grasps and grasps_negative
(float32 (N, 4, 2), corners x, y; p0 -> p1 is the opening axis; rectangles with NaN are left out), object_id and
category (of `z.txt`, where it is there; -1 and "" for a scene that it does not list). Hidden: files (field -> relative
path), grasps_file and grasps_negative_file (the label files verbatim, empty where there is none).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from packer.errors import BadInput, InvalidRequest
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._parse.grasp_labels import Labels, read_rectangles
from packer.sources._parse.point_cloud import png_size, read_depth
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 100
_FILE = re.compile(r"pcd([0-9]{4})(r\.png|d\.tiff?|cpos\.txt|cneg\.txt|\.txt)")
_BACKGROUND = re.compile(r"pcdb[0-9]{4}r\.png")
_TABLE = "z.txt"
_MOST_DIGITS = 18
_ROLES = {"r.png": "rgb", "d.tiff": "depth", "d.tif": "depth", ".txt": "cloud"}
_ROLES |= {"cpos.txt": "grasps_file", "cneg.txt": "grasps_negative_file"}
_GRASPS = {"grasps": "grasps_file", "grasps_negative": "grasps_negative_file"}

Paths = dict[str, list[str]]  # role -> relative paths


class _Scene(NamedTuple):
    key: str
    paths: Mapping[str, str]  # role -> relative path
    object_id: int = -1
    category: str = ""


def recognise(names: Sequence[str]) -> str | None:
    """How many scenes these files hold; None where no number has a picture and a cpos file."""
    found, _ = _collect(names)
    scenes = [paths for paths in found.values() if "rgb" in paths and "grasps_file" in paths]
    folders = {name.rpartition("/")[0] for paths in scenes for name in paths["grasps_file"]}
    return f"Cornell grasps: {counted(len(scenes), 'scene')} in {counted(len(folders), 'folder')}" if scenes else None


class Source(base.Source):
    """The Cornell grasping data set."""

    kind = "cornell"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        depth_from: str = "auto",
        duplicates: str = "error",
        labels: str = "strict",
        follow_links: bool = False,
    ) -> None:
        """List the scenes.

        depth_from: `tiff`: the d.tiff files; `pcd`: computed from the point clouds; `none`: no depth; `auto`: the
            d.tiff files where all scenes have one, no depth where none has.
        duplicates: what a file that is there twice does: `error`; `first`: the first path counts, in a folder with a
            cpos file if there is one; `skip`: its scene is left out.
        labels: `strict`: a line that is no corner is an error; `lenient`: its rectangle is left out.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming all scenes, where files contradict each other or are missing.
        """
        base.check_choice("depth_from", depth_from, ("auto", "tiff", "pcd", "none"))
        base.check_choice("duplicates", duplicates, ("error", "first", "skip"))
        base.check_choice("labels", labels, ("strict", "lenient"))
        self._strict = labels == "strict"
        listing = self._open_root(root, follow_links=follow_links)
        root = self.root
        found, others = _collect(listing.names)
        self.left_out = _settle_duplicates(root, found, duplicates)
        scenes = _scenes(root, found)
        self._depth = _depth_role(root, scenes, depth_from)
        tables = [name for name in others if name.rpartition("/")[2] == _TABLE]
        objects = _read_table(self.folder, tables, strict=self._strict)
        self._scenes = [_Scene(scene.key, scene.paths, *objects.get(scene.key, (-1, ""))) for scene in scenes]
        self._has_objects = bool(tables)
        self._extras = sorted([*others, *_of_no_sample(found)])
        self._tables = tables
        self.schema = _schema(self._depth, has_objects=self._has_objects)
        self.notes = [*listing.notes(), *self._found(len(found), set(others) - set(tables))]

    def __len__(self) -> int:
        return len(self._scenes)

    def __getitem__(self, index: int) -> base.Sample:
        scene = self._scenes[self.checked(index)]
        rgb = self.read(scene.paths["rgb"])
        files = {role: path for role, path in scene.paths.items() if role in self.schema}
        sample: base.Sample = {"key": scene.key, "rgb": rgb, "files": files}
        if self._depth == "depth":
            sample["depth"] = self.read(scene.paths["depth"])
        elif self._depth == "cloud":
            sample["depth"] = self._computed_depth(scene, rgb)
            files.pop("depth", None)  # what is packed is not that file
        for name, role in _GRASPS.items():
            data, labels = self._labels(scene, role)
            sample[role] = data
            sample[name] = labels.values.astype(np.float32)
        if self._has_objects:
            sample |= {"object_id": np.int64(scene.object_id), "category": scene.category}
        return sample

    def value(self, index: int, name: str) -> Any:
        scene = self._scenes[self.checked(index)]
        known = {"key": scene.key, "object_id": np.int64(scene.object_id), "category": scene.category}
        return known[name] if name in known and name in self.schema else super().value(index, name)

    def key(self, index: int) -> str:
        return self._scenes[self.checked(index)].key

    def files(self, index: int) -> tuple[Path, ...]:
        paths = self._scenes[self.checked(index)].paths
        roles = ("rgb", self._depth, *_GRASPS.values())
        return tuple(self.root / paths[role] for role in roles if role in paths)

    def stem(self, index: int) -> Path:
        scene = self._scenes[self.checked(index)]
        return (self.root / scene.paths["rgb"]).with_name(f"pcd{scene.key}")

    def tables(self) -> tuple[Path, ...]:
        return tuple(self.root / name for name in self._tables)

    def extras(self) -> Sequence[str]:
        """Tables, backgrounds and what else is there; the point clouds, which are 10 MB each, are not among them."""
        return self._extras

    def missing(self, index: int) -> str | None:
        """Absent and dropped grasps; reads the label files."""
        scene = self._scenes[self.checked(index)]
        try:
            read = {name: self._labels(scene, role)[1] for name, role in _GRASPS.items()}
        except BadInput:
            return None  # reading the sample says more
        reasons = [] if read["grasps"].total else ["the cpos file is empty: no grasps"]
        for name, labels in read.items():
            if labels.dropped:
                reasons.append(f"{labels.dropped} of {labels.total} rectangles in {name} left out: not numbers")
        return "; ".join(reasons) or None

    def _labels(self, scene: _Scene, role: str) -> tuple[bytes, Labels]:
        path = self.root / scene.paths[role] if role in scene.paths else None
        data = self.read(scene.paths[role]) if path else b""
        return data, read_rectangles(data, path or self.root, strict=self._strict)

    def _computed_depth(self, scene: _Scene, rgb: bytes) -> Any:
        height, width = png_size(rgb, self.root / scene.paths["rgb"])
        name = scene.paths["cloud"]
        return read_depth(self.read(name), self.root / name, height=height, width=width)

    def _found(self, total: int, unused: Iterable[str]) -> list[str]:
        """The notes."""
        notes = [f"{counted(len(self), 'scene')} with a picture and a cpos file"]
        if total > len(self):
            notes.append(f"{counted(total - len(self), 'scene')} without a cpos file: no samples")
        if "depth" not in self.schema:
            notes.append("no depth: no d.tiff files are used; --depth-from pcd computes it from the point clouds")
        bare = sum("grasps_negative_file" not in scene.paths for scene in self._scenes)
        if bare:
            notes.append(f"{counted(bare, 'scene')} without a cneg file: no negative grasps")
        unlisted = sum(scene.object_id < 0 for scene in self._scenes)
        if not self._has_objects:
            notes.append(f"no {_TABLE}: object_id and category are not known")
        elif unlisted:
            notes.append(f"{counted(unlisted, 'scene')} not in {_TABLE}: object_id -1, category empty")
        names = [name.rpartition("/")[2] for name in unused]
        backgrounds = sum(_BACKGROUND.fullmatch(name) is not None for name in names)
        if names:
            others = [name for name in names if _BACKGROUND.fullmatch(name) is None]
            rest = f" and {described(others, 'other file')}" if others else ""
            notes.append(f"{counted(backgrounds, 'background')}{rest} of no scene")
        return notes


def _collect(names: Iterable[str]) -> tuple[dict[str, Paths], list[str]]:
    """The scenes' files by number and role, and all other files."""
    found: dict[str, Paths] = {}
    others = []
    for name in names:
        match = _FILE.fullmatch(name.rpartition("/")[2])
        if match is None:
            others.append(name)
        else:
            found.setdefault(match[1], {}).setdefault(_ROLES[match[2]], []).append(name)
    return found, others


def _of_no_sample(found: Mapping[str, Paths]) -> list[str]:
    """The files of scenes without a cpos file, but for the point clouds."""
    bare = [paths for paths in found.values() if "grasps_file" not in paths]
    return [name for paths in bare for role, names in paths.items() if role != "cloud" for name in names]


def _settle_duplicates(root: Path, found: dict[str, Paths], duplicates: str) -> list[tuple[str, str]]:
    """Leave one path per number and role in `found`; returns the scenes that were taken out."""
    left_out = []
    twice = {key: [path for path in paths.values() if len(path) > 1] for key, paths in found.items()}
    reasons = {key: "there twice: " + ", ".join(same[0]) for key, same in sorted(twice.items()) if same}
    if reasons and duplicates == "error":
        raise BadInput(
            f"{shown(str(root))}: {counted(len(reasons), 'scene')} with a file in two folders: "
            f"{listed(reasons.values())}; "
            "say --duplicates first or --duplicates skip, or remove one of the files"
        )
    for key, reason in reasons.items():
        if duplicates == "skip":
            del found[key]
            left_out.append((key, reason))
            continue
        labelled = {path.rpartition("/")[0] for path in found[key].get("grasps_file", ())}
        for paths in found[key].values():  # a stray copy must not part a picture from its labels
            paths.sort(key=lambda path: (path.rpartition("/")[0] not in labelled, path))
    return left_out


def _scenes(root: Path, found: Mapping[str, Paths]) -> list[_Scene]:
    scenes = [
        _Scene(key, {role: same[0] for role, same in paths.items()})
        for key, paths in found.items()
        if "grasps_file" in paths
    ]
    if not found:
        raise InvalidRequest(
            f"{shown(str(root))}: no Cornell scenes, expected files pcdNNNNr.png and pcdNNNNcpos.txt; give the folder "
            "that holds the data set, or say another --from"
        )
    if not scenes:
        raise BadInput(
            f"{shown(str(root))}: no Cornell scenes: found numbers {listed(sorted(found)) or 'none'}, "
            "expected files pcdNNNNr.png and pcdNNNNcpos.txt; give the folder that holds the data set"
        )
    scenes.sort(key=lambda scene: scene.paths["grasps_file"])
    _check_all_have(root, scenes, "rgb", "a picture pcdNNNNr.png; get it, or remove their cpos files")
    return scenes


def _check_all_have(root: Path, scenes: Sequence[_Scene], role: str, expected: str) -> None:
    lacking = [scene.key for scene in scenes if role not in scene.paths]
    if lacking:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(lacking), 'scene')} of {len(scenes)} lack a file: {listed(lacking)}: "
            f"expected {expected}"
        )


def _depth_role(root: Path, scenes: Sequence[_Scene], depth_from: str) -> str:
    """The role that gives the depth, "" for no depth; raises BadInput where a scene lacks it."""
    if depth_from == "none" or (depth_from == "auto" and not any("depth" in scene.paths for scene in scenes)):
        return ""
    if depth_from == "pcd":
        _check_all_have(root, scenes, "cloud", "a point cloud pcdNNNN.txt; get it, or say --depth-from none")
        return "cloud"
    choices = "get it, or say --depth-from pcd (computes it) or --depth-from none (packs none)"
    if depth_from == "auto":
        choices += "; --depth-from tiff insists on the files"
    _check_all_have(root, scenes, "depth", f"depth pcdNNNNd.tiff; {choices}")
    return "depth"


def _read_table(folder: FileTree, tables: Sequence[str], *, strict: bool) -> dict[str, tuple[int, str]]:
    """Number -> object id and category, of lines `number object category background` (processedData/z.txt)."""
    if len(tables) > 1:
        raise BadInput(f"{shown(str(folder.root))}: more than one {_TABLE}: {listed(tables)}; keep one")
    objects: dict[str, tuple[int, str]] = {}
    for name in tables:
        path, text = folder.root / name, folder.read(name).decode("utf-8-sig", errors="surrogateescape")
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.split()
            # an id is stored as int64
            fits = len(words) == 4 and words[1].isascii() and words[1].isdigit() and len(words[1]) <= _MOST_DIGITS
            if fits and objects.setdefault(words[0], (int(words[1]), words[2])) == (int(words[1]), words[2]):
                continue
            if words and strict:
                expected = f"object {objects[words[0]]} as above" if fits else "number, object id, category, background"
                raise BadInput(
                    f"{shown(str(path))}:{number}: cannot read the table: found {shown(line)!r}, expected {expected}; "
                    "mend the file or say --labels lenient"
                )
    return objects


def _schema(depth: str, *, has_objects: bool) -> Schema:
    fields = [Field("key", "text", "text"), Field("rgb", "image", "encoded")]
    if depth:
        fields.append(Field("depth", "depth", "encoded" if depth == "depth" else "raw:float32", dtype="float32"))
    fields += [Field(name, "points", "raw:float32", dtype="float32", shape=(None, 4, 2)) for name in _GRASPS]
    if has_objects:
        fields += [
            Field("object_id", "number", "number", dtype="int64", shape=()),
            Field("category", "text", "text"),
        ]
    fields.append(Field("files", "json", "json", hidden=True))
    fields += [Field(role, "bytes", "encoded", hidden=True) for role in _GRASPS.values()]
    return Schema(tuple(fields))
