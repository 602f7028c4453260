"""Archives of folders, as tar and zip make them: every dialect that a set is downloaded in."""

import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.support.source_trees import tree


def _tar(folder: Path, path: Path, *, form: int, front: str = "", compression: str = "") -> Path:
    """A tar beside `path`. front: before each name."""
    target = path.with_name(f"{path.name}.tar{compression and f'.{compression}'}")
    front = front.format(path.name)
    with tarfile.open(target, f"w:{compression}", format=form, encoding="utf-8", errors="surrogateescape") as archive:
        for name, data in sorted(tree(folder).items()):
            info = tarfile.TarInfo(front + os.fsdecode(name))
            info.size, info.mtime = len(data), 1
            archive.addfile(info, io.BytesIO(data))
        for name in _empty_folders(folder):
            info = tarfile.TarInfo(front + name)
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
    return target


def _zip(folder: Path, path: Path, *, method: int) -> Path:
    target = path.with_name(f"{path.name}.zip")
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, data in sorted(tree(folder).items()):
            archive.writestr(os.fsdecode(name), data)
        for name in _empty_folders(folder):
            archive.writestr(f"{name}/", b"")
    return target


def _empty_folders(folder: Path) -> list[str]:
    return [os.path.relpath(inner, folder) for inner, folders, files in os.walk(folder) if not folders and not files]


pax = partial(_tar, form=tarfile.PAX_FORMAT)  # as Python and bsdtar write it
gnu = partial(_tar, form=tarfile.GNU_FORMAT, front="./")  # as `tar cf x.tar -C FOLDER .` writes it
ustar = partial(_tar, form=tarfile.USTAR_FORMAT)  # the oldest dialect, with a prefix before long names
named = partial(_tar, form=tarfile.GNU_FORMAT, front="{}/")  # as `tar cf x.tar x`: all lies in a folder of this name
packed = partial(_tar, form=tarfile.PAX_FORMAT, compression="gz")
stored = partial(_zip, method=zipfile.ZIP_STORED)
deflated = partial(_zip, method=zipfile.ZIP_DEFLATED)
MAKERS: dict[str, Callable[[Path, Path], Path]] = {"pax": pax, "gnu": gnu, "ustar": ustar, "named": named}
MAKERS |= {"packed": packed, "stored": stored, "deflated": deflated}
for _name, _maker in MAKERS.items():
    _maker.__name__ = _name  # as functions have it: tests name packs after them


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
