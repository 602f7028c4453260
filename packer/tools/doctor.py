"""Doctor: findings about packages and limits of this machine, with a fix for each problem."""

import os
import platform
import re
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

from packer import __version__
from packer.errors import MissingPackage
from packer.registry import import_or_explain
from packer.system.machine_limits import Machine
from packer.system.parallel import usable_cores

# distribution -> (module, oldest version that packer supports); must agree with setup.cfg
PACKAGES = {
    "numpy": ("numpy", "2.0"),
    "torch": ("torch", "2.6"),
    "opencv-python": ("cv2", "5.0.0.93"),
    "lmdb": ("lmdb", "2.1.1"),
    "h5py": ("h5py", "3.16"),
    "click": ("click", "8.1.8"),
    "tqdm": ("tqdm", "4.66"),
    "PyYAML": ("yaml", "6.0.2"),
}
# distributions of the module cv2, which overwrite each other's files
_OPENCVS = (
    *("opencv-python", "opencv-python-headless"),
    *("opencv-contrib-python", "opencv-contrib-python-headless"),
)
# oldest HDF5 without the vulnerabilities that setup.cfg names; h5py can be built with an older HDF5
_LEAST_HDF5 = "2.0"
_LEAST_SHARED_BYTES = 1 << 30  # 8 workers, 2 batches each, of 128 float32 images of 224x224 are 1.2 GB
_LEAST_FILES = 1024


@dataclass(frozen=True)
class Finding:
    """The state `found` of a property of the machine, such as "memory". `problem` and `fix` are "" if it is good."""

    name: str
    found: str
    problem: str = ""
    fix: str = ""


def findings(machine: Machine) -> Iterator[Finding]:
    """Yield the findings about packages, GPU, JPEG decoder, cores, memory and open files."""
    yield Finding("packer", f"{__version__}, Python {platform.python_version()}, {platform.platform()}")
    for name in PACKAGES:
        yield package(name)
    yield from hdf5()
    yield from opencvs(_installed(_OPENCVS))
    yield gpu(Path("/dev"))
    yield decoder()
    yield cores(machine)
    yield memory(machine)
    yield shared_memory(machine)
    yield open_files()


# ---- packages


def package(name: str) -> Finding:
    """Return a finding with the installed version of the package `name`, a key of `PACKAGES`."""
    module, least = PACKAGES[name]
    try:
        loaded = import_or_explain(module, "packer")
    except ImportError as error:  # also for a missing system library, such as libGL
        fix = "" if isinstance(error, MissingPackage) else f"pip install --force-reinstall {name}, or the library named"
        return Finding(name, "not usable", str(error), fix)
    found = _version_of(name, loaded)
    if _numbers(found) < _numbers(least):
        return Finding(name, found, f"version {found}, expected at least {least}", f"pip install -U '{name}>={least}'")
    return Finding(name, found)


def _version_of(name: str, module: ModuleType) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # OpenCV has several distributions
        return str(getattr(module, "__version__", "of unknown version"))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", text.partition("+")[0])[:3]))


def _installed(names: tuple[str, ...]) -> list[str]:
    found = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            continue
        found.append(name)
    return found


def hdf5() -> Iterator[Finding]:
    """Yield a finding with the version of the HDF5 library that h5py calls. Yield nothing without h5py."""
    try:
        found = import_or_explain("h5py", "packer").version.hdf5_version
    except ImportError:  # the finding of h5py reports the error
        return
    if _numbers(found) < _numbers(_LEAST_HDF5):
        problem = f"h5py calls HDF5 {found}, expected at least {_LEAST_HDF5}: a planted file can harm older ones"
        fix = f"pip install --force-reinstall --only-binary h5py 'h5py>={PACKAGES['h5py'][1]}'"
        yield Finding("HDF5", found, problem, fix)
        return
    yield Finding("HDF5", found)


def opencvs(names: list[str]) -> Iterator[Finding]:
    """Yield a problem if more than one distribution of OpenCV is installed. `names` are the installed ones."""
    if len(names) > 1:
        problem = f"{len(names)} packages contain the module cv2 and overwrite each other's files: {', '.join(names)}"
        yield Finding("OpenCV", "several", problem, f"pip uninstall {' '.join(names)}; pip install opencv-python")


