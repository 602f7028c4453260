"""A tmpfs of a few KiB in a mount namespace of a child."""

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.child_processes import Outcome, child
from tests.support.command_runs import load_everything

CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x00020000  # linux/sched.h


MS_RDONLY, MS_REMOUNT = 1, 32  # linux/mount.h


def mounted(folder: Path, function: Callable[[], object]) -> Outcome:
    """Call `function` in a child with a tmpfs of its own on `folder`, of 64 KiB; skips the test where none can be."""
    load_everything()

    def work() -> object:
        libc = ctypes.CDLL(None, use_errno=True)
        user, group = os.getuid(), os.getgid()
        namespaces = CLONE_NEWNS if user == 0 else CLONE_NEWNS | CLONE_NEWUSER
        if libc.unshare(namespaces):
            return {"skip": f"unshare: {os.strerror(ctypes.get_errno())}"}
        if user:
            for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
                Path(f"/proc/self/{name}").write_text(text)
        try:
            resize(folder, 64 << 10, flags=0)
        except OSError as error:
            return {"skip": f"mount: {error.strerror}"}
        return function()

    outcome = child(work, timeout_seconds=300)
    if isinstance(outcome.value, dict) and "skip" in outcome.value:
        pytest.skip(f"no tmpfs of its own can be mounted here: {outcome.value['skip']}")
    return outcome


def resize(folder: Path, size_bytes: int, *, flags: int = MS_REMOUNT) -> None:
    """Mount a tmpfs, or give the one that is there another size."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={size_bytes}".encode()
    if libc.mount(b"none", os.fsencode(folder), b"tmpfs", ctypes.c_ulong(flags), options):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
