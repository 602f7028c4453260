"""YOLO yaml: the part of YAML that `data.yaml` files are written in, read without a YAML library.

Read are block mappings and block lists by their indentation, lists and mappings in brackets (over several lines too),
plain and quoted text of one line, block text (`|`, `>`), comments, and `---` at the start. Whatever else YAML has is an
error with its line: anchors, aliases, tags, further documents, text that goes on in the next line, a key that comes
twice. A label would be read wrong sooner than it would be missed.

Every scalar is text, as it stands there: a class named `no` or `1` keeps its name. What is left empty, `~` and `null`
are None.
"""

import re
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import NoReturn

from packer.errors import BadInput, printable

Node = str | list["Node"] | dict[str, "Node"] | None

_MOST_BYTES = 8 << 20
_MOST_DEPTH = 8
_NULL = ("", "~", "null", "Null", "NULL")
_PLAIN_START = re.compile(r"[^\s\-?:,\[\]{}#&*!|>'\"%@`]|[-?:](?=[^\s,\[\]{}])")
_COMMENT = re.compile(r"(?:^|\s)#")
_KEY_END = re.compile(r":(?=\s|$)")
_FLOW_PLAIN = re.compile(
    r"""(?: [^\s,\[\]{}:#] | :(?![\s,\[\]{}]|$) | (?<!\s)\#
          | [ \t]+(?![\s#,\[\]{}:]|$) | [ \t]+:(?![\s,\[\]{}]|$) )+""",
    re.VERBOSE,
)
_FLOW_SPACE = re.compile(r"(?:\s|(?<!\S)#[^\n]*)*")
_SINGLE = re.compile(r"'((?:[^'\n]|'')*)'")
_DOUBLE = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ESCAPE = re.compile(r"\\(x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", '"': '"', "\\": "\\", "/": "/", " ": " "}
_BLOCK_TEXT = re.compile(r"[|>][+-]?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x85\u2028\u2029]")


