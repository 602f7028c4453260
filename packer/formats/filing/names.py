"""Names: what the files of each row are called, after its key, so that no two are ever taken for one.

The key is the name, with a suffix that fits the value. Where that could lead out of the folder, is too long, or is what
some file system takes for an earlier name (upper and lower case, composed accents), `~` and the row's number come in:

    cat/a.jpg    ->  cat/a.jpg.bmp        cat/A.jpg  ->  cat/A.jpg~7.bmp       because of the one before
    cat/<long>   ->  cat/~7.bmp           ../a.jpg   ->  ~7.bmp
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import count

from packer.errors import Refused
from packer.naming import components, folded
from packer.schema import Buffer, Field

_OF_CODECS = {"bmp": (".bmp",), "npy": (".npy",), "png": (".png",)}
# of files of any format, by their first bytes: the suffixes that fit, the usual one first
_OF_FILES: tuple[tuple[bytes, tuple[str, ...]], ...] = (
    (b"\xff\xd8\xff", (".jpg", ".jpeg", ".jpe", ".jfif")),
    (b"\x89PNG", (".png",)),
    (b"BM", (".bmp",)),
    (b"II*\0", (".tiff", ".tif")),
    (b"MM\0*", (".tiff", ".tif")),
    (b"RIFF", (".webp",)),
    (b"\x93NUMPY", (".npy",)),
    *((b"P%d" % kind, (suffix, ".pnm")) for kind, suffix in ((4, ".pbm"), (5, ".pgm"), (6, ".ppm"))),
)
_PLAIN = (".bin",)


def suffixes(field: Field, value: Buffer) -> tuple[str, ...]:
    """The suffixes that a file with that value may have, the usual one first."""
    codec = field.codec.partition(":")[0]
    if codec in _OF_CODECS:
        return _OF_CODECS[codec]
    if field.kind == "bytes" or codec not in ("encoded", "jpeg"):
        return _PLAIN
    start = bytes(value[:8])
    return next((found for magic, found in _OF_FILES if start.startswith(magic)), _PLAIN)


class Names:
    """The names of one part's files, in the order of its rows; 8 bytes are kept of each in a set."""

    def __init__(self) -> None:
        self._taken: set[int] = set()

    def take(self, key: bytes, row: int, wanted: Sequence[tuple[str, ...]]) -> list[str]:
        """The path of each of a row's files below the folder of its field; wanted: the suffixes that fit it."""
        for path in _candidates(key.decode("utf-8", "surrogateescape"), row):
            found = [path if path.lower().endswith(fitting) else path + fitting[0] for fitting in wanted]
            marks = [marks for name in dict.fromkeys(found) if (marks := self._marks(name)) is not None]
            if len(marks) == len(set(found)):
                self._taken.update(*marks)
                return found
        raise Refused(f"row {row}: no name is left for its files; use another format")

    def _marks(self, path: str) -> list[int] | None:
        """What stands for the path and its folders; None where it is unsafe or something is in its way."""
        try:
            components(path)
        except Refused:
            return None
        key = folded(path)
        file = _mark(key)
        if file in self._taken or _mark(f"{key}/") in self._taken:
            return None
        marks = [file]
        at = key.rfind("/")
        while at >= 0 and (folder := _mark(key[: at + 1])) not in self._taken:
            if _mark(key[:at]) in self._taken:  # a file lies where the folder should
                return None
            marks.append(folder)
            at = key.rfind("/", 0, at)
        return marks


def _candidates(path: str, row: int) -> Iterator[str]:
    folder, slash, _ = path.rpartition("/")
    yield from (path, f"{path}~{row}", f"{folder}{slash}~{row}")
    for tildes in count(1):
        yield f"{'~' * tildes}{row}"


def _mark(folded_path: str) -> int:
    """64 bits of a hash: should two paths ever share them, one gets another name than it needed to."""
    raw = folded_path.encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little")
