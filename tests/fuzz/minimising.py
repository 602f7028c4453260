"""Minimising: of many inputs the few small ones that reach what the seeds do not; they are worth keeping.

What an input reaches are the pairs of lines of packer's code that it runs one after the other.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import packer
from tests.fuzz.target import Target, judge

_PACKER = f"{Path(packer.__file__).parent}/"
Arc = tuple[str, int, int]


def arcs(target: Target, data: bytes) -> set[Arc]:
    """What an input reaches."""
    found: set[Arc] = set()

    def enter(frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKER):
            return None
        before = 0

        def line(inner: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            found.add((code.co_filename, before, inner.f_lineno))
            before = inner.f_lineno
            return line

        return line

    sys.settrace(enter)
    try:
        judge(target, data)
    finally:
        sys.settrace(None)
    return found


def minimised(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Those that add something, the small ones first."""
    reached: set[Arc] = set()
    for data in target.seeds():
        reached |= arcs(target, data)
    kept = []
    for data in sorted(inputs, key=lambda data: (len(data), data)):
        new = arcs(target, data) - reached
        if new:
            reached |= new
            kept.append(data)
    return kept
