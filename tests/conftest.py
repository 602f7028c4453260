"""Fixtures that every test has: nothing may leak."""

import gc
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from packer.pack import handles

# deadline off: the machines that run this are shared, and a slow example is no failure
settings.register_profile("packer", deadline=None, max_examples=50, derandomize=True, print_blob=True)
settings.load_profile("packer")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell without job control makes what it starts in the background, and every child of it, deaf to Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is loaded by now stays: collections, of which tests ask for many, and forks need not look at it again."""
    gc.collect()
    gc.freeze()


def open_files() -> dict[str, str]:
    """Descriptor -> target of this process, where the system tells."""
    found = {}
    for name in os.listdir("/proc/self/fd") if Path("/proc/self/fd").is_dir() else []:
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
    return found


@pytest.fixture(autouse=True)
def nothing_leaks(tmp_path: Path) -> Iterator[None]:
    """After a test: no thread of packer's runs, and no reader is open that no pack uses."""
    yield
    left = [thread.name for thread in threading.enumerate() if thread.name.startswith("packer")]
    assert not left, f"threads still run: {left}"
    assert all(key in handles.table._owners for key in handles.table._entries), "a reader is open that nobody owns"
