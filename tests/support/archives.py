"""Archives of folders, as tar and zip make them: every dialect that a set is downloaded in."""

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.support.source_trees import tree


def _tar(folder: Path, path: Path, form: int, *, front: str = "") -> Path:
    with tarfile.open(path, "w", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for name, data in sorted(tree(folder).items()):
            info = tarfile.TarInfo(front + os.fsdecode(name))
            info.size, info.mtime = len(data), 1
            archive.addfile(info, io.BytesIO(data))
        for inner, folders, files in os.walk(folder):
            if not folders and not files:
                info = tarfile.TarInfo(front + os.path.relpath(inner, folder))
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
    return path


def pax(folder: Path, path: Path) -> Path:
    """As Python and bsdtar write it."""
    return _tar(folder, path.with_name(f"{path.name}.tar"), tarfile.PAX_FORMAT)


def gnu(folder: Path, path: Path) -> Path:
    """As `tar cf x.tar -C FOLDER .` writes it: names begin with `./`."""
    return _tar(folder, path.with_name(f"{path.name}.tar"), tarfile.GNU_FORMAT, front="./")


def ustar(folder: Path, path: Path) -> Path:
    """The oldest dialect, with a prefix before long names."""
    return _tar(folder, path.with_name(f"{path.name}.tar"), tarfile.USTAR_FORMAT)


def named(folder: Path, path: Path) -> Path:
    """As `tar cf x.tar x`: everything lies in the folder of the archive's name."""
    return _tar(folder, path.with_name(f"{path.name}.tar"), tarfile.GNU_FORMAT, front=f"{path.name}/")


def packed(folder: Path, path: Path) -> Path:
    """A tar in gzip."""
    made = pax(folder, path)
    target = made.with_name(f"{made.name}.gz")
    target.write_bytes(gzip.compress(made.read_bytes(), 1))
    made.unlink()
    return target


def _zip(folder: Path, path: Path, method: int) -> Path:
    target = path.with_name(f"{path.name}.zip")
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in sorted(tree(folder).items()):
            archive.writestr(os.fsdecode(name), data)
        for inner, folders, files in os.walk(folder):
            if not folders and not files:
                archive.writestr(f"{os.path.relpath(inner, folder)}/", b"")
    return target


def stored(folder: Path, path: Path) -> Path:
    """A zip whose members are stored."""
    return _zip(folder, path, zipfile.ZIP_STORED)


def deflated(folder: Path, path: Path) -> Path:
    """A zip whose members are deflated."""
    return _zip(folder, path, zipfile.ZIP_DEFLATED)


MAKERS: dict[str, Callable[[Path, Path], Path]] = {
    maker.__name__: maker for maker in (pax, gnu, ustar, named, packed, stored, deflated)
}


def tar_of(members: dict[str, bytes], *, form: int = tarfile.GNU_FORMAT) -> bytes:
    """A tar of some members in memory."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=form) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def zip_of(members: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of some members in memory."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def summed(data: bytes) -> bytes:
    """A tar whose headers that something has changed have their sums again."""
    out = bytearray(data)
    for start in range(0, len(out) - 511, 512):
        if out[start + 257 : start + 262] == b"ustar":
            out[start + 148 : start + 156] = b" " * 8
            out[start + 148 : start + 156] = b"%06o\0 " % sum(out[start : start + 512])
    return bytes(out)
