"""Cornell: the Cornell grasping data set, in any of the layouts in which it is distributed.

A scene is all files `pcdNNNNr.png`, `pcdNNNNd.tiff`, `pcdNNNNcpos.txt`, `pcdNNNNcneg.txt` and `pcdNNNN.txt` with an
equal number NNNN, in any folders. A sample is a scene with a cpos file. Samples are ordered by the path of the cpos
file, as in the loaders of the grasp networks. The splits of these loaders are slices of the ordered list.

Fields of a sample with N grasps:
* key: four digits.
* rgb: PNG bytes.
* depth: float32, in meters: TIFF bytes, or an array computed from the point cloud.
* grasps, grasps_negative: float32 (N, 4, 2), corners x, y in px. p0 -> p1 is the opening axis. Rectangles with NaN are
  skipped.
* object_id, category: from `z.txt`, -1 and "" for a scene that `z.txt` does not list.
* Hidden: files (field -> relative path), grasps_file and grasps_negative_file (bytes, empty without a file).

A point cloud is PCD 0.7 as text: header lines up to `DATA ascii`, then one line `x y z rgb index` per valid pixel. The
positions are in millimeters, and index = row * width + column. Depth is the distance sqrt(x^2 + y^2 + z^2) in meters.
Pixels without a point are filled as in dougsm/ggcnn (utils/dataset_processing/image.py: DepthImage.from_pcd, inpaint).
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, DamagedImage
from packer.images import sniff
from packer.registry import import_or_explain
from packer.schema import MOST_PIXELS, Field
from packer.sources import base
from packer.sources._file_source import FileSource, Policies
from packer.sources._message_texts import listed, shown
from packer.sources._small_file_source import FileRole, FileSample, Need
from packer.sources._trees.file_tree import FileTree
from packer.sources.grasp._label_files import rectangles, verbatim

SPECIFICITY = 100
_TABLE = "z.txt"
_MOST_DIGITS = 18  # an object id is stored as int64
_DEPTH = Field("depth", "depth", "encoded", "float32")
_NO_DEPTH = "--depth-from none packs no depth"
_DATA = re.compile(rb"^DATA[ \t]+(\w+)[ \t]*\r?\n", re.MULTILINE)
_COLUMNS = 5  # of a point
_USED = (0, 1, 2, 4)  # x, y, z, index; the color is 0, a denormal or NaN
_FARTHEST = float(np.finfo(np.float32).max)
_OBJECTS = (Field("object_id", "number", "number", "int64", ()), Field("category", "text", "text"))

Array = npt.NDArray[np.float64]


def _role(name: str, suffix: str, field: Field, need: Need, otherwise: str = "") -> FileRole:
    pattern = rf"pcd(?P<key>[0-9]{{4}}){re.escape(suffix)}{'?' * suffix.endswith('tiff')}"
    is_extra = name != "cloud"  # a point cloud has 10 MB
    return FileRole(name, f"pcdNNNN{suffix}", pattern, field, need, is_extra=is_extra, otherwise=otherwise)


class Source(FileSource):
    """The Cornell grasping data set."""

    kind, title, noun = "cornell", "Cornell grasps", "scene"
    anchor = order_by = "grasps_file"
    carries_skipped = has_companions = False
    roles: Sequence[FileRole] = (
        _role("rgb", "r.png", Field("rgb", "image", "encoded"), "always"),
        _role("depth", "d.tiff", _DEPTH, "alike", f"--depth-from pcd computes it, {_NO_DEPTH}"),
        _role("cloud", ".txt", replace(_DEPTH, codec="raw:float32"), "unused", _NO_DEPTH),
        _role("grasps_file", "cpos.txt", verbatim("grasps_file"), "always"),
        _role("grasps_negative_file", "cneg.txt", verbatim("grasps_negative_file"), "optional"),
    )
    labels = (rectangles("grasps", "grasps_file"), rectangles("grasps_negative", "grasps_negative_file"))
    recognized_by = (("rgb", "grasps_file"),)

    def __init__(
        self,
        root: Path | FileTree,
        *,
        depth_from: str = "auto",
        duplicates: str = "error",
        bad_labels: str = "error",
        follow_links: bool = False,
    ) -> None:
        """List the scenes.

        Args:
            depth_from: `tiff` stores the d.tiff files. `pcd` computes depth from the point clouds. `none` stores no
                depth. `auto` is `tiff` if scenes have d.tiff files, else `none`.
            duplicates: For a scene with the same file in two places, `error` raises BadInput, `first` uses the first
                file, and `skip` skips the scene.
            bad_labels: For an invalid rectangle, `error` raises BadInput and `skip` skips the rectangle.
            follow_links: True: read files behind links that lead out of `root`. False: these links raise BadInput.
        """
        base.check_choice("depth_from", depth_from, ("auto", "tiff", "pcd", "none"))
        self._is_computed = depth_from == "pcd"
        depth: Need = "alike" if depth_from == "auto" else "always" if depth_from == "tiff" else "unused"
        needs: dict[str, Need] = {"depth": depth, "cloud": "always" if self._is_computed else "unused"}
        self.roles = tuple(replace(role, need=needs.get(role.name, role.need)) for role in self.roles)
        self._list(root, Policies(duplicates=duplicates, bad_labels=bad_labels), follow_links=follow_links)

    def stem_of(self, sample: FileSample) -> str:
        folder, slash, _ = sample.paths["rgb"].rpartition("/")
        return f"{folder}{slash}pcd{sample.key}"

    def more_fields(self) -> Sequence[Field]:
        self.tables = [name for name in self.extras if name.rpartition("/")[2] == _TABLE]
        self._objects = self._read_tables()
        return _OBJECTS if self.tables else ()

    def listed_values(self, sample: FileSample) -> base.Sample:
        object_id, category = self._objects.get(sample.key, (-1, ""))
        return {"object_id": np.int64(object_id), "category": category} if self.tables else {}

    def read_values(self, sample: FileSample, files: Mapping[str, bytes]) -> base.Sample:
        if not self._is_computed:
            return {}
        try:
            header = sniff(files["rgb"], MOST_PIXELS)
        except DamagedImage as error:
            raise BadInput(f"{self.root / sample.paths['rgb']}: {error.message}") from error
        cloud = self.root / sample.paths["cloud"]
        return {"depth": read_depth(files["cloud"], cloud, height=header.height, width=header.width)}

    def _read_tables(self) -> dict[str, tuple[int, str]]:
        if len(self.tables) > 1:
            raise BadInput(f"{shown(str(self.root))}: more than one {_TABLE}: {listed(self.tables)}; keep one")
        tables = [read_table(self.read_file(name), self.root / name, strict=self._is_strict) for name in self.tables]
        return tables[0] if tables else {}


def read_table(data: bytes, path: Path, *, strict: bool) -> dict[str, tuple[int, str]]:
    """Parse lines `number object category background` (processedData/z.txt).

    Returns:
        The number of each scene -> (object id, category).

    Raises:
        BadInput: A line is invalid, or a number has two objects. If `strict` is false, these lines are skipped.
    """
    objects: dict[str, tuple[int, str]] = {}
    for number, line in enumerate(data.decode("utf-8-sig", errors="surrogateescape").splitlines(), start=1):
        words = line.split()
        fits = len(words) == 4 and words[1].isascii() and words[1].isdigit() and len(words[1]) <= _MOST_DIGITS
        if fits and objects.setdefault(words[0], (int(words[1]), words[2])) == (int(words[1]), words[2]):
            continue
        if words and strict:
            raise BadInput(
                f"{shown(str(path))}:{number}: cannot read the table: found {shown(line)!r}, expected number, object "
                "id, category, background, once for each number; correct the file or use --bad-labels skip"
            )
    return objects


# ---- point clouds


def read_depth(data: bytes, path: Path, *, height: int, width: int) -> npt.NDArray[np.float32]:
    """Return the depth image of a point cloud, float32 (height, width), in m. Pixels without a point are filled.

    Raises BadInput if the file is not a valid point cloud of this size.
    """
    points = read_points(data, path)
    points = points[np.isfinite(points).all(axis=1)]
    index = points[:, 3]
    if not ((index >= 0) & (index < height * width) & (index == np.floor(index))).all():
        raise BadInput(
            f"{shown(str(path))}: point cloud does not fit its image: pixel indices {index.min():g} ... "
            f"{index.max():g}, expected integers below {width}x{height}; get the file again"
        )
    depth = np.zeros(height * width)
    with np.errstate(over="ignore"):  # the check below raises BadInput for an infinite distance
        depth[index.astype(np.int64)] = np.sqrt((points[:, :3] ** 2).sum(axis=1)) / 1000.0
    if depth.max() > _FARTHEST:
        raise BadInput(
            f"{shown(str(path))}: point cloud has a distance of {depth.max():g} m, beyond float32; get the file again"
        )
    if not depth.astype(np.float32).any():
        raise BadInput(f"{shown(str(path))}: point cloud has no valid point; get the file again")
    return _inpaint(depth.reshape(height, width))


def read_points(data: bytes, path: Path) -> Array:
    """Return x, y, z (in mm) and the pixel index from each line with five numbers, float64 (N, 4).

    Other lines are skipped. Raises BadInput if the header does not contain `DATA ascii`.
    """
    found = _DATA.search(data)
    if found is None or found[1] != b"ascii":
        kind = "without a DATA line" if found is None else f"DATA {found[1].decode('ascii', 'replace')}"
        raise BadInput(
            f"{shown(str(path))}: not a point cloud as text: {kind}, expected DATA ascii; get the file again"
        )
    body = data[found.end() :]
    try:
        table = np.loadtxt(io.BytesIO(body), comments=None, ndmin=2) if body.decode("ascii").strip() else None
    except ValueError:  # not ASCII, or a line is not a row of numbers or is shorter than others
        table = None
    return table[:, _USED] if table is not None and table.shape[1] == _COLUMNS else _point_lines(body)


def _point_lines(body: bytes) -> Array:
    points = []
    for line in body.splitlines():
        words = line.split()
        if len(words) == _COLUMNS:
            try:
                points.append([float(words[column]) for column in _USED])
            except ValueError:
                continue
    return np.asarray(points, np.float64).reshape(-1, len(_USED))


def _inpaint(depth: Array) -> npt.NDArray[np.float32]:
    cv2 = import_or_explain("cv2", "--depth-from pcd")  # imported late: only point clouds need OpenCV
    framed = cv2.copyMakeBorder(depth, 1, 1, 1, 1, cv2.BORDER_DEFAULT)
    mask = (framed == 0).astype(np.uint8)
    scale = np.float32(np.abs(framed).max())
    filled = cv2.inpaint(framed.astype(np.float32) / scale, mask, 1, cv2.INPAINT_NS)
    return np.ascontiguousarray(filled[1:-1, 1:-1] * scale, np.float32)
