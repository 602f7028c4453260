"""Tar: the members of an archive, compared with Python's tarfile where it reads one; and samples made of them."""

import io
import tarfile
from collections.abc import Iterator

from packer.layouts import tar
from packer.sources.records.webdataset import Source
from tests.fuzz import scratch, words
from tests.fuzz.checks import check_samples
from tests.fuzz.target import Disagreement, refusable
from tests.support import foreign_files as foreign
from tests.support.archives import summed

TOKENS = (*words.TAR, b".png", b".cls", b"__a__/")
MOST_BYTES = 12_000


def seeds() -> Iterator[bytes]:
    yield foreign.tar_archive({"a.b/0.cls": b"7", "a.b/0.txt": b"text", "1.json": b"{}"})
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w", format=form) as archive:
            info = tarfile.TarInfo("d" * 120 + "/ü.cls")
            info.size = 2
            archive.addfile(info, io.BytesIO(b"12"))
        yield file.getvalue()


def check(data: bytes) -> None:
    # a header that a mutation has changed keeps no sum: give it the right one
    for content in (data, summed(data)):
        with refusable():
            found = list(tar.members(lambda offset, size, content=content: content[offset : offset + size]))
            _check_members(content, found)
        with refusable():
            check_samples(Source(scratch.written("fuzz.tar", content), missing="skip"))


def _check_members(data: bytes, found: list[tar.Member]) -> None:
    """Where tarfile reads the whole archive, it reads the same files."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            expected = [info for info in archive.getmembers() if info.type in (b"0", b"\0", b"7") and not info.sparse]
    except (tarfile.TarError, ValueError, OSError, OverflowError, MemoryError):
        return
    ours = [(member.offset, member.size) for member in found if member.is_file]
    theirs = [(info.offset_data, info.size) for info in expected]
    if not set(theirs) <= {*ours, *theirs[len(ours) :]}:
        raise Disagreement(f"{ours}, tarfile {theirs}")
