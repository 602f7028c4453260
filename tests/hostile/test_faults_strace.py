"""A fault at every system call that writes, in every command that does: killed there, a full disk, an I/O error.

Each call of a clean run is met once by each fault, or by one of them (see `sweep`). Afterwards what lies at the target
is nothing, the old, or the complete new; an error ends with exit code 4 and says where; and the same command ends with
the very bytes of the run to which nothing happened.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from packer import formats
from packer.files import work_folder
from tests.support import fault_injection
from tests.support.command_runs import SCENES, Scene, check_end, load_everything
from tests.support.fault_injection import Call, Fault, in_one_thread, small_buffers

FAULTS = ("signal=KILL", "error=ENOSPC", "error=EIO")
EINTR = "error=EINTR"
INTERRUPTS = ("signal=INT", "signal=TERM")
_MOST_CALLS = 200  # that meet every fault


pytestmark = pytest.mark.skipif(
    bool(fault_injection.why_no_strace()), reason=fault_injection.why_no_strace() or "strace works"
)


@pytest.fixture(autouse=True)
def one_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Markers of one name, here and in forked children: strace finds the call that makes one by its path."""
    monkeypatch.setattr(work_folder, "marker_name", lambda folder: "made-by-packer-0")


def with_threads() -> None:
    """Threads as they are, but the same bytes as without them."""
    small_buffers()


def meet(scene: Scene, call: Call, what: str) -> str:
    """One run with one fault, and the run after it; returns what lay there in between, and the exit."""
    scene.begin()
    # an interrupt finds the threads that are there: they are what must not swallow it
    prepare = in_one_thread if what not in INTERRUPTS else with_threads
    ended = fault_injection.run(scene.words, scene.folder, fault=Fault(call, what), prepare=prepare)
    found = check_end(scene, ended, what)
    assert ended.code != 0 or not what.startswith("error=") or what == EINTR or harmless(call), (call, ended)
    scene.finish()
    return found


def harmless(call: Call) -> bool:
    """Whether a run may go well although this call fails: no sync, write or rename is among them."""
    if call.name == "mkdir":
        return "EEXIST" in call.text
    if call.name == "openat":
        return "O_TMPFILE" in call.text  # the file gets a name then, for a moment
    if call.name == "linkat" and "/part-" in call.text:
        return True  # the part is copied
    if call.name == "unlinkat" and ("AT_REMOVEDIR" in call.text or "made-by-packer" in call.text):
        return bool(re.search(r'"(\.out\.\w+|made-by-packer-\d+)"', call.text))  # the empty work folder, its marker
    return call.name == "ftruncate"  # HDF5 cutting a file to the size it has


def sweep(
    folder: Path, format: str, name: str, *, points: int | None = None, faults: Sequence[str] = FAULTS
) -> Counter[str]:
    """Every call of one command, or some points of it; counts what came of it.

    Points, and the calls of a format of other tools, meet the faults in turn: only the writer of its parts is its own,
    and all else is met by every fault with the other formats. Formats begin with different faults. More than
    _MOST_CALLS calls, which are mostly writes of one value after another, meet them in turn, too.
    """
    load_everything()
    scene = SCENES[name](folder, format)
    scene.begin()
    calls = fault_injection.calls(scene.words, folder)
    in_turn = points is not None or len(calls) > _MOST_CALLS or bool(formats.load(format).Writer.slots)
    found = Counter[str]()
    for number, call in enumerate(calls[:: len(calls) // points if points else 1], formats.names().index(format)):
        for what in [faults[number % len(faults)]] if in_turn else faults:
            found[meet(scene, call, what)] += 1
    return found


@pytest.mark.one_in(11)
@pytest.mark.parametrize("format", formats.names())
def test_a_fault_at_some_calls(tmp_path: Path, format: str) -> None:
    found = sweep(tmp_path, format, "convert", points=3)
    assert found.total() >= 3
    assert any(", absent, " in what for what in found)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["write", "finish"])
def test_a_fault_at_some_calls_of_a_writer(tmp_path: Path, name: str) -> None:
    assert sweep(tmp_path, "lmdb", name, points=3).total() >= 3


@pytest.mark.full
@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("format", formats.names())
def test_a_fault_at_every_call(tmp_path: Path, format: str, name: str) -> None:
    found = sweep(tmp_path, format, name)
    print(f"\n{format} {name}: {found.total()} faults: {dict(sorted(found.items()))}")  # noqa: T201  the figure
    assert found.total() >= 20


@pytest.mark.full
@pytest.mark.parametrize("format", formats.names())
def test_an_interrupt_at_every_call(tmp_path: Path, format: str) -> None:
    """SIGINT and SIGTERM come while a call is on its way: a code of 128 + n, no traceback, and the same bytes later."""
    found = sweep(tmp_path, format, "convert", faults=INTERRUPTS)
    print(f"\n{format}: {dict(sorted(found.items()))}")  # noqa: T201  the figure
    assert any(", exit 130" in what for what in found)
    assert any(", exit 143" in what for what in found)


@pytest.mark.full
@pytest.mark.parametrize("format", formats.names())
def test_a_call_that_a_signal_cuts_short(tmp_path: Path, format: str) -> None:
    """EINTR, as a signal without meaning leaves it behind: the call is made again, or it is an error like another."""
    found = sweep(tmp_path, format, "convert", faults=(EINTR,))
    print(f"\n{format}: {dict(sorted(found.items()))}")  # noqa: T201  the figure
    assert found[f"{EINTR}, complete, exit 0"] > found.total() // 2
