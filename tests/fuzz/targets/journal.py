"""The journal of an interrupted conversion."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from packer.conversion.journal import NAMES, FinishedPart, Journal
from packer.files.work_folder import work_folder
from packer.pack.manifest import Part
from tests.fuzz import scratch
from tests.fuzz.target import Disagreement

TOKENS = (
    b'{"fingerprint":"f"}\n',
    b'"part":{',
    b'"name":"part-00000.lmdb"',
    b'"name":".."',
    b'"skipped":[',
    b"null",
    b"1e999",
    b"\n",
)
TOKENS += (b'"name":"a/../b"', b'"name":[]', b'"name":"a\\u0000"', b"[[[[[[[[", b"true", b"\\ud800")
MOST_BYTES = 6000


def seeds() -> Iterator[bytes]:
    done = FinishedPart(Part("part-00000.lmdb", 2, 4, "0" * 64), 9, 9, [["a", "b"]], [])
    other = FinishedPart(Part("part-00001.lmdb", 2, 4, "1" * 64), 9, 9)
    yield b"".join(json.dumps(line).encode() + b"\n" for line in ({"fingerprint": "f"}, asdict(done), asdict(other)))
    yield b'{"fingerprint":"f"}\n{"part":'


def check(data: bytes) -> None:
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as above:
        folder = Path(above) / "work"
        (Path(above) / "kept").write_bytes(b"")
        with work_folder(folder, NAMES) as work:
            for name in ("pack", "pieces"):
                (folder / name).mkdir()
                (folder / name / "part-00000.lmdb").write_bytes(b"1234")
                (folder / name / "part-00007.lmdb").write_bytes(b"")  # unfinished: swept away
            (folder / "journal").write_bytes(data)
            journal = Journal(work)
            try:
                journal.begin("f", restart=False)
            finally:
                if not (Path(above) / "kept").exists():
                    raise Disagreement("a file outside of the work folder is gone")
        for name, done in journal.finished.items():
            if name != done.part.name or (name, done.part.bytes) != ("part-00000.lmdb", 4):
                raise Disagreement(f"{name!r} is taken for a finished part")
