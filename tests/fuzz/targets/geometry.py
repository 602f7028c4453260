"""Geometries as people write them, and the views that they make."""

import pickle
from collections.abc import Iterator

import numpy as np

from packer.geometry.parsing import parse
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (b"RandomResizedCrop(", b"RandomHorizontalFlip()", b"Resize(", b"CenterCrop(", b"RandomCrop(", b"RandomZoom(")
TOKENS += (b"RandomRotation(", b"p=0.5", b"scale=(", b"ratio=", b"size=", b"**{", b"*[", b"None", b"'a'", b"lambda:")
TOKENS += (*words.NUMBERS, b"1e400", b"1j", b"True", b"9" * 20)


def seeds() -> Iterator[bytes]:
    yield b"RandomResizedCrop(224), RandomHorizontalFlip()"
    yield b"Resize((32, 48)), CenterCrop(16), RandomCrop((8, 9))"
    yield b"RandomRotation(10), RandomZoom(0.5, 1.5)"
    yield b"RandomResizedCrop(size=8, scale=(0.1, 1.0), ratio=(0.5, 2))"


def check(data: bytes) -> None:
    found = parse(data.decode("utf-8", "replace"))
    if pickle.loads(pickle.dumps(found)) != found and "nan" not in repr(found):
        raise Disagreement(f"{found} does not pickle")
    for height, width in ((60, 80), (1, 1), (3, 1000)):
        for number in (0.0, 0.5, 1 - 2**-53):
            view = found.view(height, width, [number] * found.draws)
            if not (np.isfinite(view.matrix).all() and min(view.size) >= 1):
                raise Disagreement(f"{found}: {view}")
