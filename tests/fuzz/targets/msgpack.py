"""MessagePack of plain values: nothing but these comes out, whatever the input says."""

from collections.abc import Iterator

from packer.layouts.serialized import msgpack_value
from tests.fuzz.checks import check_plain

TOKENS = (
    b"\xc4\x02nd\xc3",
    b"\xc4\x04type\xa3|u1",
    b"\xc4\x05shape\x91\x01",
    b"\xc4\x04data\xc4\x01",
    b"\x92",
    b"\x84",
)


def seeds() -> Iterator[bytes]:
    yield b"\x84\xc4\x02nd\xc3\xc4\x04type\xa3<u2\xc4\x05shape\x92\x02\x03\xc4\x04data\xc4\x0c" + bytes(12)
    yield b"\x92\xc4\x02\xff\xd8\x07"
    yield b"\x83\xa1a\x91\xc0\xa1b\xcb" + bytes(8) + b"\x05\xd9\x01x"
    yield b"\xdc\x00\x03\xc2\xc3\xd3" + bytes(8)


def check(data: bytes) -> None:
    check_plain(msgpack_value(data))
