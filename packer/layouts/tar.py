"""tar: the members of an archive, by their headers of 512 bytes; nothing is unpacked to disk.

| offset in a header | content                                                                                        |
|--------------------|------------------------------------------------------------------------------------------------|
| 0                  | name, 100 bytes                                                                                |
| 124                | size, octal, or a big-endian number if the first bit is set                                    |
| 148                | sum of all bytes of the header, with these 8 as spaces                                         |
| 156                | type                                                                                           |
| 257                | `ustar`                                                                                        |
| 345                | prefix of the name; a slash is between them                                                    |

The data follow, and zeros up to a multiple of 512. Two blocks of zeros end the archive. The data of a header of type
`x` or `L` contain the name of the next member, and those of `x` also its size.
Source: POSIX.1-2017, pax, ustar interchange format; GNU tar's manual, "Basic Tar Format".
"""

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from packer.errors import BadInput

BLOCK_BYTES = 512
_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK = b"x", b"g", b"L", b"K"
Kind = Literal["file", "folder", "hard link", "symbolic link", "device", "sparse file", "other"]
_KINDS: dict[bytes, Kind] = {b"0": "file", b"\0": "file", b"7": "file", b"1": "hard link", b"2": "symbolic link"}
_KINDS |= {b"3": "device", b"4": "device", b"6": "device", b"5": "folder", b"S": "sparse file"}
_PAX_SPARSE = b"GNU.sparse."
_MOST_NAME_BYTES = 1 << 20  # of a header that holds names
_REST_BYTES = 1 << 16
_END = bytes(BLOCK_BYTES)

Read = Callable[[int, int], bytes]
Skip = Callable[[int], int]


class Member(NamedTuple):
    """A member of an archive.

    Attributes:
        name: Path of the member.
        start: Offset of the first header of the member.
        offset: Offset of the data.
        size: Size of the data in bytes.
        kind: "file", "folder", "hard link", "symbolic link", "device", "sparse file" or "other".
    """

    name: str
    start: int
    offset: int
    size: int
    kind: Kind = "file"

    @property
    def is_file(self) -> bool:
        """True for a regular file whose data are complete: not a folder, link, device or sparse file."""
        return self.kind == "file"

    @property
    def end(self) -> int:
        """Offset of the first byte after the data."""
        return self.offset + self.size


class CutArchive(BadInput):
    """The archive ends inside a member, or has no end mark.

    Attributes:
        at: Offset of the first byte after the last complete member.
    """

    def __init__(self, reason: str, at: int) -> None:
        super().__init__(reason)
        self.at = at


class DamagedArchive(CutArchive):
    """A header is damaged."""


