"""The zip directory of a .pth part, and the records in it, compared with zipfile."""

import io
import zipfile
import zlib
from collections.abc import Iterator

from packer.formats._column_part import end_record
from packer.formats.pth import Reader
from tests.fuzz import words
from tests.fuzz.checks import records
from tests.fuzz.scratch import written
from tests.fuzz.target import Disagreement
from tests.support import built_packs

_SAMPLES = 2
TOKENS = (*words.ZIP, b"a/data/0", b"a/data.pkl", b"a/byteorder", b"little", b'{"fields": ')


def seeds() -> Iterator[bytes]:
    """As torch lays it out, without torch; once with 64 bit sizes, as it does."""
    sound = built_packs.records(_SAMPLES)
    stored = {
        "data.pkl": b"",
        "byteorder": b"little",
        "version": b"3\n",
        "data/0": end_record(built_packs.SCHEMA, _SAMPLES),
    }
    number = 1
    for name in built_packs.SCHEMA.names:
        values = [record[name] for record in sound]
        stored[f"data/{number}"] = b"".join(values)
        number += 1
        if name in ("key", "blob"):
            ends = [0, len(values[0]), len(values[0]) + len(values[1])]
            stored[f"data/{number}"] = b"".join(end.to_bytes(8, "little") for end in ends)
            number += 1
    for large in (False, True):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, data in stored.items():
                with archive.open(zipfile.ZipInfo(f"a/{name}"), "w", force_zip64=large) as entry:
                    entry.write(data)
        yield file.getvalue()


def check(data: bytes) -> None:
    path = written("fuzz.pth", data)
    read = records(Reader(path, built_packs.SCHEMA, samples=_SAMPLES), _SAMPLES)
    label = b"".join(record["label"] for record in read)
    expected = _with_zipfile(data, "data/5")
    if expected is not None and expected != label:
        raise Disagreement("another label for zipfile")


def _with_zipfile(data: bytes, name: str) -> bytes | None:
    """An entry's bytes; None where zipfile finds fault with its crc32, which the manifest's sha256 stands for."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        try:
            return next(archive.read(info) for info in archive.infolist() if info.filename.endswith(name))
        except (zipfile.BadZipFile, zlib.error, EOFError):
            return None
