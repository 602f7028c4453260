"""Faults at every call that writes while a conversion has its threads: an I/O error, a full disk, a disk that turns
read-only, short writes, a kill; and a wall clock that jumps. By a library that is preloaded, where strace counts the
calls of each thread by itself.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from packer import formats
from tests.support import failing_calls
from tests.support.command_runs import SCENES


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The library to preload."""
    try:
        yield failing_calls.compile_calls(tmp_path_factory.mktemp("failing"))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no C compiler makes the library that lets calls fail: {error}")


def sweep(library: Path, folder: Path, format: str, name: str, what: str, points: int) -> dict[str, int]:
    """What came of so many faults of one kind in one command, by the program."""
    words = [sys.executable, failing_calls.__file__, str(folder), format, name, what, str(points)]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    print(f"\n{format} {name} {what}: {sum(found.values())} faults: {found}")  # noqa: T201  the figure
    return found


@pytest.mark.parametrize(("what", "format"), [("EIO", "lmdb"), pytest.param("full", "hdf5", marks=pytest.mark.full)])
def test_faults_at_some_calls_of_a_conversion_with_threads(
    library: Path, tmp_path: Path, what: str, format: str
) -> None:
    found = sweep(library, tmp_path, format, "convert", what, 2)
    assert sum(found.values()) >= 2
    assert any(", absent, " in outcome for outcome in found), found


def cases() -> Iterator[Any]:
    """Every fault in `convert` for each format and in each command for one; an error and a kill in all."""
    for format in formats.names():
        for name in SCENES:
            for what in failing_calls.FAULTS:
                if "convert" in name or format == "lmdb" or what in ("EIO", "kill"):
                    yield pytest.param(format, name, what, id=f"{format}-{name}-{what}")


@pytest.mark.full
@pytest.mark.parametrize(("format", "name", "what"), list(cases()))
def test_faults_at_all_calls_of_a_command_with_threads(
    library: Path, tmp_path: Path, format: str, name: str, what: str
) -> None:
    assert sum(sweep(library, tmp_path, format, name, what, 0).values()) >= 20


@pytest.mark.full
@pytest.mark.parametrize(("format", "name"), [("pth", "convert"), *((name, "all") for name in formats.names())])
def test_a_clock_that_jumps_changes_nothing(library: Path, tmp_path: Path, format: str, name: str) -> None:
    found = sweep(library, tmp_path, format, name, "clock", 0)
    assert found == {f"{each}, complete": 1 for each in (SCENES if name == "all" else [name])}
