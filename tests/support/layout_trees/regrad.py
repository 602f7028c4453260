"""REGRAD: images of version 2 in two splits with one scene number, grasps of version 1 for some views."""

import json
from pathlib import Path

import numpy as np

from tests.support.layout_trees.ocid_grasp import depth
from tests.support.source_trees import encoded, image, write

# split, scene, view -> its grasps as the set has them: object, center, size, angle, scores
Grasp = list[object]
GRASPS: dict[tuple[str, str, str], list[Grasp] | None] = {
    ("train", "00001", "1"): [
        [2.0, [[30.5, 20.25], [20.0, 8.0], -30.0], [0.9, 0.8, 0.7, 0.85]],
        [3.0, [[12.0, 30.0], [6.0, 18.5], -90.0], [0.5, 0.25, 1.0, 0.6]],
    ],
    ("train", "00001", "9"): None,  # as some views have none
    ("train", "00002", "1"): [],
    ("seen_valid", "00001", "1"): [[1, [[40.0, 20.0], [9, 9], -45.5], [1, 1, 1, 1]]],
}
RELATIONS = {
    "train": {"00001": {"table-1": ["mug-2", "bowl-3"], "mug-2": [], "bowl-3": ["mug-2"]}, "00002": {"table-1": []}},
    "seen_valid": {"00001": {"lamp-1": []}, "00007": {"of-no-view": []}},
}


def segments(seed: int) -> bytes:
    """0 background, 255 the table, objects by their numbers."""
    values = np.zeros((48, 64), np.uint8)
    values[20:] = 255
    values[10 : 25 + seed, 5:30] = 1 + seed
    return encoded(".png", values)


def build(root: Path) -> Path:
    files: dict[str, bytes | str] = {}
    for seed, ((split, scene, view), grasps) in enumerate(GRASPS.items()):
        folder, name = f"Relation Part/{split}", f"{scene}_{view}"
        files[f"{folder}/RGBImages/{name}.jpg"] = image(seed, suffix=".jpg")
        files[f"{folder}/DepthImages/{name}.png"] = depth(seed)
        files[f"{folder}/SegmentationImages/{name}.png"] = segments(seed)
        if grasps is not None:
            above = f"Grasp Part/2D_Grasp/{split}/{scene}/{view}"
            files |= {f"{above}/{view}.json": json.dumps(grasps), f"{above}/{view}.jpg": b"drawn"}
    for split, relations in RELATIONS.items():
        files[f"Relation Part/{split}/mrts.json"] = json.dumps(relations)
        files[f"Relation Part/{split}/objects.json"] = "{}"
    return write(root, files)
