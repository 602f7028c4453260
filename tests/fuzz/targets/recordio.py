"""RecordIO: frames, labels and images of a file, with the input as its index and its list, too."""

import struct
from collections.abc import Iterator

from packer.layouts.recordio_frames import unframed
from packer.sources.records.recordio import Source
from tests.fuzz import scratch
from tests.fuzz.checks import check_samples
from tests.fuzz.target import Disagreement, refusable
from tests.support import foreign_files as foreign

_KEY = struct.pack("<I", foreign.RECORDIO_MAGIC)
TOKENS = (_KEY, _KEY + b"\x04\0\0\x20", _KEY + b"\x04\0\0\x40", _KEY + b"\x04\0\0\x60", b"\t", b"\n0\t0", b"\xff" * 4)


def seeds() -> Iterator[bytes]:
    image = foreign.recordio_image(b"\xff\xd8\xff", 1.0)
    vector = foreign.recordio_image(b"ab" + _KEY * 2, [1.0, 2.0], foreign.RECORDIO_MAGIC)
    yield foreign.recordio([image, vector, b""])
    yield foreign.recordio([foreign.recordio_image(b"", [2.0, 3.0]), image, foreign.recordio_image(b"", [1.0, 2.0])])
    yield foreign.recordio_index([image, vector], (0, 1)).encode()
    yield b"0\t1.0\ta/b.jpg\n1\t1.0\t2.0\tc.jpg\n"


def check(data: bytes) -> None:
    if unframed(foreign.recordio_frame(data)) != data:
        raise Disagreement("a frame that does not give its bytes back")
    folder = scratch.folder() / "recordio"
    folder.mkdir(exist_ok=True)
    sound = foreign.recordio([foreign.recordio_image(b"\xff\xd8\xff", 1.0), data])
    for rec, beside in ((data, b""), (sound, data)):
        (folder / "a.rec").write_bytes(rec)
        for suffix in (".idx", ".lst"):
            (folder / f"a{suffix}").write_bytes(beside)
        with refusable():
            check_samples(Source(folder))
