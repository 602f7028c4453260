"""Folders in tar and zip files: whatever is taken is what tarfile and zipfile read under that name."""

import io
import tarfile
import zipfile
from collections.abc import Iterator

from packer.files.safe_paths import components
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.open_tree import open_archive
from tests.fuzz import scratch, words
from tests.fuzz.target import Disagreement, refusable
from tests.support.archives import summed, tar_of, zip_of

TOKENS = (*words.TAR, *words.ZIP, b"../", b".tar", b"a/", b"\x01\0\x10\0")
MOST_BYTES = 12_000
_MOST_READ_BYTES = 1 << 20


def seeds() -> Iterator[bytes]:
    files = {"a/1.png": b"png" * 99, "a/b/2.txt": b"", "\u00fc/x": b"1"}
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT):
        yield tar_of(files, form=form)
    yield tar_of({"n1.tar": tar_of({"1.png": b"1"})[:2048], "n2.tar": tar_of({"./2.png": b"2"})[:2048]})
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        yield zip_of(files, method=method)


def check(data: bytes) -> None:
    for content in (data, summed(data)) if not data.startswith(b"PK") else (data,):
        with refusable():
            tree = open_archive(scratch.written("fuzz.archive", content))
            if tree is not None:
                _check(content, tree)


def _check(content: bytes, tree: FileTree) -> None:
    found = tree.contents
    if found is None:
        raise Disagreement("an archive that does not know what it holds")
    files = {}
    for name in found.names:
        components(name)
        if tree.state(name).size_bytes <= _MOST_READ_BYTES:
            files[name] = tree.read(name)
        tree.start(name, 32)
    if content.startswith(b"PK"):
        _check_zip(content, files)


def _check_zip(content: bytes, files: dict[str, bytes]) -> None:
    """What is read has the crc32 that zipfile compares too."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            theirs = sorted(archive.read(info) for info in archive.infolist() if not info.filename.endswith("/"))
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError, NotImplementedError, EOFError):
        return
    if not set(files.values()) <= set(theirs):
        raise Disagreement(f"{sorted(files)}: other bytes than zipfile's")
