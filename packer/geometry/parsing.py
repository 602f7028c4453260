"""Parsing: a geometry as people write it, `RandomResizedCrop(224), RandomHorizontalFlip()`, without running any
code.
"""

import ast
from typing import Any

from packer.errors import InvalidRequest
from packer.geometry.base import Geometry
from packer.geometry.transforms.compose import Compose
from packer.geometry.transforms.crop import CenterCrop, RandomCrop
from packer.geometry.transforms.flip import RandomHorizontalFlip
from packer.geometry.transforms.resize import Resize
from packer.geometry.transforms.resized_crop import RandomResizedCrop
from packer.geometry.transforms.rotate import RandomRotation
from packer.geometry.transforms.zoom import RandomZoom

_KNOWN: dict[str, type[Geometry]] = {
    kind.__name__: kind
    for kind in (CenterCrop, RandomCrop, RandomHorizontalFlip, Resize, RandomResizedCrop, RandomRotation, RandomZoom)
}


def parse(text: str) -> Geometry:
    """One geometry, or several in a row as a Compose; arguments are plain numbers, tuples and names. Raises
    InvalidRequest.
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
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _KNOWN):
        raise _refusal(text)
    try:
        given = [ast.literal_eval(argument) for argument in call.args]
        named: dict[str, Any] = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        return _KNOWN[call.func.id](*given, **named)
    except InvalidRequest:
        raise
    except (ValueError, TypeError) as error:
        raise InvalidRequest(
            f"geometry {text!r}: {error}; see docs/loading.md for what {call.func.id} takes"
        ) from error


def _refusal(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"geometry {text!r}: expected one or more of {', '.join(sorted(_KNOWN))}, separated by commas, such as "
        "'RandomResizedCrop(224), RandomHorizontalFlip()'"
    )
