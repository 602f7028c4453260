"""Row filters as people write them: the canonical text parses to the same filter, and finds the same rows."""

from collections.abc import Iterator

import numpy as np

from packer.pack.filter_columns import PackColumns
from packer.pack.row_filter import parse
from packer.pack.sample_index import Index
from packer.schema import Field, Schema
from tests.fuzz.target import Disagreement

TOKENS = tuple(
    token.encode()
    for token in (
        *("label", "key", "width", "image.height", "len(boxes)", "score", "and", "or", "not ", " in "),
        *("==", "!=", "<=", "(", "[", ")", ",", "'cup'", '"', "\\'", "-1", "1e5", ".5", "9" * 30),
    )
)
_SCHEMA = Schema(
    (
        Field("key", "text", "text"),
        Field("image", "image", "encoded"),
        Field("label", "number", "number", dtype="int64", shape=(), classes=("cup", "mug")),
        Field("score", "number", "number", dtype="float16", shape=()),
        Field("boxes", "boxes", "boxes", dtype="float32", shape=(None, 4)),
    )
)
_ARRAYS = {
    "keys": np.frombuffer(b"abcab", np.uint8),
    "key_ends": np.array([3, 3, 5], "<u8"),
    "key_order": np.array([1, 2, 0], "<u8"),
    "size-image": np.array([[1, 2], [3, 4], [0, 9]], "<u4"),
    "number-label": np.array([0, 1, 7]),
    "number-score": np.array([0.5, np.nan, np.inf], "<f2"),
    "count-boxes": np.array([0, 1, 2], "<u4"),
}


def seeds() -> Iterator[bytes]:
    yield b"label == 'cup' and width >= 256"
    yield b"not (1 < score <= 5 or 'a' in key) and len(boxes) != -2"
    yield b"""image.height in (1, 2.5,) or key not in ["a'", 'b\\\\']"""


def check(data: bytes) -> None:
    found = parse(data.decode("utf-8", "surrogateescape"))
    again = parse(str(found))
    if again != found or str(again) != str(found):
        raise Disagreement(f"{found} is {again} again")
    columns = PackColumns(_SCHEMA, Index(_ARRAYS, _SCHEMA, 3, "a.pack"))
    if (found.rows(columns) != again.rows(columns)).any():
        raise Disagreement(f"{found} has other rows again")
