"""The ranks of one loader as torchrun starts them, what their cache takes on the disk, and what a kill leaves."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.environments import Environment
from benchmarks.harness.remote_job import RemoteJob

ROOT = Path(__file__).parents[2]
HANGS = "did not end"
_MARK = "PACKER_BENCH_RUN"
_PERIOD_S = 0.01
_GONE_S = 15.0
_SHOWN = 2
_SHARED = Path("/dev/shm")
_SEGMENT = re.compile("[0-9]{6}_[a-z]")  # of MosaicML Streaming, which may not find it in the next run


@dataclass(frozen=True)
class Outcome:
    """found: what each rank wrote, {} for one that wrote nothing. failure: the last lines of a rank that failed, "" for
    none. peak: bytes of the cache, at most; 0 where nobody looked. left: processes after a kill. shared: new names in
    /dev/shm.
    """

    found: list[dict[str, Any]]
    failure: str
    peak: int
    left: int
    shared: list[str]

    @property
    def is_whole(self) -> bool:
        """Whether all ranks came to their ends."""
        return not self.failure and all(each.get("is_whole") for each in self.found)

    def numbers(self, epoch: int = 0) -> list[int]:
        """Numbers of the photos that all ranks together delivered."""
        epochs = [each["epochs"][epoch] for each in self.found if len(each.get("epochs", ())) > epoch]
        return [number for each in epochs for batch in each["batches"] for number in batch]

    def wrong(self, digests: list[int]) -> int:
        """How many photos of the first epoch were delivered with other pixels."""
        epochs = [each["epochs"][0] for each in self.found if each.get("epochs")]
        batches = [pair for each in epochs for pair in zip(each["batches"], each["digests"], strict=False)]
        return sum(digests[number] != digest for pair in batches for number, digest in zip(*pair, strict=True))


class Ranks:
    """Processes of one peer; `play` runs a job. variables: that lead to the store."""

    def __init__(self, name: str, environment: Environment, folder: Path, variables: dict[str, str]) -> None:
        self.name, self.environment, self.folder = name, environment, folder
        self.variables = environment.variables | variables
        self._log = folder / "log"
        folder.mkdir(parents=True, exist_ok=True)

    def play(
        self,
        job: RemoteJob,
        *,
        verb: str = "run",
        world: int = 1,
        timeout: float = 300.0,
        watched: bool = False,
        kill_when: Callable[[], bool] | None = None,
    ) -> Outcome:
        """Run a job on so many ranks of one machine, which share a cache. kill_when: then all get SIGKILL."""
        job.cache.mkdir(parents=True, exist_ok=True)
        mark, before = uuid.uuid4().hex, _names(_SHARED)
        outputs = [self.folder / f"rank-{rank}.json" for rank in range(world)]
        logs = [self.folder / f"rank-{rank}.log" for rank in range(world)]
        processes = []
        port = _free_port()
        for rank, (output, log) in enumerate(zip(outputs, logs, strict=True)):
            output.unlink(missing_ok=True)
            text = replace(job, output=output).to_text()
            command = [str(self.environment.python), "-u", "-m", "benchmarks.harness.remote_contestant"]
            ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "NODE_RANK": 0}
            address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), _MARK: mark}
            with log.open("wb") as file:
                process = subprocess.Popen(
                    [*command, self.name, verb, text],
                    cwd=ROOT,
                    env=self.variables | {name: str(value) for name, value in ranks.items()} | address,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            processes.append(process)
        watch = CacheWatch(job.cache, mark) if watched else None
        end = time.monotonic() + timeout
        failure = ""
        while any(process.poll() is None for process in processes):
            codes = [process.poll() for process in processes]
            if kill_when is not None and kill_when():
                break
            if any(codes):
                end = min(end, time.monotonic() + 60)  # the others are given time to notice
            if time.monotonic() > end:
                failure = f"{HANGS} within {timeout:.0f} s" if not any(codes) else ""
                break
            time.sleep(_PERIOD_S)
        _kill(processes)
        left = len(_gone(mark))
        peak = watch.stop() if watch is not None else 0
        failures = []
        for process, log in zip(processes, logs, strict=True):
            if process.returncode and kill_when is None:
                lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
                failures.append(f"exit code {process.returncode}: " + " / ".join(lines[-_SHOWN:]))
        if failures:
            failure = "; ".join([failure, *failures[:1]]) if failure else failures[0]
        found = [json.loads(output.read_text()) if output.exists() else {} for output in outputs]
        shared = _stay(_SHARED, before)
        for name in shared:
            if _SEGMENT.match(name):
                (_SHARED / name).unlink(missing_ok=True)
        return Outcome(found, failure, peak, left, shared)


class CacheWatch:
    """A thread that adds up what a folder takes on the disk, files without a name too, and keeps the most.

    What two looks in a row have both seen was there at one instant between them: that is counted, and nothing that
    came while another went. So it is never too much.
    """

    def __init__(self, folder: Path, mark: str) -> None:
        self._folder, self._mark, self._peak = folder, mark, 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The most bytes that were seen."""
        self._ended.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        turn, processes, before = 0, [], {}
        while not self._ended.wait(_PERIOD_S):
            if turn % 20 == 0:
                processes = marked(self._mark)
            turn += 1
            now = self._blocks(processes)
            both = before.keys() & now.keys()
            self._peak = max(self._peak, 512 * sum(min(before[inode], now[inode]) for inode in both))
            before = now

    def _blocks(self, processes: list[int]) -> dict[int, int]:
        """Blocks of each file, by its inode."""
        found = {}
        for path in self._folder.rglob("*"):
            with suppress(OSError):
                status = path.lstat()
                if stat.S_ISREG(status.st_mode):
                    found[status.st_ino] = status.st_blocks
        for process in processes:
            with suppress(OSError):
                for name in os.listdir(f"/proc/{process}/fd"):
                    with suppress(OSError):
                        link = f"/proc/{process}/fd/{name}"
                        target = os.readlink(link)
                        if target.startswith(str(self._folder)) and target.endswith(" (deleted)"):
                            status = os.stat(link)
                            found[status.st_ino] = status.st_blocks
        return found


def marked(mark: str) -> list[int]:
    """Processes that inherited the mark of a run."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
    return found


def _gone(mark: str) -> list[int]:
    """Processes of a run that do not end by themselves; they are killed then."""
    end = time.monotonic() + _GONE_S
    while (left := marked(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return left


def _kill(processes: list[subprocess.Popen[bytes]]) -> None:
    """SIGKILL to each that has not ended, with all that it started in its session."""
    for process in processes:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    for process in processes:
        process.wait()


def _stay(folder: Path, before: set[str]) -> list[str]:
    """New names in a folder that stay there for a second; names of semaphores live for microseconds."""
    found = _names(folder) - before
    if found:
        time.sleep(1)
    return sorted(found & _names(folder))


def _names(folder: Path) -> set[str]:
    return set(os.listdir(folder))


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port
