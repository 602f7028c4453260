"""Terminal: the one door to standard output and standard error.

Every command prints through it, errors too, and a test forbids other ways. What it writes holds no control character
but the line breaks between the lines that it was given.
"""

import sys
from collections.abc import Iterable
from typing import TextIO

from packer.errors import printable


def echo(*lines: object, err: bool = False) -> None:
    """Write lines for people: each `printable`, whether or not a terminal is there, since logs are read on one too."""
    _write(sys.stderr if err else sys.stdout, map(str, lines))


def hand_over(lines: Iterable[str]) -> None:
    """Write lines for another program to standard output: names in them byte for byte, on a terminal `printable`."""
    if sys.stdout.isatty():
        _write(sys.stdout, lines)
        return
    sys.stdout.flush()
    sys.stdout.buffer.writelines(line.encode("utf-8", "surrogateescape") + b"\n" for line in lines)
    sys.stdout.flush()


def _write(out: TextIO, lines: Iterable[str]) -> None:
    coding = out.encoding or "utf-8"
    for line in lines:  # an output that is not UTF-8 gets escapes for what it has no character for
        out.write(f"{printable(line)}\n".encode(coding, "backslashreplace").decode(coding))
    out.flush()
