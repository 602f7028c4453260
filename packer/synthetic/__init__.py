"""Synthetic data sets: images drawn from a seed, in the layouts of real data sets.

They replace real data sets in demonstrations, tests and benchmarks, so that nothing has to be downloaded. Their
contract is in synthetic_set.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from packer.errors import InvalidRequest
from packer.registry import import_or_explain

if TYPE_CHECKING:
    from packer.synthetic.synthetic_set import SetSummary

# the module of each set; it defines `write_<set>`
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


class SyntheticSet(NamedTuple):
    """A set by its name; the keyword-only parameters of `write` are the options of the set."""

    write: "Callable[..., SetSummary]"


def names() -> tuple[str, ...]:
    """List the names of all sets, sorted."""
    return tuple(_MODULES)


def load(name: str) -> SyntheticSet:
    """Import the set `name`.

    Raises:
        InvalidRequest: The name is unknown.
        MissingPackage: A package that the set needs is not installed.
    """
    if name not in _MODULES:
        raise InvalidRequest(f"unknown synthetic set {name!r}; there are: {', '.join(_MODULES)}")
    module = import_or_explain(f"packer.synthetic.{_MODULES[name]}", f"synthetic set {name!r}")
    return SyntheticSet(getattr(module, f"write_{name}"))
