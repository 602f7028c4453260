"""VMRD grasps: strict and lenient agree wherever strict reads; what is read is finite and of an object."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from packer.errors import PackerError
from packer.sources._small_file_source import Parsed
from packer.sources.grasp.vmrd import read_object_grasps
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (*words.TEXT, *words.NUMBERS, b"easy", b"hard", b"-1", b"1.5")
_PATH = Path("fuzz.txt")


def seeds() -> Iterator[bytes]:
    yield b"1 2 3 4 5 6 7 8 1 easy\n1.5 2 3 4 5 6 7 8 2 hard\r\n"
    yield b"1 2 3 4 5 6 7 8 1\nNaN 2 3 4 5 6 7 8 1\n"


def check(data: bytes) -> None:
    lenient = read_object_grasps(data, _PATH, strict=False)
    _check(lenient)
    try:
        strict = read_object_grasps(data, _PATH, strict=True)
    except PackerError as error:
        if not lenient.skipped:
            raise Disagreement(f"refused, and nothing skipped: {error}") from error
        raise
    if strict.total != lenient.total or not np.array_equal(strict.values["grasps"], lenient.values["grasps"]):
        raise Disagreement(f"strict {strict}, lenient {lenient}")


def _check(found: Parsed) -> None:
    grasps, objects = found.values["grasps"], found.values["grasp_objects"]
    is_sound = np.isfinite(grasps).all() and (objects >= 0).all() and found.skipped >= 0
    if not is_sound or len(grasps) != len(objects):
        raise Disagreement(f"{found}")
