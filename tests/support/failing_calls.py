"""A program: runs commands with their threads, and lets the N-th call that writes fail, in whatever thread it is made.

Usage: failing.py FOLDER FORMAT SCENE FAULT POINTS, with the library of failing_calls.c preloaded; prints a line of JSON
{outcome: count}. FAULT: see FAULTS. POINTS: how many of the calls are met, spread evenly; 0 for each one.
"""

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.support.command_runs import SCENES, Scene, check_end, load_everything  # noqa: E402
from tests.support.fault_injection import in_one_thread, run, small_buffers  # noqa: E402

_WRITES, _REMOVES = 1, 2  # kinds of calls, of failing_calls.c
_KILL, _SHORT = -1, -2
_THREADS = "3"
# a run may go well although one of these fails: a folder that is there or stays, a file that gets a name for a moment,
# HDF5 cutting a file to the size that it has
HARMLESS = ("mkdir", "rmdir", "unlinkat", "unlink", "open O_TMPFILE", "ftruncate", "ftruncate64")


@dataclass(frozen=True)
class Fault:
    """What a call meets: an errno, or another end; whether all calls after it meet the same; of which kinds."""

    what: str
    code: int
    goes_on: bool = False
    kinds: int = _WRITES


FAULTS = {
    "EIO": Fault("error=EIO", errno.EIO),
    "full": Fault("error=ENOSPC", errno.ENOSPC, goes_on=True),
    # what ext4 does to itself after an error of the disk
    "read-only": Fault("error=EROFS", errno.EROFS, goes_on=True, kinds=_WRITES | _REMOVES),
    "kill": Fault("signal=KILL", _KILL, kinds=_WRITES | _REMOVES),
    "short": Fault("short", _SHORT, goes_on=True),
}


class Calls:
    """The preloaded library."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        self._library.faults_name.restype = ctypes.c_char_p
        self._library.faults_count.restype = self._library.faults_met.restype = ctypes.c_long

    def arm(self, number: int, fault: Fault) -> None:
        """Count from here; the number-th call meets the fault, none where it is 0."""
        last = sys.maxsize if fault.goes_on else number
        self._library.faults_arm(ctypes.c_long(number), ctypes.c_long(last), fault.code, fault.kinds)

    @property
    def count(self) -> int:
        """How many there were."""
        return int(self._library.faults_count())

    @property
    def met(self) -> str:
        """The first call that failed; empty where none did."""
        return str(self._library.faults_name().decode()) if self._library.faults_met() else ""


def with_threads(scene: Scene) -> None:
    """The command of the scene uses so many threads, whatever the machine has."""
    words = type(scene).words.fget  # type: ignore[attr-defined]
    if words(scene)[0] == "convert":
        type(scene).words = property(lambda self: [*words(self), "--threads", _THREADS])


def sweep(scene: Scene, fault: Fault, points: int) -> Counter[str]:
    """The command with a fault at each of the calls; counts what came of it."""
    calls = Calls()

    def armed(number: int) -> Callable[[], None]:
        def prepare() -> None:
            small_buffers()
            calls.arm(number, fault)

        return prepare

    scene.begin()
    ended = run(scene.words, scene.folder, prepare=armed(0))
    assert ended.code == 0, ended
    total, found = calls.count, Counter[str]()
    assert total > 20, total
    for number in range(1, total + 1, max(1, total // points) if points else 1):
        scene.begin()
        ended = run(scene.words, scene.folder, prepare=armed(number))
        met = calls.met
        if fault.code == _SHORT:  # a write that is cut short goes on, or is an error like another
            assert ended.code in (0, 4), ended
            found[f"short, {scene.state()}, exit {ended.code}"] += 1
        else:
            found[check_end(scene, ended, fault.what)] += 1
            # with threads a run has now a call more, now one less
            assert ended.code != 0 or not met or met in HARMLESS, (number, total, met, ended)
        calls.arm(0, fault)
        scene.finish(prepare=small_buffers)
    return found


def clocks(folder: Path, format: str, names: Collection[str]) -> Counter[str]:
    """Conversions, or what follows, while the clock jumps by ten years at every look, and files are of any time."""
    library, found = ctypes.CDLL(None), Counter[str]()
    library.faults_looks.restype = ctypes.c_long
    for name in names:
        scene = SCENES[name](folder / name, format)
        for number, path in enumerate(sorted(scene.source.rglob("*.jpg"))):
            moment = (-1, 0, 1 << 31, (1 << 32) + 5, 253402300800, 10**9)[number % 6]  # before 1970 to the year 10 000
            os.utime(path, (moment, moment))
        scene.begin()

        def prepare() -> None:
            in_one_thread()  # as the scene made what is compared
            library.faults_jump(1)

        ended = run(scene.words, folder, prepare=prepare)
        library.faults_jump(0)
        assert ended.code == 0, ended
        found[f"{name}, {scene.state()}"] += 1
    return found


def compile_calls(folder: Path) -> Path:
    """The library to preload; raises OSError or CalledProcessError where there is no C compiler that makes it."""
    target = folder / "failing_calls.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(target), str(HERE / "failing_calls.c"), "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return target


def main() -> None:
    """See the module."""
    folder, format, name, what, points = sys.argv[1:]
    load_everything()
    if what == "clock":
        found = clocks(Path(folder), format, SCENES if name == "all" else [name])
    else:
        scene = SCENES[name](Path(folder), format)
        with_threads(scene)
        found = sweep(scene, FAULTS[what], int(points))
        shutil.rmtree(scene.place)
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
