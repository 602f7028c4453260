"""REGRAD's JSON: the grasps are finite, and not more than the file has."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.sources.grasp.regrad import COLUMNS, read_regrad_grasps, read_relations, rectangles
from tests.fuzz import words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.JSON, b"[[", b"]]", b"1e309", b'"', b"{", b"}", b":", b",")
_PATH = Path("fuzz.json")


def seeds() -> Iterator[bytes]:
    yield json.dumps([[2.0, [[30.5, 20.25], [20.0, 8.0], -30.0], [0.9, 0.8, 0.7, 0.85]]]).encode()
    yield b"[]"
    yield json.dumps({"00001": {"table-1": ["mug-2"], "mug-2": []}}).encode()


def check(data: bytes) -> None:
    for strict in (True, False):
        with refusable():
            rows, total = read_regrad_grasps(data, _PATH, strict=strict)
            is_sound = np.isfinite(rows).all() and np.isfinite(rectangles(rows)).all() and len(rows) <= total
            if not is_sound or rows.shape[1] != COLUMNS:
                raise Disagreement(f"{rows}")
    relations = read_relations(data, _PATH)
    if json.loads(data) != relations:
        raise Disagreement(f"{relations}")
