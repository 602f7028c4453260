"""Parsing: a geometry from text such as `RandomResizedCrop(224), RandomHorizontalFlip()`, without running code."""

import ast
from functools import cache
from typing import Any

from packer.errors import DOCS, InvalidRequest
from packer.geometry import transforms
from packer.geometry.transforms import Compose, Geometry


@cache
def classes() -> dict[str, type[Geometry]]:
    """Return class name -> geometry class, such as `{"Resize": Resize}`, for all classes that a text may contain.

    Compose is not included, because a text contains several geometries separated by commas instead.
    """
    return {
        name: found
        for name, found in vars(transforms).items()
        if isinstance(found, type) and issubclass(found, Geometry) and found not in (Geometry, Compose)
    }


def parse(text: str) -> Geometry:
    """Return the geometry that a text describes. For several geometries separated by commas, return a Compose.

    Raises:
        InvalidRequest: The text is not a list of geometries, or an argument is invalid or not a Python literal.
    """
    try:
        expression = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _refusal(text) from None
    calls = expression.elts if isinstance(expression, ast.Tuple) else [expression]
    made = [_made(call, text) for call in calls]
    if not made:
        raise _refusal(text)
    return made[0] if len(made) == 1 else Compose(*made)


def _made(call: ast.expr, text: str) -> Geometry:
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in classes()):
        raise _refusal(text)
    try:
        given = [ast.literal_eval(argument) for argument in call.args]
        named: dict[str, Any] = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return classes()[call.func.id](*given, **named)
    except InvalidRequest:
        raise
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"geometry {text!r}: {error}; see {DOCS}/train/augment.md for what {call.func.id} takes"
        ) from error


def _refusal(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"geometry {text!r}: expected one or more of {', '.join(sorted(classes()))}, separated by commas, such as "
        "'RandomResizedCrop(224), RandomHorizontalFlip()'"
    )
