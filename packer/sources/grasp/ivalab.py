"""ivalab: the multi-object grasping set of ivalab (grasp_multiObject), in folders of any names.

A sample is all files with an equal number: `rgb_NNNN.jpg`, `depth_NNNN.png` (published in `rgbd/`) and
`rgb_NNNN_annotations.txt` (published in `annotations/`, in Cornell's syntax). Only file names matter, not folders.
Samples are ordered by number.

Fields of a sample with N grasps:
* key: the digits.
* rgb, depth: the bytes of the files. Depth is uint16, 0 without a measurement.
* grasps: float32 (N, 4, 2), corners x, y in px. p0 -> p1 is the opening axis.
* Hidden: files (field -> relative path), grasps_file (bytes, empty for a sample without a grasp file).

A data set without depth does not have the field depth. Positions are pixels of the image file before EXIF orientation.
"""

from pathlib import Path
from typing import Any

from packer.schema import Field
from packer.sources._file_source import FileSource, Policies
from packer.sources._small_file_source import FileRole, FileSample
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._label_files import rectangles, verbatim

SPECIFICITY = 100
_NUMBER = r"(?P<key>[0-9]{1,9})"
_DEPTH = Field("depth", "depth", "encoded", "uint16", invalid=0.0)


class Source(FileSource):
    """The multi-object grasping set of ivalab."""

    kind, title = "ivalab", "ivalab grasps"
    roles = (
        FileRole("rgb", "rgb_NNNN.jpg", rf"rgb_{_NUMBER}\.(?:jpg|png)", Field("rgb", "image", "encoded")),
        FileRole("depth", "depth_NNNN.png", rf"depth_{_NUMBER}\.png", _DEPTH, "alike"),
        FileRole(
            "grasps_file",
            "rgb_NNNN_annotations.txt",
            rf"rgb_{_NUMBER}_annotations\.txt",
            verbatim("grasps_file"),
            "labels",
        ),
    )
    labels = (rectangles("grasps", "grasps_file"),)
    recognized_by = (("rgb", "grasps_file"),)

    def __init__(
        self, root: Path | FileTree, *, missing: str = "keep", bad_labels: str = "error", follow_links: bool = False
    ) -> None:
        """List the images.

        Args:
            missing: For an image without a grasp file, `keep` adds a sample without grasps, `skip` skips the image, and
                `error` raises BadInput.
            bad_labels: For an invalid rectangle, `error` raises BadInput and `skip` skips the rectangle.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        self._list(root, Policies(missing=missing, bad_labels=bad_labels), follow_links=follow_links)

    def order(self, sample: FileSample) -> Any:
        return int(sample.key), sample.key
