"""Other spelling: a file that is looked for under a name that looks the same on the screen, or differs in case.

A Mac writes `é` as `e` and an accent (NFD) where most others write one character (NFC). Names are compared by their
bytes, and so no file is found, whatever the screen shows.
"""

from collections.abc import Iterable

from packer.files.safe_paths import folded


def other_spelling(absent: Iterable[str], there: Iterable[str]) -> str:
    """What to add to a message on names that are not there; empty where none is there in another spelling."""
    wanted: dict[str, str] = {}
    for name in absent:
        last = name[name.rfind("/") + 1 :]
        wanted.setdefault(folded(last), last)
    for path in there if wanted else ():
        last = path[path.rfind("/") + 1 :]
        name = wanted.get(folded(last), last)
        if name == last:
            continue
        if name.lower() == last.lower():
            return f" ({ascii(name)} is there in other letter case: {ascii(last)}; rename one)"
        return (
            f" ({ascii(name)} is there in another spelling of its accents: {ascii(last)}, which the screen shows "
            "alike: composed (NFC) or not (NFD); rename one)"
        )
    return ""
