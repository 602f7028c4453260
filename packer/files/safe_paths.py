"""Safe paths: checks names of files that a pack asks to write; refuses what could lead out of the target.

A pack may be hostile, so a path is judged component by component, and never by what the disk makes of it. Refused are
an absolute path; a component that is empty, `.` or `..`, holds NUL or is longer than 255 bytes; a path of more than
4000 bytes; and what is a way out elsewhere: `..` between backslashes, a drive (`C:`, `C:\\x`) and a share (`\\\\host`).
Everything else that a file may be called where packer runs is given back as it was: `12:30:00.jpg`, `a\\b`, `CON`,
`name.` are ordinary names there, and leaving them out would lose data.
"""

import re
import unicodedata

from packer.errors import InvalidRequest

MOST_NAME_BYTES = 255  # NAME_MAX of Linux file systems
MOST_PATH_BYTES = 4000  # below PATH_MAX, so that people can open what was written
_ELSEWHERE = re.compile(r"(?:[A-Za-z]:(?:\\.*)?|\\\\.*|(?:.*\\)?\.\.(?:\\.*)?)", re.DOTALL)


def components(path: str) -> tuple[bytes, ...]:
    """The folders and the file of a relative POSIX path, surrogates as the bytes that they stand for (PEP 383).

    Raises InvalidRequest with the reason, for a caller to say where the path stands.
    """
    parts = []
    for name in path.split("/"):
        try:
            raw = name.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"name {name!r:.80} holds a surrogate that stands for no byte") from error
        if name in ("", ".", ".."):
            raise InvalidRequest(f"path {path!r:.200}: component {name!r} does not name a file")
        if b"\0" in raw or _ELSEWHERE.fullmatch(name):
            raise InvalidRequest(f"path {path!r:.200}: component {name!r:.80} could lead out of the target")
        if len(raw) > MOST_NAME_BYTES:
            raise InvalidRequest(f"name {name!r:.80} has {len(raw)} bytes, expected at most {MOST_NAME_BYTES}")
        parts.append(raw)
    if sum(map(len, parts)) + len(parts) > MOST_PATH_BYTES:
        raise InvalidRequest(f"path {path!r:.80} is longer than {MOST_PATH_BYTES} bytes")
    return tuple(parts)


def folded(path: str) -> str:
    """What paths have in common that some file system takes for one: upper and lower case, composed and not."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


class Collisions:
    """Finds paths that could not lie beside each other: twice the same, the same but for case, a file as a folder."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}  # folded folder -> a file in it

    def add(self, path: str) -> str | None:
        """The earlier path that is in the way of this one, None where there is none."""
        key = folded(path)
        other = self._files.get(key) or self._folders.get(key)
        if other is not None:
            return other
        self._files[key] = path
        at = key.find("/")
        while at >= 0:
            if key[:at] in self._files:
                return self._files[key[:at]]
            self._folders.setdefault(key[:at], path)
            at = key.find("/", at + 1)
        return None
