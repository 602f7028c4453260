"""Grasp-Anything and Grasp-Anything++: one sample for each image, with the labels of all its label files.

An image is `image/<id>.jpg`. The names of its label files begin with `<id>`. The suffix `_<k>` is the number of an
object. In Grasp-Anything++, `_<k>_<part>` adds the number of a part. Only the last folder of a path and the file name
matter:
* `grasp_label_positive/<id>_<k>.pt`, also `positive_grasp/`, `grasp_label/`.
* `grasp_label_negative/<id>_<k>.pt`, also `negative_grasp/`.
* `mask/<id>_<k>.npy`, also `part_mask/`.
* `grasp_instructions/<id>_<k>_<part>.pkl`.
* `scene_description/<id>.pkl`, also `prompt/`: the description of the image.

Numbers have one to four digits. Samples are ordered by the name of the image. Label files of a sample are ordered by
number: 10 comes after 9.

Fields of a sample with N grasps:
* key: `<id>`. rgb: the bytes of the file.
* mask: uint8 or uint16, k + 1 for object k, 0 elsewhere. Overlapping pixels belong to the smaller object.
* part_mask: uint8 or uint16, 1 + the position of the part in label_keys, 0 elsewhere.
* grasps: float32 (N, 4, 2), corners x, y in px. p0 -> p1 is the opening axis.
* grasp_rows: float32 (N, 6), score, x, y, opening, jaw, theta in degrees: the finite rows of the files.
* For each grasp: grasp_scores (float32), grasp_objects (int64: k), grasp_labels (int64: position in label_keys).
* label_keys: json, the name without suffix of each file of positive grasps, even if it contains no grasps.
* grasps_negative, grasp_rows_negative, grasp_objects_negative: the same for negative grasps.
* text, the description of the image, and queries (json: names of the objects, by k), from scene_description.
* instructions: json, a text for each entry of label_keys, null for an entry without an instruction.
* Hidden: files (field -> relative path).

The schema omits a field for which no image has a value. The pack does not contain the bytes of label files. Positions
are pixels of the image file before EXIF orientation.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage, InvalidRequest
from packer.schema import MOST_PIXELS, Field
from packer.sources import base
from packer.sources._file_source import FileSource, Groups, Policies
from packer.sources._message_texts import counted, listed, shown
from packer.sources._small_file_source import FileRole, FileSample, Need
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._grasp_anything_labels import (
    COLUMNS,
    NO_GRASPS,
    SceneText,
    read_description,
    read_grasps,
    read_instruction,
    read_mask,
)
from packer.sources.grasp._label_files import points

SPECIFICITY = 100
_NUMBERS = r"(?:_[0-9]{1,4}){1,2}"  # number of an object, and optionally of a part of the object
_MOST_OF_UINT8 = 255
_PART = 2  # count of numbers in the name of a file that belongs to a part

Numbers = tuple[int, ...]
Content = TypeVar("Content")


def _role(name: str, folders: str, file: str, need: Need = "optional", *, numbers: str = _NUMBERS) -> FileRole:
    example = f"{folders.partition('|')[0]}/ID{'_K' if numbers else ''}.{file.partition('|')[0]}"
    pattern = rf"(?:.*/)?(?:{folders})/(?P<key>[^/]+{numbers})\.(?:{file})"
    field = Field(name, "image", "encoded") if name == "rgb" else None
    return FileRole(name, example, pattern, field, need, is_many=name not in ("rgb", "description"))


class Source(FileSource):
    """Grasp-Anything, and Grasp-Anything++."""

    kind, title, noun = "grasp-anything", "Grasp-Anything", "image"
    has_companions = False
    roles: Sequence[FileRole] = (
        _role("rgb", "image|images", "jpg|jpeg|png", "always", numbers=""),
        _role("positive", "grasp_label_positive|positive_grasp|grasp_label", "pt", "labels"),
        _role("negative", "grasp_label_negative|negative_grasp", "pt"),
        _role("mask", "mask|part_mask", "npy", "labels", numbers=f"(?:{_NUMBERS})?"),
        _role("description", "scene_description|prompt", "pkl", numbers=""),
        _role("instruction", "grasp_instructions", "pkl"),
    )
    recognized_by = (("rgb", "positive"),)

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        bad_labels: str = "error",
        follow_links: bool = False,
    ) -> None:
        """List the images.

        Args:
            missing: For an image without grasp files, `keep` adds a sample without grasps, `skip` skips the image, and
                `error` raises BadInput. The same applies to masks if other images have masks.
            bad_labels: For a malformed grasp file, `error` raises BadInput and `skip` skips the file.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        self._list(root, Policies(missing, bad_labels=bad_labels), follow_links=follow_links)

    @classmethod
    def _grouped(cls, names: Sequence[str], roles: Sequence[FileRole]) -> tuple[Groups, list[str]]:
        """Group files by image. If a file name begins with several image names, the longest decides."""
        by_stem, others = super()._grouped(names, roles)
        images = {stem for (_, stem), files in by_stem.items() if "rgb" in files}
        groups: Groups = {}
        for (_, stem), files in by_stem.items():
            for role, paths in files.items():
                group = "", _image_of(stem, role, images)
                groups.setdefault(group, {}).setdefault(role, []).extend(paths)
        return groups, others

    def choose(self, groups: Groups) -> None:
        present = {role for roles in groups.values() for role in roles}
        if "positive" not in present:
            raise InvalidRequest(
                f"{shown(str(self.root))}: no image has {self.roles[1].example}; give the folder that contains both, "
                "or another --from"
            )
        self.roles = [role for role in self.roles if role.name in present]

    def prepare(self, present: set[str]) -> None:
        twice, read, fields = [], set[str](), set[str]()
        largest = {"mask": 0, "part_mask": 0}  # largest value of each field
        for sample in self._samples:
            for role, paths in sample.lists.items():
                read.update(paths)
                numbers = {_numbers(path, sample.key) for path in paths}
                has_whole = role == "mask" and () in numbers and any(len(each) == 1 for each in numbers)
                twice += [", ".join(paths)] if len(numbers) < len(paths) or has_whole else []
                if role == "mask":
                    fields.update("part_mask" if len(each) == _PART else "mask" for each in numbers)
                    largest["mask"] = max([largest["mask"], *(each[0] + 1 for each in numbers if len(each) == 1)])
                elif role == "positive":
                    largest["part_mask"] = max(largest["part_mask"], len(paths))
        if twice:
            raise BadInput(
                f"{shown(str(self.root))}: {counted(len(twice), 'image')} with files there twice: {listed(twice)}; "
                "remove all but one"
            )
        self._has = present
        self.extras = [name for name in self.extras if name not in read]
        self._dtypes = {
            name: "uint8" if value <= _MOST_OF_UINT8 else "uint16" for name, value in largest.items() if name in fields
        }

    def more_fields(self) -> Sequence[Field]:
        return [
            *(Field(name, "mask", "png", dtype=dtype, shape=(None, None)) for name, dtype in self._dtypes.items()),
            *_grasp_fields(""),
            Field("label_keys", "json", "json"),
            *(_grasp_fields("_negative") if "negative" in self._has else ()),
            *((Field("text", "text", "text"), Field("queries", "json", "json")) if "description" in self._has else ()),
            *((Field("instructions", "json", "json"),) if "instruction" in self._has else ()),
        ]

    def listed_values(self, sample: FileSample) -> base.Sample:
        return {"label_keys": [_stem(path) for path in _by_numbers(sample, "positive").values()]}

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        values = self._masks(sample, files["rgb"]) | self._grasps(sample, "positive")[0]
        if "negative" in self._has:
            values |= self._grasps(sample, "negative")[0]
        if "description" in self._has:
            text = self._description(sample)[0]
            values |= {"text": text.prompt, "queries": list(text.queries)}
        if "instruction" in self._has:
            values["instructions"] = self._instructions(sample)[0]
        return values

    def more_notes(self) -> Sequence[str]:
        labels = [len(sample.lists.get("positive", ())) for sample in self._samples]
        return [f"{counted(sum(labels), 'label file')}; {counted(labels.count(0), 'image')} without label files"]

    def missing(self, index: int) -> str | None:
        """Return which labels are absent, skipped or rounded, or None if the sample is complete. Reads label files."""
        sample = self._samples[self.checked(index)]
        try:
            return "; ".join(self._reasons(sample)) or None
        except BadInput:
            return None  # `read` raises the error later

    def _reasons(self, sample: FileSample) -> list[str]:
        values, reasons = self._grasps(sample, "positive")
        if not reasons and not len(values["grasps"]):
            reasons.append("no grasps")
        if "mask" in self._dtypes and all(len(numbers) == _PART for numbers in _by_numbers(sample, "mask")):
            reasons.append("no mask: all of it is 0")
        if "negative" in self._has:
            reasons += self._grasps(sample, "negative")[1]
        if "description" in self._has:
            reasons += self._description(sample)[1]
        if "instruction" in self._has:
            reasons += self._instructions(sample)[1]
        return reasons

    def _grasps(self, sample: FileSample, role: str) -> tuple[base.Sample, list[str]]:
        """Return the fields of the positive or negative grasps, and notes on skipped or rounded grasps."""
        found, reasons = [], []
        files = _by_numbers(sample, role)
        for path in files.values():
            grasps, cause = self._parsed_file(path, read_grasps, NO_GRASPS, is_strict=self._is_strict)
            reasons += [f"skipped: {cause}"] if cause else []
            skipped = grasps.total - len(grasps.rows)
            reasons += [f"{skipped} of {grasps.total} grasps of {shown(path)} skipped: not finite"] if skipped else []
            reasons += [f"{shown(path)} has float64, rows are float32"] if grasps.is_rounded else []
            found.append(grasps)
        counts = [len(grasps.rows) for grasps in found]
        rows = np.concatenate([NO_GRASPS.rows, *(grasps.rows for grasps in found)])
        ending = "_negative" if role == "negative" else ""
        values: base.Sample = {
            f"grasps{ending}": np.concatenate([NO_GRASPS.corners, *(grasps.corners for grasps in found)]),
            f"grasp_rows{ending}": rows,
            f"grasp_objects{ending}": np.repeat(np.array([numbers[0] for numbers in files], np.int64), counts),
        }
        if role == "positive":
            values["grasp_scores"] = rows[:, 0].copy()
            values["grasp_labels"] = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
        return values, reasons

    def _masks(self, sample: FileSample, data: bytes) -> base.Sample:
        """Return the mask fields of a sample. Raise BadInput if the size of a mask is not that of the image."""
        if not self._dtypes:
            return {}
        from packer.images import sniff  # imported late: not needed to list a folder

        try:
            header = sniff(data, MOST_PIXELS)
        except DamagedImage as error:
            path = self.root / sample.paths["rgb"]
            raise BadInput(f"{shown(str(path))}: cannot read the image: {error}") from error
        size = header.height, header.width
        files = _by_numbers(sample, "mask")
        rows = {numbers: row for row, numbers in enumerate(_by_numbers(sample, "positive"), start=1)}
        objects = {numbers[0] + 1: path for numbers, path in files.items() if len(numbers) == 1}
        parts = {rows[each]: path for each, path in files.items() if len(each) == _PART and each in rows}
        values = {name: self._drawn(name, parts if name == "part_mask" else objects, size) for name in self._dtypes}
        if () in files:
            mask = self._mask(files[()], size)
            if mask.dtype.itemsize > 1:
                raise BadInput(f"{shown(str(self.root / files[()]))}: expected a mask of uint8; save it as uint8")
            values["mask"] = mask.astype(np.uint8).astype(self._dtypes["mask"])
        return values

    def _drawn(self, field: str, paths: Mapping[int, str], size: tuple[int, int]) -> npt.NDArray[Any]:
        """Draw a mask from value -> path of a binary mask. Overlapping pixels get the value of the smaller mask."""
        found = [(value, self._mask(path, size) != 0) for value, path in paths.items()]
        drawn = np.zeros(size, self._dtypes[field])
        for value, where in sorted(found, key=lambda pair: (-int(pair[1].sum()), pair[0])):
            drawn[where] = value
        return drawn

    def _mask(self, path: str, size: tuple[int, int]) -> npt.NDArray[Any]:
        mask = read_mask(self.read_file(path), self.root / path)
        if mask.shape != size:
            raise BadInput(
                f"{shown(str(self.root / path))}: is {mask.shape[1]}x{mask.shape[0]} px, its image "
                f"{size[1]}x{size[0]}; download the files again"
            )
        return mask

    def _description(self, sample: FileSample) -> tuple[SceneText, list[str]]:
        """Return the description, and the reason why it is empty: an absent or malformed file."""
        path = sample.paths.get("description")
        if path is None:
            return SceneText(), ["no text: no scene_description"]
        text, cause = self._parsed_file(path, read_description, SceneText())
        return text, [f"no text: {cause}"] if cause else []

    def _instructions(self, sample: FileSample) -> tuple[list[str | None], list[str]]:
        """Return a text or None for each file of positive grasps, and the reasons for malformed instructions."""
        files = _by_numbers(sample, "instruction")
        texts: list[str | None] = []
        reasons = []
        for numbers in _by_numbers(sample, "positive"):
            path = files.get(numbers)
            text, cause = self._parsed_file(path, read_instruction, None) if path else (None, "")
            texts.append(text)
            reasons += [f"no instruction: {cause}"] if cause else []
        return texts, reasons

    def _parsed_file(
        self, path: str, parse: Callable[[bytes, Path], Content], otherwise: Content, *, is_strict: bool = False
    ) -> tuple[Content, str]:
        """Return `(content, "")`. For a malformed file, return `(otherwise, message)`, or raise if `is_strict`."""
        data = self.read_file(path)
        try:
            return parse(data, self.root / path), ""
        except BadInput as error:
            if is_strict:
                raise
            return otherwise, shown(path) + error.message.removeprefix(shown(str(self.root / path)))


