"""Labels of ADE20K in full: tables of objects, JSON, and images whose colors are classes."""

import json
from collections.abc import Iterator

import cv2
import numpy as np

from packer.sources.image_files._ade20k_labels import annotation, attribute_rows, classes_and_instances
from tests.fuzz import words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.TEXT, *words.JSON, b" # ")


def seeds() -> Iterator[bytes]:
    yield b'001 # 0 # 1 # sky # sky # ""\n002 # 1 # 0 # seat, bench # seat #2 # "open, red"\n'
    yield b'1#0#0#wall#wall#""\r\n'
    yield b'{"annotation": {"filename": "1.jpg", "object": [{"id": 0, "crop": 0.5}]}}'
    colors = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    yield cv2.imencode(".png", colors)[1].tobytes()


def check(data: bytes) -> None:
    with refusable():
        for row in attribute_rows(data, "1_atr.txt"):
            if len(row["names"]) != 2 or row["object"] < 0 or json.loads(json.dumps(row)) != row:
                raise Disagreement(f"{row}")
    with refusable():
        if not isinstance(annotation(data, "1.json"), dict):
            raise Disagreement("an annotation is an object")
    with refusable():
        classes, instances = classes_and_instances(data, "1_seg.png")
        if classes.shape != instances.shape or classes.max() > 25 * 256 + 255:
            raise Disagreement(f"{classes.shape}, {instances.shape}, {classes.max()}")
