"""Row queries: filters, sorts, counts and exports the rows of an open pack for the page.

A filter reads complete columns of the index. Its result is cached for the next requests with the same filter.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from packer.browse.sample_images import SampleImages, Training
from packer.browse.sample_values import SampleValues
from packer.browse.sized_cache import SizedCache
from packer.errors import BadIndex, InvalidRequest
from packer.files.terminal_output import shell_word, shortened
from packer.pack import row_filter
from packer.pack.filter_columns import Kind, Mask, PackColumns
from packer.pack.reader import Pack
from packer.pack.sample_decoder import SampleDecoder
from packer.schema import KEY

Rows = npt.NDArray[np.uint32]

_CHOSEN_BYTES = 64 << 20  # results of filters
_MOST_LISTED = 1000  # skipped samples
_MOST_BINS = 40
_MOST_CLASSES = 200
MOST_EXPORTED = 10_000
_EXACT = 1 << 53  # histograms count float64


class BrowsedPack:
    """One pack on the page. Thread-safe.

    Attributes:
        pack: The open pack.
        path: Its folder or URL.
        images: Makes images of its samples.
        values: Makes JSON values of its samples.
    """

    def __init__(self, pack: Pack, path: str) -> None:
        """Use an open pack. This object never closes it."""
        self.pack = pack
        self.path = path
        decoder = SampleDecoder(pack, pack.schema.names)
        self.images = SampleImages(decoder)
        self.values = SampleValues(decoder)
        self._matching: SizedCache[Mask | None] = SizedCache(_CHOSEN_BYTES, lambda mask: np.asarray(mask).nbytes)
        self._incomplete = dict(pack.manifest.incomplete)
        self._columns = PackColumns(pack.schema, pack.index, self._incomplete)
        self._kinds = self._columns.kinds | self._columns.row_kinds
        self._chosen: SizedCache[Rows] = SizedCache(_CHOSEN_BYTES, lambda rows: rows.nbytes)
        self._extremes: dict[str, tuple[Any, Any]] = {}  # of each number
        self._counts: dict[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]] = {}  # of all rows, in a histogram
        self._class_totals: dict[str, npt.NDArray[np.int64]] = {}

    def key(self, row: int) -> str:
        """Return the key of a row; raises BadIndex for a row outside the pack."""
        if not 0 <= row < len(self.pack):
            raise BadIndex(f"row {row}: the pack has {len(self.pack)} samples")
        return self.pack.index.key(row)

    def description(self) -> dict[str, Any]:
        """Return the facts of the pack that the page shows: fields, classes, counts and options."""
        manifest = self.pack.manifest
        fields = ("name", "kind", "dtype", "shape", "codec", "classes", "hidden")
        short = {"width", "height", "area"} - set(self.pack.schema.names)  # of the first image, also FIELD.width
        return {
            "name": self.path.rstrip("/").rpartition("/")[2],
            "path": self.path,
            "pack_id": manifest.pack_id,
            "samples": len(self.pack),
            "format": manifest.format,
            "bytes": sum(part.bytes for part in manifest.parts),
            "fields": [{name: getattr(field, name) for name in fields} for field in self.pack.schema],
            "skipped": manifest.skipped[:_MOST_LISTED],
            "skipped_count": len(manifest.skipped),
            "columns": [self._described(name) for name in self._columns.kinds if name not in short],
            "row_columns": [self._described(name) for name in self._columns.row_kinds],
        }

    def _described(self, name: str) -> dict[str, Any]:
        kind, lead = self._kinds[name], self._columns.groups.get(name)
        low, high = self._limits(name) if kind == "number" and lead is None else (None, None)
        classes = self._columns.classes(name) if kind == "class" else None
        return {"name": name, "type": kind, "classes": classes, "low": low, "high": high, "of": lead}

    # ---- rows

    def rows(self, where: str, *, sort: str = "", descending: bool = False) -> Rows:
        """Return the rows that match a filter, uint32 (N,). Raises InvalidRequest for a wrong filter or column.

        Args:
            where: A filter as in packer.pack.row_filter; "" for all rows.
            sort: A column; "" for the order of the pack.
            descending: True reverses the order. Rows with equal values in `sort` keep the order of the pack.
        """
        text = str(row_filter.parse(where)) if where.strip() else ""
        return self._chosen.get((text, sort, descending), lambda: self._select(text, sort, descending))

    def _select(self, where: str, sort: str, descending: bool) -> Rows:
        kept = row_filter.parse(where).rows(self._columns) if where else np.ones(len(self.pack), np.bool_)
        if sort == KEY:
            order = self.pack.index.arrays["key_order"]
            by_key: Rows = order[kept[order]].astype(np.uint32)
            return by_key[::-1].copy() if descending else by_key
        rows = np.flatnonzero(kept)
        if sort:
            rows = self._columns.ordered(rows, _known(sort, self._columns.kinds), descending=descending)
        elif descending:
            rows = rows[::-1]
        return rows.astype(np.uint32)

    def _numbers(self, name: str) -> npt.NDArray[Any]:
        return self._columns.of(name).numbers(name)

    # ---- histograms

    def histogram(self, name: str, where: str) -> dict[str, Any]:
        """Return two histograms of a column, by class or range: of all values, and of those that match a filter."""
        if (kind := self._kinds[_known(name, self._kinds)]) == "text":
            raise InvalidRequest(f"{name} is a text; a histogram counts numbers or classes")
        kept = np.zeros(len(self.pack), np.bool_)
        kept[self.rows(where)] = True
        chosen = row_filter.chosen_numbers(self._columns, name, where, kept)
        if kind == "class":
            return self._class_counts(name, chosen)
        low, high = self._limits(name)
        found = {"low": low, "high": high}
        if low is None:
            return {**found, "edges": [], "all": [], "chosen": []}
        is_whole = self._numbers(name).dtype.kind in "iu" and -_EXACT <= low <= high <= _EXACT
        bins, limits = _bins(low, high, is_whole=is_whole)
        if name not in self._counts:
            self._counts[name] = np.histogram_bin_edges([], bins, limits), _counted(self._numbers(name), bins, limits)
        edges, every = self._counts[name]
        counts = _counted(chosen, bins, limits).tolist()
        return {**found, "edges": edges.tolist(), "all": every.tolist(), "chosen": counts}

    def _class_counts(self, name: str, chosen: npt.NDArray[Any]) -> dict[str, Any]:
        """Return the counts of the most frequent classes, of all values and of `chosen`."""
        classes = self._columns.classes(name)
        if name not in self._class_totals:
            self._class_totals[name] = _counted_classes(self._numbers(name), len(classes))
        counts, found = self._class_totals[name], _counted_classes(chosen, len(classes))
        most = np.argsort(-counts, kind="stable")[: min(_MOST_CLASSES, np.count_nonzero(counts))].tolist()
        names = [classes[number] for number in most]
        return {"names": names, "all": counts[most].tolist(), "chosen": found[most].tolist()}

    def _limits(self, name: str) -> tuple[Any, Any]:
        if name not in self._extremes:
            finite = _finite(self._numbers(name))
            self._extremes[name] = (finite.min().item(), finite.max().item()) if finite.size else (None, None)
        return self._extremes[name]

    # ---- samples

    def sample(self, row: int, where: str, training: Training | None = None) -> dict[str, Any]:
        """Return all values of a sample except pixels. `where` marks shapes. Raises BadIndex and CorruptRecord."""
        return self._about(row) | self._marked(self.values.sample(row, training), row, where)

    def overlays(self, row: int, where: str) -> dict[str, Any]:
        """Return what a sample's tile shows: key, shapes, numbers and classes. Raises BadIndex and CorruptRecord."""
        values = ((name, self._value(name, row)) for name, kind in self._columns.kinds.items() if kind != "text")
        return self._about(row) | {"columns": dict(values)} | self._marked(self.values.overlays(row), row, where)

    def _about(self, row: int) -> dict[str, Any]:
        key = self.key(row)
        return {"row": row, "key": key, "incomplete": self._incomplete.get(key)}

    def _marked(self, values: dict[str, Any], row: int, where: str) -> dict[str, Any]:
        """Add "chosen" to the shapes of each field: for each shape, whether it meets any(...) of the filter."""
        for shapes in values["overlays"] if where.strip() else ():
            field = shapes["field"]
            find = partial(row_filter.parse(where).matching_rows, self._columns, field)
            matching = self._matching.get((where, field), find)
            if matching is not None:
                shapes["chosen"] = matching[self._columns.of(field).of_sample(row)].tolist()
        return values

    def _value(self, name: str, row: int) -> str | int | float | None:
        """Return the number of a row in a column, or the name of its class; None for a number that is not finite."""
        number: int | float = self._columns.numbers(name)[row].item()
        classes = self._columns.classes(name) if self._columns.kinds[name] == "class" else ()
        if 0 <= number < len(classes):
            return classes[int(number)]
        return number if math.isfinite(number) else None

    def export(self, where: str, count: int = 0, *, sort: str = "", descending: bool = False) -> dict[str, Any]:
        """Return rows that match a filter as keys, commands and Python code: the first `count`, or all for 0."""
        rows = self.rows(where, sort=sort, descending=descending)
        text = str(row_filter.parse(where)) if where.strip() else ""
        condition = ["--where", text] if text else []
        selected, call = condition, f".where({text!r})" if text else ""
        if 0 < count < len(rows):
            selected, call = ["--keys", "KEYS.txt"], f".select({rows[:count].tolist()})"
        order = [*(["--sort", sort] if sort else []), *(["--desc"] if descending else [])]
        commands = ["collect", "OUT", self.path, *selected], ["ls", self.path, *condition, *order, "-n", str(count)]
        return {
            "total": len(rows),
            "keys": [self.key(row) for row in rows[: count or MOST_EXPORTED].tolist()],
            "command": "\n".join(" ".join(["packer", *map(shell_word, words)]) for words in commands),
            "python": f"packer.open({self.path!r}){call}",
        }


