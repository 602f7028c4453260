"""Pickles of plain values: equal to what pickle reads, and nothing is called, whatever the bytes say."""

import io
import os
import pickle
import random
import sys
from typing import Any

import numpy as np
import pytest

from packer.errors import BadInput
from packer.layouts.pickled import loads

VALUES: list[Any] = [
    (b"\xff\xd8" + bytes(range(256)), 7),
    ([b"\xff\xd8jpeg"], np.array([3])),
    [np.frombuffer(b"\xff\xd8jpeg", np.uint8), -(2**40)],
    [str(number).encode() for number in range(300)],
    {"name": "ünï", "resolution": ["3_4_5", "1_2_3"], "keys": ["a", "b"], "more": {b"x": None, 1: True}},
    (np.float32(0.5), np.int64(-1), np.bool_(True), 1.5, 2**100),
    np.arange(24, dtype=">i2").reshape(2, 3, 4),
    np.asfortranarray(np.arange(12, dtype="<f8").reshape(3, 4)),
    ((), [], {}, "", None, True, False, [[[()]]]),
    (b"", np.arange(0), np.zeros((0, 3), np.uint8)),
]


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal in every part and of one type."""
    if isinstance(left, np.ndarray | np.generic):
        return bool(np.array_equal(left, right)) and left.dtype.newbyteorder("=") == right.dtype.newbyteorder("=")
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("number", range(len(VALUES)))
def test_values_are_those_that_pickle_reads(number: int, protocol: int) -> None:
    data = pickle.dumps(VALUES[number], protocol=protocol)
    assert same(loads(data), pickle.loads(data))


def test_names_of_numpy_1_and_of_python_2_are_known() -> None:
    data = pickle.dumps(VALUES[1], protocol=2).replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert same(loads(data), VALUES[1])
    assert loads(b"\x80\x02U\x02\xff\xd8K\x07\x86.") == ("\xff\xd8", 7)


class Evil:
    """Unpickled by pickle, it would run a command."""

    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


class Plain:
    """An object with a state."""

    def __init__(self) -> None:
        self.value = 1


@pytest.mark.parametrize("protocol", range(6))
def test_what_would_call_something_is_refused_at_its_name(protocol: int) -> None:
    for value in (Evil(), [b"a", Evil()], Plain(), {1, 2}, print, slice(1), complex(1, 2), (1).__add__):
        with pytest.raises(BadInput, match="refused"):
            loads(pickle.dumps(value, protocol=protocol))


@pytest.mark.parametrize(
    "data",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"c__builtin__\neval\n(S'1'\ntR.",
        b"c__builtin__\nbytes\n(I1000000000\ntR.",
        b"cnumpy\nndarray\n(tR.",  # a known name, and no call of it
        b"c_codecs\nencode\n(S'a'\nS'rot13'\ntR.",
        b"cnumpy\ndtype\n(S'O8'\nI0\nI1\ntR.",
        b"cnumpy\ndtype\n(S'V8'\nI0\nI1\ntR.",
        b"S'a'\n.",  # STRING
        b"(ios\nsystem\n.",  # INST
        b"\x80\x02\x82\x01.",  # EXT1
        b"Pid\n.",  # PERSID
        b"\x80\x05\x97.",  # NEXT_BUFFER
        b"(S'a'\no.",  # OBJ
        b"\x80\x02)\x81.",  # NEWOBJ
        b"S'a'\n(tR.",
        b"]S'x'\nb.",
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        # damage
        b"",
        b".",
        b"\x80\x03",
        b"a.",
        b"t.",
        b"h\x05.",
        b"cnumpy\nndarray\n.",
        b"(.",
        b"]p0\ng0\na.",  # a list in itself
        b"}K\x01]s]K\x02s.",
        b"}]K\x01s.",  # a key that is a list
        b"\x80\x03C\xffab.",
        b"L" + b"9" * 5000 + b"L\n.",
        b"\xff" * 20,
        b"](" + b"K\x01" * 3 + b"u.",
    ],
)
def test_opcodes_that_can_do_more_and_damage_are_refused(data: bytes) -> None:
    with pytest.raises(BadInput):
        loads(data)


def test_arrays_whose_bytes_do_not_fit_are_damaged() -> None:
    data = pickle.dumps(np.arange(6, dtype=np.int32), protocol=2)
    for old, new in ((b"K\x06\x85", b"K\x07\x85"), (b"i4", b"i8")):
        assert old in data
        with pytest.raises(BadInput, match="damaged"):
            loads(data.replace(old, new))


def test_containers_that_share_containers_are_looked_at_once() -> None:
    value: list[Any] = []
    for _ in range(60):  # 2**60 when written out
        value = [value, value]
    assert len(loads(pickle.dumps(value))) == 2


@pytest.mark.parametrize("count", [1500, pytest.param(20_000, marks=pytest.mark.full)])
def test_changed_pickles_end_in_a_value_or_an_error_and_import_nothing(count: int) -> None:
    """Changed pickles go to the reader, with every event that the interpreter tells of forbidden."""
    seeds = [pickle.dumps(value, protocol=protocol) for value in [*VALUES, Evil()] for protocol in range(6)]
    drawn = random.Random(7)
    loads(seeds[0])  # imports what it imports
    allowed = ("object.__getattr__", "code.__new__", "gc.", "builtins.id")
    events: list[str] = []
    watching = True

    def audit(event: str, _: tuple[Any, ...]) -> None:
        if watching and not event.startswith(allowed):
            events.append(event)

    sys.addaudithook(audit)
    try:
        for _ in range(count):
            data = bytearray(drawn.choice(seeds))
            for _ in range(drawn.randrange(1, 5)):
                at = drawn.randrange(len(data))
                kind = drawn.randrange(3)
                if kind == 0:
                    data[at] = drawn.randrange(256)
                elif kind == 1:
                    del data[at : at + drawn.randrange(1, 9)]
                else:
                    data[at:at] = drawn.choice((b"cos\nsystem\n", b"R", b"b", b"\x93", b"(", b"t", b"\x94", b"h\x00"))
                if not data:
                    break
            try:
                loads(bytes(data))
            except BadInput:
                continue
        assert events == []
    finally:
        watching = False


def test_the_machine_of_pickle_itself_is_not_there() -> None:
    """`pickletools` takes pickles apart; that it imports pickle does not make anyone unpickle."""
    assert not hasattr(sys.modules["packer.layouts.pickled"], "pickle")
    with pytest.raises(BadInput):
        loads(io.BytesIO(b"cos\nsystem\n.").getvalue())
