"""json_value: what a JSON text of a sample holds, or an error where JSON does not say for sure.

`json.loads` takes the last of two values of one name, and numbers that JSON has not (NaN, Infinity), so that a pack
would hold something else than the file. Both are errors here.
"""

import json
from typing import Any, NoReturn


def json_value(text: str) -> Any:
    """The value; raises ValueError for what is no JSON, a name that an object has twice, NaN and infinity."""
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_object)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object, of which JSON keeps neither for sure")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON (RFC 8259, section 6)")
