"""Parsing: a geometry as people write it, `RandomResizedCrop(224), RandomHorizontalFlip()`, without running any
code.

The folder `transforms` is the registry: every geometry that a file in it defines may be written by its name.
"""

import ast
import importlib
from functools import cache
from pathlib import Path
from typing import Any

from packer.errors import InvalidRequest
from packer.geometry import transforms
from packer.geometry.base import Geometry
from packer.geometry.transforms.compose import Compose


@cache
def classes() -> dict[str, type[Geometry]]:
    """The geometries that people write by their name; a Compose is written as a list, with commas."""
    folder = Path(transforms.__path__[0])
    modules = [
        importlib.import_module(f"{transforms.__name__}.{path.stem}") for path in sorted(folder.glob("[!_]*.py"))
    ]
    return {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, type)
        and issubclass(found, Geometry)
        and found.__module__ == module.__name__
        and not name.startswith("_")
        and found is not Compose
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
            f"geometry {text!r}: {error}; see docs/loading.md for what {call.func.id} takes"
        ) from error


def _refusal(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"geometry {text!r}: expected one or more of {', '.join(sorted(classes()))}, separated by commas, such as "
        "'RandomResizedCrop(224), RandomHorizontalFlip()'"
    )
