r"""Terminal output: the one way to standard output and standard error, and text escaped for people to read.

Every command prints through `echo`, errors too, and a test forbids other ways. What it writes holds no control
character but the line breaks between the lines that it was given.

A file name holds any byte but NUL and `/`, a text of a pack any character. Sent to a terminal as they are, they could
clear it, write to its clipboard (OSC 52), color what follows, or turn the direction of writing. Shown are their
escapes instead: `\x1b`, `\n`, `\u202e`, `\udcff` for the byte 0xff that is no UTF-8 (PEP 383). A backslash stays as it
is, so that a text may pass twice. The same holds for images and pages.
"""

import os
import shlex
import sys
from collections.abc import Iterable
from typing import TextIO

from packer.errors import escaped, printable


def echo(*lines: object, err: bool = False) -> None:
    """Write lines for people: each `escaped`, whether or not a terminal is there, since logs are read on one too."""
    _write(sys.stderr if err else sys.stdout, map(str, lines))


def hand_over(lines: Iterable[str]) -> None:
    """Write lines for another program to standard output: names in them byte for byte, on a terminal `escaped`."""
    if sys.stdout.isatty():
        _write(sys.stdout, lines)
        return
    sys.stdout.flush()
    sys.stdout.buffer.writelines(line.encode("utf-8", "surrogateescape") + b"\n" for line in lines)
    sys.stdout.flush()


def _write(out: TextIO, lines: Iterable[str]) -> None:
    coding = out.encoding or "utf-8"
    for line in lines:  # an output that is not UTF-8 gets escapes for what it has no character for
        out.write(f"{escaped(line)}\n".encode(coding, "backslashreplace").decode(coding))
    out.flush()


# ---- text from files and packs

_ELLIPSIS = "..."
_MOST_CHARACTERS = 400


def shortened(text: str) -> str:
    """As `printable`, of more than 400 characters without the middle."""
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = text[:half] + _ELLIPSIS + text[-half:]
    return printable(text)


def plot_label(text: str) -> str:
    """As `shortened`, for matplotlib, which sets a formula where there are two dollars."""
    return shortened(text).replace("$", r"\$")


def shell_word(text: str) -> str:
    r"""The text as one word of a command line to paste: quoted for any POSIX shell where all of it can be seen.

    Else as `$'a\033b'` (POSIX.1-2024, 2.2.4; bash, ksh and zsh), every byte of what cannot be seen in octal.
    """
    if escaped(text) == text:
        return shlex.quote(text)
    return "$'" + "".join(map(_in_quotes, text)) + "'"


def _in_quotes(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if escaped(char) == char:
        return char
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
