"""Item list: lists the training items of a pack. An item is a sample, or one label file of a sample.

Grasp-Anything has several label files per image. The field `label_keys` contains the names of the label files of a
sample. For each grasp, the field `grasp_labels` contains the position of its label file in `label_keys`. A list of all
items reads `label_keys` of every sample. A search by name reads only the samples with these names.
"""

import re
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from packer import codecs
from packer.errors import CorruptRecord, InvalidRequest, UnknownKey
from packer.grasp.source_label_rules import Exact, kind_of
from packer.pack.manifest import Manifest
from packer.pack.reader import Pack

Indices = npt.NDArray[np.int64]
ItemUnit = Literal["image", "label"]

NAMES_FIELD, OWNER_FIELD = "label_keys", "grasp_labels"
_CHUNK = 4096
_LISTED = 3
_SEVERAL_LABELS = "grasp-anything"  # source with any number of label files per image
_NUMBERS = re.compile(r"_[0-9]+")
_FORK_LEVELS = 5  # number of folders in a key of OCID
_FORK_LABEL = re.compile(r"_[0-9]")
_CORNELL_PREFIX = "pcd"  # prefix of the scene number in file names


class ItemList(NamedTuple):
    """N items: their `samples` (rows of the pack) and `labels` (positions in `label_keys`), or None for images."""

    samples: Indices
    labels: Indices | None

    def at(self, positions: npt.NDArray[Any]) -> "ItemList":
        """Return the items at `positions`: integers, or a boolean mask of N values."""
        return ItemList(self.samples[positions], None if self.labels is None else self.labels[positions])


def has_label_items(manifest: Manifest, where: object, unit: ItemUnit, exact: Exact | None = None) -> bool:
    """Return True if items are label files: unit="label", and the source is Grasp-Anything. False if they are images.

    Raises InvalidRequest for Grasp-Anything if unit="label" and a field of label files is absent. It also does if
    unit="image" and `exact` is not None. `where` is the path, for messages.
    """
    if kind_of(manifest) != _SEVERAL_LABELS:
        return False
    if unit == "image":
        if exact is not None:
            raise InvalidRequest(
                f'{where}: exact="fork", items="image": an item of the fork is a label file; give items="label"'
            )
        return False
    for name in (NAMES_FIELD, OWNER_FIELD):
        if name not in manifest.schema:
            raise InvalidRequest(
                f'{where}: items="label" reads the field {name!r}, which is not packed; pack again with {NAMES_FIELD} '
                f"and {OWNER_FIELD}"
            )
    return True


class PackItems:
    """The training items of an open pack."""

    def __init__(self, pack: Pack, unit: ItemUnit = "image", exact: Exact | None = None) -> None:
        """Create the items of a pack.

        Args:
            pack: The open pack.
            unit: "image" for one item per image, with all its grasps. "label" for one item per label file.
            exact: "fork" lists only the items of the loaders in andvg3/Grasp-Anything. None lists all items.

        Raises:
            InvalidRequest: The pack does not have the fields for these items.
        """
        self.pack = pack
        self._kind = kind_of(pack.manifest)
        self._exact = exact
        self._has_labels = has_label_items(pack.manifest, pack.folder, unit, exact)
        self._has_other_levels = exact is not None and self._kind == "ocid-grasp"
        if self._has_labels:
            self._codec = codecs.make(pack.schema[NAMES_FIELD])

    def every(self) -> ItemList:
        """Return all items in the order of the pack."""
        count = len(self.pack)
        if not self._has_labels:
            if not self._has_other_levels:
                return ItemList(np.arange(count), None)
            keys = (self.pack.index.key(index) for index in range(count))
            return ItemList(np.flatnonzero([key.count("/") == _FORK_LEVELS for key in keys]).astype(np.int64), None)
        samples, labels = array("q"), array("q")
        for index, names in self._label_names(range(count)):
            rows = self._labels_of(index, names)
            samples.extend([index] * len(rows))
            labels.extend(rows)
        return ItemList(np.array(samples, np.int64), np.array(labels, np.int64))

    def named(self, names: Sequence[str], *, skip_missing: bool = False) -> ItemList:
        """Return the items with these names, in the order of the names.

        Args:
            names: Keys of samples, or names of label files without suffix.
            skip_missing: True skips names without an item. False raises UnknownKey.

        Raises:
            UnknownKey: Names have no item.
        """
        found: list[tuple[int, int]] = []
        missing = []
        for name in names:
            item = self.find(name)
            if item is None:
                missing.append(name)
            else:
                found.append(item)
        if missing and not skip_missing:
            shown = ", ".join(map(repr, missing[:_LISTED])) + ", ..." * (len(missing) > _LISTED)
            what = "sample with key" if not self._has_labels else "label file of name"
            more = f" (and {len(missing) - 1} more: {shown})" if len(missing) > 1 else ""
            raise UnknownKey(f"no {what} {missing[0]!r}{more}{self._hint(missing[0])}")
        pairs = np.asarray(found, np.int64).reshape(-1, 2)
        return ItemList(pairs[:, 0].copy(), pairs[:, 1].copy() if self._has_labels else None)

    def name(self, sample: int, label: int | None) -> str:
        """Return the name of the label file at position `label` in `label_keys`, or the sample's key for None."""
        if label is None:
            return self.pack.index.key(sample)
        [(_, names)] = self._label_names([sample])
        return names[label]

    def find(self, name: str) -> tuple[int, int] | None:
        """Return `(row of the pack, position in label_keys)` of the item with this name, or None if there is none.

        If items are images, the position is 0, and the name is a key. Otherwise, it is the name of a label file.
        """
        if not self._has_labels:
            index = self.pack.index.find(name.removeprefix(_CORNELL_PREFIX) if self._kind == "cornell" else name)
            if index is None or (self._has_other_levels and name.count("/") != _FORK_LEVELS):
                return None
            return index, 0
        key = name
        while "_" in key:  # `<key>_<object>`, and `<key>_<object>_<part>`
            key, _, number = key.rpartition("_")
            if not _NUMBERS.fullmatch(f"_{number}"):
                return None
            index = self.pack.index.find(key)
            if index is not None:
                [(_, names)] = self._label_names([index])
                rows = [row for row in self._labels_of(index, names) if names[row] == name]
                return (index, rows[0]) if rows else None
        return None

    def _hint(self, name: str) -> str:
        is_of_labels = self._kind == _SEVERAL_LABELS and not self._has_labels
        if is_of_labels and self.pack.index.find(name.rpartition("_")[0]) is not None:
            return '; it names a label file: give items="label"'
        return "; packer info --keys lists the keys"

    def _labels_of(self, index: int, names: Sequence[str]) -> list[int]:
        """Return the positions in `names`, the label files of row `index`, of those that are items."""
        if self._exact is None:
            return list(range(len(names)))
        key = self.pack.index.key(index)
        return [row for row, name in enumerate(names) if _FORK_LABEL.fullmatch(name.removeprefix(key))]

    def _label_names(self, indices: Sequence[int]) -> Iterable[tuple[int, list[str]]]:
        """Yield `(row, names of the label files)` of each sample. Raises CorruptRecord."""
        for start in range(0, len(indices), _CHUNK):
            chunk = indices[start : start + _CHUNK]
            with self.pack.records(chunk, [NAMES_FIELD]) as records:
                for index, record in zip(chunk, records, strict=True):
                    names = self._codec.decode(record[NAMES_FIELD])
                    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
                        raise CorruptRecord(
                            f"{self.pack.where(index, NAMES_FIELD)}: expected a list of names, found {names!r:.80}; "
                            "pack again from the source"
                        )
                    yield index, names
