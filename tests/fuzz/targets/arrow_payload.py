"""Payloads of pyarrow.serialize: nothing but plain values comes out, whatever the input says."""

from collections.abc import Iterator

from packer.layouts.pyarrow_serialized import holds_list, is_payload, loads
from tests.fuzz.checks import check_plain
from tests.fuzz.target import Disagreement
from tests.support.arrow_payloads import VERSIONS, recorded

TOKENS = (b"\xff\xff\xff\xff", bytes.fromhex("1000000000000a00"), b"item", bytes(8))


def seeds() -> Iterator[bytes]:
    for version in VERSIONS:
        yield from recorded(version).values()


def check(data: bytes) -> None:
    value = loads(data)
    holds_list(data)
    if not is_payload(data):
        raise Disagreement(f"{value!r:.80}")
    check_plain(value)
