"""The done-records of an interrupted conversion: of the first line its plan, of all others the record of a part."""

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from packer.conversion.build_part import FinishedPart
from packer.conversion.options import ConversionOptions
from packer.conversion.publication import FolderPublication
from packer.conversion.work_folder_layout import NAMES
from packer.files.work_folder import work_folder
from packer.pack.manifest import Part
from tests.fuzz import scratch, words
from tests.fuzz.target import Disagreement

TOKENS = (b'{"fingerprint":"f"}\n', b'"part":{', b'"name":"part-00000.lmdb"', b'"skipped":[', b"\n", *words.JSON)
TOKENS += (b'"name":".."', b'"name":"a/../b"', b'"name":[]', b'"name":"a\\u0000"')
NAME = "part-00000.lmdb"

_PARTS = {NAME: 3, "part-00007.lmdb": 3}
_PLAN: Any = SimpleNamespace(
    fingerprint="f",
    has_part=lambda name, samples: _PARTS.get(name) == samples,
    part_samples=_PARTS,
    source=SimpleNamespace(resume_reason=None),
    options=ConversionOptions(),
)


def seeds() -> Iterator[bytes]:
    done = FinishedPart(Part(NAME, 2, 4, "0" * 64), 9, 9, [["a", "b"]], [["c", "d"]], {"holes0:depth": 1})
    yield b"".join(json.dumps(line).encode() + b"\n" for line in ({"fingerprint": "f"}, asdict(done)))
    yield b'{"fingerprint":"f"}\n{"part":'


def check(data: bytes) -> None:
    plan, _, record = data.partition(b"\n")
    with tempfile.TemporaryDirectory(dir=scratch.folder()) as above:
        folder = Path(above) / "work"
        (Path(above) / "kept").write_bytes(b"")
        with work_folder(folder, NAMES) as work:
            for name in ("pack", "pieces", "done"):
                (folder / name).mkdir()
            for name in ("pack", "pieces"):
                (folder / name / NAME).write_bytes(b"1234")
                (folder / name / "part-00007.lmdb").write_bytes(b"")  # unfinished: swept away
            (folder / "done/part-00000.json").write_bytes(record)
            (folder / "plan.json").write_bytes(plan)
            records = FolderPublication(_PLAN, folder, work)
            try:
                records.begin(restart=False)
            finally:
                if not (Path(above) / "kept").exists():
                    raise Disagreement("a file outside of the work folder is gone")
        for name, done in records.finished.items():
            samples = done.part.samples + len(done.skipped)
            if name != done.part.name or (name, done.part.bytes, samples) != (NAME, 4, 3):
                raise Disagreement(f"{name!r} is taken for a finished part")
