"""Grasp-Anything and Grasp-Anything++, one sample for each picture, however many label files it has.

A picture is `image/<id>.jpg`. What belongs to it begins with its name, `_<k>` of its object number k, in ++
`_<k>_<part>`: `grasp_label_positive/<id>_<k>.pt` (also `positive_grasp/`, `grasp_label/`), `grasp_label_negative/`
(`negative_grasp/`), `mask/<id>_<k>.npy` (`part_mask/`), `grasp_instructions/<id>_<k>_<part>.pkl`, and of the picture
`scene_description/<id>.pkl` (`prompt/`). The last folder of a path and the name count alone: what the folders above are
called says nothing. Numbers have one to four digits. Order: by the name of the picture, then by the numbers, so that 10
comes after 9.

Fields: key (`<id>`), rgb (bytes of the file), mask (uint8 or uint16: k + 1 where object k is, 0 elsewhere; where two
lie over each other, the smaller), part_mask (the same of parts: 1 + the row in label_keys), grasps (float32 (N, 4, 2),
corners x, y; p0 -> p1 is the opening axis), and of grasps: grasp_rows (float32 (N, 6): score, x, y, opening, jaw, theta
in degrees, as in the files, but for those that are not finite), grasp_scores (float32), grasp_objects (int64: k),
grasp_labels (int64: the row in label_keys). label_keys (json: names of the label files without suffix, the empty ones
too). grasps_negative with grasp_rows_negative and grasp_objects_negative, as those. text and queries (json: names of
the objects, by k) of scene_description, instructions (json: a text for each of label_keys, null where there is none).
Hidden: files (field -> relative path). A field that no picture has is none. Label files are not kept: their rows are
exact. Labels count the pixels of the file as stored.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.schema import MOST_PIXELS, Field, Schema
from packer.sources import base
from packer.sources._parse.anything_labels import (
    COLUMNS,
    AnythingGrasps,
    SceneText,
    read_description,
    read_grasps,
    read_instruction,
    read_object_mask,
    read_whole_mask,
)
from packer.sources._parse.folder_listing import counted, described, listed, shown
from packer.sources._trees.file_tree import FileTree

SPECIFICITY = 100
_FOLDERS = {"image": "rgb", "images": "rgb"}
_FOLDERS |= dict.fromkeys(("grasp_label_positive", "positive_grasp", "grasp_label"), "positive")
_FOLDERS |= dict.fromkeys(("grasp_label_negative", "negative_grasp"), "negative")
_FOLDERS |= {"mask": "mask", "part_mask": "mask", "grasp_instructions": "instruction"}
_FOLDERS |= {"scene_description": "description", "prompt": "description"}
_SUFFIXES = {"rgb": (".jpg", ".jpeg", ".png"), "positive": (".pt",), "negative": (".pt",), "mask": (".npy",)}
_SUFFIXES |= {"description": (".pkl",), "instruction": (".pkl",)}
# how many numbers stand behind the name of the picture
_NUMBERS = {"positive": (1, 2), "negative": (1, 2), "mask": (0, 1, 2), "instruction": (1, 2), "description": (0,)}
_MOST_DIGITS = 4
_MOST_OF_UINT8 = 255
_OBJECT, _PART = 1, 2  # how many numbers a mask of one has

Numbers = tuple[int, ...]  # of an object, and of a part of it


class _RoleFiles(NamedTuple):
    """The files of one role: those of picture i are `names[starts[i] : starts[i + 1]]`, by their numbers."""

    names: list[str]
    starts: "array[int]"

    def of(self, row: int) -> list[str]:
        return self.names[self.starts[row] : self.starts[row + 1]]

    @property
    def most(self) -> int:
        """The largest number of files that one picture has."""
        return max((end - start for start, end in zip(self.starts, self.starts[1:], strict=False)), default=0)


class _MaskFiles(NamedTuple):
    """The masks of a picture by what they are of: all of it, an object, a part."""

    whole: list[str]
    objects: dict[Numbers, str]
    parts: dict[Numbers, str]


class _FoundAnything(NamedTuple):
    """Pictures (name, path) in order, the row of each name, the files of each role, and all others.

    strays: files of a role and of no picture.
    """

    pictures: list[tuple[str, str]]
    keys: Mapping[str, int]
    files: Mapping[str, _RoleFiles]
    strays: list[str]
    others: list[str]


def recognise(names: Sequence[str]) -> str | None:
    """How many pictures with grasps these files hold; None where no picture has any."""
    if not any(name.endswith(".pt") for name in names):
        return None
    rows, labelled = set(), 0
    pictures = {_stem(name) for name in names if _role(name) == "rgb"}
    for name in names:
        if _role(name) == "positive":
            key = _placed(name, pictures, _NUMBERS["positive"])
            if key is not None:
                rows.add(key[0])
                labelled += 1
    if not rows:
        return None
    return f"Grasp-Anything: {counted(len(rows), 'picture')} with {counted(labelled, 'label file')}"


class Source(base.Source):
    """Grasp-Anything, and Grasp-Anything++."""

    kind = "grasp-anything"

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        labels: str = "strict",
        follow_links: bool = False,
    ) -> None:
        """List the pictures.

        missing: what a picture without label files is: `keep`: a sample with no grasps; `skip`: left out; `error`. The
            same of a picture without masks where others have some. Files of no picture are left out by `skip` and an
            error otherwise.
        labels: `strict`: a label file that cannot be read is an error; `lenient`: it is left out.
        follow_links: whether links out of the folder are followed.
        Raises BadInput, naming the files, where they contradict each other or are missing.
        """
        base.check_choice("missing", missing, ("keep", "skip", "error"))
        base.check_choice("labels", labels, ("strict", "lenient"))
        self._strict = labels == "strict"
        listing = self._open_root(root, follow_links=follow_links)
        found = _collect(self.root, listing.names)
        if not found.pictures or not found.files["positive"].names:
            raise InvalidRequest(
                f"{shown(str(self.root))}: no Grasp-Anything: found {described(listing.names)}, expected pictures "
                "image/<id>.jpg and grasp_label_positive/<id>_<k>.pt; give the folder that holds both, or say another "
                "--from"
            )
        found, self.left_out, lost = _settle_missing(self.root, found, missing)
        self._pictures, self._files = found.pictures, found.files
        self._extras = sorted([*found.others, *found.strays, *lost])
        self._is_there = {"mask": False, "part_mask": False}
        largest = self._look_at_masks()
        self.schema = self._schema(largest)
        self.notes = [*listing.notes(), *self._found()]

    def __len__(self) -> int:
        return len(self._pictures)

    def __getitem__(self, index: int) -> base.Sample:
        key, path = self._pictures[self.checked(index)]
        data = self.read(path)
        keys = [_stem(name) for name in self._files["positive"].of(index)]
        sample: base.Sample = {"key": key, "rgb": data}
        sample |= self._masks(index, data, keys)
        sample |= self._grasps(index, "positive")[0]
        sample["label_keys"] = keys
        if "grasps_negative" in self.schema:
            sample |= self._grasps(index, "negative")[0]
        if "text" in self.schema:
            description = self._description(index)[0]
            sample |= {"text": description.prompt, "queries": list(description.queries)}
        if "instructions" in self.schema:
            sample["instructions"] = self._instructions(index, keys)[0]
        return sample | {"files": {"rgb": path}}

    def value(self, index: int, name: str) -> Any:
        key, path = self._pictures[self.checked(index)]
        if name == "key":
            return key
        if name == "rgb":
            return self.read(path)
        if name == "label_keys":
            return [_stem(each) for each in self._files["positive"].of(index)]
        if name == "text":
            return self._description(index)[0].prompt
        return super().value(index, name)

    def key(self, index: int) -> str:
        return self._pictures[self.checked(index)][0]

    def files(self, index: int) -> tuple[Path, ...]:
        _, path = self._pictures[self.checked(index)]
        labels = (name for role in self._files.values() for name in role.of(index))
        return tuple(self.root / name for name in (path, *labels))

    def stem(self, index: int) -> Path:
        return (self.root / self._pictures[self.checked(index)][1]).with_suffix("")

    def extras(self) -> Sequence[str]:
        return self._extras

    def missing(self, index: int) -> str | None:
        """Absent, dropped and rounded grasps, and masks and texts that are not there; reads the label files."""
        self.checked(index)
        try:
            return "; ".join(self._reasons(index)) or None
        except BadInput:
            return None  # reading the sample says more

    def _reasons(self, index: int) -> list[str]:
        labels = self._files["positive"].of(index)
        sample, reasons = self._grasps(index, "positive")
        if not labels:
            reasons.append("no grasps: no label file")
        elif not reasons and not len(sample["grasps"]):
            reasons.append(f"no grasps: {counted(len(labels), 'label file')} without any")
        if "grasps_negative" in self.schema:
            reasons += self._grasps(index, "negative")[1]
        masks, keys = self._masks_of(index), [_stem(name) for name in labels]
        if "mask" in self.schema and not (masks.whole or masks.objects):
            reasons.append("no mask: all of it is 0")
        unlabelled = sum(numbers not in self._rows_of(index) for numbers in masks.parts)
        if unlabelled:
            reasons.append(f"{counted(unlabelled, 'mask')} of parts without a label file: left out")
        if "text" in self.schema:
            reasons += self._description(index)[1]
        if "instructions" in self.schema:
            reasons += self._instructions(index, keys)[1]
        return reasons

    def _grasps(self, index: int, role: str) -> tuple[base.Sample, list[str]]:
        """The fields of the grasps of a picture, and what is not in them; raises BadInput where strict."""
        found: list[AnythingGrasps] = []
        objects: list[int] = []
        reasons = []
        key = self._pictures[index][0]
        for name in self._files[role].of(index):
            data = self.read(name)
            try:
                grasps = read_grasps(data, self.root / name)
            except BadInput as error:
                if self._strict:
                    raise
                reasons.append(f"{shown(name)} left out: {self._cause(error, name)}")
                grasps = _NO_GRASPS
            if grasps.dropped:
                reasons.append(f"{grasps.dropped} of {grasps.total} grasps of {shown(name)} left out: not finite")
            if grasps.is_rounded:
                reasons.append(f"{shown(name)} has float64, of which rows keep float32")
            found.append(grasps)
            objects.append(_numbers(name, key)[0])
        counts = [len(grasps.rows) for grasps in found]
        rows = np.concatenate([_NO_GRASPS.rows, *(grasps.rows for grasps in found)])
        of_each = np.repeat(np.asarray(objects, np.int64), counts)
        corners = np.concatenate([_NO_GRASPS.corners, *(grasps.corners for grasps in found)])
        if role == "negative":
            return {
                "grasps_negative": corners,
                "grasp_rows_negative": rows,
                "grasp_objects_negative": of_each,
            }, reasons
        return {
            "grasps": corners,
            "grasp_rows": rows,
            "grasp_scores": rows[:, 0].copy(),
            "grasp_objects": of_each,
            "grasp_labels": np.repeat(np.arange(len(counts), dtype=np.int64), counts),
        }, reasons

    def _rows_of(self, index: int) -> dict[Numbers, int]:
        """The row in label_keys of every object and part."""
        key = self._pictures[index][0]
        return {_numbers(name, key): row for row, name in enumerate(self._files["positive"].of(index))}

    def _masks_of(self, index: int) -> _MaskFiles:
        key = self._pictures[index][0]
        masks = _MaskFiles([], {}, {})
        for name in self._files["mask"].of(index):
            numbers = _numbers(name, key)
            if numbers:
                (masks.parts if len(numbers) == _PART else masks.objects)[numbers] = name
            else:
                masks.whole.append(name)
        return masks

    def _masks(self, index: int, data: bytes, keys: Sequence[str]) -> base.Sample:
        """The masks of a picture, whose file this is; raises BadInput where one is not of its size."""
        if not any(self._is_there.values()):
            return {}
        from packer.images import sniff  # decoders, which listing a folder does without

        path = self._pictures[index][1]
        try:
            header = sniff(data, MOST_PIXELS)
        except DamagedImage as error:
            raise BadInput(f"{shown(str(self.root / path))}: cannot read the picture: {error}") from error
        size = header.height, header.width
        masks = self._masks_of(index)
        sample: base.Sample = {}
        if self._is_there["mask"]:
            if masks.whole:
                name = masks.whole[0]
                sample["mask"] = self._sized(name, read_whole_mask(self.read(name), self.root / name), size).astype(
                    self.schema["mask"].dtype
                )
            else:
                values = {number + 1: name for (number,), name in masks.objects.items()}
                sample["mask"] = self._drawn("mask", values, size)
        if self._is_there["part_mask"]:
            rows = self._rows_of(index)
            values = {rows[numbers] + 1: name for numbers, name in masks.parts.items() if numbers in rows}
            sample["part_mask"] = self._drawn("part_mask", values, size)
        return sample

    def _drawn(self, field: str, names: Mapping[int, str], size: tuple[int, int]) -> npt.NDArray[Any]:
        """One mask of several: each with its value, the larger ones below the smaller."""
        found = [
            (value, self._sized(name, read_object_mask(self.read(name), self.root / name), size))
            for value, name in names.items()
        ]
        drawn = np.zeros(size, self.schema[field].dtype)
        for value, where in sorted(found, key=lambda pair: (-int(pair[1].sum()), pair[0])):
            drawn[where] = value
        return drawn

    def _sized(self, name: str, mask: npt.NDArray[Any], size: tuple[int, int]) -> npt.NDArray[Any]:
        if mask.shape != size:
            raise BadInput(
                f"{shown(str(self.root / name))}: is {mask.shape[1]}x{mask.shape[0]} px, its picture "
                f"{size[1]}x{size[0]}; get the files again"
            )
        return mask

    def _description(self, index: int) -> tuple[SceneText, list[str]]:
        """What the picture shows, empty where no file says it or it cannot be read, and why."""
        names = self._files["description"].of(index)
        if not names:
            return _NO_TEXT, ["no text: no scene_description"]
        data = self.read(names[0])
        try:
            return read_description(data, self.root / names[0]), []
        except BadInput as error:
            return _NO_TEXT, [f"no text: {shown(names[0])}: {self._cause(error, names[0])}"]

    def _instructions(self, index: int, keys: Sequence[str]) -> tuple[list[str | None], list[str]]:
        """The text of each label file, and why there is none."""
        by_key = {_stem(name): name for name in self._files["instruction"].of(index)}
        texts: list[str | None] = []
        reasons = []
        for key in keys:
            name = by_key.pop(key, None)
            if name is None:
                texts.append(None)
                continue
            data = self.read(name)
            try:
                texts.append(read_instruction(data, self.root / name))
            except BadInput as error:
                texts.append(None)
                reasons.append(f"no instruction: {shown(name)}: {self._cause(error, name)}")
        if by_key:
            reasons.append(f"{counted(len(by_key), 'instruction')} without a label file: left out")
        return texts, reasons

    def _cause(self, error: BadInput, name: str) -> str:
        """What a parser says of a file, without its path."""
        return error.message.removeprefix(f"{shown(str(self.root / name))}: ")

    def _look_at_masks(self) -> int:
        """Say which masks there are, by their names, and the largest number of an object that has one."""
        largest = 0
        for row, (key, _) in enumerate(self._pictures):
            for name in self._files["mask"].of(row):
                numbers = _numbers(name, key)
                self._is_there["part_mask" if len(numbers) == _PART else "mask"] = True
                largest = max(largest, numbers[0]) if len(numbers) == _OBJECT else largest
        return largest

    def _schema(self, largest_object: int) -> Schema:
        fields = [Field("key", "text", "text"), Field("rgb", "image", "encoded")]
        most = {"mask": largest_object + 1, "part_mask": self._files["positive"].most}
        for name, is_there in self._is_there.items():
            if is_there:
                dtype = "uint8" if most[name] <= _MOST_OF_UINT8 else "uint16"
                fields.append(Field(name, "mask", "png", dtype=dtype, shape=(None, None)))
        fields += [
            Field("grasps", "points", "raw:float32", dtype="float32", shape=(None, 4, 2)),
            Field("grasp_rows", "number", "raw:float32", dtype="float32", shape=(None, COLUMNS), of="grasps"),
            Field("grasp_scores", "number", "raw:float32", dtype="float32", shape=(None,), of="grasps"),
            Field("grasp_objects", "number", "raw:int64", dtype="int64", shape=(None,), of="grasps"),
            Field("grasp_labels", "number", "raw:int64", dtype="int64", shape=(None,), of="grasps"),
            Field("label_keys", "json", "json"),
        ]
        if self._files["negative"].names:
            of = "grasps_negative"
            fields += [
                Field(of, "points", "raw:float32", dtype="float32", shape=(None, 4, 2)),
                Field("grasp_rows_negative", "number", "raw:float32", dtype="float32", shape=(None, COLUMNS), of=of),
                Field("grasp_objects_negative", "number", "raw:int64", dtype="int64", shape=(None,), of=of),
            ]
        if self._files["description"].names:
            fields += [Field("text", "text", "text"), Field("queries", "json", "json")]
        if self._files["instruction"].names:
            fields.append(Field("instructions", "json", "json"))
        return Schema((*fields, Field("files", "json", "json", hidden=True)))

    def _found(self) -> list[str]:
        """The notes."""
        positive = self._files["positive"]
        notes = [f"{counted(len(self), 'picture')} with {counted(len(positive.names), 'label file')}"]
        bare = sum(not positive.of(row) for row in range(len(self)))
        if bare:
            notes.append(f"{counted(bare, 'picture')} without label files: kept with no grasps")
        notes += [f"no {name}: no picture has one" for name in ("mask", "text") if name not in self.schema]
        if self._extras:
            notes.append(f"{described(self._extras, 'other file')} of no picture")
        return notes


_NO_GRASPS = AnythingGrasps(np.zeros((0, COLUMNS), np.float32), np.zeros((0, 4, 2), np.float32), 0)
_NO_TEXT = SceneText("", ())


def _stem(name: str) -> str:
    file = name.rpartition("/")[2]
    return file.rpartition(".")[0]


def _role(name: str) -> str | None:
    """What a file is by its folder and suffix."""
    above, _, file = name.rpartition("/")
    role = _FOLDERS.get(above.rpartition("/")[2])
    return role if role is not None and file.endswith(_SUFFIXES[role]) else None


def _numbers(name: str, key: str) -> Numbers:
    """The numbers of a file of the picture of this name."""
    rest = _stem(name)[len(key) + 1 :]
    return tuple(map(int, rest.split("_"))) if rest else ()


def _placed(name: str, pictures: Mapping[str, Any] | set[str], counts: Sequence[int]) -> tuple[str, Numbers] | None:
    """The picture that a file is of, and its numbers: the longest name of a picture that it begins with."""
    rest, numbers = _stem(name), list[int]()
    for count in range(_PART + 1):
        if count in counts and rest in pictures:
            return rest, tuple(numbers)
        rest, _, number = rest.rpartition("_")
        if not (0 < len(number) <= _MOST_DIGITS and number.isascii() and number.isdigit()):
            return None
        numbers.insert(0, int(number))
    return None


def _picture_of(name: str, known: Mapping[str, int]) -> str:
    """The picture that a file seems to be of: its name without numbers, unless there is one of that name."""
    stem = _stem(name)
    parts = stem.split("_")
    while len(parts) > 1 and parts[-1].isdigit():
        parts.pop()
    bare = "_".join(parts)
    return stem if bare in known else bare


def _collect(root: Path, names: Iterable[str]) -> _FoundAnything:
    """What the files are; raises BadInput for what is there twice."""
    paths: dict[str, list[str]] = {}
    by_role: dict[str, list[str]] = {role: [] for role in _NUMBERS}
    others = []
    for name in names:
        role = _role(name)
        if role is None:
            others.append(name)
        elif role == "rgb":
            paths.setdefault(_stem(name), []).append(name)
        else:
            by_role[role].append(name)
    twice = [same for same in paths.values() if len(same) > 1]
    pictures = [(key, paths[key][0]) for key in sorted(paths)]
    rows = {key: row for row, (key, _) in enumerate(pictures)}
    strays: list[str] = []
    files = {}
    for role, candidates in by_role.items():
        placed = []
        for name in candidates:
            found = _placed(name, rows, _NUMBERS[role])
            if found is None:
                strays.append(name)
            else:
                placed.append((rows[found[0]], found[1], name))
        placed.sort()
        twice += [
            [before[2], after[2]] for before, after in zip(placed, placed[1:], strict=False) if before[:2] == after[:2]
        ]
        if role == "mask":  # a mask of the whole picture comes first
            twice += [
                [before[2], after[2]]
                for before, after in zip(placed, placed[1:], strict=False)
                if before[0] == after[0] and not before[1] and len(after[1]) == _OBJECT
            ]
        files[role] = _by_row(placed, len(pictures))
    if twice:
        raise BadInput(
            f"{shown(str(root))}: {counted(len(twice), 'file')} there twice: "
            f"{listed(' and '.join(sorted(same)) for same in sorted(twice))}; remove all but one"
        )
    return _FoundAnything(pictures, rows, files, strays, others)


def _by_row(placed: Sequence[tuple[int, Numbers, str]], count: int) -> _RoleFiles:
    """Files that are sorted by the row of their picture."""
    counts = Counter(row for row, _, _ in placed)
    starts = array("q", [0])
    for row in range(count):
        starts.append(starts[-1] + counts[row])
    return _RoleFiles([name for _, _, name in placed], starts)


def _settle_missing(
    root: Path, found: _FoundAnything, missing: str
) -> tuple[_FoundAnything, list[tuple[str, str]], list[str]]:
    """The pictures that are complete enough, those left out and why, and the files of these; raises BadInput."""
    lacking: dict[str, str] = {}
    lost: set[int] = set()
    for row, (key, _) in enumerate(found.pictures if missing != "keep" else ()):
        absent = [
            said
            for role, said in (("positive", "label files"), ("mask", "masks"))
            if found.files[role].names and not found.files[role].of(row)
        ]
        if absent:
            lacking[key] = f"no {' and no '.join(absent)}"
            lost.add(row)
    strays = Counter(_picture_of(name, found.keys) for name in found.strays)
    lacking |= {key: f"no picture of that name, {counted(count, 'file')} of it" for key, count in strays.items()}
    if lacking and (missing != "skip" or len(lost) == len(found.pictures)):
        raise BadInput(
            f"{shown(str(root))}: {counted(len(lost), 'picture')} without labels, {counted(len(found.strays), 'file')} "
            f"of no picture: {listed(f'{key} ({reason})' for key, reason in lacking.items())}; "
            "get what is missing, or say --missing skip, which leaves these out"
        )
    if not lost:
        return found, list(lacking.items()), []
    kept = [row for row in range(len(found.pictures)) if row not in lost]
    files = {}
    for role, each in found.files.items():
        starts = array("q", [0])
        for row in kept:
            starts.append(starts[-1] + each.starts[row + 1] - each.starts[row])
        files[role] = _RoleFiles([name for row in kept for name in each.of(row)], starts)
    left = [found.pictures[row][1] for row in sorted(lost)]
    left += [name for each in found.files.values() for row in sorted(lost) for name in each.of(row)]
    return found._replace(pictures=[found.pictures[row] for row in kept], files=files), list(lacking.items()), left
