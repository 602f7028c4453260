r"""Terminal output: all output to stdout and stderr goes through this module, which escapes text for people.

Every command prints with `echo`, also its errors. The output contains no control characters except the line breaks
between lines.

File names and texts of a pack may contain any character. On a terminal, some could clear the screen, write to the
clipboard (OSC 52), change colors, or reverse the direction of text. So `echo` prints escapes instead of them, such as
`\x1b`, `\n` or `\u202e`. The byte 0xff of a name that is not UTF-8 (PEP 383) is `\udcff`. A backslash is unchanged, so
that escaping a text twice changes nothing. Images and pages of packer follow the same rule.
"""

import os
import shlex
import sys
from collections.abc import Iterable
from typing import TextIO

from packer.errors import escaped, printable


def echo(*lines: object, err: bool = False) -> None:
    """Print lines for people, each of them `escaped`, also into files. They go to stdout, or with `err` to stderr."""
    _write(sys.stderr if err else sys.stdout, map(str, lines))


def hand_over(lines: Iterable[str]) -> None:
    """Print lines for another program to stdout, with unchanged bytes. On a terminal, they are `escaped`."""
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
    """Return `printable(text)`. If the text has more than 400 characters, `...` replaces its middle."""
    if len(text) > _MOST_CHARACTERS:
        half = _MOST_CHARACTERS // 2
        text = text[:half] + "..." + text[-half:]
    return printable(text)


def shell_word(text: str) -> str:
    r"""Return the text as one word of a command line. A printable text is quoted for any POSIX shell.

    Another text is `$'a\033b'`, with octal escapes, for bash, ksh, zsh and shells of POSIX.1-2024 (2.2.4).
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
