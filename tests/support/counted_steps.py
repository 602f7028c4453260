"""counted_steps: work that is bounded by a number of Python lines, which no busy machine changes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def at_most(steps: int) -> Iterator[None]:
    """Fail as soon as the block, in this thread, has run more lines of Python than this."""
    left = steps

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            sys.settrace(None)
            raise AssertionError(f"more than {steps} lines of Python; the last one in {frame.f_code.co_name}")
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(before)
