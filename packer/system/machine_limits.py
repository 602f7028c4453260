"""Machine limits: memory, cores and file systems that this process may use, limits of cgroups included (Linux).

Limits of cgroups count at every level above the process, in version 1 and 2 (kernel documentation, admin-guide:
cgroup-v1, cgroup-v2). What a cgroup holds of the page cache is not counted as used: the kernel takes it back.
Where the system does not tell (no /proc, no cgroups), a limit is not known, which is not an error.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_NO_LIMIT = 1 << 60  # version 1 says 2**63 less a page where there is none
_IN_MEMORY = ("tmpfs", "ramfs")
_HUGE_PAGE_BYTES = 2 << 20
_PAGE_BYTES = 4096


class Limit(NamedTuple):
    """A limit on memory, by name: how many bytes there are in all, and how many are free."""

    name: str
    total_bytes: int
    free_bytes: int


class Mount(NamedTuple):
    """A mounted file system: its kind, such as ext4, and its options."""

    kind: str
    options: frozenset[str]

    @property
    def in_memory(self) -> bool:
        """Whether its files are held in memory."""
        return self.kind in _IN_MEMORY

    @property
    def block_bytes(self) -> int:
        """The size of a block, to which a file's size is rounded up."""
        return _HUGE_PAGE_BYTES if "huge=always" in self.options else _PAGE_BYTES


@dataclass(frozen=True)
class Machine:
    """This machine, read from its system folders; tests pass other folders."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    shared_memory: Path = Path("/dev/shm")

    def memory_limits(self) -> list[Limit]:
        """All limits on memory: that of the machine, where the system reports it, and those of the cgroups."""
        whole = self.memory()
        return ([] if whole is None else [whole]) + self.cgroup_memory()

    def free_memory(self) -> int | None:
        """Bytes that this process can still allocate within all limits; None where the system reports none."""
        return min((limit.free_bytes for limit in self.memory_limits()), default=None)

    def memory(self) -> Limit | None:
        """The machine's memory, and what of it is available (MemAvailable); None where it is not reported."""
        values = {}
        for line in _lines(self.proc / "meminfo"):
            name, _, rest = line.partition(":")
            number = rest.split()[:1]
            if number and number[0].isdigit():
                values[name] = int(number[0]) << 10
        if "MemTotal" not in values or "MemAvailable" not in values:
            return None
        return Limit("memory (MemAvailable)", values["MemTotal"], values["MemAvailable"])

    def cgroup_memory(self) -> list[Limit]:
        """The memory limits of the process's cgroups."""
        found = []
        for folder, is_second in self._levels("memory"):
            names = ("memory.max", "memory.high") if is_second else ("memory.limit_in_bytes",)
            used = _number(folder / ("memory.current" if is_second else "memory.usage_in_bytes"))
            limits = [limit for limit in (_number(folder / name) for name in names) if limit is not None]
            if used is None or not limits or min(limits) >= _NO_LIMIT:
                continue
            used -= min(used, _page_cache_bytes(folder, "" if is_second else "total_"))
            found.append(Limit(f"the memory limit of cgroup {folder}", min(limits), max(0, min(limits) - used)))
        return found

    def cpu_quota(self) -> float | None:
        """CPU quota of the cgroups in cores, such as 1.5; None where there is none."""
        quotas = []
        for folder, is_second in self._levels("cpu"):
            if is_second:
                words = " ".join(_lines(folder / "cpu.max")).split()
            else:
                words = [*_lines(folder / "cpu.cfs_quota_us"), *_lines(folder / "cpu.cfs_period_us")]
            if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
                quotas.append(int(words[0]) / int(words[1]))
        return min(quotas, default=None)

    def _levels(self, controller: str) -> Iterator[tuple[Path, bool]]:
        """Folders of the process's cgroup and of those above it, and whether they are of version 2.

        A container may see the path that it has outside, which is not there: then its root is the nearest that is.
        """
        for line in _lines(self.proc / "self/cgroup"):
            number, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            is_second = number == "0" and not names
            if not is_second and controller not in names.split(","):
                continue
            roots = (self.cgroup, self.cgroup / "unified") if is_second else (self.cgroup / controller,)
            parts = [part for part in path.split("/") if part]
            for root in roots:
                for count in range(0 if ".." in parts else len(parts), -1, -1):
                    yield root.joinpath(*parts[:count]), is_second

    def mount(self, path: Path) -> Mount | None:
        """The file system that holds `path`; None where the system does not tell. Raises OSError without `path`."""
        device = os.stat(path).st_dev
        wanted = f"{os.major(device)}:{os.minor(device)}"
        for line in _lines(
            self.proc / "self/mountinfo"
        ):  # proc(5): id, parent, major:minor, ... - kind, source, options
            words = line.split()
            if wanted in words[2:3] and "-" in words:
                kind, _, *options = words[words.index("-") + 1 :]
                return Mount(kind, frozenset(option for text in options for option in text.split(",")))
        return None

    def has_swap(self) -> bool:
        """Whether memory may be swapped to a disk, which a tmpfs may too."""
        return len(_lines(self.proc / "swaps")) > 1  # the first one is the heading


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return []


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _page_cache_bytes(folder: Path, prefix: str) -> int:
    """What a cgroup holds of files on disks; files of a tmpfs are not in it."""
    pairs = (line.split() for line in _lines(folder / "memory.stat"))
    wanted = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in wanted and pair[1].isdigit())
