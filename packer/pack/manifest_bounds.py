"""Manifest bounds: what reading a manifest may cost, in one place, for the reader and the writer alike.

JSON of 64 MiB can be 21 million lists of 64 bytes each, a text with one emoji takes four bytes per character, and
whoever parses deep nesting does it by recursion. So the bytes are looked at before an object is made of them: a few
passes of C over them, next to nothing for the few KB that most packs have. What honest packs need, and what is allowed:

    bytes     32 MiB      13 MB for 100,000 samples left out with the reasons that damaged files give, 5 MB for
                          40,000 parts (10 TB), 3.6 MB for 100,000 classes, 0.8 MB for 10,000 fields
    values    1,000,000   commas, colons and opening brackets: 3 for a sample that was left out, 8 for a part, 4 to 12
                          for a field, 1 for a class
    levels    256         two for each generation of a pack of a pack of a pack; 6 else
    text      64 KiB      as JSON; a key or path has at most 4 KB, a reason is cut to 4,000 characters
    number    40 digits   64 bits have 20, a float 24
    options   1 MiB       and so what was asked of the source; they come in each pack that is made of this one
"""

from itertools import accumulate

MOST_BYTES = 32 << 20
MOST_VALUES = 1_000_000
MOST_LEVELS = 256
MOST_TEXT_BYTES = 64 << 10
MOST_DIGITS = 40
MOST_OPTIONS_BYTES = 1 << 20
MOST_REASON = 4000  # characters; in JSON at most twelve times as many bytes

_STRUCTURE = b",:[{"
_BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_NOT_STRUCTURE = bytes(set(range(256)) - set(_STRUCTURE))


def excess(raw: bytes) -> str | None:
    """What a manifest's bytes have beyond the bounds, in words; None where nothing is. Makes no object of a value."""
    if len(raw) > MOST_BYTES:
        return f"more than {MOST_BYTES:,} bytes"
    # of the same length, so that quotes that are left begin and end texts
    pieces = raw.replace(rb"\\", b"__").replace(rb"\"", b"__").split(b'"', 2 * MOST_VALUES + 2)
    texts, outside = pieces[1::2], pieces[::2]
    if len(texts) > MOST_VALUES:
        return f"more than {MOST_VALUES:,} texts"
    if max(map(len, texts), default=0) > MOST_TEXT_BYTES:
        return f"a text of {max(map(len, texts)):,} bytes, expected at most {MOST_TEXT_BYTES:,}"
    return _excess_of_structure(b'"'.join(outside))


def _excess_of_structure(outside: bytes) -> str | None:
    """outside: the bytes without the content of texts."""
    values = len(outside.translate(None, _NOT_STRUCTURE))
    if values > MOST_VALUES:
        return f"{values:,} values, expected at most {MOST_VALUES:,}"
    steps = memoryview(outside.translate(_BRACKETS, _NOT_BRACKETS)).cast("b")
    levels = max(accumulate(steps), default=0)
    if levels > MOST_LEVELS:
        return f"{levels:,} levels, expected at most {MOST_LEVELS}"
    digits = max(map(len, outside.translate(_SEPARATED).split()), default=0)
    if digits > MOST_DIGITS:
        return f"a number of {digits:,} digits, expected at most {MOST_DIGITS}"
    return None


_SEPARATED = bytes.maketrans(b',:[]{}"', b" " * 7)


def shortened(reason: str) -> str:
    """A reason as a manifest may hold it: of one that is very long, not the middle."""
    half = MOST_REASON // 2
    return reason if len(reason) <= MOST_REASON else f"{reason[:half]} ... {reason[-half + 5 :]}"
