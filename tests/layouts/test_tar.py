"""Headers of tar: numbers by their grammar, and a walk that always advances."""

import pytest

from packer.layouts import tar

AT_SIZE, AT_SUM = slice(124, 136), slice(148, 156)


def header(size: bytes, *, name: bytes = b"a/1.jpg", kind: bytes = b"0") -> bytes:
    """A header with this size field, and the sum that fits it."""
    made = bytearray(tar.header(name, 0))
    made[AT_SIZE], made[156:157] = size.ljust(12, b"\0"), kind
    made[AT_SUM] = b" " * 8
    made[AT_SUM] = b"%06o\0 " % sum(made)
    return bytes(made)


def walked(data: bytes, *, most_reads: int = 20) -> list[tar.Member]:
    """The members of an archive; fails where the walk reads more often than `most_reads`."""
    reads: list[int] = []

    def read(offset: int, size: int) -> bytes:
        reads.append(offset)
        assert len(reads) <= most_reads and offset >= 0
        return data[offset : offset + size]

    return list(tar.members(read, size=len(data)))


@pytest.mark.parametrize("kind", [b"0", b"L", b"x", b"5"])
@pytest.mark.parametrize("size", [b"-1000", b"+1000", b"1_000", b"0o10", b"\t10", b"8", b"1 0", b"\xff" * 12])
def test_a_size_that_is_no_octal_number_is_refused(kind: bytes, size: bytes) -> None:
    with pytest.raises(tar.CutArchive):
        walked(tar.header(b"a/0.jpg", 512) + bytes(512) + header(size, kind=kind) + tar.END)


@pytest.mark.parametrize(
    "size", [b"", b"0", b"00000000002\0", b"          2 ", b"2 \0garbage", b"\x80" + bytes(10) + b"\2"]
)
def test_a_size_as_tools_write_it(size: bytes) -> None:
    (member,) = walked(header(size) + b"ab".ljust(512, b"\0") * (b"2" in size or b"\2" in size) + tar.END)
    assert member.size == (2 if b"2" in size or b"\2" in size else 0)


@pytest.mark.parametrize("form", ["+%o", "0o%o", "-%o", "%o_0"])
def test_a_sum_that_is_no_octal_number_is_no_header(form: str) -> None:
    made = bytearray(tar.header(b"a/0.jpg", 0))
    total = sum(made[:148]) + 8 * ord(" ") + sum(made[156:])
    made[AT_SUM] = (form % (total // 8 if form == "%o_0" else total)).encode().ljust(8, b"\0")
    assert not tar.is_header(bytes(made))
