"""Efficient-PyTorch LMDB: serialized pairs of image and label under numbers, as folder2lmdb and similar tools write.

Fields: key (the number), image (its bytes) and label (int64), in the order of the numbers. Pickled values are read
without `pickle` (packer.layouts.pickled): nothing in them is imported or called. Values of pyarrow.serialize need
pyarrow.
Layout: the key is the number in decimal digits. The value is (bytes, int), [uint8 array, int], or ([bytes], array of
one int), the batch of one that thecml/pytorch-lmdb stores. It is serialized by pickle, MessagePack or pyarrow 0.10 to
11. `__keys__` and `__len__` have the same form.
"""

from pathlib import Path
from typing import Any

import numpy as np

from packer.layouts import serialized
from packer.sources.records._lmdb_source import LMDBSource
from packer.sources.records._record_source import IMAGE, LABEL

SPECIFICITY = -1


class Source(LMDBSource):
    """One LMDB of Efficient-PyTorch's layout, or a folder of them."""

    kind = "efficient-lmdb"
    title = "LMDB of pairs of image and label"
    fields = (IMAGE, LABEL)

    def __init__(self, root: Path, *, layout: str = "auto", follow_links: bool = False) -> None:
        """Find every record; raises InvalidRequest, BadInput, MissingPackage without pyarrow if values need it."""
        self._list(root, layout=layout, follow_links=follow_links)

    @classmethod
    def parse(cls, value: bytes) -> dict[str, Any]:
        image, label = serialized.pair(serialized.loads(value))
        return {"image": image, "label": np.int64(label)}
