"""The lists of a JSON object, element by element, are those that the json module reads."""

import json
from typing import Any

import pytest

from packer.errors import BadInput
from packer.sources.annotations._json_elements import elements

WANTED = ("images", "annotations")


def read(data: bytes | str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, element in elements(data.encode() if isinstance(data, str) else data, WANTED, "a.json"):
        found.setdefault(name, []).append(element)
    return found


@pytest.mark.parametrize(
    "text",
    [
        '{"images": [1, {"a": [2]}, "x"], "info": {"images": [7]}, "annotations": []}',
        ' \n{ "info" : 1 ,\t"annotations":[ {"id":1 } , {"id": 2}\n] , "images" : [ ] } \r\n',
        "{}",
        '{"images": [null, true, 1.5e3, 12345678901234567890, "\\u00e9\\"]"]}',
        '{"other": [[[]]], "imag\\u0065s": [1]}',
    ],
)
def test_it_reads_what_json_reads(text: str) -> None:
    whole = json.loads(text)
    expected = {name: whole[name] for name in WANTED if whole.get(name)}
    for data in (text.encode(), b"\xef\xbb\xbf" + text.encode(), text.replace(" ", "\r\n").encode()):
        assert read(data) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", r"a\.json:1:1: is not JSON"),
        (b"[]", "is not JSON"),
        (b'{"images": [1, 2}', "Expected ']'"),
        (b'{"images": [1,]}', "Expecting value"),
        (b'{"images": [1]', "Expected '}'"),
        (b'{"images": [1],}', "is not JSON"),
        (b'{"images" [1]}', "Expected ':'"),
        (b"{images: [1]}", "is not JSON"),
        (b'{"images": [1]} {}', "Extra data"),
        (b'{"images": {"a": 1}}', "not a list"),
        (b'{"images": [1], "images": [2]}', "'images' is there twice"),
        (b'{"images": [{"a": {"b": 1, "b": 2}}]}', "twice"),
        (b'{"images": ["\xff"]}', "byte 13"),
        (b'{"images": [' + b"9" * 5000 + b"]}", "digits"),
        (b'{"images": ' + b"[" * 200_000, "nested too deep"),
        (b'{"a": ' + b'{"a": ' * 200_000, "nested too deep"),
    ],
)
def test_what_is_no_such_object_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadInput, match=reason) as caught:
        read(data)
    assert "\n" not in str(caught.value)
