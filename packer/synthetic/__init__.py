"""Synthetic data sets: images drawn from a seed, in the folder layouts of real data sets.

Demonstrations, tests and benchmarks use synthetic data sets without a download. The module set_writer.py describes
the rules that all sets follow.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from packer.errors import InvalidRequest
from packer.registry import import_or_explain

if TYPE_CHECKING:
    from packer.synthetic.set_writer import SetSummary

# set -> module that defines `write_<set>`
_MODULES = {
    "coco": "labeled_sets",
    "cornell": "grasp_sets",
    "folder": "folder",
    "jacquard": "grasp_sets",
    "pairs": "labeled_sets",
    "table": "labeled_sets",
    "voc": "labeled_sets",
    "yolo": "labeled_sets",
}


def names() -> tuple[str, ...]:
    """Return the names of all sets, sorted."""
    return tuple(_MODULES)


def load(name: str) -> "Callable[..., SetSummary]":
    """Return the function that writes the set `name`. Its keyword-only parameters are the options of the set.

    Raises:
        InvalidRequest: The name is unknown.
        MissingPackage: A package that the set needs is not installed.
    """
    if name not in _MODULES:
        raise InvalidRequest(f"unknown synthetic set {name!r}; there are: {', '.join(_MODULES)}")
    module = import_or_explain(f"packer.synthetic.{_MODULES[name]}", f"synthetic set {name!r}")
    write: Callable[..., SetSummary] = getattr(module, f"write_{name}")
    return write