def _grasp_fields(ending: str) -> list[Field]:
    of = f"grasps{ending}"
    fields = [
        points(of),
        Field(f"grasp_rows{ending}", "number", "raw:float32", dtype="float32", shape=(None, COLUMNS), of=of),
    ]
    objects = Field(f"grasp_objects{ending}", "number", "raw:int64", dtype="int64", shape=(None,), of=of)
    if ending:
        return [*fields, objects]
    scores = Field("grasp_scores", "number", "raw:float32", dtype="float32", shape=(None,), of=of)
    return [*fields, scores, objects, Field("grasp_labels", "number", "raw:int64", dtype="int64", shape=(None,), of=of)]


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0]


def _numbers(path: str, key: str) -> Numbers:
    """Return (), (object,) or (object, part): the numbers after the image name `key`."""
    return tuple(map(int, _stem(path)[len(key) + 1 :].split("_"))) if _stem(path) != key else ()


def _by_numbers(sample: FileSample, role: str) -> dict[Numbers, str]:
    return dict(sorted((_numbers(path, sample.key), path) for path in sample.lists.get(role, ())))


def _image_of(stem: str, role: str, images: Collection[str]) -> str:
    """Return the name of the image to which a file belongs. If no image matches, remove numbers from its stem."""
    if role in ("rgb", "description"):
        return stem
    name, numbers = stem, 0
    while not (name in images and (numbers or role == "mask")):
        above, _, number = name.rpartition("_")
        if numbers == _PART or not re.fullmatch("[0-9]{1,4}", number) or not above:
            return name
        name, numbers = above, numbers + 1
    return name
