"""Row filters: the language of `dataset.where`, such as `label == 'cup' and width >= 256`.

The language is a small part of Python's expressions. Its own parser reads the text, and Python evaluates nothing.

| form | compares |
|---|---|
| `width >= 256`, `1 < score <= 5`, `width > height` | a number with a number or another field |
| `label == 'cup'`, `label != 3` | a class with a class name or number |
| `caption == 'red'` | a text with a text |
| `label in ('cup', 'mug')`, `width not in (1, 2)` | a value with each value of a list |
| `'kitchen' in key`, `'red' not in caption` | a text with a part of it |
| `len(boxes) > 3`, `image.width == 640` | the number of rows of a field; the size of the stored image in px |
| `any(box_labels == 'cup' and boxes.width < 40)` | rows, such as boxes: at least one must meet the condition |
| `A and B`, `A or B`, `not A`, `(A)` | several conditions |
"""

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.pack.filter_columns import Columns, Kind, Mask, PackColumns

MOST_CHARACTERS = 10_000
MOST_DEPTH = 100  # of parentheses and `not`
_MOST_DIGITS = 320  # of the largest float
_FEW = 16  # values
_MOST_NAMED = 20  # names or classes in a message
_MOST_QUOTED = 40  # characters of the filter in a message


# ---- conditions


@dataclass(frozen=True)
class _ColumnName:
    name: str


_Literal = int | float | str
_Value = _Literal | _ColumnName | tuple[_Literal, ...]

_Compare = Callable[[Any, Any], Mask]
_ORDERS: dict[str, _Compare] = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_FORMS: dict[Kind, str] = {
    "number": "{0} >= 1, {0} in (1, 2) or {0} == NAME of another number",
    "class": "{0} == 'CLASS', {0} in ('CLASS', 'CLASS') or {0} == 1",
    "text": "{0} == 'TEXT', {0} in ('TEXT', 'TEXT') or 'TEXT' in {0}",
}


@dataclass(frozen=True)
class _Comparison:
    """A comparison of a name with a value.

    Attributes:
        name: The name.
        sign: `==`, `!=`, `in`, `not in` or one of `_ORDERS`.
        value: A number, a text or a _ColumnName. With `in`, a tuple of these values, or a text to search for.
    """

    name: str
    sign: str
    value: _Value

    def __str__(self) -> str:
        left, right = (self.name, literal(self.value))[:: -1 if self._is_search else 1]
        return f"{left} {self.sign} {right}"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.value.name) if isinstance(self.value, _ColumnName) else (self.name,)

    @property
    def _values(self) -> tuple[_Literal | _ColumnName, ...]:
        return self.value if isinstance(self.value, tuple) else (self.value,)

    @property
    def _is_search(self) -> bool:
        return self.sign.endswith("in") and isinstance(self.value, str)

    def check(self, columns: Columns) -> None:
        """Raise InvalidRequest for an unknown name or class, and for a value of another kind than the name."""
        for name in self.names:
            if name in columns.groups:
                raise InvalidRequest(f"filter {str(self)!r}: {name} has a value for each row; write any({self})")
            if name not in columns.kinds:
                raise InvalidRequest(f"filter {str(self)!r}: unknown name {name}; {_suggestion(name, columns.kinds)}")
        kind = columns.kinds[self.name]
        for value in self._values:
            if not self._fits(kind, value, columns):
                raise InvalidRequest(
                    f"filter {str(self)!r}: {self.name} is a {kind}; write {_FORMS[kind].format(self.name)}"
                )
            if kind == "class" and isinstance(value, str) and value not in (classes := columns.classes(self.name)):
                raise InvalidRequest(f"filter {str(self)!r}: no class {value!r}; {_suggestion(value, classes)}")

    def _fits(self, kind: Kind, value: _Literal | _ColumnName, columns: Columns) -> bool:
        if isinstance(value, _ColumnName):
            return kind == columns.kinds[value.name] == "number"
        if isinstance(value, str):
            return self.sign not in _ORDERS and kind in (("text",) if self._is_search else ("text", "class"))
        return kind != "text"

    def rows(self, columns: Columns) -> Mask:
        if isinstance(columns, PackColumns) and columns.kinds[self.name] == "text":
            found = self._texts(columns)
        else:
            found = self._numbers(columns)
        return ~found if self.sign in ("!=", "not in") else found

    def _texts(self, columns: PackColumns) -> Mask:
        texts = list(map(str, self._values))
        return columns.contains(self.name, texts[0]) if self._is_search else columns.equals(self.name, texts)

    def _numbers(self, columns: Columns) -> Mask:
        numbers = columns.numbers(self.name)
        compare: _Compare = _ORDERS.get(self.sign, operator.eq)
        names = {value for value in self._values if isinstance(value, str)}
        classes = enumerate(columns.classes(self.name)) if names else ()
        wanted = [number for number, name in classes if name in names]
        found = np.isin(numbers, wanted, kind="sort" if len(wanted) < _FEW else None)  # "sort" compares a few values
        with np.errstate(over="ignore"):  # a number beyond the range of a float column is infinite in it
            for value in self._values:
                if not isinstance(value, str):
                    other = columns.numbers(value.name) if isinstance(value, _ColumnName) else value
                    found |= compare(numbers, other)
        return found


