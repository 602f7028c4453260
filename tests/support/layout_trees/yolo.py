"""A YOLO set as ultralytics describes it: two splits, a background of each kind, a class that no image has."""

from pathlib import Path

from tests.support.source_trees import image, write

DATA_YAML = """\
# a small set
path: ../datasets/small
train: images/train
val: images/val
test:  # none

names:
  0: person
  1: 'traffic light'
  2: cup
"""
LABELS = {
    "train/a": "0 0.5 0.5 0.25 0.5\n1 0.25 0.25 0.125 0.125\n",
    "train/b": "",
    "val/c": "2 0.75 0.5 0.5 1\n",
}


def build(root: Path) -> Path:
    """Four images; `train/d` has no label file, `train/b` an empty one."""
    names = (*LABELS, "train/d")
    files = {f"images/{name}.png": image(seed, height=32, width=64) for seed, name in enumerate(names)}
    return write(
        root,
        {"data.yaml": DATA_YAML, "README.txt": "of no image", **files}
        | {f"labels/{name}.txt": rows for name, rows in LABELS.items()},
    )
