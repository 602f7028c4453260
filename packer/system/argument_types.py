"""Argument types: checks of argument values against the annotations of a function."""

import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from inspect import formatannotation
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from packer.errors import WrongType


def check_arguments(given: Mapping[str, object], annotations: Mapping[str, Any]) -> None:
    """Raise WrongType if an argument, or an element of an argument, does not match its annotation.

    Both mappings have argument names as keys. NumPy numbers match int and float. Any collection except a text, bytes
    or a mapping matches Sequence. 0 and 1 match bool. If an annotated class has the attribute `usage`, the message
    ends with its text.
    """
    for name, value in given.items():
        if not _fits(value, annotations[name]):
            expected = re.sub(r"\b(?:\w+\.)+", "", formatannotation(annotations[name]))  # without modules
            expected = re.sub(r"Literal\[(.*?)\]", r"\1", re.sub(r"^Optional\[(.*)\]$", r"\1 or None", expected))
            kinds = (annotations[name], *get_args(annotations[name]))
            advice = next((f"; {kind.usage}" for kind in kinds if hasattr(kind, "usage")), "")
            raise WrongType(f"{name}={value!r:.60}: expected {expected}{advice}")


def check_parameters(function: Callable[..., object], values: Mapping[str, object]) -> None:
    """Raise WrongType if a value does not match the annotation of a parameter of `function`.

    A keyword-only parameter that has its default value is not checked, so that opening a pack remains fast.

    Args:
        function: The function with the annotations.
        values: Parameter name -> value, such as `locals()` at the start of `function`. Other names are ignored.
    """
    annotations = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    defaults = function.__kwdefaults__ or {}
    given = {
        name: values[name] for name in annotations if name in values and values[name] is not defaults.get(name, ...)
    }
    check_arguments(given, annotations)


def check_switches(given: Mapping[str, object]) -> None:
    """Raise WrongType if a value, such as the text "no", is not True, False, 1 or 0."""
    check_arguments(given, dict.fromkeys(given, bool))


def _fits(value: Any, wanted: Any) -> bool:
    kind, inner = get_origin(wanted) or wanted, get_args(wanted)
    if kind in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if kind is Literal:
        return isinstance(value, str | Integral) and value in inner
    if kind is bool:
        return isinstance(value, int | np.integer | np.bool_) and value in (0, 1)
    if kind is tuple:
        return isinstance(value, tuple | list) and len(value) == len(inner) and all(map(_fits, value, inner))
    if kind is Sequence:
        is_other = isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection)
        return not is_other and all(_fits(each, inner[0]) for each in value)
    if kind is Mapping:
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items()
        )
    return isinstance(value, {int: Integral, float: Real, Any: object}.get(kind, kind))
