"""Jacquard: the Jacquard grasping data set, in nested folders of any names.

A sample is all files of a folder whose names begin with the same `<i>_<object>_`: an image of an object, its depth and
labels. Samples are ordered by relative path, as in the loaders of the grasp networks: `Jacquard_Dataset_10` comes
before `Jacquard_Dataset_2`. The order depends on the nesting of the folders. So do splits that are slices of the
ordered list.

Fields of a sample with N grasps:
* key: `<i>_<object>`. object_id: text, `<object>`.
* rgb, mask: PNG bytes.
* depth, depth_stereo: TIFF bytes, float32, in meters. In depth_stereo, -1 is a pixel without a measurement.
* grasps: float32 (N, 4, 2), corners x, y in px. p0 -> p1 is the opening axis.
* grasp_rows: float64 (N, 5), x, y, theta in degrees, opening, jaw: all finite rows in the order of the file.
* Hidden: files (field -> relative path), grasps_file (bytes, empty for a sample without a grasp file).

A data set without depth or masks does not have these fields.

Jacquard V2 (`JacquardV2_Dataset_<n>`) has equal names and rows. Its corrected files have one more row at the start, and
no newline at the end. The loaders of the networks remove the last character of each line. Without the newline, this
character is a digit of the last row.
"""

import re
from pathlib import Path
from typing import Any

from packer.schema import Field
from packer.sources import base
from packer.sources._file_source import FileSource, Policies
from packer.sources._small_file_source import FileRole, FileSample, LabelFile, Need, Parsed
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._label_files import corners, points, read_rows, verbatim

SPECIFICITY = 100


def _role(name: str, suffix: str, field: Field, need: Need = "alike") -> FileRole:
    pattern = rf"(?P<key>[0-9]+_.+)_{re.escape(suffix)}"
    return FileRole(name, f"_{suffix}", pattern, field, need)


def _parse(data: bytes, path: Path, strict: bool) -> Parsed:
    rows = read_rows(data, path, columns=5, separator=";", strict=strict)
    return Parsed({"grasps": corners(rows.values), "grasp_rows": rows.values}, rows.total, rows.dropped)


class Source(FileSource):
    """The Jacquard grasping data set."""

    kind, title, noun = "jacquard", "Jacquard grasps", "view"
    is_per_folder = True
    carries_skipped = has_companions = False
    roles = (
        _role("rgb", "RGB.png", Field("rgb", "image", "encoded"), "always"),
        _role("depth", "perfect_depth.tiff", Field("depth", "depth", "encoded", "float32")),
        _role("depth_stereo", "stereo_depth.tiff", Field("depth_stereo", "depth", "encoded", "float32", invalid=-1.0)),
        _role("mask", "mask.png", Field("mask", "mask", "encoded")),
        _role("grasps_file", "grasps.txt", verbatim("grasps_file"), "labels"),
    )
    labels = (
        LabelFile(
            "grasps_file",
            (points("grasps"), Field("grasp_rows", "number", "raw:float64", "float64", (None, 5))),
            _parse,
        ),
    )
    recognized_by = (("rgb", "grasps_file"), ("rgb", "depth"))

    def __init__(
        self,
        root: Path | FileTree,
        *,
        missing: str = "keep",
        duplicates: str = "error",
        bad_labels: str = "error",
        follow_links: bool = False,
    ) -> None:
        """List the samples.

        Args:
            missing: For a sample without a grasp file, `keep` adds a sample without grasps, `skip` skips the sample,
                and `error` raises BadInput.
            duplicates: For a sample in two folders, `error` raises BadInput, `first` uses the first path, and `skip`
                skips the sample.
            bad_labels: For an invalid row, `error` raises BadInput and `skip` skips the row.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        self._list(root, Policies(missing, duplicates, bad_labels), follow_links=follow_links)

    def order(self, sample: FileSample) -> Any:
        return sample.paths["rgb"].removesuffix("RGB.png") + "grasps.txt"

    def stem_of(self, sample: FileSample) -> str:
        return sample.paths["rgb"].removesuffix("_RGB.png")

    def more_fields(self) -> tuple[Field, ...]:
        return (Field("object_id", "text", "text"),)

    def listed_values(self, sample: FileSample) -> base.Sample:
        return {"object_id": sample.key.partition("_")[2]}
