"""YOLO descriptions: YAML, darknet's values and lists of classes are read, or are an error with the line."""

from collections.abc import Iterator
from pathlib import Path

from packer.sources._trees.folder_scan import Listing
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.annotations._yolo_description import (
    Node,
    YoloDescription,
    describes,
    read_description,
    read_names,
    read_text,
    read_yaml,
)
from packer.sources.annotations._yolo_labels import label_names
from packer.sources.annotations._yolo_splits import DescribedPaths
from tests.fuzz.target import Disagreement, refusable

TOKENS = (
    *(b": ", b"- ", b"\n  ", b"[", b"]", b"{", b"}", b", ", b"'", b'"', b"#", b" #", b"|\n", b"\\u0041", b"---\n"),
    *(b"&a", b"*a", b"!!str", b"names", b"nc: ", b"kpt_shape: [2, 3]", b"999999999", b"../", b"/images/", b"\t"),
)
_PATH = Path("data.yaml")
_DARKNET = Path("obj.data")
_NAMES = ["data.yaml", "images/train/1.jpg", "labels/train/1.txt", "train.txt"]


def seeds() -> Iterator[bytes]:
    yield b"path: ../coco8 # here\ntrain: images/train\nval:\n- a\n- b/c\nnames:\n  0: person\n  2: 'traffic light'\n"
    yield b'---\nnames: [a, "b\\u00e9",\n  c] # three\nnc: 3\ntrain: ../train/images\nval: \nroboflow: {u: x, k: [1]}\n'
    yield b"kpt_shape: [2, 3]\nkpt_names:\n  0:\n    - nose\n    - tail\nnames: {0: cat}\nval: .\nx: |\n  a\n\n  b: c\n"
    yield b"classes = 2\ntrain = data/train.txt\nnames = data/obj.names # list\n"
    yield b"./images/train/1.jpg\r\ndata\\images\\train\\1.jpg\nC:/x/images/train/1.jpg\n"


def check(data: bytes) -> None:
    with refusable():
        _check_node(read_yaml(data, _PATH), 0)
    for read in (describes, read_description, read_names):
        for path in (_PATH, _DARKNET):
            with refusable():
                read(data, path)
    _check_paths(data)


def _check_node(node: Node, depth: int) -> None:
    if depth > 20 or not (node is None or isinstance(node, str | list | dict)):
        raise Disagreement(f"{node!r:.200}")
    if isinstance(node, list):
        for item in node:
            _check_node(item, depth + 1)
    elif isinstance(node, dict):
        for key, item in node.items():
            if not isinstance(key, str):
                raise Disagreement(f"{key!r}")
            _check_node(item, depth + 1)


def _check_paths(data: bytes) -> None:
    root, folders = Path("set"), ["images", "images/train", "labels", "labels/train"]
    paths = DescribedPaths(SourceRoot(root), Listing(root, _NAMES, folders, [], []), YoloDescription(base="images"))
    for line in read_text(data, Path("train.txt")).split("\n"):
        found = paths.find(line.strip(), "images")
        if found is not None and found not in (*_NAMES, "", *folders):
            raise Disagreement(f"{line!r}: {found}")
        names = label_names(line, is_darknet=False)
        if not names[0].endswith(".txt") or names[0] not in label_names(line, is_darknet=True):
            raise Disagreement(f"{line!r}: {names}")