def _finite(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    is_whole = numbers.dtype.kind in "iu"
    return numbers if is_whole else numbers[np.isfinite(numbers)].astype(np.float64, copy=False)


def _counted(numbers: npt.NDArray[Any], bins: int, limits: tuple[float, float]) -> npt.NDArray[np.int64]:
    return np.histogram(_finite(numbers), bins, limits)[0]


def _counted_classes(numbers: npt.NDArray[Any], count: int) -> npt.NDArray[np.int64]:
    # the first and the last place are for numbers without a class
    places = np.clip(numbers.astype(np.int64), -1, count) + 1
    return np.bincount(places, minlength=count + 2)[1:-1]


def _known(name: str, known: Mapping[str, Kind]) -> str:
    if name not in known:
        raise InvalidRequest(f"no column {name!r:.100}; there are: {shortened(', '.join(known))}")
    return name


def _bins(low: float, high: float, *, is_whole: bool) -> tuple[int, tuple[float, float]]:
    """Return (number of bins, (low, high)) for at most 40 bins of equal width, which is whole for whole numbers."""
    if not is_whole:
        return (_MOST_BINS if high > low else 1), (low, high)
    width = -(-(high - low + 1) // _MOST_BINS)
    count = -(-(high - low + 1) // width)
    return int(count), (low, low + count * width)
