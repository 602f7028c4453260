"""Machine limits: memory, cores and file systems that this process may use, including limits of cgroups (Linux).

The limits of all cgroups above the process apply, in cgroup version 1 and 2. The page cache of a cgroup counts as free
memory, because the kernel can reclaim the page cache. A limit that the system does not report (no /proc, no cgroups) is
unknown. An unknown limit is not an error.
The kernel documentation describes the files (admin-guide: cgroup-v1, cgroup-v2).
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_NO_LIMIT = 1 << 60  # cgroup version 1 reports almost 2**63 for an unlimited cgroup
_IN_MEMORY = ("tmpfs", "ramfs")
_HUGE_PAGE_BYTES = 2 << 20
_PAGE_BYTES = 4096


class Limit(NamedTuple):
    """A memory limit: name for messages, limit in bytes, and bytes that are still free."""

    name: str
    total_bytes: int
    free_bytes: int


class Mount(NamedTuple):
    """A mounted file system: kind, such as "ext4", and mount options."""

    kind: str
    options: frozenset[str]

    @property
    def in_memory(self) -> bool:
        """True if the file system stores files in memory."""
        return self.kind in _IN_MEMORY

    @property
    def block_bytes(self) -> int:
        """Block size in bytes. The space of a file is a multiple of the block size."""
        return _HUGE_PAGE_BYTES if "huge=always" in self.options else _PAGE_BYTES


@dataclass(frozen=True)
class Machine:
    """Limits of this machine, read from the folders of the kernel. Tests read them from other folders."""

    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    shared_memory: Path = Path("/dev/shm")

    def memory_limits(self) -> list[Limit]:
        """Return all memory limits: the memory of the machine, if known, and the limits of the cgroups."""
        whole = self.memory()
        return ([] if whole is None else [whole]) + self.cgroup_memory()

    def free_memory(self) -> int | None:
        """Return the number of bytes that this process can still allocate, or None if no limit is known."""
        return min((limit.free_bytes for limit in self.memory_limits()), default=None)

    def memory(self) -> Limit | None:
        """Return the memory of the machine (MemTotal, MemAvailable), or None if it is unknown."""
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
        """Return the memory limits of the cgroups of this process. The list is empty without limits."""
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
        """Return the smallest CPU quota of the cgroups in cores, such as 1.5, or None without a quota."""
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
        """Yield (folder, is_version_2) for the cgroup of this process and all its parents. Some may not exist."""
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
        """Return the file system of `path`, or None if it is unknown. Raises OSError if `path` does not exist."""
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


def _lines(path: Path) -> list[str]:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    return []


def _number(path: Path) -> int | None:
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _page_cache_bytes(folder: Path, prefix: str) -> int:
    """Return the bytes of a cgroup's page cache, without files of a tmpfs. `prefix` is "total_" in version 1."""
    pairs = (line.split() for line in _lines(folder / "memory.stat"))
    wanted = (f"{prefix}inactive_file", f"{prefix}active_file")
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in wanted and pair[1].isdigit())
