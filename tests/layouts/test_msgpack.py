"""MessagePack of plain values, as msgpack and msgpack-numpy write them; hostile bytes end in an error."""

import importlib.util
import random
import sys
from typing import Any

import numpy as np
import pytest

from packer.errors import BadInput, MissingPackage
from packer.layouts.serialized import msgpack_value as loads
from tests.support.audit_events import watched

# written by msgpack 0.6.2 with msgpack-numpy 0.4.4.3, use_bin_type=True
RECORDED: list[tuple[str, Any]] = [
    (
        "9285c4026e64c3c40474797065a37c7531c4046b696e64c400c40573686170659106c40464617461c406ffd86a70656707",
        [np.frombuffer(b"\xff\xd8jpeg", np.uint8), 7],
    ),
    ("92c406ffd86a706567fd", [b"\xff\xd8jpeg", -3]),
    (
        "9383c4026e64c2c40474797065a33c6938c40464617461c4080000000000ffffff83c4026e64c2c40474797065a33c6634c40464617461c4040000003f83c4026e64c2c40474797065a37c6231c40464617461c40101",
        [np.int64(-(2**40)), np.float32(0.5), np.bool_(True)],
    ),
    (
        "85c4026e64c3c40474797065a33c6634c4046b696e64c400c4057368617065920203c40464617461c418000000000000803f0000004000004040000080400000a040",
        np.arange(6, dtype=np.float32).reshape(2, 3),
    ),
    (
        "82a16195c0c3c2cb3ff8000000000000a5c3bc6ec3afa1628101c40178",
        {"a": [None, True, False, 1.5, "ünï"], "b": {1: b"x"}},
    ),
    ("92c4083030303030303030c4083030303030303031", [b"00000000", b"00000001"]),
    (
        "97ccc8ce00011170cf0000010000000000d09cd18ad0d3ffffff0000000000cf8000000000000000",
        [200, 70000, 2**40, -100, -30000, -(2**40), 2**63],
    ),
    (
        "93d92861616161616161616161616161616161616161616161616161616161616161616161616161616161c5012c626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262626262dc00140000000000000000000000000000000000000000",
        ["a" * 40, b"b" * 300, [0] * 20],
    ),
]


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal in every part and of one type."""
    if isinstance(left, np.ndarray | np.generic):
        return type(left) is type(right) and left.dtype == right.dtype and bool(np.array_equal(left, right))
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    return all(map(same, left, right)) and len(left) == len(right) if isinstance(left, list) else bool(left == right)


@pytest.mark.parametrize(("data", "value"), RECORDED)
def test_values_are_those_that_were_written(data: str, value: Any) -> None:
    assert same(loads(bytes.fromhex(data)), value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "damaged"),
        (b"\x92\x01", "damaged"),
        (b"\x01\x02", "damaged"),
        (b"\xc4\xff\x00", "damaged"),
        (b"\xdd\xff\xff\xff\xff\x01", "damaged"),
        (b"\x81\x90\x01", "damaged"),
        (b"\xc1", "damaged"),
        (b"\xd4\x01\x00", "extension"),
        (b"\xd6\xff" + bytes(4), "extension"),  # a time
        (b"\x81\xc0\x01", "a key that is a NoneType"),
        (b"\x91" * 40 + b"\x01", "32 deep"),
        (b"\x91" * 99_999 + b"\x01", "damaged"),
        (b"\x84\xc4\x02nd\xc3\xc4\x04type\xa3|O8\xc4\x05shape\x91\x01\xc4\x04data\xc4\x08" + bytes(8), "dtype '.O8'"),
        (b"\x84\xc4\x02nd\xc3\xc4\x04type\xa3<u4\xc4\x05shape\x91\x03\xc4\x04data\xc4\x08" + bytes(8), "damaged"),
        (b"\x83\xc4\x02nd\xc3\xc4\x04type\xa3<u4\xc4\x04data\xc4\x08" + bytes(8), "without a shape"),
        (b"\x83\xc4\x02nd\xc2\xc4\x04type\xa3<u4\xc4\x04data\xc4\x08" + bytes(8), "2 numbers"),
        (b"\x82\xc4\x02nd\xc3\xc4\x04type\x91\x01", "structured"),
        (b"\x83\xc4\x02nd\xc2\xc4\x04type\xa2zz\xc4\x04data\xc4\x01a", "dtype 'zz'"),
    ],
)
def test_what_is_no_plain_value_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        loads(data)


def test_texts_that_are_not_utf_8_are_bytes() -> None:
    assert loads(b"\x92\xa2\xff\xd8\xa2\xc3\xbc") == [b"\xff\xd8", "\xfc"]
    assert loads(b"\xa3\xed\xb2\x80") == b"\xed\xb2\x80"


def test_without_msgpack_the_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "msgpack", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r'pip install "msgpack>='):
        loads(b"\x91\x01")


def test_two_thousand_changed_values_end_in_a_value_or_an_error() -> None:
    seeds = [bytes.fromhex(data) for data, _ in RECORDED]
    drawn = random.Random(7)
    refused = 0
    for _ in range(2000):
        data = bytearray(drawn.choice(seeds))
        for _ in range(drawn.randrange(1, 4)):
            at = drawn.randrange(len(data))
            data[at : at + drawn.randrange(2)] = drawn.randbytes(drawn.randrange(2))
        try:
            loads(bytes(data) or b"\xc1")
        except BadInput:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    "kind", [",", "(1+1)f4", "f4,f4", "(,)", "O", "V8", "M8[s]", "a4", "f4 ", "\N{FULLWIDTH DIGIT FOUR}", "f1", "i16"]
)
def test_a_dtype_is_no_program(kind: str) -> None:
    name = kind.encode()
    data = b"\x84\xc4\x02nd\xc3\xc4\x04type" + bytes([0xA0 + len(name)]) + name
    data += b"\xc4\x05shape\x91\x01\xc4\x04data\xc4\x08" + bytes(8)
    with watched() as events, pytest.raises(BadInput, match="dtype"):
        loads(data)
    assert not events
