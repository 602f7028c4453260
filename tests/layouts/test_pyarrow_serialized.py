"""Payloads of pyarrow.serialize as three versions of it wrote them; hostile ones end in an error, and call nothing."""

import random
import sys
from typing import Any

import pytest

from packer import registry
from packer.errors import BadInput, MissingPackage
from packer.layouts import pyarrow_serialized
from packer.layouts.pyarrow_serialized import holds_list, is_payload, loads
from tests.support.arrow_payloads import JPEG, VERSIONS, of_image, recorded

VALUES: dict[str, Any] = {
    "pair": [JPEG, 7],
    "negative": [JPEG, -(2**40)],
    "zero": [b"", 0],
    "list": [JPEG, 7],
    "bytes": JPEG,
    "keys": [b"0", b"1", b"10"],
    "length": 3,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_values_are_those_that_were_written(version: str) -> None:
    found = recorded(version)
    for name, value in VALUES.items():
        assert is_payload(found[name])
        assert loads(found[name]) == value
        assert holds_list(found[name]) == isinstance(value, list)
    assert loads(of_image(version, b"0123456789", -3)) == [b"0123456789", -3]


def test_bytes_and_number_keep_their_places_where_pyarrow_itself_swaps_them() -> None:
    """The union of 0.10, whose children pyarrow's own conversion takes by another number."""
    image, label = loads(recorded("0.10.0")["pair"])
    assert (type(image), type(label)) == (bytes, int)


def test_other_plain_values_are_read_of_the_version_that_has_them() -> None:
    assert loads(recorded("11.0.0")["plain"]) == [None, True, 1.5, "text", b"raw", [2, [b"deep"]]]


@pytest.mark.parametrize("version", VERSIONS)
def test_arrays_are_refused_by_name(version: str) -> None:
    value = recorded(version)["array"]
    assert is_payload(value)
    with pytest.raises(BadInput, match="arrays or tensors"):
        loads(value)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(registry.importlib, "import_module", absent)
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match='pip install "pyarrow>='):
        loads(recorded("11.0.0")["pair"])
    assert holds_list(recorded("11.0.0")["pair"])


def test_streams_that_no_version_wrote_are_refused() -> None:
    pa = pytest.importorskip("pyarrow")

    def payload(array: Any, **options: Any) -> bytes:
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([array], names=["list"])
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
            writer.write_batch(batch)
        return bytes(16) + bytes(sink.getvalue())

    assert loads(payload(pa.array([b"a" * 9000]))) == b"a" * 9000
    for value, said in (
        (payload(pa.array([b"a" * 9000]), compression="zstd"), "it is compressed"),
        (payload(pa.array([b"a", b"b"])), "2 rows"),
        (payload(pa.array([{"a": 1, "b": 2}])), "is a dict"),
        (payload(pa.array(["a"]).dictionary_encode()), "dictionary"),
        (payload(pa.ListArray.from_arrays([0, 9000], pa.nulls(9000))), "an array of 9000 entries"),
    ):
        with pytest.raises(BadInput, match=said):
            loads(value)
    deep = pa.array([1])
    for _ in range(30):
        deep = pa.ListArray.from_arrays([0, 1], deep)
    with pytest.raises(BadInput, match="twenty deep"):
        loads(payload(deep))


@pytest.mark.parametrize("count", [2000, pytest.param(20_000, marks=pytest.mark.full)])
def test_changed_payloads_end_in_a_value_or_an_error(count: int) -> None:
    """With every event forbidden that the interpreter tells of."""
    seeds = [value for version in VERSIONS for value in recorded(version).values()]
    drawn = random.Random(17)
    loads(seeds[0])  # imports what it imports
    events: list[str] = []
    watching = True

    def audit(event: str, _: tuple[Any, ...]) -> None:
        if watching and not event.startswith(("object.__getattr__", "code.__new__", "gc.", "builtins.id")):
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
                    data[at] ^= 1 << drawn.randrange(8)
                else:
                    del data[at : at + drawn.randrange(1, 9)]
            try:
                pyarrow_serialized.loads(bytes(data))
            except BadInput:
                continue
        assert events == []
    finally:
        watching = False
