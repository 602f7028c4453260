"""Tar tree: the files in a tar, as files of a folder: photos in folders that are classes, or ImageNet's tar of tars.

One pass over the headers notes where every file lies; the data between them are not read. A tar that holds nothing but
tars is a folder of folders: `n01440764.tar` in it is the folder `n01440764`, its members the files in there. That goes
one level deep. A tar that is compressed with gzip is unpacked in memory as it is read, from places that are kept every
16 MiB: read once in the order of the archive that costs little, otherwise gunzip it first.
"""

from pathlib import Path

from packer.errors import BadInput, printable
from packer.layouts import tar
from packer.sources._trees.archive_tree import ArchiveTree, Found, place_of
from packer.sources.records._random_access_files import HeaderReader, check_no_pointer, open_records

_SUFFIX = ".tar"
_GZIP = b"\x1f\x8b"
_WINDOW_BYTES = 1 << 12  # larger ones would read the whole archive where files are smaller than they
_MOST_UNPACKED_BYTES = 4 << 30  # of a compressed tar


def is_tar(path: Path, start: bytes) -> bool:
    """Whether a file that begins with these 512 bytes is a tar, maybe in gzip; raises BadInput for damaged gzip."""
    if tar.is_header(start) or not start.startswith(_GZIP):
        return tar.is_header(start)
    _, file = open_records(*place_of(path), is_packed=True)
    return tar.is_header(file.read(0, tar.BLOCK_BYTES))


def first_names(path: Path, count: int) -> list[str]:
    """The names of the first files in a tar, `count` at most, in its order; damage ends them."""
    folder, name = place_of(path)
    start = folder.start(name, tar.BLOCK_BYTES)
    _, file = open_records(folder, name, is_packed=not tar.is_header(start))
    names: list[str] = []
    try:
        read = _limited(HeaderReader(file, window_bytes=_WINDOW_BYTES).read)
        for member in tar.members(read, skip=file.data_from):
            if member.is_file:
                names.append(member.name)
            if len(names) == count:
                break
    except BadInput:
        return names  # whoever reads the archive says what is wrong
    return names


def holds_tars(names: list[str]) -> bool:
    """Whether files of these names in a tar make it a tar of tars."""
    return bool(names) and all(name.lower().endswith(_SUFFIX) for name in names)


def tar_tree(path: Path) -> ArchiveTree:
    """The files in a tar; raises BadInput naming what cannot be taken, and for one that is damaged or cut."""
    folder, name = place_of(path)
    start = folder.start(name, tar.BLOCK_BYTES)
    check_no_pointer(start, path)
    packed = start.startswith(_GZIP) and not tar.is_header(start)
    on_disk, file = open_records(folder, name, is_packed=packed)
    reader = HeaderReader(file, window_bytes=_WINDOW_BYTES)
    read = _limited(reader.read) if packed else reader.read
    found = Found()
    _walk(path, found, read, file.data_from, size=None if packed else on_disk.size)
    if holds_tars(found.names):
        found = _inner(path, found, read, file.data_from)
    root = found.settle(path)
    return ArchiveTree(path, found, root=root, file=on_disk, is_packed=packed)


def _walk(
    path: Path, found: Found, read: tar.Read, skip: tar.Skip, *, size: int | None, at: int = 0, folder: str = ""
) -> None:
    """Note every member from `at` on. size: where the tar ends, if that is known. folder: that it is."""
    try:
        for member in tar.members(read, skip=skip, at=at, size=size):
            name = member.name
            if not member.size and (member.kind == "folder" or (member.is_file and name.endswith("/"))):
                found.add_folder(_inside(folder, name))
            elif not member.is_file:
                hint = "; tar --hard-dereference makes files of them" if member.kind == "hard link" else ""
                hint = f" of {member.size} bytes" if member.kind == "folder" else hint
                found.refuse(_inside(folder, name), f"{member.kind}{hint}")
            elif folder and name.lower().endswith(_SUFFIX) and tar.is_header(read(member.offset, tar.BLOCK_BYTES)):
                found.refuse(_inside(folder, name), "a tar in a tar in a tar")
            else:
                found.add_file(_inside(folder, name), member.offset, member.size)
    except tar.CutArchive as error:
        inner = f"/{printable(folder)}{_SUFFIX}" if folder else ""
        raise BadInput(f"{printable(str(path))}{inner}: {error.message}; get the archive again") from error


def _inner(path: Path, outer: Found, read: tar.Read, skip: tar.Skip) -> Found:
    """The files in the tars of a tar of tars; what is there itself where one of them is no tar."""
    spans = list(zip(outer.names, outer.offsets, outer.sizes, strict=True))
    if not all(tar.is_header(read(offset, min(size, tar.BLOCK_BYTES))) for _, offset, size in spans):
        return outer
    found = Found()
    found.culprits = outer.culprits
    for name in outer.folders:
        found.add_folder(name)
    for name, offset, size in spans:
        folder = name[: -len(_SUFFIX)]
        found.add_folder(folder)
        _walk(path, found, _ending(read, offset + size), skip, size=offset + size, at=offset, folder=folder)
    return found


def _inside(folder: str, name: str) -> str:
    """The path of a member of an inner tar; what would lead out of that does not become harmless."""
    while folder and name.startswith("./"):
        name = name[2:].lstrip("/")
    return f"{folder}/{name}" if folder else name


def _ending(read: tar.Read, end: int) -> tar.Read:
    """Bytes up to a place only."""
    return lambda offset, size: read(offset, max(0, min(size, end - offset)))


def _limited(read: tar.Read) -> tar.Read:
    """Bytes of what is unpacked on the way, up to a limit: a small file may unpack to anything."""

    def limited(offset: int, size: int) -> bytes:
        if offset + size > _MOST_UNPACKED_BYTES:
            raise BadInput(
                f"a compressed tar of more than {_MOST_UNPACKED_BYTES >> 30} GiB is not read as it is; gunzip it first"
            )
        return read(offset, size)

    return limited
