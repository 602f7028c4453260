"""Efficient-PyTorch LMDB: serialised pairs of picture and label under numbers, as folder2lmdb and its kin write them.

Fields: key (the number), image (its bytes as they are) and label (int64), in the order of the numbers, which is that of
ImageFolder when they were written. Pickled values are read without `pickle` (packer.layouts.pickled): nothing in them
is imported or called; those of pyarrow.serialize, which pyarrow itself has given up, need pyarrow.
Layout: key = the number in decimal digits; value = (bytes, int), [uint8 array, int], or ([bytes], array of one int),
the batch of one that thecml/pytorch-lmdb stores, by pickle, MessagePack or pyarrow 0.10 to 11; `__keys__` and `__len__`
alike besides.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from packer.errors import BadInput
from packer.layouts import serialized
from packer.schema import Field
from packer.sources import base
from packer.sources.records._numbered_lmdb import NumberedLMDB

SPECIFICITY = -1  # a folder that holds pictures is a folder of pictures


def recognise(names: Sequence[str]) -> str | None:
    """None: the content tells, see recognise_content."""
    return None


class Source(NumberedLMDB):
    """One LMDB of Efficient-PyTorch's layout, or a folder of them."""

    kind = "efficient-lmdb"
    layout = "pairs of picture and label"

    def __init__(self, root: Path, *, layout: str = "auto", follow_links: bool = False) -> None:
        """Find every entry.

        Raises InvalidRequest where there is no such LMDB, BadInput for a damaged one, and for what git-lfs left,
        MissingPackage where pyarrow is needed and absent.
        """
        self._list_numbered(root, follow_links=follow_links, layout=layout)
        self._settle(
            [Field("image", "image", "encoded"), Field("label", "number", "number", dtype="int64", shape=())],
            self._others,
        )

    @classmethod
    def _check_record(cls, key: bytes, value: bytes) -> None:
        if not key.isdigit():
            raise BadInput("the key is no number")
        serialized.pair(serialized.loads(value))

    def _values(self, index: int, record: bytes) -> base.Sample:
        try:
            image, label = serialized.pair(serialized.loads(record))
        except BadInput as error:
            raise BadInput(f"{self.where(index)}: {error.message}") from error
        return {"image": image, "label": np.int64(label)}
