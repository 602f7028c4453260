r"""Text: what came out of a file or a pack as what may reach a terminal, a picture or a page.

A file name holds any byte but NUL and `/`, a text of a pack any character. Sent to a terminal as they are, they could
clear it, write to its clipboard (OSC 52), colour what follows, or turn the direction of writing. Shown are their
escapes instead: `\x1b`, `\n`, `\u202e`, `\udcff` for the byte 0xff that is no UTF-8 (PEP 383). A backslash stays as it
is, so that a text may pass twice.
"""

import os
import shlex

from packer.errors import printable

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
    if printable(text) == text:
        return shlex.quote(text)
    return "$'" + "".join(map(_in_quotes, text)) + "'"


def _in_quotes(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if printable(char) == char:
        return char
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
