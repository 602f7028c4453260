r"""Terminal output: the only way to standard output and standard error, and text escaped for people.

Every command prints through `echo`, including errors. Its output contains no control characters but the line breaks
between its lines.

File names and texts of a pack may contain any character. On a terminal, these could clear the screen, write to the
clipboard (OSC 52), change colors, or reverse the direction of text. So their escapes are printed instead: `\x1b`, `\n`,
`\u202e`, or `\udcff` for the byte 0xff that is not UTF-8 (PEP 383). A backslash is unchanged, so that a text may be
escaped twice. Images and pages follow the same rule.
"""

import os
import shlex
import sys
from collections.abc import Iterable
from typing import TextIO

from packer.errors import escaped, printable


def echo(*lines: object, err: bool = False) -> None:
    """Print lines for people. Each is `escaped`, also in log files, which are read on terminals. err: to stderr."""
    _write(sys.stderr if err else sys.stdout, map(str, lines))


def hand_over(lines: Iterable[str]) -> None:
    """Print lines for another program to standard output: unchanged bytes, or `escaped` on a terminal."""
    if sys.stdout.isatty():
        _write(sys.stdout, lines)
        return
    sys.stdout.flush()
    sys.stdout.buffer.writelines(line.encode("utf-8", "surrogateescape") + b"\n" for line in lines)
    sys.stdout.flush()


def _write(out: TextIO, lines: Iterable[str]) -> None:
    coding = out.encoding or "utf-8"
    for line in lines:  # an output in another encoding gets escapes for other characters
        out.write(f"{escaped(line)}\n".encode(coding, "backslashreplace").decode(coding))
    out.flush()


# ---- text from files and packs

_MOST_CHARACTERS = 400


def shortened(text: str) -> str:
    """Return `printable(text)`. In a text of more than 400 characters, `...` replaces the middle."""
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = text[:half] + "..." + text[-half:]
    return printable(text)


def shell_word(text: str) -> str:
    r"""Return the text as one word of a command line: quoted for any POSIX shell if it is printable.

    Otherwise it is `$'a\033b'` (POSIX.1-2024, 2.2.4; bash, ksh and zsh), with the other bytes in octal.
    """
    if escaped(text) == text:
        is_plain = "'" in text and not set(text) & set('"$`!\\')
        return f'"{text}"' if is_plain else shlex.quote(text)
    return "$'" + "".join(map(_in_quotes, text)) + "'"


def _in_quotes(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if escaped(char) == char:
        return char
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
