"""Calling: a user's function by its name, `module:function`."""

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from packer.errors import MissingPackage, Refused


def load_function(name: str, wanted_by: str) -> Callable[..., Any]:
    """The function `module:function`, its module looked for in the current folder too; raises Refused, MissingPackage.

    wanted_by: the option that names it, for messages.
    """
    module_name, _, path = name.partition(":")
    if not (path and all(part.isidentifier() for part in (*module_name.split("."), *path.split(".")))):
        raise Refused(f"{wanted_by} {name!r}: expected module:function, such as train:step")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # a console script looks beside itself, not where the user is
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise MissingPackage(f"{wanted_by} {name!r}: no module {error.name!r} here; run it from its folder") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise Refused(f"{wanted_by} {name!r}: {module_name} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise Refused(f"{wanted_by} {name!r}: expected a function, found {type(found).__name__}")
    function: Callable[..., Any] = found
    return function
