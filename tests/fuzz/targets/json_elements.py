"""Lists in JSON objects, element by element: what is read is what the json module reads of the whole."""

import json
from collections.abc import Iterator

from packer.errors import PackerError
from packer.sources.annotations._json_elements import elements
from tests.fuzz import words
from tests.fuzz.target import Disagreement

TOKENS = (*words.JSON, b"images", b"\\u0069", b"\xef\xbb\xbf")
_WANTED = ("images", "annotations")


def seeds() -> Iterator[bytes]:
    yield b'{"images": [{"id": 1}, 2, "x"], "info": {"a": [null]}, "annotations": [[1.5e3]]}'
    yield b'\xef\xbb\xbf { "annotations" : [ ] , "images":[true]\r\n}'


def check(data: bytes) -> None:
    try:
        found = list(elements(data, _WANTED, "fuzz.json"))
    except PackerError as error:
        if any(words in str(error) for words in ("there twice", "is not a list", "nested too deep")):
            raise
        try:
            whole = json.loads(data.decode("utf-8-sig"))
        except (ValueError, RecursionError):
            raise error from None
        if isinstance(whole, dict):
            raise Disagreement(f"refused: {error}") from error
        raise
    try:
        whole = json.loads(data.decode("utf-8-sig"))
    except RecursionError:  # it is a level deeper
        return
    expected = {name: whole[name] for name in _WANTED if whole.get(name)}
    read: dict[str, list[object]] = {}
    for name, element in found:
        read.setdefault(name, []).append(element)
    if repr(sorted(read.items())) != repr(sorted(expected.items())):
        raise Disagreement(f"{read}, json {expected}")
