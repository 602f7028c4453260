"""Field names: free names for entries of records and columns of tables, and a limit on those that are rarely used.

The work is linear in the number of names, or in the number of values that are there.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from packer.errors import BadInput, printable
from packer.schema import KEY

_MOST_GAPS = 100  # for each value that is there
RESERVED = (KEY, "files", "split", "orientation", "matrix", "source_size")


def check_gaps(where: Path, rows: int, *, names: int, values: int, advice: str) -> None:
    """Raise BadInput where the rows have fewer than 1 in 100 of the values that they would have with all names."""
    if rows * names > _MOST_GAPS * values:
        raise BadInput(
            f"{printable(str(where))}: {rows} rows have {values} values under {names} names together, expected at "
            f"least 1 in {_MOST_GAPS} of what they could have; {advice}"
        )


class FieldNames:
    """Names that differ from each other and from the names that are taken before."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._numbers: dict[str, int] = {}

    def free(self, name: str) -> str:
        """The name itself, or the first free one of NAME_2, NAME_3 and so on."""
        number, found = self._numbers.get(name, 2), name
        while found in self.taken:
            found, number = f"{name}_{number}", number + 1
        self._numbers[name] = number
        self.taken.add(found)
        return found

    def of_entry(self, entry: str, usual: str = "") -> str:
        """A name made of the letters and digits of an entry. usual: the name to use instead if it is free."""
        if usual and usual not in self.taken:
            return self.free(usual)
        name = re.sub(r"[^A-Za-z0-9]+", "_", entry).strip("_")[:48]
        if not name or not name[0].isalpha():
            name = f"x_{name}".rstrip("_")
        return self.free(f"{name}_" if name in RESERVED else name)

    def of_column(self, column: str) -> str:
        """A name as close to that of a column as a field may have."""
        name = re.sub(r"[^A-Za-z0-9_]+", "_", column).strip("_")[:48] or "column"
        return self.free(name if name[0].isalpha() else f"column_{name}")
