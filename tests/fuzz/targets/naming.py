"""Names of files that a pack asks to write: none leads out of the target, no two are one."""

import os
from collections.abc import Iterator

from packer.files.safe_paths import Collisions, components, folded
from packer.formats.bmp import FileNames
from tests.fuzz import words
from tests.fuzz.target import Disagreement, refusable

TOKENS = (*words.PATHS, b"/", b"\xc3\xa9", b"e\xcc\x81", b"\xef\xbd\x8f", b"~1", b"A", b"a", b".jpg")


def seeds() -> Iterator[bytes]:
    yield b"cat/a.jpg\ncat/A.jpg\ndog/b"
    yield b"a\\..\\b\nC:\\x\n12:30:00.jpg"
    yield "\u00e9/x\ne\u0301/x\nCON".encode()


def check(data: bytes) -> None:
    collisions, names = Collisions(), FileNames()
    safe: dict[str, str] = {}
    taken: set[str] = set()
    for row, raw in enumerate(data.split(b"\n")[:20]):
        path = raw.decode("utf-8", "surrogateescape")
        (written,) = names.take(raw, row, [(".bmp",)])
        components(written)
        if folded(written) in taken:
            raise Disagreement(f"{written!r} is given to two files")
        taken.add(folded(written))
        with refusable():
            parts = components(path)
            joined = b"/".join(parts)
            leads_out = joined.startswith((b"/", b"..")) and parts[0] == b".."
            if joined != raw or os.path.normpath(joined) != joined or leads_out:
                raise Disagreement(f"{path!r} is {parts}")
            if collisions.add(path) is None:
                if folded(path) in safe:
                    raise Disagreement(f"{path!r} and {safe[folded(path)]!r} do not collide")
                safe[folded(path)] = path
