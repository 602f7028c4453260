"""Commands on a terminal or in a pipe, many in a second: forked from one process that has imported what they need."""

import base64
import json
import os
import pty
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

# clears the screen, writes to the clipboard, turns the writing, colors by C1, deletes, forges a line, is no UTF-8
EVIL = "\x1b[2J\x1b]52;c;cHduZWQ=\x07\u202e\x9b31m\x7f\b\nFORGED\rFORGED\t\u2066\u2028\udc9b"
EVIL_TEXT = EVIL.replace("\udc9b", "")  # where only text goes
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_ALREADY = (  # what the commands import when they are called
    *(
        "torch.utils.data",
        "packer.cli",
        "packer.inspect.verify",
        "packer.inspect.extraction",
        "packer.pack.index_rebuild",
    ),
    *(
        "packer.conversion.convert",
        "packer.inspect.html_sheet",
        "packer.inspect.statistics_scan",
        "packer.copies.stager",
    ),
)


def harm(shown: bytes) -> list[str]:
    """What in an output could act on a terminal, or passes for a line of packer's own."""
    text = shown.replace(b"\r\n", b"\n").decode("utf-8", "backslashreplace")
    found = {ascii(char) for char in text if unicodedata.category(char) in _UNSEEN and char not in "\r\n"}
    found |= {ascii(lead + "FORGED") for lead in "\r\n" if lead + "FORGED" in text}
    return sorted(found | ({"no UTF-8"} if not _is_text(shown) else set()))


def _is_text(shown: bytes) -> bool:
    try:
        shown.decode()
    except UnicodeDecodeError:
        return False
    return True


class Terminals:
    """Runs commands of packer, each in a process of its own."""

    def __init__(self) -> None:
        plain = {**os.environ, "PYTHON_COLORS": "0"}  # from 3.13 on Python colors its own tracebacks
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path.cwd(), env=plain
        )

    def run(self, words: Sequence[object], *, piped: bool = False, python: bool = False) -> tuple[int, bytes, bytes]:
        """Exit code, stdout and stderr, both in the first on a terminal; python: words are one text of Python."""
        question = {"words": [os.fsdecode(str(word)) for word in words], "piped": piped, "python": python}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        code, *shown = json.loads(self._process.stdout.readline())
        out, err = map(base64.b64decode, shown)
        return code, out, err

    def __enter__(self) -> "Terminals":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate()


def _serve() -> None:
    import importlib  # noqa: PLC0415  of the process that serves alone

    for name in _ALREADY:
        importlib.import_module(name)
    for line in sys.stdin:
        question = json.loads(line)
        code, *shown = _into_files(question) if question.pop("piped") else _on_terminal(question)
        sys.stdout.write(f"{json.dumps([code, *(base64.b64encode(data).decode() for data in shown)])}\n")
        sys.stdout.flush()


def _on_terminal(question: dict[str, Any]) -> tuple[int, bytes, bytes]:
    ours, theirs = pty.openpty()
    child = _forked(question, (theirs, theirs))
    os.close(theirs)
    pieces = []
    while piece := _read(ours):
        pieces.append(piece)
    os.close(ours)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), b"".join(pieces), b""


def _into_files(question: dict[str, Any]) -> tuple[int, bytes, bytes]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = _forked(question, (out.fileno(), err.fileno()))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, os.pread(out.fileno(), 1 << 24, 0), os.pread(err.fileno(), 1 << 24, 0)


def _forked(question: dict[str, Any], outputs: tuple[int, int]) -> int:
    child = os.fork()
    if not child:
        os.setsid()
        for number, output in zip((1, 2), outputs, strict=True):
            os.dup2(output, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.closerange(3, 256)
        _become(**question)
    return child


def _read(number: int) -> bytes:
    try:
        return os.read(number, 1 << 16)
    except OSError:  # EIO: the other end of the terminal is closed
        return b""


def _become(words: list[str], *, python: bool) -> None:
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    code: object = 70
    try:
        if python:
            exec(words[0], {"__name__": "__main__"})
            code = 0
        else:
            from packer.cli import run  # noqa: PLC0415  see _ALREADY

            sys.argv = ["packer", *words]
            run()
    except SystemExit as error:
        code = error.code
    except Exception:  # noqa: BLE001  shown as Python shows it
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _serve()
