"""Tar tree: the files in a tar: images in folders that are classes, or ImageNet's tar of tars.

One pass over the headers notes the position of every file; the data between them are not read. A tar that contains only
tars is a folder of folders: `n01440764.tar` in it is the folder `n01440764` with the members as files. This goes one
level deep. A tar that is compressed with gzip is unpacked in memory as it is read, from positions that are kept every
16 MiB. This is cheap if files are read once, in the order of the archive. Otherwise gunzip the tar first.
"""

from pathlib import Path

from packer.errors import BadInput, printable
from packer.layouts import tar
from packer.sources._trees.archive_tree import ArchiveTree, Members, place_of
from packer.sources.records._random_access_files import HeaderReader, check_no_pointer, open_records

_SUFFIX = ".tar"
_GZIP = b"\x1f\x8b"
_WINDOW_BYTES = 1 << 12  # a larger window would read the whole archive if files are smaller
_MOST_UNPACKED_BYTES = 4 << 30  # of a compressed tar


def is_tar(path: Path, start: bytes) -> bool:
    """Return whether a file with these first 512 bytes is a tar, maybe in gzip; raises BadInput for damaged gzip."""
    if tar.is_header(start) or not start.startswith(_GZIP):
        return tar.is_header(start)
    _, file = open_records(*place_of(path), is_packed=True)
    return tar.is_header(file.read(0, tar.BLOCK_BYTES))


def first_names(path: Path, count: int) -> list[str]:
    """Return the names of the first files in a tar, `count` at most, in its order; damage ends them."""
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
        return names  # reading the archive raises it
    return names


def holds_tars(names: list[str]) -> bool:
    """Return whether a tar with files of these names is a tar of tars."""
    return bool(names) and all(name.lower().endswith(_SUFFIX) for name in names)


def tar_tree(path: Path) -> ArchiveTree:
    """Return the files in a tar; raises BadInput for refused members, and for a tar that is damaged or cut."""
    folder, name = place_of(path)
    start = folder.start(name, tar.BLOCK_BYTES)
    check_no_pointer(start, path)
    is_packed = start.startswith(_GZIP) and not tar.is_header(start)
    on_disk, file = open_records(folder, name, is_packed=is_packed)
    reader = HeaderReader(file, window_bytes=_WINDOW_BYTES)
    read = _limited(reader.read) if is_packed else reader.read
    members = Members(columns=2)
    _walk(path, members, read, file.data_from, size=None if is_packed else on_disk.size)
    if holds_tars(members.names):
        members = _inner_members(path, members, read, file.data_from)
    root = members.resolve(path)
    return ArchiveTree(path, members, root=root, file=on_disk, is_packed=is_packed)


def _walk(
    path: Path, members: Members, read: tar.Read, skip: tar.Skip, *, size: int | None, at: int = 0, folder: str = ""
) -> None:
    """Add every member from `at` on. size: the end of the tar, if known. folder: the name of an inner tar."""
    try:
        for member in tar.members(read, skip=skip, at=at, size=size):
            name = member.name
            while folder and name.startswith("./"):  # a name that leads out of an inner tar stays one
                name = name[2:].lstrip("/")
            name = f"{folder}/{name}" if folder else name
            if not member.size and (member.kind == "folder" or (member.is_file and name.endswith("/"))):
                members.add_folder(name)
            elif not member.is_file:
                hint = "; tar --hard-dereference makes files of them" if member.kind == "hard link" else ""
                hint = f" of {member.size} bytes" if member.kind == "folder" else hint
                members.refuse(name, f"{member.kind}{hint}")
            elif folder and name.lower().endswith(_SUFFIX) and tar.is_header(read(member.offset, tar.BLOCK_BYTES)):
                members.refuse(name, "a tar in a tar in a tar")
            else:
                members.add_file(name, member.offset, member.size)
    except tar.CutArchive as error:
        inner = f"/{printable(folder)}{_SUFFIX}" if folder else ""
        raise BadInput(f"{printable(str(path))}{inner}: {error.message}; get the archive again") from error


def _inner_members(path: Path, outer: Members, read: tar.Read, skip: tar.Skip) -> Members:
    """Return the files in the tars of a tar of tars; the outer members if one of them is not a tar."""
    spans = list(zip(outer.names, *outer.columns, strict=True))
    if not all(tar.is_header(read(offset, min(size, tar.BLOCK_BYTES))) for _, offset, size in spans):
        return outer
    members = Members(columns=2)
    members.refused = outer.refused
    for name in outer.folders:
        members.add_folder(name)
    for name, offset, size in spans:
        folder, end = name[: -len(_SUFFIX)], offset + size
        members.add_folder(folder)
        _walk(path, members, _until(read, end), skip, size=end, at=offset, folder=folder)
    return members


def _until(read: tar.Read, end: int) -> tar.Read:
    """Return a reader of the bytes before a position."""
    return lambda offset, size: read(offset, max(0, min(size, end - offset)))


def _limited(read: tar.Read) -> tar.Read:
    """Return a reader of unpacked bytes up to a limit: a small file may unpack to any size."""

    def limited(offset: int, size: int) -> bytes:
        if offset + size > _MOST_UNPACKED_BYTES:
            raise BadInput(
                f"packer does not read a compressed tar of more than {_MOST_UNPACKED_BYTES >> 30} GiB; gunzip it first"
            )
        return read(offset, size)

    return limited
