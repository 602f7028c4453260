"""Numbered LMDB: base of the sources of LMDBs whose keys are numbers, with the list of them under `__keys__`.

Samples come in the order of the numbers, in which they were written; LMDB itself has them as texts: 0, 1, 10, 100, 2.
"""

from array import array
from collections.abc import Sequence
from pathlib import Path

from packer.errors import BadInput
from packer.layouts import serialized
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources.records._lmdb_layout import KEYS, LENGTH
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._random_access_files import RecordFile

_MOST_DIGITS = 19


class NumberedLMDB(LMDBSource):
    """See the module."""

    metadata = (KEYS, LENGTH)

    def _list_numbered(self, root: Path, *, follow_links: bool, layout: str) -> list[RecordFile]:
        """Find every record, in order; raises InvalidRequest, BadInput."""
        files = self._list_all(root, follow_links=follow_links, layout=layout)
        self._in_order(len(files))
        self._take(files)
        self.notes.append(f"{counted(len(self), 'record')} in {counted(len(files), self.noun)}")
        return files

    def number(self, index: int) -> int:
        """The number that is a sample's key in the LMDB."""
        return self._ids[self.checked(index)]

    def key(self, index: int) -> str:
        at = self.checked(index)
        key = f"{self._ids[at]:08d}"
        return key if len(self._firsts) == 1 else f"{self._stems[self._numbers[at]]}/{key}"

    def _in_order(self, count: int) -> None:
        """Put the records in the order of their numbers; leave out what is no number or in no list of keys."""
        known = [self._known_keys(number) for number in range(count)]
        rows: list[tuple[int, int, int]] = []
        others: list[str] = []
        for row, (number, key) in enumerate(zip(self._numbers, self._raw_keys, strict=True)):
            names = known[number]
            if key.isdigit() and len(key) <= _MOST_DIGITS and (names is None or key in names):
                rows.append((number, int(key), row))
            else:
                others.append(key.decode("utf-8", "backslashreplace"))
        if others:
            self.left_out.append((KEYS.decode(), f"{counted(len(others), 'entry')} that __keys__ does not name"))
            self.notes.append(f"left out, since __keys__ does not name them: {listed(others)}")
        rows.sort()
        if len({(number, key) for number, key, _ in rows}) < len(rows):
            raise BadInput(f"{shown(str(self.root))}: two keys are one number, such as 1 and 01")
        self._ids = array("q", (key for _, key, _ in rows))
        for name in ("_numbers", "_offsets", "_sizes"):
            before = getattr(self, name)
            setattr(self, name, array(before.typecode, (before[row] for _, _, row in rows)))
        lacking = [len(names) for names in known if names is not None]
        if all(names is not None for names in known) and sum(lacking) > len(rows):
            self.notes.append(f"__keys__ names {sum(lacking) - len(rows)} more records than there are")
        del self._raw_keys

    def _known_keys(self, number: int) -> set[bytes] | None:
        """What __keys__ lists, None where there is none."""
        data = self._metadata.get((number, KEYS))
        if data is None:
            return None
        try:
            found = serialized.loads(data)
        except BadInput as error:
            raise BadInput(f"{self.root}: __keys__: {error.message}") from error
        if not isinstance(found, (list, tuple)):
            raise BadInput(f"{self.root}: __keys__ is no list of keys")
        return {key.encode() if isinstance(key, str) else bytes(key) for key in _texts(found)}


def _texts(keys: Sequence[object]) -> list[str | bytes]:
    return [key for key in keys if isinstance(key, (str, bytes))]
