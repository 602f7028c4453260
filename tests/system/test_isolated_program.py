"""Isolated programs: a file that ends the process, or takes too much, is an error, and the next one is read."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from packer.system import isolated_program
from packer.system.isolated_program import IsolatedProgram, Limits, ProgramEnded
from tests.support.descriptors import open_files

PROGRAM = "tests.support.programs.obedient_program"


Children: TypeAlias = Callable[[], list[int]]


@pytest.fixture(autouse=True)
def children() -> Iterator[Children]:
    """The processes that a test has started and not waited for; at its end there is none, and no descriptor more."""
    files, others = open_files(), set(all_children())

    def mine() -> list[int]:
        return [pid for pid in all_children() if pid not in others]

    yield mine
    assert open_files().keys() == files.keys()
    assert mine() == []


def all_children() -> list[int]:
    """Those of other tests too, such as the process that programs are forks of."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def asked(program: IsolatedProgram, words: str, folder: Path) -> tuple[int, str]:
    """The process's number, and what it answered to a file with these words."""
    path = folder / "words"
    path.write_text(words)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        pid, _, answer = program.ask(descriptor).decode().partition(" ")
    finally:
        os.close(descriptor)
    return int(pid), answer


def each(program: IsolatedProgram, files: Sequence[str], folder: Path) -> list[tuple[int, str]]:
    """Process and answer of one file after the other; of those without an answer 0, and how it ended."""
    found = []
    for words in files:
        try:
            found.append(asked(program, words, folder))
        except ProgramEnded as error:
            found.append((0, str(error)))
    return found


def test_one_process_reads_so_many_files(tmp_path: Path, children: Children) -> None:
    with IsolatedProgram(PROGRAM, Limits(files=3)) as program:
        found = each(program, [f"file {number}" for number in range(7)], tmp_path)
        assert [answer for _, answer in found] == [f"file {number}" for number in range(7)]
        pids = [pid for pid, _ in found]
        assert pids == [pids[0]] * 3 + [pids[3]] * 3 + [pids[6]]
        assert len(set(pids)) == 3
        assert children() == [pids[6]]


def test_a_file_without_an_answer_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    files = ["a", "abort", "b", "exit", "raise", "c", "garbage", "d", "large", "e"]
    with IsolatedProgram(PROGRAM, Limits(answer_bytes=1 << 16)) as program:
        found = each(program, files, tmp_path)
    assert [answer for _, answer in found] == [
        "a",
        "ended with SIGABRT",
        "b",
        "ended with exit code 3",
        "ended with SIGSEGV",
        "c",
        "answered with what is no answer",
        "d",
        "answered more than 65536 bytes",
        "e",
    ]
    assert len({pid for pid, _ in found if pid}) == 5


@pytest.mark.parametrize("word", ["sleep", "hang up"])
def test_a_file_that_takes_too_long_is_an_error(word: str, tmp_path: Path, children: Children) -> None:
    with IsolatedProgram(PROGRAM, Limits(seconds=0.5)) as program:
        assert each(program, [word], tmp_path) == [(0, "was not done in 0.5 s")]
        assert children() == []


@pytest.mark.full
def test_processor_time_is_limited_for_each_file(tmp_path: Path) -> None:
    with IsolatedProgram(PROGRAM, Limits(cpu_seconds=1)) as program:
        found = each(program, ["work", "limit"], tmp_path)
        assert 0.9 < float(found[1][1]) <= 2
        assert found[0][0] == found[1][0]
    with IsolatedProgram(PROGRAM, Limits(cpu_seconds=1)) as program:
        found = each(program, ["spin", "a"], tmp_path)
    assert found[0] == (0, "ended with SIGXCPU")
    assert found[1][1] == "a"


def test_memory_is_limited_for_each_file(tmp_path: Path) -> None:
    with IsolatedProgram(PROGRAM, Limits(memory_bytes=900 << 20)) as program:
        found = each(program, ["allocate", "keep", "keep", "keep", "a"], tmp_path)
    assert found[0][1] == "MemoryError"
    assert [answer for _, answer in found[1:]] == ["keep", "keep", "keep", "a"]
    assert len({pid for pid, _ in found}) == 4  # who kept much is not asked again


def test_a_process_that_left_something_is_not_asked_again(tmp_path: Path) -> None:
    with IsolatedProgram(PROGRAM) as program:
        (first, a), (second, b), (third, c), (fourth, d) = each(program, ["a", "open", "c", "d"], tmp_path)
    assert (a, b, c, d) == ("a", "open", "c", "d")
    assert first == second != third == fourth


def test_a_file_that_fails_for_what_another_did_is_read_by_a_fresh_process(tmp_path: Path) -> None:
    with IsolatedProgram(PROGRAM) as program:
        (first, a), (second, b), (third, c), (fourth, d) = each(program, ["a", "damage", "c", "d"], tmp_path)
    assert (a, b, c, d) == ("a", "damage", "c", "d")
    assert first == second != third == fourth


def test_what_was_said_behind_an_answer_is_not_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "forge"
    path.write_text("forge")
    with IsolatedProgram(PROGRAM) as program:
        with path.open("rb") as file:
            assert program.ask(file.fileno()) == b""
        assert asked(program, "b", tmp_path)[1] == "b"


def test_a_process_that_ended_meanwhile_is_no_fault_of_the_next_file(tmp_path: Path) -> None:
    with IsolatedProgram(PROGRAM) as program:
        pid, _ = asked(program, "a", tmp_path)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        other, answer = asked(program, "b", tmp_path)
    assert answer == "b"
    assert other != pid


@pytest.mark.parametrize("raised", [KeyboardInterrupt, RuntimeError])
def test_nothing_is_left_when_the_caller_is_interrupted(
    raised: type[BaseException], tmp_path: Path, children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(raised), IsolatedProgram(PROGRAM) as program:
        pid, _ = asked(program, "a", tmp_path)
        assert children() == [pid]
        raise raised
    assert children() == []

    def interrupt(number: int, frame: object) -> None:
        raise raised

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(raised), IsolatedProgram(PROGRAM) as program:
            asked(program, "a", tmp_path)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            asked(program, "sleep", tmp_path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_process_ends_with_the_one_that_asks(tmp_path: Path) -> None:
    """Also where that is killed, and closes nothing: its socket closes, and the process sees it."""
    with IsolatedProgram(PROGRAM) as program:
        pid, _ = asked(program, "a", tmp_path)
        assert program._process is not None
        program._process._socket.close()
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    assert (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0)


def test_what_cannot_be_started_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated_program.sys, "executable", str(tmp_path / "nowhere"))
    with IsolatedProgram(PROGRAM) as program:
        assert each(program, ["a"], tmp_path) == [(0, "could not be started: No such file or directory")]
    monkeypatch.undo()
    with IsolatedProgram("tests.support.programs.is_not_there") as program:
        assert each(program, ["a"], tmp_path) == [(0, "ended with exit code 1")]


def test_thousands_of_files_take_no_more_descriptors_than_one(tmp_path: Path) -> None:
    with IsolatedProgram(PROGRAM, Limits(files=2000)) as program:
        pid, _ = asked(program, "a", tmp_path)
        here, there = len(open_files()), len(os.listdir(f"/proc/{pid}/fd"))
        for _ in range(1500):
            assert asked(program, "a", tmp_path) == (pid, "a")
        assert len(open_files()) == here
        assert len(os.listdir(f"/proc/{pid}/fd")) == there
