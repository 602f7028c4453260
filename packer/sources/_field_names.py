"""Field names: free names for entries of records and columns of tables, and a limit on names that are rarely used."""

import re
from collections.abc import Iterable
from pathlib import Path

from packer.errors import BadInput, printable
from packer.schema import KEY

_MOST_GAPS = 100  # for each value
RESERVED = (KEY, "files", "split", "orientation", "matrix", "source_size")


def check_gaps(where: Path, rows: int, *, names: int, values: int, advice: str) -> None:
    """Raise BadInput if the rows have fewer than 1 in 100 of the values that they could have under all names."""
    if rows * names > _MOST_GAPS * values:
        raise BadInput(
            f"{printable(str(where))}: {rows} rows have {values} values under {names} names, expected at least 1 in "
            f"{_MOST_GAPS} of all possible values; {advice}"
        )


class FieldNames:
    """Names that differ from each other and from the names that exist already."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._numbers: dict[str, int] = {}

    def free(self, name: str) -> str:
        """Return the name, or the first free one of NAME_2, NAME_3 and so on."""
        number, candidate = self._numbers.get(name, 2), name
        while candidate in self.taken:
            candidate, number = f"{name}_{number}", number + 1
        self._numbers[name] = number
        self.taken.add(candidate)
        return candidate

    def of_entry(self, entry: str, usual: str = "") -> str:
        """Return a name from the letters and digits of an entry, or `usual` if it is free."""
        if usual and usual not in self.taken:
            return self.free(usual)
        name = re.sub(r"[^A-Za-z0-9]+", "_", entry).strip("_")[:48]
        if not name or not name[0].isalpha():
            name = f"x_{name}".rstrip("_")
        return self.free(f"{name}_" if name in RESERVED else name)

    def of_column(self, column: str) -> str:
        """Return a valid name that is as similar as possible to that of a column."""
        name = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_")[:48] or "column"
        return self.free(name if name[0].isalpha() else f"column_{name}")
