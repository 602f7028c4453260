"""Field names: unique field names for entries of records and columns of tables, and a limit on sparse fields."""

import re
from collections.abc import Iterable
from pathlib import Path

from packer.errors import BadInput, printable
from packer.schema import KEY

_MOST_GAPS = 100  # possible values per existing value
RESERVED = (KEY, "files", "split", "orientation", "matrix", "source_size")


def check_gaps(where: Path, rows: int, *, names: int, values: int, advice: str) -> None:
    """Raise BadInput if there are only `values` values, fewer than 1 in 100 of the `rows * names` possible ones."""
    if rows * names > _MOST_GAPS * values:
        raise BadInput(
            f"{printable(str(where))}: {rows} rows have {values} values under {names} names, expected at least 1 in "
            f"{_MOST_GAPS} of all possible values; {advice}"
        )


class FieldNames:
    """The field names in use, at first those in `taken`. The methods return unused names, which are then in use."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._numbers: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Return `name`, or if it is in use, the first of NAME_2, NAME_3, ... that is not."""
        number, candidate = self._numbers.get(name, 2), name
        while candidate in self.taken:
            candidate, number = f"{name}_{number}", number + 1
        self._numbers[name] = number
        self.taken.add(candidate)
        return candidate

    def of_entry(self, entry: str, usual: str = "") -> str:
        """Return `usual` if it is free. Otherwise return a free name from the letters and digits of `entry`."""
        if usual and usual not in self.taken:
            return self.free(usual)
        name = re.sub(r"[^A-Za-z0-9]+", "_", entry).strip("_")[:48]
        if not name or not name[0].isalpha():
            name = f"x_{name}".rstrip("_")
        return self.free(f"{name}_" if name in RESERVED else name)

    def of_column(self, column: str) -> str:
        """Return a free and valid field name that is similar to the name of a column."""
        name = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_")[:48] or "column"
        return self.free(name if name[0].isalpha() else f"column_{name}")
