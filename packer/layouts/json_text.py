"""JSON text: the value of a JSON text, or an error if JSON does not define the value."""

import json
import math
from typing import Any


def json_value(text: str | bytes, *, finite: bool = True) -> Any:
    """Return the value of a JSON text.

    Args:
        text: Characters, or bytes in UTF-8, UTF-16 or UTF-32.
        finite: If False, accept NaN, infinities and numbers beyond float64, which other tools write.

    Raises:
        ValueError: The text is not JSON, an object has a key twice, or a number is not finite.
        RecursionError: The text is nested too deep.
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text), "surrogatepass")
    return (_FINITE if finite else DECODER).decode(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number (RFC 8259, section 6)")
    return number


DECODER = json.JSONDecoder(object_pairs_hook=_object)
_FINITE = json.JSONDecoder(object_pairs_hook=_object, parse_float=_number, parse_constant=_number)
