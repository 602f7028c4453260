"""Names of images in annotation files: what is found is a file that is there, called so, and never one above."""

from collections.abc import Iterator

from packer.sources.annotations._coco_layout import ImageFolders
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (*words.PATHS, b"train", b"val", b"\n\n")


def seeds() -> Iterator[bytes]:
    yield b"annotations/x_train.json\ntrain\nval\n\na.jpg\ns/b.jpg\n\ntrain/a.jpg\nval/a.jpg\ntrain/s/b.jpg"
    yield b"x.json\n\n\n\n../a.jpg\ns\\b.jpg\n\na.jpg\nimages/s/b.jpg"


def check(data: bytes) -> None:
    head, _, rest = data.decode("utf-8", "surrogateescape").partition("\n\n")
    table, split, *others = [*head.split("\n"), ""]
    names, _, there = rest.partition("\n\n")
    files = [name for name in there.split("\n") if name]
    asked = [name for name in names.split("\n") if name]
    for name, path in zip(asked, ImageFolders(files).paths(asked, table, split, others), strict=True):
        last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
        found = path.replace("\\", "/").rstrip("/")
        if path and (path not in files or (last not in ("..", ".") and not found.endswith(last))):
            raise Disagreement(f"{name!r} is {path!r} of {files}")
