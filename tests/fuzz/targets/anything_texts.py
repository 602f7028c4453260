"""Descriptions, instructions and masks of Grasp-Anything: texts are Unicode, masks have the size of the header."""

import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.sources.grasp._grasp_anything_labels import read_description, read_instruction, read_mask
from tests.fuzz import words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.PICKLE, *words.NPY, b"]", b"e", b"(2, 3)")
_PATH = Path("fuzz")


def seeds() -> Iterator[bytes]:
    for protocol in range(6):
        yield pickle.dumps(("A cup.", ["cup", "ünï"]), protocol=protocol)
        yield pickle.dumps("Grasp the cup.", protocol=protocol)
    for array in (np.eye(3, 5, dtype=bool), np.arange(6, dtype="<i8").reshape(2, 3), np.asfortranarray(np.eye(2, 3))):
        file = io.BytesIO()
        np.save(file, array)
        yield file.getvalue()


def check(data: bytes) -> None:
    texts: list[str] = []
    with refusable():
        description = read_description(data, _PATH)
        texts += [description.prompt, *description.queries]
    with refusable():
        texts.append(read_instruction(data, _PATH))
    if any(type(text) is not str or text.encode().decode() != text for text in texts):
        raise Disagreement(f"{texts}")
    mask = read_mask(data, _PATH)
    if mask.ndim != 2 or mask.size > len(data):
        raise Disagreement(f"{mask.shape} of {len(data)} bytes")
