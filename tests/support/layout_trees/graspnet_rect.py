"""GraspNet-1Billion: scenes of two cameras; grasps copied into `rect/`, and as they are downloaded."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support.image_files import npy
from tests.support.layout_trees.ocid_grasp import classes, depth
from tests.support.source_trees import image, write

# scene, camera, number -> where the rectangles lie
PLACES = {
    ("0000", "kinect", "0000"): "scenes/scene_0000/kinect/rect/0000.npy",
    ("0000", "realsense", "0000"): "rect_labels/scene_0000/realsense/0000.npy",
    ("0000", "realsense", "0255"): "scenes/scene_0000/realsense/rect/0255.npy",
    ("0100", "realsense", "0001"): "rect_labels/scene_0100/realsense/0001.npy",
    ("0189", "realsense", "0001"): "rect_labels/scene_0189/realsense/0001.npy",
}


def rows(seed: int, count: int = 3) -> npt.NDArray[np.float32]:
    """Center, open point, height, score, object."""
    made = np.random.default_rng(seed).uniform(5, 40, (count, 7)).astype(np.float32)
    made[:, 5] = np.linspace(0.1, 1.2, count)
    made[:, 6] = np.arange(count) * 29
    return made


def build(root: Path) -> Path:
    for seed, ((scene, camera, number), labels) in enumerate(PLACES.items()):
        folder = f"scenes/scene_{scene}/{camera}"
        write(root, {
            f"{folder}/rgb/{number}.png": image(seed),
            f"{folder}/depth/{number}.png": depth(seed),
            f"{folder}/label/{number}.png": classes(seed),
            labels: npy(rows(seed, count=seed)),
        })  # fmt: skip
    return write(root, {"scenes/scene_0000/object_id_list.txt": "0\n29\n"})
