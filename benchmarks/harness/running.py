"""Contestants as processes that live on between their turns; one works at a time."""

import contextlib
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

from benchmarks.harness.environments import Environment
from benchmarks.harness.job import Job

ROOT = Path(__file__).parents[2]
_SHOWN = 3  # last lines of a log that explain a failure


class Failed(Exception):
    """Why a contestant cannot go on, in one line."""


class Contestant:
    """One peer at one task, in a process of its own."""

    def __init__(self, peer: str, job: Job, environment: Environment, log: Path) -> None:
        self.peer, self.job, self.log = peer, job, log
        command = [str(environment.python), "-u", "-m", "benchmarks.harness.contestant", peer, job.to_text()]
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment.variables,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @property
    def name(self) -> str:
        """Peer and variant."""
        return f"{self.peer} {self.job.variant}".strip()

    def ask(self, line: str, *, timeout: float) -> dict[str, Any]:
        """Send a line and wait for the answer; raises Failed where none comes within `timeout` seconds."""
        process = self._process
        if process.stdin is None or process.stdout is None:
            raise Failed(f"{line}: it has no pipes")
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(timeout, end)
        timer.start()
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            reason = f"no answer within {timeout:.0f} s" if late.is_set() else self._reason()
            self.close()
            raise Failed(f"{line}: {reason}")
        found: dict[str, Any] = json.loads(answer)
        return found

    def _reason(self) -> str:
        """The last lines that it wrote, and how it ended."""
        code = self._process.wait()
        lines = [text.strip() for text in self.log.read_text(errors="replace").splitlines() if text.strip()]
        return f"ended with {code}: " + " / ".join(lines[-_SHOWN:])

    def close(self) -> None:
        """End the process; may be called twice."""
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
