"""Labeled sets: several objects on a table with exact labels, in the layouts of COCO, CamVid, imagefolder, VOC, YOLO.

Boxes, polygons and masks are computed from the pixels of each object. Images with index 1, 6, 11, ... are in the
split `val`, all other images in `train`. In all sets but `table`, every eighth image has no objects. The files are:

* coco: annotations/instances_{train,val}2017.json, train2017/000000000001.jpg. Category ids are not consecutive.
* pairs (CamVid): train/000000.jpg, trainannot/000000.png (gray mask), classes.txt with the name of each mask value.
* table (imagefolder of Hugging Face): train/000000.jpg, train/masks/000000.png with 255 at the only object, and
  train/metadata.csv.
* voc: JPEGImages/2012_000000.jpg, Annotations/2012_000000.xml, palette PNGs in SegmentationClass and
  SegmentationObject, ImageSets/{Main,Segmentation}/{train,val}.txt, labels.txt with the names of the classes.
* yolo (ultralytics): data.yaml, images/train/000000.jpg, labels/train/000000.txt with a polygon per line.
"""

import json
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from packer.errors import InvalidRequest
from packer.synthetic import drawing
from packer.synthetic.drawing import KINDS, Image, Pixels, Size, encode, encode_photo
from packer.synthetic.set_writer import (
    DrawnSample,
    Rows,
    SetSummary,
    check_counts,
    check_size,
    joined,
    stream,
    write_set,
)

