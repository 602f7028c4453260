"""Example: tf.train.Example, one record of a TFRecord file, as lists of bytes, floats or whole numbers by name.

| message         | field numbers                                                                                      |
|-----------------|----------------------------------------------------------------------------------------------------|
| Example         | 1 Features                                                                                         |
| SequenceExample | 1 Features, the context; 2 FeatureLists                                                            |
| Features        | 1 entries of a map: 1 name, 2 Feature                                                              |
| FeatureLists    | 1 entries of a map: 1 name, 2 FeatureList, which has 1 Feature, once per step                      |
| Feature         | one of: 1 BytesList, 2 FloatList, 3 Int64List; each has 1 values, numbers packed or one by one     |

Fields have any order, unknown fields are skipped, and the last of several alternatives counts, as in any message.
The values of FeatureLists are not parsed.
Source: tensorflow/core/example/example.proto and feature.proto.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput
from packer.layouts import protobuf

Numbers = npt.NDArray[np.float32] | npt.NDArray[np.int64]
Values = list[bytes] | Numbers
_BYTES_LIST, _FLOAT_LIST, _INT64_LIST = 1, 2, 3


class Example(NamedTuple):
    """One record.

    Attributes:
        features: The values of each feature by its name.
        list_names: Names of the feature lists of a SequenceExample; empty for an Example.
    """

    features: dict[str, Values]
    list_names: set[str]


def parse(record: bytes) -> Example:
    """Return the content of an Example or SequenceExample. Raises BadInput for other bytes."""
    features: dict[str, Values] = {}
    list_names: set[str] = set()
    for number, content in _messages(memoryview(record)):
        if number == 1:
            features |= {name: _feature(parts) for name, parts in _map(content)}
        elif number == 2:
            list_names |= {name for name, _ in _map(content)}
    return Example(features, list_names)


def _messages(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and content of the fields that are messages, texts or bytes. Other fields are skipped."""
    for number, _, content in protobuf.fields(message):
        if isinstance(content, memoryview):
            yield number, content


def _map(message: memoryview) -> Iterator[tuple[str, list[memoryview]]]:
    """Yield the name of each entry of a map, and the pieces of the encoded message that is its value."""
    for number, entry in _messages(message):
        if number != 1:
            continue
        name, parts = "", list[memoryview]()
        for part, content in _messages(entry):
            if part == 1:
                name = _text(content)
            elif part == 2:
                parts.append(content)
        yield name, parts


def _text(content: memoryview) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"no sound message: the name {bytes(content[:40])!r} of a feature is not UTF-8") from error


def _feature(parts: list[memoryview]) -> Values:
    """Return the values of a Feature from the pieces of its message. Without a list, return an empty list."""
    kind, lists = _BYTES_LIST, list[memoryview]()
    for part in parts:
        for number, content in _messages(part):
            if number not in (_BYTES_LIST, _FLOAT_LIST, _INT64_LIST):
                continue
            if number != kind:
                kind, lists = number, []
            lists.append(content)
    if kind == _FLOAT_LIST:
        return _floats(lists)
    if kind == _INT64_LIST:
        return _integers(lists)
    return [bytes(content) for inner in lists for number, content in _messages(inner) if number == 1]


def _floats(lists: list[memoryview]) -> Numbers:
    pieces = []
    for number, kind, content in (field for inner in lists for field in protobuf.fields(inner)):
        if number == 1 and kind in (protobuf.BYTES, protobuf.FIXED32) and isinstance(content, memoryview):
            if len(content) % 4:
                raise BadInput(f"no sound message: a list of floats of {len(content)} bytes")
            pieces.append(np.frombuffer(content, "<f4").astype(np.float32))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def _integers(lists: list[memoryview]) -> Numbers:
    pieces: list[npt.NDArray[np.int64]] = []
    for number, kind, content in (field for inner in lists for field in protobuf.fields(inner)):
        if number != 1:
            continue
        if isinstance(content, int):
            pieces.append(np.asarray([protobuf.signed(content)], np.int64))
        elif kind == protobuf.BYTES:
            pieces.append(protobuf.packed_varints(content))
    return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)


# ---- writing


def encoded(features: Mapping[str, bytes | Numbers]) -> tuple[bytes, dict[str, int]]:
    """Return an encoded Example with a list for each feature, and the offset of each feature's content in it.

    Bytes are a BytesList of one; float32 and int64 numbers are packed. Features are sorted by the bytes of their names,
    so that equal features give equal bytes.
    """
    entries: list[tuple[str, bytes, bytes]] = []
    for name in sorted(features, key=str.encode):
        value = features[name]
        if isinstance(value, bytes):
            number, content = _BYTES_LIST, value
        elif value.dtype == np.float32:
            number, content = _FLOAT_LIST, value.astype("<f4").tobytes()
        else:
            number, content = _INT64_LIST, protobuf.packed(value.astype(np.int64, copy=False).ravel())
        inner = protobuf.head(1, len(content))
        listed = protobuf.head(number, len(inner) + len(content)) + inner
        entry = _named(name) + protobuf.head(2, len(listed) + len(content)) + listed
        entries.append((name, protobuf.head(1, len(entry) + len(content)) + entry, content))
    out = [protobuf.head(1, sum(len(before) + len(content) for _, before, content in entries))]
    places, at = {}, len(out[0])
    for name, before, content in entries:
        places[name] = at + len(before)
        at = places[name] + len(content)
        out += [before, content]
    return b"".join(out), places


@lru_cache(maxsize=1024)
def _named(name: str) -> bytes:
    """Return the encoded name at the start of a feature's entry; cached, since records have the same few names."""
    return protobuf.delimited(1, name.encode())