def literal(value: _Value) -> str:
    """Return a number, a text or a tuple of them as it is written in a filter, such as `'cup'` for a text."""
    if isinstance(value, tuple):
        return f"({', '.join(map(literal, value))}{',' * (len(value) == 1)})"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return value.name if isinstance(value, _ColumnName) else repr(value)


def _suggestion(word: str, names: Iterable[str]) -> str:
    known = list(names)
    similar = difflib.get_close_matches(word, known)
    shown = ", ".join(map(repr, similar or known[:_MOST_NAMED]))
    return f"did you mean {shown}?" if similar else f"there are {len(known)}: {shown}"


@dataclass(frozen=True)
class _AnyRow:
    """A condition any(...), which a sample meets if at least one of its rows, such as a box, meets it."""

    condition: "Filter"
    names: tuple[str, ...] = ()  # of values of samples

    def __str__(self) -> str:
        return f"any({self.condition})"

    def lead(self, columns: Columns) -> str:
        """Return the field with the rows. Raises InvalidRequest unless all names are values of rows of one field."""
        known = columns.groups
        for name in self.condition.names:
            if name not in known:
                advice = _suggestion(name, known) if known else "the index has none; packer convert OLD NEW adds them"
                raise InvalidRequest(f"filter {str(self)!r}: {name} is not a value of rows; {advice}")
        first, *others = dict.fromkeys(known[name] for name in self.condition.names)
        if others:
            raise InvalidRequest(f"filter {str(self)!r}: rows of {first} and of {others[0]}; write an any() for each")
        return first

    def check(self, columns: Columns) -> None:
        self.lead(columns)
        self.condition.check(columns.of(self.condition.names[0]))

    def rows(self, columns: Columns) -> Mask:
        rows = columns.of(self.condition.names[0])
        return rows.any(self.condition.rows(rows))


