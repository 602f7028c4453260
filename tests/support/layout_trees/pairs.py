"""DUTS: images in JPEG, masks in PNG, in folders of their own for each split; dots in names."""

from pathlib import Path

from tests.support.source_trees import image, mask, write

NAMES = {"TR": ("ILSVRC2012_test_0001", "a.b", "c"), "TE": ("sun_1.2.3", "z")}


def build(root: Path) -> Path:
    for split, names in NAMES.items():
        for number, name in enumerate(names):
            seed = number + 10 * (split == "TE")
            write(root, {
                f"DUTS-{split}/DUTS-{split}-Image/{name}.jpg": image(seed, suffix=".jpg"),
                f"DUTS-{split}/DUTS-{split}-Mask/{name}.png": mask(seed),
            })  # fmt: skip
    return write(root, {"README.txt": "five images\n"})
