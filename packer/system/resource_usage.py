"""Resource usage: CPU time and memory of a process with all its descendants, from /proc."""

import os
import threading
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants. The first id is `pid`."""
    found = [pid]
    for parent in found:
        try:
            for task in list(Path(f"/proc/{parent}/task").glob("*/children")):
                found += map(int, task.read_text(encoding="utf-8", errors="replace").split())
        except OSError:  # the process or a thread has just ended
            continue
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants. An ended child counts after its parent waited for it."""
    ticks = 0
    for process in tree(pid):
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))  # utime stime cutime cstime, proc(5)
    return ticks / _TICKS


def memory_mb(pid: int) -> dict[str, float]:
    """Return the memory of a process and its descendants in MB. Each shared page is counted once.

    The key "own" is anonymous and shared memory. The key "mapped" is memory of mapped files, which the system may free.
    """
    sums = {"Pss_Anon": 0, "Pss_Shmem": 0, "Pss_File": 0}
    for process in tree(pid):
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            name, _, rest = line.partition(":")
            if name in sums:
                sums[name] += int(rest.split()[0])
    return {"own": (sums["Pss_Anon"] + sums["Pss_Shmem"]) / 1e3, "mapped": sums["Pss_File"] / 1e3}


class MemoryWatch:
    """Context manager that calls `memory_mb` for this process every `period` seconds. `peak` has the maxima by key."""

    def __init__(self, period: float = 0.1) -> None:
        self.period = period
        self.peak = {"own": 0.0, "mapped": 0.0}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self) -> None:
        while True:
            now = memory_mb(os.getpid())
            self.peak = {name: max(value, now[name]) for name, value in self.peak.items()}
            if self._end.wait(self.period):
                return

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
