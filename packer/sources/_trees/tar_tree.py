"""Tar tree: reads the files in a tar: images in folders that are classes, or ImageNet's tar of tars.

Listing reads only the headers of the members. In a tar that contains only tars, each inner tar is a folder:
`n01440764.tar` is the folder `n01440764`. Tars in inner tars are refused. A tar that is compressed with gzip is
unpacked in memory during reading, from restart points every 16 MiB. This is fast if files are read once, in the order
of the archive. Otherwise gunzip the tar first.
"""

from pathlib import Path

from packer.errors import BadInput, printable
from packer.layouts import tar
from packer.sources._trees.archive_tree import ArchiveTree, Members, place_of
from packer.sources.records._random_access_files import HeaderReader, check_no_pointer, open_records

_SUFFIX = ".tar"
_GZIP = b"\x1f\x8b"
_WINDOW_BYTES = 1 << 12  # a larger window would read the whole archive if files are smaller
_MOST_UNPACKED_BYTES = 4 << 30  # largest unpacked size of a compressed tar


def is_tar(path: Path, start: bytes) -> bool:
    """Return True for a tar or tar.gz with the first 512 bytes `start`. Raises BadInput for damaged gzip."""
    if tar.is_header(start) or not start.startswith(_GZIP):
        return tar.is_header(start)
    _, file = open_records(*place_of(path), is_packed=True)
    return tar.is_header(file.read(0, tar.BLOCK_BYTES))


def first_names(path: Path, count: int) -> list[str]:
    """Return the names of the first `count` files in a tar, in order. If the tar is damaged, return those before."""
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
        return names  # `tar_tree` raises the error
    return names


def holds_tars(names: list[str]) -> bool:
    """Return True if `names` is not empty and all names end in `.tar`."""
    return bool(names) and all(name.lower().endswith(_SUFFIX) for name in names)


def tar_tree(path: Path) -> ArchiveTree:
    """Return the tree of the files in a tar. Raises BadInput for refused members, or a damaged or truncated tar."""
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
    """Add every member from position `at` on. `size` is the end of the tar, or None. `folder` names an inner tar."""
    try:
        for member in tar.members(read, skip=skip, at=at, size=size):
            name = member.name
            while folder and name.startswith("./"):  # a name such as `./../x` must stay a refused name
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
    """Return the members of the inner tars. If a file in the outer tar is not a tar, return `outer`."""
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
    """Return a function that reads only bytes before `end`."""
    return lambda offset, size: read(offset, max(0, min(size, end - offset)))


def _limited(read: tar.Read) -> tar.Read:
    """Return a function that limits the unpacked bytes, because a small gzip may unpack to any size."""

    def limited(offset: int, size: int) -> bytes:
        if offset + size > _MOST_UNPACKED_BYTES:
            raise BadInput(
                f"packer does not read a compressed tar of more than {_MOST_UNPACKED_BYTES >> 30} GiB; gunzip it first"
            )
        return read(offset, size)

    return limited
