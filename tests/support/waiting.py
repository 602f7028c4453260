"""What threads of packer run, and waiting for what other threads and processes do."""

import threading
import time
from collections.abc import Callable

LONG_S = 60.0  # something hangs, if it takes that long


def packer_threads() -> list[str]:
    """Names of packer's threads that run."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("packer")]


def wait_until(condition: Callable[[], object]) -> None:
    """Until it is so; fails after a very long time."""
    deadline = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.005)
