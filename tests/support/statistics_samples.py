"""Samples of many sizes with a field of every kind, for what counts and measures them."""

import math
from typing import Any

import numpy as np

from packer.schema import Field
from tests.support.array_packs import BOXES, DEPTH, DOTS, GRASPS, IMAGE, LABEL, MASK, NOTE, SCORE

OBJECT = Field("object_id", "number", "number", "int64", ())


FIELDS = (IMAGE, DEPTH, MASK, GRASPS, BOXES, DOTS, LABEL, OBJECT, SCORE, NOTE)


def samples(count: int = 23) -> list[dict[str, Any]]:
    """Samples of many sizes; depth with missing and not finite pixels, some without a label."""
    random = np.random.default_rng(5)
    found = []
    for number in range(count):
        height, width = (int(length) for length in random.integers(3, 40, 2))
        depth = random.uniform(0.5, 2.5, (height, width)).astype(np.float32)
        depth[random.random((height, width)) < 0.1] = -1.0
        depth[0, 0] = (np.nan, np.inf, 1.5)[number % 3]
        corners = random.uniform(0, 30, (number % 5, 4, 2)).astype(np.float32)
        found.append(
            {
                "key": f"k{number}",
                "image": random.integers(0, 256, (height, width, 3), np.uint8),
                "depth": depth,
                "mask": random.choice(np.uint8([0, 0, 1, 255]), (height, width)),
                "grasps": corners,
                "boxes": np.sort(random.uniform(0, 30, (number % 3, 4)).astype(np.float32), axis=1),
                "dots": random.uniform(0, 30, (number % 2, 2)).astype(np.float32),
                "label": number % 2 if number < 20 else 5,
                "object_id": 2**62 + number // 4,
                "score": math.nan if number == 7 else number / 4,
                "note": f"text {number % 3}",
            }
        )
    return found


SAMPLES = samples()
