"""Two splits with objects, in folders beside `annotations`; ids with gaps, a crowd, an image without objects."""

import json
from pathlib import Path
from typing import Any

from tests.support.source_trees import image, write

CATEGORIES = [
    {"id": 4, "name": "cup", "supercategory": "kitchen"},
    {"id": 0, "name": "cat", "supercategory": "animal"},
    {"id": 90, "name": "toothbrush", "supercategory": "indoor"},
]
CROWD = {"counts": [48 * 10, 48 * 5, 48 * 49], "size": [48, 64]}


def image_entry(number: int, name: str, *, height: int = 48, width: int = 64, **more: Any) -> dict[str, Any]:
    """An entry of `images`."""
    return {"id": number, "file_name": name, "height": height, "width": width, **more}


def thing(number: int, of: int, category: int, bbox: list[float], **more: Any) -> dict[str, Any]:
    """An entry of `annotations` with a box."""
    area = bbox[2] * bbox[3]
    return {
        "id": number,
        "image_id": of,
        "category_id": category,
        "bbox": bbox,
        "area": area,
        "iscrowd": 0,
        "segmentation": [[bbox[0], bbox[1], bbox[0] + bbox[2], bbox[1], bbox[0] + bbox[2], bbox[1] + bbox[3]]],
        **more,
    }


def annotations(images: list[dict[str, Any]], things: list[dict[str, Any]], **members: Any) -> str:
    """An annotation file."""
    return json.dumps(
        {"info": {}, "licenses": [], "images": images, "annotations": things, "categories": CATEGORIES, **members}
    )


def build(root: Path) -> Path:
    train = annotations(
        [image_entry(9, "000009.jpg"), image_entry(2, "000002.jpg"), image_entry(5, "000005.jpg")],
        [
            thing(11, 9, 90, [1.5, 2, 10, 20.25]),
            thing(12, 2, 0, [0, 0, 64, 48]),
            thing(13, 9, 4, [10, 0, 5, 48], segmentation=CROWD, iscrowd=1),
        ],
    )
    val = annotations([image_entry(7, "000007.jpg")], [thing(1, 7, 4, [3, 3, 3, 3], segmentation=[])])
    return write(
        root,
        {
            "annotations/instances_train2017.json": train,
            "annotations/instances_val2017.json": val,
            "train2017/000009.jpg": image(1, suffix=".jpg"),
            "train2017/000002.jpg": image(2, suffix=".jpg"),
            "train2017/000005.jpg": image(3, suffix=".jpg"),
            "val2017/000007.jpg": image(4, suffix=".jpg"),
            "README.txt": "of the set",
        },
    )
