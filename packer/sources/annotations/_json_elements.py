"""JSON elements: the lists in a large JSON object, parsed one element at a time.

`json.loads` needs several times the size of the file as memory. This module only needs the text and one element.
"""

import re
from collections.abc import Collection, Iterator
from json import JSONDecodeError

from packer.errors import BadInput
from packer.layouts.json_text import DECODER
from packer.sources._message_texts import shown

_SPACE = re.compile(r"[ \t\n\r]*")


def elements(data: bytes, members: Collection[str], path: str) -> Iterator[tuple[str, object]]:
    """Yield the elements of the lists in a JSON object, in the order of the file.

    Args:
        data: The bytes of the file, UTF-8 with or without a byte order mark.
        members: The names of the lists to read. Other members of the object are skipped.
        path: The path of the file, for error messages.

    Yields:
        (name of the list, element).

    Raises:
        BadInput: The data is not a JSON object or is nested too deep, or one of `members` is repeated or not a list.
    """
    try:
        text = data.decode("utf-8-sig")
        del data
        yield from _Scanner(text).elements(members)
    except UnicodeDecodeError as error:
        raise BadInput(f"{shown(path)}: byte {error.start} is not UTF-8; expected a JSON file") from error
    except JSONDecodeError as error:
        place = f"{shown(path)}:{error.lineno}:{error.colno}"
        raise BadInput(f"{place}: is not JSON: {error.msg}; correct the file or get it again") from error
    except ValueError as error:  # a key that is there twice, a number with too many digits, a member that is not a list
        raise BadInput(f"{shown(path)}: is not valid: {error}; correct the file or get it again") from error
    except RecursionError as error:
        raise BadInput(f"{shown(path)}: is nested too deep; expected objects in lists") from error


class _Scanner:
    """A parser with a position in a JSON text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def elements(self, members: Collection[str]) -> Iterator[tuple[str, object]]:
        names: set[str] = set()
        self._expect("{")
        for _ in self._items("}"):
            name = self._value()
            if not isinstance(name, str):
                raise JSONDecodeError("Expected the name of a member", self._text, self._position)
            self._expect(":")
            if name not in members:
                self._value()
                continue
            if name in names or not self._skip("["):
                raise ValueError(f"{name!r} is there twice" if name in names else f"{name!r} is not a list")
            names.add(name)
            for _ in self._items("]"):
                yield name, self._value()
        self._skip_spaces()
        if self._position != len(self._text):
            raise JSONDecodeError("Extra data", self._text, self._position)

    def _items(self, end: str) -> Iterator[None]:
        """Yield once before each item of a list or object that ends with `end`. The loop must parse the item."""
        if self._skip(end):
            return
        yield
        while self._skip(","):
            yield
        self._expect(end)

    def _value(self) -> object:
        self._skip_spaces()
        value, self._position = DECODER.raw_decode(self._text, self._position)
        return value

    def _skip_spaces(self) -> None:
        match = _SPACE.match(self._text, self._position)
        self._position = match.end() if match else self._position

    def _skip(self, character: str) -> bool:
        """Skip spaces, and then `character` if it is next. Return True if it was."""
        self._skip_spaces()
        is_next = self._text.startswith(character, self._position)
        self._position += is_next
        return is_next

    def _expect(self, character: str) -> None:
        if not self._skip(character):
            raise JSONDecodeError(f"Expected {character!r}", self._text, self._position)
