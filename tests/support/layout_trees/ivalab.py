"""ivalab's grasps: images in JPEG, depth in PNG, annotations in a folder of their own, a copy of an editor."""

from pathlib import Path

from tests.support.layout_trees.ocid_grasp import depth
from tests.support.source_trees import image, write

# rows without a space at their end, as the set has them, which Cornell's do not
ANNOTATIONS = "40 22\n43 24\n42.9328 26.2608\n39.1328 24.6608\n40.5 23.5\n43 25\n42 27\n39.5 25.5\n"
COUNTS = {"0000": 2, "0001": 1, "0010": 0}


def build(root: Path) -> Path:
    rows = ANNOTATIONS.splitlines(keepends=True)
    for seed, (number, count) in enumerate(COUNTS.items()):
        write(root, {
            f"rgbd/rgb_{number}.jpg": image(seed, suffix=".jpg"),
            f"rgbd/depth_{number}.png": depth(seed),
            f"annotations/rgb_{number}_annotations.txt": "".join(rows[: 4 * count]),
        })  # fmt: skip
    return write(root, {"annotations/rgb_0001_annotations.txt~": "1 2\n3 4\n", "README.md": "three images\n"})