def gpu(devices: Path) -> Finding:
    """Return a finding with torch's GPUs. No GPU is a problem if the folder `devices` (/dev) has a driver file."""
    try:
        cuda = import_or_explain("torch", "packer").cuda
    except ImportError:
        return Finding("GPU", "unknown, because torch is not usable")
    if cuda.is_available():
        return Finding("GPU", f"{cuda.device_count()} x {cuda.get_device_name(0)}")
    if (devices / "nvidiactl").exists():
        problem = "the machine has one, torch does not find it"
        return Finding("GPU", "none", problem, "install a torch with CUDA that fits the driver (nvidia-smi shows it)")
    return Finding("GPU", "none")


def decoder() -> Finding:
    """Return a finding with the library that decodes JPEG."""
    reasons = []
    try:
        libjpeg = import_or_explain("packer.images.backends.strict_jpeg", "decoding JPEG")
    except MissingPackage as error:
        return Finding("decoder", "none", str(error))
    for found in libjpeg.attempts():
        if not isinstance(found, str):
            return Finding("decoder", libjpeg.describe(found))
        reasons.append(found)
    return Finding("decoder", "none", f"no JPEG library works: {'; '.join(reasons)}", "pip install simplejpeg")


# ---- the machine


def cores(machine: Machine) -> Finding:
    """Return a finding with the number of CPU cores that this process may use."""
    of_machine = os.cpu_count() or 1
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else of_machine
    quota = machine.cpu_quota()
    usable = usable_cores(machine.cgroup)
    text = f"{usable} usable; of {of_machine}, affinity {affinity}, cgroup quota {'none' if quota is None else quota}"
    if usable == 1 < of_machine:
        fix = "ask the scheduler or container for more (--cpus-per-task, --cpus)"
        return Finding("cores", text, "one core decodes and trains", fix)
    return Finding("cores", text)


def memory(machine: Machine) -> Finding:
    """Return a finding with the free memory of the machine and of the process's cgroups. Less than 5 % is a problem."""
    limits = machine.memory_limits()
    text = "; ".join(f"{limit.name}: {_gb(limit.free_bytes)} of {_gb(limit.total_bytes)} GB free" for limit in limits)
    tight = [limit for limit in limits if limit.free_bytes < limit.total_bytes // 20]
    if tight:
        fix = "end other processes, release staged packs (packer stage --list), or ask for more"
        return Finding("memory", text, f"{tight[0].name}: less than 5 % is free", fix)
    return Finding("memory", text or "not reported by the system")


def shared_memory(machine: Machine) -> Finding:
    """Return a finding with the free shared memory, through which the workers of a DataLoader pass batches."""
    folder = machine.shared_memory
    mount = machine.mount(folder) if folder.is_dir() else None
    if mount is None or not mount.in_memory:
        problem = f"{folder} is not in memory: workers of a DataLoader pass their batches through it"
        return Finding("shared memory", "none", problem, f"mount -t tmpfs tmpfs {folder}")
    found = os.statvfs(folder)
    total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    text = f"{folder}: {_gb(free)} of {_gb(total)} GB free"
    if found.f_blocks and free < _LEAST_SHARED_BYTES:
        problem = f"{_gb(free)} GB are free in {folder}: workers of a DataLoader end with 'Bus error' when it is full"
        fix = "docker run --shm-size=8g; Kubernetes: an emptyDir of medium Memory; or remove files there"
        return Finding("shared memory", text, problem, fix)
    return Finding("shared memory", text)


def open_files() -> Finding:
    """Return a finding with the number of files that this process may open at a time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = ["unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in (soft, hard)]
    text = f"at most {shown[0]} (ulimit -n), which may be raised to {shown[1]}"
    if soft != resource.RLIM_INFINITY and soft < _LEAST_FILES:
        problem = f"{soft} at once are few: each batch of a worker needs one per tensor, each part one"
        return Finding("open files", text, problem, f"ulimit -n {_LEAST_FILES}, up to {shown[1]} without root")
    return Finding("open files", text)


def _gb(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f}"
