"""Grasp-Anything: images with a label file for each object, one of number 10; one without grasps, and none at all."""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tests.support.image_files import npy
from tests.support.source_trees import image, write

A, B, C = "3f731b45", "83c43efd", "b0053891"
# image -> object -> how many grasps
GRASPS = {A: {0: 3, 2: 1, 10: 4}, B: {0: 0, 3: 5}, C: {}}
TEXT = ("A cup and a spoon lie on a wooden table.", ["cup", "spoon"])


def rows(seed: int, count: int) -> npt.NDArray[np.float32]:
    """Score, x, y, opening, jaw, theta."""
    low, high = [0, 5, 5, 4, 3, -90], [1, 60, 40, 30, 20, 90]
    return np.random.default_rng(seed).uniform(low, high, (count, 6)).astype(np.float32)


def saved(value: Any, **options: Any) -> bytes:
    """What torch.save writes of a value, an array as a tensor."""
    file = io.BytesIO()
    torch.save(torch.from_numpy(value) if isinstance(value, np.ndarray) else value, file, **options)
    return file.getvalue()


def square(seed: int) -> npt.NDArray[np.bool_]:
    """A mask of the size of the images."""
    mask = np.zeros((48, 64), bool)
    mask[3 * seed : 3 * seed + 10, 5:25] = True
    return mask


def build(root: Path) -> Path:
    files: dict[str, bytes | str] = {"README.md": "of no image"}
    for seed, (key, objects) in enumerate(GRASPS.items()):
        files[f"image/{key}.jpg"] = image(seed, suffix=".jpg")
        files[f"scene_description/{key}.pkl"] = pickle.dumps(TEXT, protocol=4)
        if objects:
            files[f"grasp_label_negative/{key}_0.pt"] = saved(rows(90 + seed, 2))
        for number, count in objects.items():
            files[f"grasp_label_positive/{key}_{number}.pt"] = saved(rows(10 * seed + number, count))
            files[f"mask/{key}_{number}.npy"] = npy(square(number))
    return write(root, files)
