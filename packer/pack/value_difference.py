"""Value difference: how a value of a pack differs from the one that its source makes, in a few words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import printable
from packer.schema import ROW_KINDS, Field
from packer.sources._parse.folder_listing import listed, shown

_SHOWN = 60  # characters of a value
_ULPS = 4  # of the largest number: sines and their likes differ so much between machines


def difference(field: Field, found: Any, expected: Any, *, classes: Sequence[str] | None = None) -> str | None:
    """None where the two are equal: numbers to the bit but for their byte order, points and boxes but for rounding.

    field: of the pack. expected: as the source makes it. classes: the names of the source's numbers; a number of each
    stands for the same where their names are the same.
    """
    if field.kind not in ROW_KINDS:
        if bool(found == expected):
            return None
        return f"differs: the pack has {_shown(found)}, the source {_shown(expected)}"
    one, other = np.asarray(found), np.asarray(expected)
    if one.shape != other.shape:
        is_longer = one.ndim == other.ndim and one.shape[1:] == other.shape[1:]
        here, there = (f"{len(one)} rows", str(len(other))) if is_longer else (f"shape {one.shape}", str(other.shape))
        return f"differs: the pack has {here}, the source {there}"
    numbers = other if field.kind != "number" else renumbered(other, classes or (), field.classes or ())
    unequal = ~_equal(field, one, numbers)
    if not unequal.any():
        return None
    if not one.ndim:
        return f"differs: the pack has {_named(one.item(), field.classes)}, the source {_named(other.item(), classes)}"
    at = tuple(int(place) for place in np.argwhere(unequal)[0])
    return (
        f"differs in {int(unequal.sum())} of {one.size} numbers, first at {', '.join(map(str, at))}: the pack has "
        f"{_named(one[at].item(), field.classes)}, the source {_named(other[at].item(), classes)}"
    )


def renumbered(values: npt.NDArray[Any], given: Sequence[str], wanted: Sequence[str]) -> npt.NDArray[Any]:
    """Numbers of classes of one list of names as those of the other; a class that was renamed keeps its number."""
    if tuple(given) == tuple(wanted) or not given or values.dtype.kind not in "iu":
        return values
    places = {name: number for number, name in enumerate(wanted)}
    there = set(given)
    table = [
        places.get(name, number if number < len(wanted) and wanted[number] not in there else -1)
        for number, name in enumerate(given)
    ]
    is_class = (values >= 0) & (values < len(given))
    return np.where(is_class, np.asarray(table, np.int64)[np.where(is_class, values, 0)], values)


def class_difference(found: Sequence[str] | None, expected: Sequence[str] | None) -> str | None:
    """None where the names of classes are the same; found: the pack's, expected: the source's."""
    ours, theirs = found or (), expected or ()
    if tuple(ours) == tuple(theirs):
        return None
    gone = [name for name in ours if name not in set(theirs)]
    new = [name for name in theirs if name not in set(ours)]
    said = [f"the pack has {listed(gone)}, which the source has not"] if gone else []
    said += [f"the source has {listed(new)}, which the pack has not"] if new else []
    return "; ".join(said) or "the source has the same names in another order"


def _equal(field: Field, one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    same = np.asarray(one == other)
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        same |= np.isnan(one) & np.isnan(other)
        if field.kind in ("points", "boxes") and one.size:
            finite = np.isfinite(one) & np.isfinite(other)
            largest = np.float32(max(np.abs(one[finite]).max(initial=0), np.abs(other[finite]).max(initial=0)))
            with np.errstate(invalid="ignore"):
                same |= finite & (np.abs(one - other) <= _ULPS * np.spacing(largest))
    return same


def _named(number: Any, classes: Sequence[str] | None) -> str:
    """A number, and the class that it stands for."""
    is_class = classes and isinstance(number, int) and 0 <= number < len(classes)
    return f"{number} ({shown(classes[number])})" if is_class and classes else f"{number}"


def _shown(value: object) -> str:
    return printable(repr(value)[:_SHOWN])