def read_yaml(data: bytes, path: Path) -> Node:
    """What the file says; raises BadInput with path:line for everything that is not of the part above."""
    if len(data) > _MOST_BYTES:
        raise BadInput(f"{printable(str(path))}: {len(data)} bytes, expected a description of at most {_MOST_BYTES}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise BadInput(f"{printable(str(path))}:{line}: not UTF-8; save the file as UTF-8") from error
    return _YamlReader(text.replace("\r\n", "\n").replace("\r", "\n"), path).read()


class _YamlReader:
    """Reads line by line; `_at` is the number of the next line, counted from 0."""

    def __init__(self, text: str, path: Path) -> None:
        self._text = text
        self._path = path
        self._lines = text.split("\n")
        self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]  # where each line begins in the text
        self._at = 0

    def read(self) -> Node:
        found = _CONTROL.search(self._text)
        if found is not None:
            self._fail(self._text.count("\n", 0, found.start()), f"a control character, {found[0]!r}")
        first = self._next()
        if first is not None and _without_comment(self._lines[first]) == "---":
            self._at = first + 1
            first = self._next()
        if first is None:
            return None
        node = self._block(_indent(self._lines[first]), 0)
        rest = self._next()
        if rest is not None:
            self._fail(rest, f"{printable(self._lines[rest].strip())!r:.80}, which does not belong to the lines above")
        return node

    def _next(self) -> int | None:
        """The number of the next line that says something, None at the end; checks how it is indented."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            content = line.lstrip(" ")
            if not content.strip() or content.lstrip().startswith("#"):
                self._at += 1
                continue
            if content.startswith("\t"):
                self._fail(self._at, "a tab in the indentation; use spaces")
            return self._at
        return None

    def _block(self, indent: int, depth: int) -> Node:
        """The mapping or list whose lines begin in this column."""
        if depth > _MOST_DEPTH:
            self._fail(self._at, f"more than {_MOST_DEPTH} levels")
        line = self._lines[self._at]
        return self._list(indent, depth) if _is_item(line[indent:]) else self._mapping(indent, depth)

    def _list(self, indent: int, depth: int) -> Node:
        found = self._items(indent, depth)
        self._check_left(indent)
        return found

    def _items(self, indent: int, depth: int) -> list[Node]:
        """The items of a list whose dashes stand in this column."""
        found: list[Node] = []
        while (at := self._next()) is not None:
            line = self._lines[at]
            if _indent(line) != indent or not _is_item(line[indent:]):
                break
            rest = line[indent + 1 :].lstrip(" ")
            if _is_item(rest) or self._is_pair(rest):
                self._fail(at, "a mapping or list in an item of a list")
            found.append(self._value(at, len(line) - len(rest), indent, depth, of_item=True))
        return found

    def _mapping(self, indent: int, depth: int) -> Node:
        found: dict[str, Node] = {}
        while (at := self._next()) is not None:
            line = self._lines[at]
            if _indent(line) != indent or _is_item(line[indent:]):
                break
            key, start = self._key(at, indent)
            if key in found:
                self._fail(at, f"{printable(key)!r:.80} for the second time")
            found[key] = self._value(at, start, indent, depth, of_item=False)
        self._check_left(indent)
        return found

    def _check_left(self, indent: int) -> None:
        """Raise BadInput where the next line belongs to what was just read, though it is no part of it."""
        at = self._next()
        if at is None:
            return
        line = self._lines[at]
        if _indent(line) > indent or (_indent(line) == indent and indent):
            self._fail(at, f"{printable(line.strip())!r:.80} between lines of another kind")

    def _is_pair(self, content: str) -> bool:
        """Whether a line's content is a key with a value: text in quotes, or of its own, before a colon."""
        quoted = _SINGLE.match(content) or _DOUBLE.match(content)
        if quoted is not None:
            return _KEY_END.match(content, quoted.end()) is not None
        return content[:1] not in ("[", "{") and _KEY_END.search(_without_comment(content)) is not None

    def _key(self, at: int, start: int) -> tuple[str, int]:
        """The key of a line, and where its value begins."""
        line = self._lines[at]
        if line[start] in "'\"":
            key, end = self._quoted(line, start, at)
            colon = _KEY_END.match(line, end)
        else:
            if not _PLAIN_START.match(line, start):
                self._fail(at, f"{printable(line[start])!r}, which begins no key")
            end = len(line) if (comment := _COMMENT.search(line, start)) is None else comment.start()
            colon = _KEY_END.search(line, start, end)
            key = line[start : colon.start()].rstrip() if colon is not None else ""
        if colon is None:
            self._fail(at, f"{printable(line.strip())!r:.80}, expected a key with a colon")
        return key, len(line) - len(line[colon.end() :].lstrip(" \t"))

    def _value(self, at: int, start: int, indent: int, depth: int, *, of_item: bool) -> Node:
        """What stands behind a key or a dash, in its line from column `start` or in the lines below."""
        line = self._lines[at]
        content = line[start:]
        self._at = at + 1
        if not content or content.startswith("#"):
            return self._below(indent, depth, of_item=of_item)
        if content[0] in "[{":
            return self._flow_value(at, start, depth)
        if content[0] in "|>":
            return self._block_text(at, content, indent)
        if content[0] in "'\"":
            text, end = self._quoted(line, start, at)
            if _without_comment(line[end:]):
                self._fail(at, f"{printable(line[end:].strip())!r:.80} behind a text in quotes")
            return text
        if not _PLAIN_START.match(content):
            self._fail(at, f"{printable(content[0])!r}, which begins no text; quote it, or write it out")
        text = _without_comment(content)
        if _KEY_END.search(text):
            self._fail(at, f"{printable(text)!r:.80}: a colon in a text without quotes")
        below = self._next()
        if below is not None and _indent(self._lines[below]) > indent:
            self._fail(below, f"{printable(self._lines[below].strip())!r:.80}, a text that goes on from the line above")
        return None if text in _NULL else text

    def _below(self, indent: int, depth: int, *, of_item: bool) -> Node:
        """The block in the lines below a key without a value; None where there is none."""
        at = self._next()
        if at is None:
            return None
        inner = _indent(self._lines[at])
        if inner > indent:
            if of_item:
                self._fail(at, "a block in an item of a list")
            return self._block(inner, depth + 1)
        if inner == indent and not of_item and _is_item(self._lines[at][inner:]):
            return self._items(inner, depth + 1)  # dashes in the column of their key
        return None

    def _block_text(self, at: int, content: str, indent: int) -> str:
        """The lines below that are indented more, as they stand, whether they are folded or not."""
        if not _BLOCK_TEXT.fullmatch(_without_comment(content)):
            self._fail(at, f"{printable(content)!r:.80}, expected no indentation behind {content[0]}")
        found = []
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.strip() and _indent(line) <= indent:
                break
            found.append(line)
            self._at += 1
        least = min((_indent(line) for line in found if line.strip()), default=0)
        return "\n".join(line[least:] for line in found).rstrip("\n")

    def _quoted(self, line: str, start: int, at: int) -> tuple[str, int]:
        """A text in quotes, and where it ends."""
        is_single = line[start] == "'"
        found = (_SINGLE if is_single else _DOUBLE).match(line, start)
        if found is None:
            self._fail(at, "a text in quotes that does not end in its line")
        if is_single:
            return found[1].replace("''", "'"), found.end()
        return _ESCAPE.sub(lambda match: self._escaped(match[1], at), found[1]), found.end()

    def _escaped(self, escape: str, at: int) -> str:
        if escape[0] in "xuU" and len(escape) > 1:
            number = int(escape[1:], 16)
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                self._fail(at, f"\\{escape}, which is no character")
            return chr(number)
        if escape not in _ESCAPES:
            self._fail(at, f"\\{printable(escape)}, an escape that is not read")
        return _ESCAPES[escape]

    # ---- in brackets

    def _flow_value(self, at: int, start: int, depth: int) -> Node:
        """What stands in brackets from there, which may end lines below."""
        node, end = self._flow(self._starts[at] + start, depth + 1)
        last = self._line_of(end)
        rest = self._lines[last][end - self._starts[last] :]
        if _without_comment(rest):
            self._fail(last, f"{printable(rest.strip())!r:.80} behind a bracket")
        self._at = last + 1
        return node

    def _flow(self, at: int, depth: int) -> tuple[Node, int]:
        """The value that begins at this character, and where it ends."""
        if depth > _MOST_DEPTH:
            self._fail(self._line_of(at), f"more than {_MOST_DEPTH} levels")
        first = self._text[at : at + 1]
        if first == "[":
            return self._flow_list(at, depth)
        if first == "{":
            return self._flow_mapping(at, depth)
        if first and first in "'\"":
            return self._quoted(self._text, at, self._line_of(at))
        found = _FLOW_PLAIN.match(self._text, at)
        if found is None or not _PLAIN_START.match(self._text, at):
            line = self._line_of(at)
            self._fail(line, f"{printable(first)!r} for a value in brackets" if first else "a bracket that is open")
        text = found[0].rstrip()
        return None if text in _NULL else text, found.end()

    def _flow_list(self, at: int, depth: int) -> tuple[Node, int]:
        found: list[Node] = []
        at = self._space(at + 1)
        while self._text[at : at + 1] != "]":
            node, at = self._flow(at, depth + 1)
            found.append(node)
            at = self._separated(at, "]")
        return found, at + 1

    def _flow_mapping(self, at: int, depth: int) -> tuple[Node, int]:
        found: dict[str, Node] = {}
        at = self._space(at + 1)
        while self._text[at : at + 1] != "}":
            key, end = self._flow(at, depth + 1)
            colon = self._space(end)
            if not isinstance(key, str) or self._text[colon : colon + 1] != ":":
                self._fail(self._line_of(at), "braces without a key and a colon")
            if key in found:
                self._fail(self._line_of(at), f"{printable(key)!r:.80} for the second time")
            at = self._space(colon + 1)
            if self._text[at : at + 1] in (",", "}"):
                found[key] = None
            else:
                found[key], at = self._flow(at, depth + 1)
            at = self._separated(at, "}")
        return found, at + 1

    def _separated(self, at: int, end: str) -> int:
        """Behind the comma that follows a value, or at the closing bracket."""
        at = self._space(at)
        found = self._text[at : at + 1]
        if found == ",":
            return self._space(at + 1)
        if found != end:
            what = f"{printable(found)!r} in brackets, expected , or {end}" if found else "a bracket that is open"
            self._fail(self._line_of(at), what)
        return at

    def _space(self, at: int) -> int:
        found = _FLOW_SPACE.match(self._text, at)
        return at if found is None else found.end()

    def _line_of(self, offset: int) -> int:
        return min(bisect_right(self._starts, offset), len(self._lines)) - 1

    def _fail(self, line: int, what: str) -> NoReturn:
        raise BadInput(
            f"{printable(str(self._path))}:{line + 1}: cannot read the YAML: {what}; only keys, lists and text are "
            "read; write it so, or leave the line out"
        )


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _is_item(content: str) -> bool:
    return content == "-" or content.startswith("- ")


def _without_comment(content: str) -> str:
    found = _COMMENT.search(content)
    return (content if found is None else content[: found.start()]).strip()
