"""Duplicates: samples whose stored bytes of one field are the same.

The index holds a crc32 of every value: only those that share one are read, and told apart by sha256. The same picture
in another file form, or with other metadata, is no duplicate here.
"""

import hashlib

import numpy as np
import numpy.typing as npt

from packer.pack.opening import Pack


def duplicates(pack: Pack, name: str, indices: npt.NDArray[np.int64]) -> list[list[int]]:
    """Groups of indices, each in order, whose values of that field are the same bytes; raises CorruptRecord."""
    sums = np.fromiter((pack.index.crc32(index, name) for index in indices.tolist()), np.uint32, len(indices))
    _, inverse, counts = np.unique(sums, return_inverse=True, return_counts=True)
    groups: dict[bytes, list[int]] = {}
    for index in indices[counts[inverse] > 1].tolist():
        with pack.record(index, [name]) as record:
            groups.setdefault(hashlib.sha256(record[name]).digest(), []).append(index)
    return [group for group in groups.values() if len(group) > 1]
