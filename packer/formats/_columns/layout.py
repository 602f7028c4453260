"""Layout: the arrays that hold the fields of a part, n samples long.

A field whose encoded values are, as its codec says, the numbers of one fixed shape and nothing else (codec `number`, or
`raw` with a fixed shape) is one typed little-endian array [n, *shape]. Any other is `data`, uint8, its values end to
end, and `offsets`, int64 [n + 1]: value i is data[offsets[i]:offsets[i + 1]]. The end record, JSON in ASCII, says which
fields there are and how many samples.
"""

import json
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from packer.errors import CorruptPack
from packer.schema import Schema

MOST_END_BYTES = 60_000  # an HDF5 attribute holds less than 64 KiB


@dataclass(frozen=True)
class Array:
    """One array of a part. role: "values" of a field of one size, else "data" or "offsets".

    shape: that of the whole array; None is a length that the file tells.
    """

    field: str
    role: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]

    @property
    def size_bytes(self) -> int | None:
        """Bytes of the whole array, where the file does not tell."""
        known = [length for length in self.shape if length is not None]
        return math.prod(known) * self.dtype.itemsize if len(known) == len(self.shape) else None

    def name(self, separator: str) -> str:
        """`field` for values, else `field`, the separator, and the role."""
        return self.field if self.role == "values" else f"{self.field}{separator}{self.role}"


def arrays(schema: Schema, name: str, samples: int) -> tuple[Array, ...]:
    """The arrays of one field: values, or data and offsets."""
    fixed = schema.stored_form(name).array
    if fixed is not None:
        dtype, shape = fixed
        return (Array(name, "values", np.dtype(dtype).newbyteorder("<"), (samples, *shape)),)
    data = Array(name, "data", np.dtype("u1"), (None,))
    return (data, Array(name, "offsets", np.dtype("<i8"), (samples + 1,)))


def reason(error: Exception) -> str:
    """What a library says, as one short line; of HDF5's report of a failed write, no more than what the system said."""
    told = re.search(r"\berrno = (\d+)", str(error))
    return os.strerror(int(told[1])) if told else " ".join(str(error).split())[:200]


def end_record(schema: Schema, samples: int) -> bytes:
    """What a complete part ends with."""
    return json.dumps({"fields": list(schema.names), "samples": samples}, sort_keys=True).encode("ascii")


def check_end(path: Path, found: bytes, *, schema: Schema, samples: int) -> None:
    """Raise CorruptPack unless the end record says what the manifest does."""
    try:
        end = json.loads(found) if len(found) <= MOST_END_BYTES else None
    except (ValueError, RecursionError) as error:
        raise CorruptPack(f"{path}: the end record is damaged: {found!r:.60}; pack again") from error
    if end != {"fields": list(schema.names), "samples": samples}:
        raise CorruptPack(
            f"{path}: the part does not hold what the manifest says: expected {samples} samples of "
            f"{', '.join(schema.names):.200}, found end record {found!r:.200}; pack again"
        )