SIZE: Size = (240, 320)
_SIZES = ((240, 320), (320, 240), (200, 300), (288, 288))
_ALL_CONTOURS = (cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
_EMPTY = 8  # number of images per image without objects
_GRAIN = 5.0
_HELD_OUT = 5  # number of images per validation image

# --- scenes


@dataclass(frozen=True)
class LabeledObject:
    """An object in an image. `label` is the index of its class, `pixels` is bool (H, W), True where it is visible."""

    label: int
    pixels: Pixels

    @property
    def box(self) -> tuple[int, int, int, int]:
        """(left, top, right, bottom) of the object in px. Right and bottom are exclusive."""
        rows, columns = np.flatnonzero(self.pixels.any(1)), np.flatnonzero(self.pixels.any(0))
        return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1

    def polygon(self) -> list[tuple[int, int]]:
        """Return the points (x, y) of one closed polygon along the pixel edges of the object (even-odd rule).

        A line connects the first part with each other part and each hole. The polygon follows each line twice.
        """
        # pixels 2c and 2c + 1 of the doubled mask are the halves of pixel c, whose edges are at c and c + 1
        doubled = np.repeat(np.repeat(self.pixels, 2, 0), 2, 1).astype(np.uint8)
        edges = [(contour[:, 0] + 1) // 2 for contour in cv2.findContours(doubled, *_ALL_CONTOURS)[0]]
        first, *others = ([*map(tuple, edge[(edge != np.roll(edge, 1, 0)).any(1)].tolist())] for edge in edges)
        line = [*first, first[0]]
        for loop in others:
            line += [*loop, loop[0], first[0]]
        return line[:-1]


@dataclass(frozen=True)
class LabeledScene:
    """An image, uint8 (H, W, 3), RGB, and its visible `objects` in drawing order."""

    image: Image
    objects: tuple[LabeledObject, ...]

    def mask(self, values: Sequence[int]) -> Image:
        """Return a mask, uint8 (H, W): values[i] at the pixels of objects[i], 0 for the table."""
        mask = np.zeros(self.image.shape[:2], np.uint8)
        for each, value in zip(self.objects, values, strict=True):
            mask[each.pixels] = value
        return mask

    def class_mask(self) -> Image:
        """Return a mask, uint8 (H, W): 1 + class index at the pixels of an object, 0 for the table."""
        return self.mask([1 + each.label for each in self.objects])


@dataclass(frozen=True)
class Scenes:
    """All scenes of a set. `sizes` are the possible (height, width) of images in px.

    `most_objects` is the largest number of objects in an image: 1, 4 or 9. With 1, each image has exactly one object.
    """

    seed: int
    classes: tuple[str, ...]
    sizes: tuple[Size, ...]
    most_objects: int = 4

    @classmethod
    def of(cls, *, samples: int, seed: int, classes: int, size: Size | None, most_objects: int = 4) -> "Scenes":
        """Return the scenes. If `size` is None, images have several sizes. InvalidRequest for an invalid option."""
        check_counts(samples=samples, seed=seed)
        check_size(size, least=32, most=4096)
        if not 1 <= classes <= len(KINDS):
            raise InvalidRequest(f"classes {classes}: expected 1 to {len(KINDS)}; choose another number")
        return cls(seed, KINDS[:classes], _SIZES if size is None else (size,), most_objects)

    def draw(self, index: int) -> LabeledScene:
        """Return the scene with this index. Objects do not overlap."""
        random = stream(self.seed, 1, index)
        height, width = size = self.sizes[random.integers(len(self.sizes))]
        image = drawing.draw_table(random, size)
        count = int(random.integers(1, self.most_objects + 1))
        if self.most_objects > 1 and index % _EMPTY == _EMPTY - 1:
            count = 0
        side = math.isqrt(self.most_objects)
        objects = []
        for cell in random.permutation(side * side)[:count].tolist():  # each object has a part of the image
            label = int(random.integers(len(self.classes)))
            drawn = drawing.make_object(self.classes[label], random)
            reach = random.uniform(0.3, 0.42) * min(size) / side
            x, y = random.uniform(-0.5, 0.5, 2) * (min(size) / side - 2 * reach - 2)
            at = x + (cell % side + 0.5) * width / side, y + (cell // side + 0.5) * height / side
            turn, scale = random.uniform(0, 2 * math.pi), reach / drawn.radius
            heights = drawing.draw_object(image, drawn, at=at, turn=turn, scale=scale)
            objects.append(LabeledObject(label, heights > 0))
        return LabeledScene(drawing.photograph(image, random, grain=_GRAIN), tuple(objects))


def _split(index: int) -> str:
    return "val" if index % _HELD_OUT == 1 else "train"


def _splits(samples: int) -> tuple[str, ...]:
    return ("train", "val") if samples > 1 else ("train",)


# --- coco

_MOST_OBJECTS = 100  # limit per image; the ids of an image's annotations then depend only on the image's number


def write_coco(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` images and COCO annotations into a new or empty folder. Return the counts.

    Args:
        size: (height, width) of all images in px. None selects one of several sizes for each image.

    Raises:
        InvalidRequest: An option is outside its limits.
        PackExists: The folder is not empty.
        StorageError: A file cannot be written.
    """
    scenes = Scenes.of(samples=samples, seed=seed, classes=classes, size=size)
    draw, shared = partial(_coco_sample, scenes), partial(_coco_annotations, scenes.classes, _splits(samples))
    return write_set(folder, draw, samples=samples, threads=threads, shared=shared)


def category_id(label: int) -> int:
    """Return the COCO category id of a class index. The ids are not consecutive."""
    return 1 + label + label // 5


def _coco_annotations(classes: tuple[str, ...], splits: tuple[str, ...], rows: Rows) -> Mapping[str, bytes]:
    categories = [
        {"id": category_id(label), "name": name, "supercategory": "thing"} for label, name in enumerate(classes)
    ]
    files = {}
    for split in splits:
        images, annotations = (",\n".join(rows.get(f"{split} {part}", [])) for part in ("images", "annotations"))
        files[f"annotations/instances_{split}2017.json"] = (
            f'{{"info": {{"description": "drawn by packer synth"}}, "licenses": [], "images": [\n{images}\n], '
            f'"annotations": [\n{annotations}\n], "categories": {json.dumps(categories)}}}\n'
        ).encode()
    return files


def _coco_sample(scenes: Scenes, index: int) -> DrawnSample:
    scene, split, number = scenes.draw(index), _split(index), index + 1
    height, width = scene.image.shape[:2]
    name = f"{number:012d}.jpg"
    image = {"id": number, "file_name": name, "height": height, "width": width, "license": 1}
    annotations = [
        {"id": number * _MOST_OBJECTS + position, "image_id": number, **_coco_annotation(each)}
        for position, each in enumerate(scene.objects)
    ]
    rows = {f"{split} images": [json.dumps(image)], f"{split} annotations": list(map(json.dumps, annotations))}
    return DrawnSample({f"{split}2017/{name}": encode_photo(scene.image)}, rows)


def _coco_annotation(drawn: LabeledObject) -> dict[str, Any]:
    left, top, right, bottom = drawn.box
    return {
        "category_id": category_id(drawn.label),
        "bbox": [left, top, right - left, bottom - top],
        "area": int(drawn.pixels.sum()),
        "iscrowd": 0,
        "segmentation": [[number for point in drawn.polygon() for number in point]],
    }


# --- pairs


def write_pairs(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` images and segmentation masks. Other arguments, result, errors: those of `write_coco`."""
    scenes = Scenes.of(samples=samples, seed=seed, classes=classes, size=size)
    names = {"classes.txt": "".join(f"{name}\n" for name in ("table", *scenes.classes)).encode()}
    draw = partial(_pairs_sample, scenes)
    return write_set(folder, draw, samples=samples, threads=threads, shared=lambda _: names)


def _pairs_sample(scenes: Scenes, index: int) -> DrawnSample:
    scene, split = scenes.draw(index), _split(index)
    return DrawnSample({
        f"{split}/{index:06d}.jpg": encode_photo(scene.image),
        f"{split}annot/{index:06d}.png": encode(".png", scene.class_mask()),
    })  # fmt: skip


# --- table

_COLUMNS = "file_name,mask_file_name,label,xmin,ymin,xmax,ymax,width,height\n"


def write_table(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` images with one object each, masks and tables. Other arguments: those of `write_coco`."""
    scenes = Scenes.of(samples=samples, seed=seed, classes=classes, size=size, most_objects=1)
    draw = partial(_table_sample, scenes)
    return write_set(folder, draw, samples=samples, threads=threads, shared=partial(joined, header=_COLUMNS))


def _table_sample(scenes: Scenes, index: int) -> DrawnSample:
    scene, split, stem = scenes.draw(index), _split(index), f"{index:06d}"
    (drawn,) = scene.objects
    height, width = scene.image.shape[:2]
    box = ",".join(map(str, drawn.box))
    row = f"{stem}.jpg,masks/{stem}.png,{scenes.classes[drawn.label]},{box},{width},{height}\n"
    mask = encode(".png", scene.mask([255]))
    files = {f"{split}/{stem}.jpg": encode_photo(scene.image), f"{split}/masks/{stem}.png": mask}
    return DrawnSample(files, {f"{split}/metadata.csv": [row]})


# --- voc


def _spread_bits(value: int) -> int:
    return sum((value >> (3 * bit) & 1) << (7 - bit) for bit in range(3))


# Pascal VOC colors of mask values: bits 3k, 3k + 1, 3k + 2 of a value are bit 7 - k of red, green and blue
_PALETTE = bytes(_spread_bits(value >> channel) for value in range(256) for channel in range(3))


def write_voc(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` images, VOC annotations and masks. Other arguments, result, errors: those of `write_coco`."""
    scenes = Scenes.of(samples=samples, seed=seed, classes=classes, size=size)
    labels = {"labels.txt": "".join(f"{name}\n" for name in scenes.classes).encode()}
    draw = partial(_voc_sample, scenes)
    return write_set(folder, draw, samples=samples, threads=threads, shared=lambda rows: labels | joined(rows))


def _voc_sample(scenes: Scenes, index: int) -> DrawnSample:
    scene, split, stem = scenes.draw(index), _split(index), f"2012_{index:06d}"
    height, width = scene.image.shape[:2]
    objects = "".join(_voc_object(each, scenes.classes[each.label]) for each in scene.objects)
    xml = (
        f"<annotation>\n\t<folder>VOC2012</folder>\n\t<filename>{stem}.jpg</filename>\n\t<size>"
        f"<width>{width}</width><height>{height}</height><depth>3</depth></size>\n\t<segmented>1</segmented>\n"
        f"{objects}</annotation>\n"
    )
    files = {
        f"JPEGImages/{stem}.jpg": encode_photo(scene.image),
        f"Annotations/{stem}.xml": xml.encode(),
        f"SegmentationClass/{stem}.png": _palette_png(scene.class_mask()),
        f"SegmentationObject/{stem}.png": _palette_png(scene.mask(range(1, 1 + len(scene.objects)))),
    }
    return DrawnSample(files, {f"ImageSets/{kind}/{split}.txt": [f"{stem}\n"] for kind in ("Main", "Segmentation")})


def _voc_object(drawn: LabeledObject, name: str) -> str:
    left, top, right, bottom = drawn.box
    return (
        f"\t<object>\n\t\t<name>{name}</name>\n\t\t<pose>Unspecified</pose>\n\t\t<truncated>0</truncated>\n"
        f"\t\t<difficult>0</difficult>\n\t\t<bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax>"
        f"<ymax>{bottom}</ymax></bndbox>\n\t</object>\n"
    )


def _palette_png(values: Image) -> bytes:
    """Return a PNG file with a palette, which OpenCV cannot write, for palette indices."""
    height, width = values.shape
    rows = np.pad(values, ((0, 0), (1, 0)))  # a PNG row begins with a filter type, here 0 (none)
    chunks = (
        b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE" + _PALETTE,
        b"IDAT" + zlib.compress(rows.tobytes()),
        b"IEND",
    )
    framed = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


# --- yolo


def write_yolo(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` images and YOLO polygon labels. Other arguments, result, errors: those of `write_coco`."""
    scenes = Scenes.of(samples=samples, seed=seed, classes=classes, size=size)
    folders = [f"{split}: images/{split}" for split in _splits(samples)]
    names = [f"  {label}: {name}" for label, name in enumerate(scenes.classes)]
    description = {"data.yaml": "\n".join(["path: .", *folders, "", "names:", *names, ""]).encode()}
    draw = partial(_yolo_sample, scenes)
    return write_set(folder, draw, samples=samples, threads=threads, shared=lambda _: description)


def _yolo_sample(scenes: Scenes, index: int) -> DrawnSample:
    scene, name = scenes.draw(index), f"{_split(index)}/{index:06d}"
    height, width = scene.image.shape[:2]
    rows = [
        " ".join([str(each.label), *(f"{x / width!r} {y / height!r}" for x, y in each.polygon())]) + "\n"
        for each in scene.objects
    ]
    return DrawnSample({f"images/{name}.jpg": encode_photo(scene.image), f"labels/{name}.txt": "".join(rows).encode()})
