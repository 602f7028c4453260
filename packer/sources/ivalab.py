"""ivalab: the multi-object grasping set of ivalab (grasp_multiObject), wherever its folders lie.

A sample is what has one number: `rgb_NNNN.jpg`, `depth_NNNN.png` (published as `rgbd/`) and `rgb_NNNN_annotations.txt`
(`annotations/`, in Cornell's syntax). Names count, not folders. Copies that its tools cut
(`rgb_0000Cropped320.png`) and those of an editor (`rgb_0001_annotations.txt~`) are of no sample. Order: by number.

Fields: key (the digits), rgb (bytes of the file), depth (the same, uint16, 0 is no measurement), grasps (float32
(N, 4, 2), corners x, y; p0 -> p1 is the opening axis). Hidden: files (field -> relative path), grasps_file (verbatim,
empty where there is none). A depth that no picture has is no field. Labels count the pixels of the file as stored.
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
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 100
_FILE = re.compile(r"(?:(rgb)_([0-9]{1,9})\.(?:jpg|png)|(depth)_([0-9]{1,9})\.png|rgb_([0-9]{1,9})_annotations\.txt)")
_EXPECTED = {"rgb": "rgb_{}.jpg", "depth": "depth_{}.png", "grasps_file": "rgb_{}_annotations.txt"}
_ROLES = tuple(_EXPECTED)

Paths = dict[str, list[str]]  # role -> relative paths


class _IvalabScene(NamedTuple):
    key: str
    paths: Mapping[str, str]  # role -> relative path


def recognise(names: Sequence[str]) -> str | None:
    """How many pictures with grasps these files hold; None where no number has both."""
    found, _ = _collect(names)
    count = sum("rgb" in paths and "grasps_file" in paths for paths in found.values())
    return f"ivalab grasps: {counted(count, 'picture')} with annotations" if count else None


class Source(base.Source):
    """The multi-object grasping set of ivalab."""

    kind = "ivalab"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        labels: str = "strict",
        follow_links: bool = False,
    ) -> None:
        """List the pictures.

        missing: what a picture without annotations is: `keep`: a sample with no grasps; `skip`: left out; `error`.
            Annotations or depth without a picture, and a picture without the depth that others have, are left out by
            `skip` and an error otherwise.
        labels: `strict`: a line that is no corner is an error; `lenient`: its rectangle is left out.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming the files, where they contradict each other or are missing.
        """
        base.check_choice("missing", missing, ("keep", "skip", "error"))
        base.check_choice("labels", labels, ("strict", "lenient"))
        self._strict = labels == "strict"
        listing = self._open_root(root, follow_links=follow_links)
        found, others = _collect(listing.names)
        if not any("rgb" in paths for paths in found.values()):
            raise InvalidRequest(
                f"{shown(str(self.root))}: no grasps of ivalab: found {described(listing.names)}, expected pictures "
                "rgb_NNNN.jpg and rgb_NNNN_annotations.txt; give the folder that holds both, or say another --from"
            )
        self._scenes, self.left_out = _settle_missing(self.root, _without_doubles(self.root, found), missing)
        kept = {path for scene in self._scenes for path in scene.paths.values()}
        lost = [name for paths in found.values() for same in paths.values() for name in same if name not in kept]
        self._extras = sorted([*others, *lost])
        self.schema = _schema(has_depth="depth" in self._scenes[0].paths)
        self.companions = ["depth"] if "depth" in self.schema else []
        self.notes = [*listing.notes(), *self._found()]

    def __len__(self) -> int:
        return len(self._scenes)

    def __getitem__(self, index: int) -> base.Sample:
        scene = self._scenes[self.checked(index)]
        data, labels = self._labels(scene)
        pixels = {role: self.read(scene.paths[role]) for role in ("rgb", "depth") if role in self.schema}
        grasps = labels.values.astype(np.float32)
        return {"key": scene.key, **pixels, "grasps": grasps, "files": dict(scene.paths), "grasps_file": data}

    def value(self, index: int, name: str) -> Any:
        scene = self._scenes[self.checked(index)]
        if name == "key":
            return scene.key
        return self.read(scene.paths[name]) if name in ("rgb", "depth") else super().value(index, name)

    def key(self, index: int) -> str:
        return self._scenes[self.checked(index)].key

    def files(self, index: int) -> tuple[Path, ...]:
        paths = self._scenes[self.checked(index)].paths
        return tuple(self.root / paths[role] for role in _ROLES if role in paths)

    def stem(self, index: int) -> Path:
        return self.files(index)[0].with_suffix("")

    def extras(self) -> Sequence[str]:
        return self._extras

    def missing(self, index: int) -> str | None:
        """Absent and dropped grasps; reads the label file."""
        scene = self._scenes[self.checked(index)]
        if "grasps_file" not in scene.paths:
            return f"no grasps: no {_EXPECTED['grasps_file'].format(scene.key)}"
        try:
            labels = self._labels(scene)[1]
        except BadInput:
            return None  # reading the sample says more
        if not labels.total:
            return "no grasps: the file of annotations is empty"
        return f"{labels.dropped} of {labels.total} grasps left out: not numbers" if labels.dropped else None

    def _labels(self, scene: _IvalabScene) -> tuple[bytes, Labels]:
        name = scene.paths.get("grasps_file", "")
        data = self.read(name) if name else b""
        return data, read_rectangles(data, self.root / name, strict=self._strict)

    def _found(self) -> list[str]:
        """The notes."""
        notes = [counted(len(self), "picture")]
        if "depth" not in self.schema:
            notes.append("no depth: no picture has a depth_NNNN.png")
        bare = sum("grasps_file" not in scene.paths for scene in self._scenes)
        if bare:
            notes.append(f"{counted(bare, 'picture')} without annotations: kept with no grasps")
        if self._extras:
            notes.append(f"{described(self._extras, 'other file')} of no picture")
        return notes


def _collect(names: Iterable[str]) -> tuple[dict[str, Paths], list[str]]:
    """The files by number and role, and all other files."""
    found: dict[str, Paths] = {}
    others = []
    for name in names:
        match = _FILE.fullmatch(name.rpartition("/")[2])
        if match is None:
            others.append(name)
            continue
        role = match[1] or match[3] or "grasps_file"
        found.setdefault(match[2] or match[4] or match[5], {}).setdefault(role, []).append(name)
    return found, others


def _without_doubles(root: Path, found: Mapping[str, Paths]) -> list[_IvalabScene]:
    """One path of each role; raises BadInput for several."""
    twice = [same for paths in found.values() for same in paths.values() if len(same) > 1]
    if twice:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(twice), 'file')} there twice: "
            f"{listed(' and '.join(sorted(same)) for same in sorted(twice))}; remove all but one"
        )
    return [
        _IvalabScene(key, {role: paths[role][0] for role in _ROLES if role in paths}) for key, paths in found.items()
    ]


def _settle_missing(
    root: Path, scenes: Iterable[_IvalabScene], missing: str
) -> tuple[list[_IvalabScene], list[tuple[str, str]]]:
    """The scenes that are complete enough, in order, and those that are left out with the reason; raises BadInput."""
    ordered = sorted(scenes, key=lambda scene: (int(scene.key), scene.key))
    used = {"rgb"} | ({"depth"} if any("depth" in scene.paths for scene in ordered) else set())
    used |= {"grasps_file"} if missing != "keep" else set()
    lacking = {
        scene.key: "no " + ", ".join(_EXPECTED[role].format(scene.key) for role in sorted(used - scene.paths.keys()))
        for scene in ordered
        if used - scene.paths.keys()
    }
    if lacking and (missing != "skip" or len(lacking) == len(ordered)):
        raise BadInput(
            f"{shown(str(root))}: {counted(len(lacking), 'number')} of {len(ordered)} lack files that others have: "
            f"{listed(f'{key} ({reason})' for key, reason in lacking.items())}; "
            "get them, or say --missing skip, which leaves these out"
        )
    return [scene for scene in ordered if scene.key not in lacking], list(lacking.items())


def _schema(*, has_depth: bool) -> Schema:
    depth = [Field("depth", "depth", "encoded", dtype="uint16", invalid=0.0)] if has_depth else []
    return Schema(
        (
            Field("key", "text", "text"),
            Field("rgb", "image", "encoded"),
            *depth,
            Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2)),
            Field("files", "json", "json", hidden=True),
            Field("grasps_file", "bytes", "encoded", hidden=True),
        )
    )
