"""Programs that are forks begin and end as those of `python -c` do."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm_python

BEGINNING = """
import json, multiprocessing.process, os, signal, sys, warnings
handlers = {number: str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
found = {
    "name": __name__, "file": "__file__" in globals(), "names": [name for name in globals() if name[:2] != "__"],
    "arguments": sys.argv, "search path": sys.path, "options": sys.warnoptions, "handlers": handlers,
    "input": sys.stdin.read(), "folder": os.getcwd(), "spawned in": multiprocessing.process.ORIGINAL_DIR,
    "variable": os.environ.get("OF_THE_TEST"), "open": sorted(os.listdir("/proc/self/fd")),
    "terminals": [stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)],
    "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
}
print(json.dumps(found))
"""
ENDINGS = {
    "well": "print('said')",
    "a code": "import sys; sys.exit(3)",
    "an error": "1 / 0",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "an interrupt": "import signal; signal.raise_signal(signal.SIGINT)",
    "a callback": "import atexit; atexit.register(print, 'the end')",
    "a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()",
    "an object": "class Last:\n    def __del__(self):\n        print('gone')\nlast = Last()",
    "a warning": "import warnings; warnings.warn('odd')",
}


def anew(code: str, *words: str, folder: Path, strict: bool = False) -> "subprocess.CompletedProcess[str]":
    """The same in a fresh interpreter."""
    command = [sys.executable, *(["-W", "error"] if strict else []), "-c", code, *words]
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("torch", [False, True])
def test_a_program_begins_as_in_a_fresh_interpreter(
    torch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_TEST", "set")
    found: list[dict[str, Any]] = []
    for done in (
        warm_python.run(BEGINNING, "a", "b c", capture=True, strict=True, torch=torch, folder=tmp_path),
        anew(BEGINNING, "a", "b c", folder=tmp_path, strict=True),
    ):
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_ends_as_in_a_fresh_interpreter(name: str, strict: bool, tmp_path: Path) -> None:
    how: dict[str, Any] = {"folder": tmp_path, "strict": strict}
    fork = warm_python.run(ENDINGS[name], capture=True, check=False, torch=False, **how)
    fresh = anew(ENDINGS[name], **how)
    assert (fork.returncode, fork.stdout) == (fresh.returncode, fresh.stdout)
    assert last_said(fork.stderr) == last_said(fresh.stderr)


def last_said(errors: str) -> list[str]:
    """The last line that is no code: from 3.13 on the lines of `-c` are shown, of a fork they are not."""
    return [line for line in errors.splitlines() if not line.startswith("  ")][-1:]


def test_an_exit_code_is_an_error_where_it_is_checked() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        warm_python.run("raise SystemExit(1)", torch=False)


def test_a_program_that_stands_still_is_ended() -> None:
    code = "import time; print('ready', flush=True); time.sleep(600)"
    with warm_python.started(code, torch=False) as program:
        assert program.stdout is not None and program.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            program.communicate(timeout=0.1)
        assert program.poll() is None
    assert program.returncode == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(program.pid, 0)
