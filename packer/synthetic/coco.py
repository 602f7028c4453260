"""COCO: pictures of things on tables with boxes and polygons, in the layout of COCO 2017.

    annotations/instances_{train,val}2017.json
    train2017/000000000001.jpg, val2017/...  JPEG; every fifth is for validation

Ids of pictures count from 1; those of categories do, too, and leave some out, as COCO's do. Polygons follow the edges
of pixels; a thing with holes has one that goes there and back on the same way.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from packer.synthetic._growing_files import SharedFile
from packer.synthetic._labelled_scenes import SIZE, LabelledThing, SceneStudio, Size, split_of, splits_of
from packer.synthetic.base import DrawnSample, SetSummary, check_counts, publishing, write_samples

_MOST_THINGS = 100  # in a picture, so that ids of annotations depend on theirs alone
_GAP = 5  # every so many categories an id is left out


def write(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` pictures and their annotations.

    size: (height, width) in px; None: several sizes. Raises InvalidRequest, PackExists, StorageError.
    """
    check_counts(samples=samples, seed=seed)
    studio = SceneStudio(seed=seed, classes=classes, size=size)
    categories = [
        {"id": category_id(label), "name": name, "supercategory": "thing"} for label, name in enumerate(studio.classes)
    ]
    around = (
        b'{"info": {"description": "drawn by packer synth"}, "licenses": [], "images": [\n',
        b'\n], "annotations": [\n',
        f'\n], "categories": {json.dumps(categories)}}}\n'.encode(),
    )
    shared = [SharedFile(_annotations(split), around, b",\n") for split in splits_of(samples)]
    with publishing(folder) as partial_folder:
        draw = partial(_draw, studio)
        return write_samples(draw, partial_folder, samples=samples, threads=threads, shared=shared)


def category_id(label: int) -> int:
    """The id of a class."""
    return 1 + label + label // _GAP


def _annotations(split: str) -> str:
    return f"annotations/instances_{split}2017.json"


def _draw(studio: SceneStudio, index: int) -> DrawnSample:
    scene, split, number = studio.scene(index), split_of(index), index + 1
    height, width = scene.picture.shape[:2]
    name = f"{number:012d}.jpg"
    image = {"id": number, "file_name": name, "height": height, "width": width, "license": 1}
    things = [
        {"id": number * _MOST_THINGS + place, "image_id": number, **_annotation(thing)}
        for place, thing in enumerate(scene.things)
    ]
    rows = ([json.dumps(image).encode()], [json.dumps(thing).encode() for thing in things])
    return DrawnSample({f"{split}2017/{name}": scene.photo}, {_annotations(split): rows})


def _annotation(thing: LabelledThing) -> dict[str, Any]:
    left, top, right, bottom = thing.box
    return {
        "category_id": category_id(thing.label),
        "bbox": [left, top, right - left, bottom - top],
        "area": int(thing.pixels.sum()),
        "iscrowd": 0,
        "segmentation": [[number for point in thing.polygon() for number in point]],
    }
