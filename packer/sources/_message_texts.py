"""Message texts: format names, lists of names and counts for notes and errors."""

from collections import Counter
from collections.abc import Iterable

from packer.errors import printable

_SHOWN = 20  # number of names in one message
_KINDS = 10  # number of suffixes in one message


def suffix_of(name: str) -> str:
    """Return the suffix of a path in lower case, such as `.jpg`, or "" if there is none. Faster than pathlib."""
    file = name[name.rfind("/") + 1 :]
    dot = file.rfind(".")
    return file[dot:].lower() if 0 < dot < len(file) - 1 else ""


def shown(name: str) -> str:
    """Return a name with escapes for characters that are not printable."""
    return printable(name)


def listed(names: Iterable[str]) -> str:
    """Return the first 20 names, and how many more there are: `a, b, c and 5 more`."""
    found = list(names)
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return ", ".join(shown(name) for name in found[:_SHOWN]) + more


def counted(count: int, noun: str) -> str:
    """Return count and noun, with a plural ending if needed: `1 image`, `2 images`, `3 classes`."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}{'es' if noun.endswith('s') else 's'}"


def linked(count: int, noun: str) -> str:
    """Return `1 folder that is a link`, `2 folders that are links`."""
    return f"{counted(count, noun)} that {'is a link' if count == 1 else 'are links'}"


def described(names: Iterable[str], noun: str = "file") -> str:
    """Return the number of files, and the counts of suffixes, most frequent first: `12 files (.txt 10, .pdf 2)`."""
    suffixes = Counter(suffix_of(name) or "no suffix" for name in names)
    ordered = sorted(suffixes.items(), key=lambda pair: (-pair[1], pair[0]))
    kinds = ", ".join(f"{shown(suffix)} {count}" for suffix, count in ordered[:_KINDS])
    rest = sum(count for _, count in ordered[_KINDS:])
    kinds += f", others {rest}" if rest else ""
    return counted(suffixes.total(), noun) + (f" ({kinds})" if kinds else "")
