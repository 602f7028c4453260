"""TFRecord: the message of a record, a file as it is, and a file of one sound frame around the input."""

from collections.abc import Iterator

import numpy as np

from packer.errors import BadInput
from packer.layouts import example, protobuf
from packer.sources.records.tfrecord import Source
from tests.fuzz import scratch
from tests.fuzz.checks import check_samples
from tests.fuzz.target import Disagreement, refusable
from tests.support import foreign_files as foreign

TOKENS = (
    b"\x0a",
    b"\x12",
    b"\x1a",
    b"\x0d",
    b"image/encoded",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80" * 9,
)
TOKENS += (b"\x1f\x8b\x08\0", b"\x78\x9c")


def seeds() -> Iterator[bytes]:
    features = {
        "image/encoded": foreign.bytes_list(b"\xff\xd8\xff"),
        "label": foreign.int64_list([-1, 300], packed=False),
        "score": foreign.float_list([0.5, float("nan")]),
        "more": foreign.int64_list([1, -(2**63)]),
    }
    record = foreign.example(features)
    yield record
    yield foreign.tfrecord([record, record])
    yield foreign.delimited(2, foreign.delimited(1, foreign.delimited(1, b"a") + foreign.delimited(2, b"")))


def check(data: bytes) -> None:
    with refusable():
        _check_numbers(data)
        example.parse(data)
    path = scratch.folder() / "fuzz.tfrecord"
    for content in (data, foreign.tfrecord([data, data[:-1]])):
        path.write_bytes(content)
        with refusable():
            check_samples(Source(path))


def _check_numbers(data: bytes) -> None:
    """A packed list is what its varints are one by one."""
    view, at, expected = memoryview(data), 0, []
    try:
        while at < len(view):
            value, at = protobuf.varint(view, at)
            expected.append(protobuf.signed(value))
    except BadInput:
        try:
            found = protobuf.packed_varints(view)
        except BadInput:
            return
        raise Disagreement(f"{found} of numbers that do not end") from None
    found = protobuf.packed_varints(view)
    if not np.array_equal(found, np.asarray(expected, np.int64)):
        raise Disagreement(f"{found}, one by one {expected}")