def members(
    read: Read, *, skip: Skip | None = None, at: int = 0, until: int | None = None, size: int | None = None
) -> Iterator[Member]:
    """Yield every member from `at` up to the end mark, or up to `until`.

    Args:
        read: `read(offset, size)` returns bytes of the archive, fewer than `size` at its end.
        skip: `skip(offset)` returns the next offset whose byte may differ from 0, to skip the holes of a sparse file.
        at: Offset of the first header.
        until: Offset of a header at which iteration stops. None means the end mark.
        size: Size of the archive in bytes. If None, the last byte of each member is read to find a truncated file.

    Raises:
        CutArchive: The archive is cut.
        DamagedArchive: A header is damaged.
    """
    start, name, length_said, is_sparse = at, None, None, False
    while until is None or at < until:
        header = read(at, BLOCK_BYTES)
        if header == _END:
            _check_rest(read, skip, at, start)
            return
        if len(header) < BLOCK_BYTES:
            raise CutArchive(
                f"is cut at byte {at + len(header)}: the tar has no end mark"
                if not header or start == at
                else f"is cut in the header at byte {at}",
                start,
            )
        if not is_header(header):
            raise DamagedArchive(f"no member begins at byte {at}: its header has another checksum", start)
        kind, length = header[156:157], _number(header[124:136], at, start)
        offset = at + BLOCK_BYTES
        after = offset + -(-length // BLOCK_BYTES) * BLOCK_BYTES
        if kind in (_PAX, _PAX_GLOBAL, _GNU_NAME, _GNU_LINK):
            if length > _MOST_NAME_BYTES:
                raise DamagedArchive(f"a name of {length} bytes at byte {at}", start)
            data = read(offset, length)
            if len(data) < length:
                raise CutArchive(f"is cut in the name at byte {at}", start)
            if kind == _GNU_NAME:
                name = _text(data)
            elif kind == _PAX:
                found = _pax(data, at, start)
                name = _text(found[b"path"]) if b"path" in found else name
                length_said = _pax_size(found[b"size"], at, start) if b"size" in found else length_said
                is_sparse = is_sparse or any(key.startswith(_PAX_SPARSE) for key in found)
            at = after
            continue
        length = length if length_said is None else length_said
        after = offset + -(-length // BLOCK_BYTES) * BLOCK_BYTES
        if length and (offset + length > size if size is not None else len(read(offset + length - 1, 1)) < 1):
            raise CutArchive(f"is cut in the data of a member at byte {at}", start)
        what = "sparse file" if is_sparse else _KINDS.get(kind, "other")
        yield Member(name or _name(header), start, offset, length, what)
        at = start = after
        name, length_said, is_sparse = None, None, False


def _check_rest(read: Read, skip: Skip | None, at: int, start: int) -> None:
    """Raise DamagedArchive if other bytes than zeros follow the end mark, such as a second archive."""
    while rest := read(at, _REST_BYTES):
        if any(rest):
            raise DamagedArchive(f"the end mark is followed by more than zeros within byte {at + len(rest)}", start)
        at = skip(at + len(rest)) if skip else at + len(rest)


def is_header(block: bytes) -> bool:
    """Return True if the checksum of a block is right, with signed or unsigned bytes."""
    if len(block) < BLOCK_BYTES or not any(block[:100]):
        return False
    rest = block[:148] + b" " * 8 + block[156:512]
    signed = sum(rest) - 256 * sum(byte > 127 for byte in rest)
    return _octal(block[148:156]) in (sum(rest), signed)


def _number(field: bytes, at: int, start: int) -> int:
    if field[0] & 0x80:
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    found = _octal(field)
    if found is None:
        raise DamagedArchive(f"no size in the header at byte {at}: {field!r}", start)
    return found


def _octal(field: bytes) -> int | None:
    """Return the number of a field: octal digits between spaces, up to the end or a NUL. None for any other field."""
    match = re.fullmatch(rb" *([0-7]*) *(?:\0.*)?", field, re.DOTALL)
    return int(match[1] or b"0", 8) if match else None


def _pax_size(value: bytes, at: int, start: int) -> int:
    if not re.fullmatch(rb"[0-9]{1,18}", value):
        raise DamagedArchive(f"no size in the header at byte {at}: {value[:40]!r}", start)
    return int(value)


def _pax(data: bytes, at: int, start: int) -> dict[bytes, bytes]:
    """Return key -> value of the lines `LENGTH KEY=VALUE` of an extended header at `at`; raises DamagedArchive."""
    found: dict[bytes, bytes] = {}
    place = 0
    while place < len(data):
        match = re.compile(rb"([0-9]{1,9}) ").match(data, place)
        end = place + int(match[1]) if match else 0
        if match is None or not match.end() < end <= len(data) or data[end - 1 : end] != b"\n":
            raise DamagedArchive(f"the extended header at byte {at} is damaged", start)
        key, _, value = data[match.end() : end - 1].partition(b"=")
        found[key] = value
        place = end
    return found


def _name(header: bytes) -> str:
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    is_posix = header[257:263] == b"ustar\0"  # GNU tar stores times instead of the prefix
    return _text(prefix + b"/" + name if prefix and is_posix else name)


def _text(name: bytes) -> str:
    return name.split(b"\0")[0].decode("utf-8", "surrogateescape")


# ---- writing

MOST_NAME_BYTES = 100  # of a name without prefix and pax header, which every reader finds
MOST_MEMBER_BYTES = (1 << 33) - 1  # 11 octal digits
END = bytes(2 * BLOCK_BYTES)  # behind the last member


def header(name: bytes, size: int) -> bytes:
    """Return the ustar header of a regular file with mode 644, user and group 0 (root), and time 0.

    Args:
        name: At most MOST_NAME_BYTES, which is not checked.
        size: Size of the data, at most MOST_MEMBER_BYTES, which is not checked.
    """
    before = name.ljust(100, b"\0") + b"0000644\0" + 2 * b"0000000\0" + b"%011o\0" % size + b"%011o\0" % 0
    behind = b"0" + bytes(100) + b"ustar\x0000" + 2 * b"root".ljust(32, b"\0") + bytes(183)
    return before + b"%06o\0 " % (sum(before) + 8 * ord(" ") + sum(behind)) + behind


def padding(size: int) -> bytes:
    """Return the zeros that follow `size` bytes of data up to the next header."""
    return bytes(-size % BLOCK_BYTES)
