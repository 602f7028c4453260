"""Efficient-PyTorch LMDB: serialized pairs of image and label with numbers as keys, as folder2lmdb writes them.

Fields: key (the number), image (the bytes of the file) and label (int64), sorted by number. Pickled values are read
without `pickle` (packer.layouts.pickled), so no pickled code is imported or called. Values of pyarrow.serialize need
pyarrow.
Layout: the key is the number in decimal digits. The value is (bytes, int) or [uint8 array, int]. thecml/pytorch-lmdb
stores batches of one: ([bytes], array of one int). The value is serialized by pickle, MessagePack or pyarrow 0.10
to 11. `__keys__` and `__len__` are serialized in the same way.
"""

from pathlib import Path
from typing import Any

import numpy as np

from packer.layouts import serialized
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._record_source import IMAGE, LABEL

SPECIFICITY = -1


class Source(LMDBSource):
    """An LMDB of Efficient-PyTorch's layout, or a folder of LMDBs."""

    kind = "efficient-lmdb"
    title = "LMDB of pairs of image and label"
    fields = (IMAGE, LABEL)

    def __init__(self, root: Path, *, named_splits: bool = False, follow_links: bool = False) -> None:
        """Find all records. Raises MissingPackage if pyarrow is needed and not installed.

        If `named_splits` is false, files of several splits raise InvalidRequest.
        """
        self._list(root, named_splits=named_splits, follow_links=follow_links)

    @classmethod
    def parse(cls, value: bytes) -> dict[str, Any]:
        image, label = serialized.pair(serialized.loads(value))
        return {"image": image, "label": np.int64(label)}
