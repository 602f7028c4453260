"""number: the numbers of a scalar or an array of fixed shape, little-endian, in C order, without a header."""

import math
from typing import Any

import numpy as np

from packer.codecs import base
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.geometry import View
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header
from packer.schema import Field, FixedArray, Shape
from packer.system.exact_casts import cast_exactly, deliver, read_numbers


class Codec(base.Codec):
    """Stores the bytes of numbers of a fixed shape."""

    kinds = ("number",)
    takes_argument = False

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        if field.dtype is None or field.shape is None or None in field.shape:
            raise InvalidRequest(
                f"field {field.name!r}: codec 'number' needs a dtype and a fixed shape; use codec raw or json"
            )
        self._shape = tuple(length for length in field.shape if length is not None)
        self._dtype = np.dtype(field.dtype)
        self._size_bytes = math.prod(self._shape) * self._dtype.itemsize
        is_whole = self._dtype.kind in "iu" and not self._shape
        bounds = np.iinfo(self._dtype) if is_whole else None
        # the whole numbers that are encoded without an array
        self._whole = range(int(bounds.min), int(bounds.max) + 1) if bounds is not None else range(0)

    @classmethod
    def fixed_array(cls, field: Field) -> FixedArray | None:
        """Return the field's dtype and shape."""
        return base.array_of(field)

    def encode(self, value: Any) -> bytes:
        """Return the number's bytes; raises BadInput unless the value fits the field's dtype and shape exactly."""
        if isinstance(value, (int, np.integer)) and (number := int(value)) in self._whole:
            return number.to_bytes(self._size_bytes, "little", signed=self._whole.start < 0)
        given = cast_exactly(value, self._dtype)
        if given.shape != self._shape:
            raise BadInput(f"value has shape {given.shape}, expected {self._shape}; all samples need the same shape")
        return given.astype(self._dtype.newbyteorder("<"), copy=False).tobytes()

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return a Python int, float or bool for shape (), else an array. Raises CorruptRecord for a wrong length."""
        if view is not None:
            raise InvalidRequest(f"field {self.field.name!r}: a number has no pixels; ask without a view")
        if len(buffer) != self._size_bytes:
            raise CorruptRecord(
                f"field {self.field.name!r}: {len(buffer)} bytes, expected {self._size_bytes}; "
                "pack again from the source"
            )
        value = read_numbers(buffer, self._dtype).reshape(self._shape)
        if out is None:
            return value.astype(self._dtype) if self._shape else value.item()
        return deliver(value.astype(self._dtype, copy=False), out=out)

    def shape(self, buffer: base.Buffer) -> Shape:
        """Return the field's shape."""
        return self._shape
