"""npy: a depth or a mask as a NumPy array file, exactly, in its own dtype.

Layout: numpy/lib/format.py, version 1.0, little-endian, C order. The header is parsed without running it as Python.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from packer.codecs import base
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.files.npy_arrays import npy_file
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header, decode, sniff
from packer.schema import DTYPES, Field, Shape
from packer.system.exact_casts import form


class Codec(base.Codec):
    """Stores pixels as an .npy file."""

    kinds = ("depth", "mask")
    takes_argument = False
    suffixes = (".npy",)

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        self._dtype = self.complete(field).dtype

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field with any height and width if it has no shape, and uint8 for a mask without a dtype."""
        dtype = "uint8" if field.kind == "mask" and field.dtype is None else field.dtype
        return replace(field, dtype=dtype, shape=field.shape or (None, None))

    def encode(self, value: Any) -> bytes:
        """Return an .npy file of an (H, W) array of numbers; raises InvalidRequest for another dtype or shape."""
        dtype = self._dtype
        fits = (
            isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.name in (DTYPES if not dtype else [dtype])
        )
        if not fits:
            raise InvalidRequest(
                f"field {self.field.name!r}: codec 'npy' holds {dtype or 'numbers'} (H, W), found {form(value)}"
            )
        if 0 in value.shape:
            raise BadInput(f"a {self.field.kind} of {value.shape[1]}x{value.shape[0]} px holds nothing; leave it out")
        return npy_file(np.ascontiguousarray(value, value.dtype.newbyteorder("<")))

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return (H, W) in the stored dtype. Raises DamagedImage, and CorruptRecord if the field has another dtype."""
        field, found = self.field, self._header(buffer)
        return decode(
            buffer, field.kind, wide=field.is_wide_mask, view=view, invalid=field.invalid, header=found, out=out
        )

    def shape(self, buffer: base.Buffer) -> Shape:
        """Return (H, W), from the file's header."""
        found = self._header(buffer)
        return found.height, found.width

    def _header(self, buffer: base.Buffer) -> Header:
        found = sniff(buffer, self.field.pixel_limit)
        if found.format != "npy" or (self._dtype or found.dtype) != found.dtype:
            raise CorruptRecord(
                f"field {self.field.name!r}: {found.format} of {found.dtype}, expected npy of {self._dtype}; "
                "pack again from the source"
            )
        return found
