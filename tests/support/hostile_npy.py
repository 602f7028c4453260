"""Hostile .npy files of an index."""


def header(text: str, *, version: bytes = b"\x01\x00", data: bytes = bytes(40)) -> bytes:
    """A file with this header, padded as NumPy pads it."""
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + len(padded).to_bytes(2, "little") + padded + data


GOOD = "{'descr': '<i8', 'fortran_order': False, 'shape': (5,), }"


HOSTILE = {
    "empty": b"",
    "one byte": b"\x93",
    "magic alone": b"\x93NUMPY\x01\x00",
    "header cut": header(GOOD)[:60],
    "data cut": header(GOOD)[:-1],
    "data too long": header(GOOD) + b"\0",
    "version 2": header(GOOD, version=b"\x02\x00"),
    "other magic": b"\x94" + header(GOOD)[1:],
    "header length 0": b"\x93NUMPY\x01\x00\0\0" + bytes(40),
    "header length beyond the file": b"\x93NUMPY\x01\x00\xff\xff" + header(GOOD)[10:],
    "objects": header(GOOD.replace("<i8", "|O")),
    "an expression": header("__import__('os').abort()"),
    "a call inside": header("{'descr': '<i8', 'fortran_order': False, 'shape': (len('abcde'),), }"),
    "a structure": header("{'descr': [('a', '<i8')], 'fortran_order': False, 'shape': (5,), }"),
    "big endian": header(GOOD.replace("<i8", ">i8")),
    "complex": header(GOOD.replace("<i8", "<c8")),
    "text": header(GOOD.replace("<i8", "<U2")),
    "a float of 1 byte": header(GOOD.replace("<i8", "<f1"), data=bytes(5)),
    "a bool of 8 bytes": header(GOOD.replace("<i8", "<b8")),
    "an unsigned of no order": header(GOOD.replace("<i8", "|u8")),
    "Fortran order": header(GOOD.replace("False", "True")),
    "no dimension": header(GOOD.replace("(5,)", "()"), data=bytes(8)),
    "three dimensions": header(GOOD.replace("(5,)", "(5, 1, 1)")),
    "negative": header(GOOD.replace("(5,)", "(-5,)")),
    "a fraction": header(GOOD.replace("(5,)", "(5.0,)")),
    "a zero in front": header(GOOD.replace("(5,)", "(05,)")),
    "beyond 64 bits": header(GOOD.replace("(5,)", "(99999999999999999999999,)")),
    "a product beyond 64 bits": header(GOOD.replace("(5,)", "(999999999999999999, 999999999999999999)")),
    "a product that wraps to the size": header(GOOD.replace("(5,)", "(435604692427987383, 338556884537746467)")),
    "none of very many": header(GOOD.replace("(5,)", "(0, 999999999999999999)"), data=b""),
    "an extra member": header(GOOD.replace(", }", ", 'more': 1, }")),
    "no final newline": header(GOOD).replace(b"\n", b" "),
}