@dataclass(frozen=True)
class Filter:
    """A parsed filter. `str` returns its canonical text, which parses to an equal filter."""

    _steps: tuple[_Comparison | _AnyRow | str, ...]  # postfix: `not A and B` is A, not, B, and

    def __str__(self) -> str:
        stack: list[tuple[str, int]] = []  # a text, and how strongly it binds
        for step in self._steps:
            if not isinstance(step, str):
                stack.append((str(step), len(_STRENGTH)))
                continue
            strength = _STRENGTH.index(step)
            text = f"{step} {_enclosed(*stack.pop(), strength + (step != 'not'))}"
            stack.append((text if step == "not" else f"{_enclosed(*stack.pop(), strength)} {text}", strength))
        return stack.pop()[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the filter, such as `label` or `len(boxes)`, each once, in the order of the text."""
        return tuple(dict.fromkeys(name for step in self._conditions for name in step.names))

    @property
    def _conditions(self) -> tuple[_Comparison | _AnyRow, ...]:
        return tuple(step for step in self._steps if not isinstance(step, str))

    def check(self, columns: Columns) -> None:
        """Raise InvalidRequest for an unknown name or class, and for a value of another kind than its name."""
        for condition in self._conditions:
            condition.check(columns)

    def rows(self, columns: Columns) -> Mask:
        """Return bool (n,): True for each of the n rows of `columns` that meets the filter.

        Raises:
            InvalidRequest: A name, class or kind of value does not fit `columns`.
            CorruptPack: The index is damaged.
        """
        self.check(columns)
        stack: list[Mask] = []
        for step in self._steps:
            if not isinstance(step, str):
                stack.append(step.rows(columns))
            elif step == "not":
                stack.append(~stack.pop())
            else:
                combine = np.logical_and if step == "and" else np.logical_or
                stack.append(combine(stack.pop(), stack.pop()))
        return stack.pop()

    def matching_rows(self, columns: Columns, field: str | None) -> Mask | None:
        """Return bool (m,): True for each row of `field`, such as a box, that meets a condition in any(...).

        Return None if no condition is about these rows, or if the filter contains `or` or `not`.
        """
        any_rows = [step for step in self._conditions if isinstance(step, _AnyRow) and step.lead(columns) == field]
        if not any_rows or {"or", "not"} & {*self._steps}:
            return None
        rows = columns.of(any_rows[0].condition.names[0])
        return np.asarray(np.logical_or.reduce([step.condition.rows(rows) for step in any_rows]))


def chosen_numbers(columns: Columns, name: str, text: str, samples: Mask) -> npt.NDArray[Any]:
    """Return the numbers in the column `name` of the chosen samples.

    A column of rows, such as boxes, returns only the rows that meet the conditions in any(...).

    Args:
        columns: the columns of the pack.
        name: a column of kind number or class.
        text: the filter, or "". If it contains `or` or `not`, all rows of the chosen samples are returned.
        samples: bool (n,), True for the chosen samples.
    """
    rows = columns.of(name)
    chosen = rows.spread(samples)
    matching = parse(text).matching_rows(columns, columns.groups.get(name)) if text.strip() else None
    return rows.numbers(name)[chosen if matching is None else chosen & matching]


_STRENGTH = ("or", "and", "not")


def _enclosed(text: str, strength: int, least: int) -> str:
    return text if strength >= least else f"({text})"


# ---- the parser


class _Token(NamedTuple):
    kind: str  # number, name, text or sign; for others the token itself; "" at the end
    text: str
    at: int


_TOKEN = re.compile(
    r"""(?P<space>\s+)
    | (?P<number>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<text>'(?:[^'\\]|\\[\\'"])*'|"(?:[^"\\]|\\[\\'"])*")
    | (?P<sign>[=!<>]=|[<>]|(?:not\s+)?in\b)
    | (?P<other>[()\[\],]|(?:and|or|not)\b|any(?=\s*\())
    | (?P<name>len\s*\(\s*[A-Za-z]\w*\s*\)|[A-Za-z]\w*(?:\.[A-Za-z]\w*)?)""",
    re.VERBOSE | re.ASCII,
)
_ADVICE = {
    "=": "write == to compare",
    "&": "write and",
    "|": "write or",
    "!": "write not",
    "'": r"close the quote, and write \' and \\ for ' and \ in a text",
    '"': r'close the quote, and write \" and \\ for " and \ in a text',
}


def parse(text: str) -> Filter:
    """Return the filter that a text describes; raises InvalidRequest.

    Args:
        text: at most 10,000 characters, also after conversion to canonical form. The docstring of the module lists the
            forms.
    """
    if len(text) <= MOST_CHARACTERS:
        found = _Parser(text).parsed()
        if len(str(found)) <= MOST_CHARACTERS:
            return found
    raise InvalidRequest(f"filter of more than {MOST_CHARACTERS} characters; select samples by their keys instead")


def _refusal(text: str, at: int, problem: str) -> InvalidRequest:
    piece = text[at : at + _MOST_QUOTED]
    return InvalidRequest(f"filter, character {at + 1}, {piece!r}: {problem}" if piece else f"filter, end: {problem}")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            advice = _ADVICE.get(text[at], "write names, numbers, texts in quotes and comparisons")
            raise _refusal(text, at, f"unexpected {text[at]!r}; {advice}")
        if match.lastgroup != "space":
            yield _Token(match[0] if match["other"] else match.lastgroup or "", match[0], at)
        at = match.end()
    yield _Token("", "", at)


class _Parser:
    """Reads the tokens of one filter from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = next(self._tokens)
        self._steps: list[_Comparison | _AnyRow | str] = []

    def parsed(self) -> Filter:
        self._any(0)
        self._expect("", "and, or, or the end")
        return Filter(tuple(self._steps))

    def _take(self, *kinds: str) -> _Token | None:
        """Return the next token and go on to the token after it if it has one of these kinds. Otherwise return None."""
        token = self._next
        if token.kind not in kinds:
            return None
        self._next = next(self._tokens, token)
        return token

    def _expect(self, kind: str, expected: str) -> _Token:
        token = self._take(kind)
        if token is None:
            raise _refusal(self._text, self._next.at, f"expected {expected}")
        return token

    def _any(self, depth: int) -> None:
        self._all(depth)
        while self._take("or"):
            self._all(depth)
            self._steps.append("or")

    def _all(self, depth: int) -> None:
        self._one(depth)
        while self._take("and"):
            self._one(depth)
            self._steps.append("and")

    def _one(self, depth: int) -> None:
        self._check_depth(depth)
        if self._take("not"):
            self._one(depth + 1)
            self._steps.append("not")
        elif self._take("("):
            self._any(depth + 1)
            self._expect(")", "and, or, or )")
        elif token := self._take("any"):
            self._any_row(token.at, depth)
        else:
            self._chain(depth)

    def _any_row(self, at: int, depth: int) -> None:
        outside, self._steps = self._steps, []
        self._one(depth)  # the parentheses
        if any(isinstance(step, _AnyRow) for step in self._steps):
            raise _refusal(self._text, at, "any(...) in any(...); its conditions are about one row")
        self._steps = [*outside, _AnyRow(Filter(tuple(self._steps)))]

    def _check_depth(self, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise _refusal(self._text, self._next.at, f"more than {MOST_DEPTH} levels; remove parentheses and not")

    def _chain(self, depth: int) -> None:
        """Read one comparison, or a chain such as `1 < x <= 5`, which becomes `x > 1 and x <= 5`."""
        at, left = self._next.at, self._value()
        sign: _Token | None = self._expect("sign", "a comparison, such as == 1 or in ('a', 'b')")
        first = len(self._steps)
        while sign is not None:
            right = self._value()
            self._steps.append(self._compared(at, left, " ".join(sign.text.split()), right))
            if len(self._steps) > first + 1:
                self._steps.append("and")
            left, sign = right, self._take("sign")
        self._check_depth(depth + (self._steps[-1] == "and"))  # the canonical text may have parentheses

    def _compared(self, at: int, left: _Value, sign: str, right: _Value) -> _Comparison:
        is_in = sign.endswith("in")
        if isinstance(left, _ColumnName):
            if isinstance(right, tuple) == is_in:
                return _Comparison(left.name, sign, right)
        elif isinstance(right, _ColumnName) and isinstance(left, str if is_in else _Literal):
            return _Comparison(right.name, _MIRRORED.get(sign, sign), left)
        raise _refusal(self._text, at, "expected NAME == VALUE, NAME in (VALUE, VALUE) or 'TEXT' in NAME")

    def _value(self) -> _Value:
        if token := self._take("name"):
            return _ColumnName("".join(token.text.split()))
        if token := self._take("(", "["):
            closing, values = ")" if token.kind == "(" else "]", list[_Literal]()
            while not self._take(closing):
                values.append(self._literal("a number, a text in quotes or " + closing))
                if self._next.kind != closing:
                    self._expect(",", f", or {closing}")
            return tuple(values)
        return self._literal("a name, a number or a text in quotes")

    def _literal(self, expected: str) -> _Literal:
        if token := self._take("text"):
            return re.sub(r"\\(.)", r"\1", token.text[1:-1])
        token = self._expect("number", expected)
        if len(token.text) > _MOST_DIGITS or not math.isfinite(float(token.text)):
            raise _refusal(self._text, token.at, "number too large; write a number below 1e308")
        return float(token.text) if set(token.text) & set(".eE") else int(token.text)
