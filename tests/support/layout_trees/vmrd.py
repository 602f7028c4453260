"""A tree as VMRD's, made by code: images are noise, grasps and relations invented."""

from collections.abc import Sequence
from pathlib import Path

from tests.support.layout_trees.voc import Box, annotated_object, annotation
from tests.support.source_trees import image, write


def related(name: str, box: Box, index: int, *, fathers: Sequence[int] = (), children: Sequence[int] = ()) -> str:
    """One `<object>` with its number and those of the objects under and on it."""
    groups = "".join(
        f"<{tag}>{''.join(f'<num>{number}</num>' for number in numbers)}</{tag}>"
        for tag, numbers in (("father", fathers), ("children", children))
    )
    return annotated_object(name, box, f"<index>{index}</index>{groups}", flags={"difficult": 0})


def build(root: Path) -> Path:
    """Three images, one without grasps; objects whose numbers are not their order; lines that end in CRLF."""
    on_it = [
        related("Box", (5, 6, 60, 40), 2, children=(1,)),
        related("banana", (10, 10, 30, 30), 1, fathers=(2,)),
    ]
    rows = "10.5 11 30 11 30 25.25 10.5 25.25 1 easy\r\n6 7 20 7 20 9 6 9 2 hard\r\n"
    files: dict[str, bytes | str] = {
        "Annotations/00002.xml": annotation(on_it),
        "Annotations/00010.xml": annotation([related("cup", (1, 1, 64, 48), 1)]),
        "Annotations/00011.xml": annotation([related("cup", (1, 1, 64, 48), 1)]),
        "Grasps/00002.txt": rows,
        "Grasps/00010.txt": "1 2 3 4 5 6 7 8 1",
        "ImageSets/Main/trainval.txt": "00010\n00011\n",
        "ImageSets/Main/test.txt": "00002\n",
    }
    for number, key in enumerate(("00002", "00010", "00011")):
        files[f"JPEGImages/{key}.jpg"] = image(number, suffix=".jpg")
    return write(root, files)
