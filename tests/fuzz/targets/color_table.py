"""Tables of colors: a table is read, or refused with its line; a table finds its own colors."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.sources._color_table import ColorTable, class_names, read_color_classes
from tests.fuzz import words
from tests.fuzz.target import Disagreement
from tests.support.source_trees import encoded

TOKENS = (*words.TEXT, b"\t", b",", b";", b":", b"::", b"r,g,b", b"id r g b name\n", b"256")


def seeds() -> Iterator[bytes]:
    yield b"64 128 64\t\tAnimal\n192 0 128\t\tArchway\n0 0 0\t\tVoid\n"
    yield b'name,r,g,b\nsky,128,128,128\n"a b",0,0,9\n'
    yield b"# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:1,2,3:head,tail:\n"
    yield b"id r g b name\n7 1 2 3 traffic light\n300 4 5 6 pole\n"


def check(data: bytes) -> None:
    classes = read_color_classes(data, "colors.txt")
    values = {each.color: each.value for each in classes}
    if len(values) != len(classes) or not all(0 <= value <= 65535 for value in values.values()):
        raise Disagreement(f"{classes!r:.200}")
    class_names(classes)
    drawn = np.array([list(values)], np.uint8)
    found = ColorTable(values, "colors.txt").values(encoded(".png", drawn), Path("mask.png"))
    if found.tolist() != [list(values.values())]:
        raise Disagreement(f"{classes!r:.200}: {found.tolist()}")
