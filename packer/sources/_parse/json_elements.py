"""JSON elements: the lists in a large JSON object, one element at a time.

`json.loads` of a COCO file of 448 MB makes objects of several times its size. Here each element is made, handed out and
let go of, so that what is there at a time is the text and one element.
"""

import re
from collections.abc import Collection, Iterator
from json import JSONDecodeError

from packer.errors import BadInput
from packer.layouts.json_text import DECODER
from packer.sources._parse.folder_listing import shown

_SPACE = re.compile(r"[ \t\n\r]*")


def elements(data: bytes, wanted: Collection[str], path: str) -> Iterator[tuple[str, object]]:
    """The name of a member and an element of it, for each element of the wanted members, in the order of the file.

    data: UTF-8, with or without a mark at its beginning. path: for messages. Other members are passed over.
    Raises BadInput where the data is no JSON object, nested too deep, or a wanted member is no list or comes twice.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown(path)}: is no UTF-8 text: byte {error.start}; expected a JSON file") from error
    del data
    try:
        yield from _Scan(text, path).elements(wanted)
    except JSONDecodeError as error:
        raise BadInput(
            f"{shown(path)}:{error.lineno}:{error.colno}: is no JSON: {error.msg}; get the file again, or mend it"
        ) from error
    except ValueError as error:  # a key that stands twice, or a number of very many digits
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{shown(path)}: is no JSON: {error}; get the file again, or mend it") from error
    except RecursionError as error:
        raise BadInput(f"{shown(path)}: is nested too deep to be read; expected objects in lists") from error


class _Scan:
    """A place in a JSON text that moves on."""

    def __init__(self, text: str, path: str) -> None:
        self._text = text
        self._path = path
        self._decode = DECODER.raw_decode
        self._at = 0

    def elements(self, wanted: Collection[str]) -> Iterator[tuple[str, object]]:
        found: set[str] = set()
        self._take("{", "an object")
        if not self._takes("}"):
            while True:
                self._expect('"', "the name of a member")
                name = str(self._value())
                self._take(":", "':'")
                if name in wanted:
                    if name in found:
                        raise BadInput(f"{shown(self._path)}: {name!r} is there twice; keep one of them")
                    found.add(name)
                    yield from ((name, element) for element in self._list(name))
                else:
                    self._value()
                if not self._takes(","):
                    break
            self._take("}", "',' or '}'")
        self._skip()
        if self._at != len(self._text):
            raise JSONDecodeError("Extra data", self._text, self._at)

    def _list(self, name: str) -> Iterator[object]:
        if not self._takes("["):
            raise BadInput(f"{shown(self._path)}: {name!r} is no list; expected a list of objects, as COCO has it")
        if self._takes("]"):
            return
        while True:
            self._skip()
            yield self._value()
            if not self._takes(","):
                break
        self._take("]", "',' or ']'")

    def _value(self) -> object:
        self._skip()
        value, self._at = self._decode(self._text, self._at)
        return value

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _takes(self, character: str) -> bool:
        self._skip()
        is_there = self._text.startswith(character, self._at)
        self._at += is_there
        return is_there

    def _take(self, character: str, what: str) -> None:
        if not self._takes(character):
            raise JSONDecodeError(f"Expected {what}", self._text, self._at)

    def _expect(self, character: str, what: str) -> None:
        self._skip()
        if not self._text.startswith(character, self._at):
            raise JSONDecodeError(f"Expected {what}", self._text, self._at)
