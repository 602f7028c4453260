"""OCID-Grasp: sequences four, five and six folders deep, one of them named as a label folder; a class of each kind."""

from pathlib import Path

import numpy as np

from tests.support.source_trees import encoded, image, write

BALL = "10 20 \n30 20 \n30 26 \n10 26 \n"
CUP = "12.5 8 \n12.5 30.25 \n8 30.25 \n8 8\n"
UNKNOWN = "40 40\n50 40\n50 44\n40 44\n"
SEQUENCES = (
    "ARID20/table/top/seq01",
    "ARID10/floor/left/box/seq02",
    "ARID10/table/top/txt/Annotations/seq03",
)


def depth(seed: int) -> bytes:
    """Millimeters in 16 bit, 0 where nothing was measured."""
    values = np.random.default_rng(seed).integers(600, 1800, (48, 64)).astype(np.uint16)
    values[:3, :5] = 0
    return encoded(".png", values)


def classes(seed: int) -> bytes:
    """Classes 0 to 31, both ends among them."""
    values = np.random.default_rng(seed).integers(0, 32, (48, 64)).astype(np.uint8)
    values[0, 0], values[0, 1] = 0, 31
    return encoded(".png", values)


def files(sequence: str, name: str, seed: int, by_class: dict[int, str]) -> dict[str, bytes | str]:
    """All files of an image; by_class: class -> text of the grasps."""
    made: dict[str, bytes | str] = {
        f"{sequence}/rgb/{name}.png": image(seed),
        f"{sequence}/depth/{name}.png": depth(seed),
        f"{sequence}/seg_mask_labeled_combi/{name}.png": classes(seed),
        f"{sequence}/seg_mask_instances_combi/{name}.png": classes(seed + 100),
        f"{sequence}/Annotations/{name}.txt": "".join(by_class[number] for number in sorted(by_class, reverse=True)),
    }
    return made | {
        f"{sequence}/Annotations_per_class/{name}/{number}/{name}.txt": text for number, text in by_class.items()
    }


def build(root: Path) -> Path:
    write(root, files(SEQUENCES[0], "result_2018-08-21.1", 1, {2: BALL, 8: CUP, 31: UNKNOWN}))
    write(root, files(SEQUENCES[0], "result_2018-08-21.2", 2, {2: BALL + UNKNOWN}))
    write(root, files(SEQUENCES[1], "result_2018-08-21.1", 3, {10: CUP}))
    write(root, files(SEQUENCES[2], "result_2018-08-21.1", 4, {}))
    lists = {
        "training": [(SEQUENCES[0], "result_2018-08-21.1"), (SEQUENCES[2], "result_2018-08-21.1")],
        "validation": [(SEQUENCES[0], "result_2018-08-21.2"), (SEQUENCES[1], "result_2018-08-21.1")],
    }
    return write(root, {
        f"data_split/{split}_0.txt": "".join(f"{sequence},{name}.png\n" for sequence, name in rows)
        for split, rows in lists.items()
    })  # fmt: skip
