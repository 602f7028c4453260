"""Machine description: CPU, cores and package versions, which are printed with every measurement."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from packer.system.parallel import usable_cores

_PACKAGES = ("torch", "numpy", "lmdb", "opencv-python", "simplejpeg", "PyTurboJPEG")


def machine() -> dict[str, Any]:
    """CPU model, cores that this process may use, Python, and the versions of the packages that do the work."""
    found: dict[str, Any] = {"cpu": _model(), "cores": usable_cores(), "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # simplejpeg is optional
            continue
    return found


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def cores_text(cgroup: Path = Path("/sys/fs/cgroup")) -> str:
    """How many cores this process may use, and what limits them where that is less than the machine has."""
    usable, there = usable_cores(cgroup), os.cpu_count() or 1
    if usable >= there:
        return f"{usable} usable cores"
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else there
    why = "the cgroup's CPU quota" if usable < allowed else "the CPU affinity"
    return f"{usable} usable cores of {there}, limited by {why}"


def worker_counts() -> tuple[int, ...]:
    """0, 1, 2, 4, ... up to the cores that this process may use."""
    cores = usable_cores()
    powers = (1 << at for at in range(cores.bit_length()))
    return (0, *sorted({*powers, cores}))
