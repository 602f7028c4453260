"""Machines that are made up: /proc and /sys/fs/cgroup as files of a test, the disk of the test as memory."""

import os
from collections.abc import Mapping
from pathlib import Path

from packer.system.machine_limits import Machine

GB = 1 << 30


def made_up(
    folder: Path,
    *,
    total: int = 64 * GB,
    available: int = 32 * GB,
    kind: str = "tmpfs",
    options: str = "rw",
    membership: str = "0::/",
    files: Mapping[str, str] = {},  # noqa: B006  is never changed
) -> Machine:
    """A machine in the new folder `folder`, its shared memory in `shm`; kind: what the test's disk claims to be.

    membership: the content of /proc/self/cgroup; files: those below /sys/fs/cgroup.
    """
    shared = folder / "shm"
    shared.mkdir(parents=True)
    shared.chmod(0o1777)
    device = os.stat(shared).st_dev
    entry = f"30 25 {os.major(device)}:{os.minor(device)} / /made/up rw,relatime shared:1 - {kind} none {options}"
    texts = {
        "proc/meminfo": f"MemTotal: {total >> 10} kB\nMemAvailable: {available >> 10} kB\nHugePages_Total: 0\n",
        "proc/self/mountinfo": f"1 0 0:0 / / rw - proc proc rw\n{entry}\n",
        "proc/self/cgroup": membership + "\n",
        **{f"cgroup/{name}": text for name, text in files.items()},
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(folder / "proc", folder / "cgroup", shared)
