"""A source of images with boxes and all that belongs to them: classes, crowd flags, polygons, keypoints.

Each object is a rectangle of one color in an image of zeros, so that the pixels say where its box, its polygons and
its keypoints have to be, whatever has moved them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.base import Frame, Sample
from tests.support.image_files import chunk
from tests.support.source_trees import encoded

CLASSES = ("cat", "dog", "cup")
JOINTS = ("first", "last")
LABELS = "labels.json"
FIELDS = (
    Field("key", "text", "text"),
    Field("image", "image", "encoded"),
    Field("boxes", "boxes", "raw:float32", "float32", (None, 4)),
    Field("box_labels", "number", "raw:int64", "int64", (None,), classes=CLASSES, of="boxes"),
    Field("box_crowd", "number", "raw:uint8", "uint8", (None,), of="boxes"),
    Field("polygons", "points", "raw:float32", "float32", (None, 2), edges=True),
    Field("polygon_starts", "number", "raw:int64", "int64", (None,), starts="polygons"),
    Field("polygon_box", "number", "raw:int64", "int64", (None,), of="polygon_starts", into="boxes"),
    Field("keypoints", "points", "raw:float32", "float32", (None, 2, 2), classes=JOINTS, of="boxes"),
    Field("keypoint_visibility", "number", "raw:uint8", "uint8", (None, 2), of="boxes"),
    Field("files", "json", "json", hidden=True),
)
ROWS = tuple(field.name for field in FIELDS if field.shape is not None)
Rectangle = tuple[int, int, int, int]  # x0, y0, x1, y1, edges, in px of the image as it is shown


def color(place: int) -> int:
    """The gray of the object at that place of its sample."""
    return 40 + 20 * place


def drawn(size: tuple[int, int], objects: Sequence[Rectangle]) -> npt.NDArray[np.uint8]:
    """uint8 (H, W, 3) with the rectangles."""
    pixels = np.zeros((*size, 3), np.uint8)
    for place, (x0, y0, x1, y1) in enumerate(objects):
        pixels[y0:y1, x0:x1] = color(place)
    return pixels


def values_of(objects: Sequence[Rectangle]) -> dict[str, Any]:
    """The values of all row fields. The polygons of an object are its upper and its lower part, of 4 and 5 points; one
    that is a single pixel high has the upper one alone. Its keypoints are its first and its last pixel.
    """
    polygons: list[tuple[float, float]] = []
    starts, owners = [], []
    for place, (x0, y0, x1, y1) in enumerate(objects):
        middle = y1 if y1 - y0 == 1 else (y0 + y1) // 2
        for top, bottom, count in ((y0, middle, 4), (middle, y1, 5)):
            if top < bottom:
                starts.append(len(polygons))
                owners.append(place)
                corners = [(x0, top), (x1, top), (x1, bottom), (x0, bottom), (x0, (top + bottom) / 2)]
                polygons += corners[:count]
    return {
        "boxes": np.asarray(objects, np.float32).reshape(-1, 4),
        "box_labels": np.arange(len(objects), dtype=np.int64) % len(CLASSES),
        "box_crowd": np.arange(len(objects), dtype=np.uint8) % 2,
        "polygons": np.asarray(polygons, np.float32).reshape(-1, 2),
        "polygon_starts": np.asarray(starts, np.int64),
        "polygon_box": np.asarray(owners, np.int64),
        "keypoints": np.asarray([((x0, y0), (x1 - 1, y1 - 1)) for x0, y0, x1, y1 in objects], np.float32).reshape(
            -1, 2, 2
        ),
        "keypoint_visibility": np.full((len(objects), 2), 2, np.uint8),
    }


def write(
    root: Path,
    samples: Mapping[str, tuple[tuple[int, int], Sequence[Rectangle]]],
    *,
    orientation: int = 1,
    stated: Mapping[str, tuple[int, int]] | None = None,
) -> Path:
    """Images and their list. samples: (height, width) and objects by key, as viewers show them.

    orientation: what the files say; their pixels are turned so that viewers show what is said here. stated: other sizes
    than the shown ones, by key.
    """
    root.mkdir()
    listed = {}
    for key, (size, objects) in samples.items():
        png = encoded(".png", stored_pixels(drawn(size, objects), orientation))
        (root / f"{key}.png").write_bytes(with_orientation(png, orientation))
        listed[key] = {"size": (stated or {}).get(key, size), "objects": list(objects)}
    (root / LABELS).write_text(json.dumps(listed))
    return root


def stored_pixels(shown: npt.NDArray[np.uint8], orientation: int) -> npt.NDArray[np.uint8]:
    """What a camera stores that viewers turn by the EXIF orientation into `shown`: NumPy's turns, restated."""
    inverse = {
        1: shown,
        2: shown[:, ::-1],
        3: shown[::-1, ::-1],
        4: shown[::-1],
        5: shown.transpose(1, 0, 2),
        6: np.rot90(shown, 1),
        7: shown[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(shown, -1),
    }
    return np.ascontiguousarray(inverse[orientation])


def with_orientation(png: bytes, orientation: int) -> bytes:
    """A PNG that says its EXIF orientation, in a chunk eXIf behind the header."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    return png if orientation == 1 else png[:33] + chunk(b"eXIf", exif.tobytes()[6:]) + png[33:]


class AnnotatedSource(base.Source):
    """The images of a folder that `write` made, with their labels."""

    kind = "folder"
    notes = ()
    left_out = ()

    def __init__(self, root: Path, *, frame: Frame = "stored", changed: Mapping[str, Any] | None = None) -> None:
        """changed: other values of row fields, for every sample."""
        self.root, self.folder = root, SourceRoot(root)
        self.tables = [LABELS]
        self.schema = Schema(FIELDS)
        self.frame = frame
        self._changed = dict(changed or {})
        self._listed: dict[str, Any] = json.loads((root / LABELS).read_text())
        self._keys = sorted(self._listed)

    def __len__(self) -> int:
        return len(self._keys)

    def read(self, index: int, names: Sequence[str]) -> Sample:
        key = self.key(index)
        labels = {**values_of([tuple(each) for each in self._listed[key]["objects"]]), **self._changed}
        return {"key": key, "image": self.read_file(f"{key}.png"), **labels, "files": {"image": f"{key}.png"}}

    def entry(self, index: int) -> base.SampleEntry:
        key = self._keys[self.checked(index)]
        return base.SampleEntry(key, (f"{key}.png",), key)

    def stated_size(self, index: int) -> tuple[int, int] | None:
        height, width = self._listed[self.key(index)]["size"]
        return height, width


def small_set(root: Path) -> Path:
    """Four images of two sizes: three objects, none, one of a single row, five."""
    return write(
        root,
        {
            "a": ((40, 60), [(2, 3, 12, 13), (20, 5, 36, 25), (44, 20, 58, 38)]),
            "b": ((40, 60), []),
            "c": ((50, 30), [(4, 30, 20, 31)]),
            "d": ((40, 60), [(x, x, x + 6, x + 4) for x in range(1, 36, 8)]),
        },
    )
