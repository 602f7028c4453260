"""raw or raw:DTYPE: the numbers of an array, little-endian, in C order, in DTYPE or else in the dtype of the field.

Layout: only the numbers, if the shape is fixed or only its first length varies between samples. Otherwise, the length
of each dimension, as uint32, precedes them. `raw:float16` rounds floats, such as a float32 depth.
All other values are stored exactly or refused.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from packer.codecs import base
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.geometry import View
from packer.geometry.warp import warp
from packer.images import DEFAULT_OPTIONS, DecodeOptions, Header
from packer.schema import DTYPES, MASK_DTYPES, PIXEL_KINDS, Field, FixedArray, Shape
from packer.system.exact_casts import cast_exactly, deliver, form, read_numbers, round_floats

_DTYPES = {"image": "uint8", "mask": "uint8", "points": "float32", "boxes": "float32"}
_SHAPES: dict[str, Shape] = {"image": (None, None, 3), "mask": (None, None), "depth": (None, None), "boxes": (None, 4)}
_LENGTH = np.dtype("<u4")
_MAX_BYTES = 1 << 62


class Codec(base.Codec):
    """Stores the bytes of the numbers of an array."""

    kinds = (*PIXEL_KINDS, "points", "boxes", "number")

    def __init__(self, field: Field, options: DecodeOptions = DEFAULT_OPTIONS) -> None:
        super().__init__(field, options)
        described = self.complete(field)
        name, dtype, shape = field.name, described.dtype, described.shape
        if self.argument is not None and self.argument not in DTYPES:
            raise InvalidRequest(f"field {name!r}: codec 'raw:{self.argument}': expected one of {', '.join(DTYPES)}")
        if dtype is None or shape is None:
            raise InvalidRequest(
                f"field {name!r}: codec 'raw' needs a dtype and a shape, such as float32 and (None, 4, 2)"
            )
        if field.kind in ("image", "mask") and dtype not in (MASK_DTYPES if field.kind == "mask" else ("uint8",)):
            wanted = "uint8" if field.kind == "image" else " or ".join(MASK_DTYPES)
            raise InvalidRequest(f"field {name!r}: a {field.kind} is {wanted}, found {dtype}; use kind depth")
        self._dtype = np.dtype(dtype)
        self._little = self._dtype.newbyteorder("<")
        self._shape = shape
        self._row = tuple(length or 0 for length in shape[1:])
        self._row_bytes = math.prod(self._row) * self._dtype.itemsize
        self._fixed: tuple[int, ...] | None = None if None in shape else tuple(length or 0 for length in shape)
        self._fixed_bytes = math.prod(self._fixed or ()) * self._dtype.itemsize
        self._bare = None not in shape or (shape[0] is None and self._row_bytes > 0)

    @classmethod
    def complete(cls, field: Field) -> Field:
        """Return the field with a shape and the dtype of the argument, else of the field, else of its kind."""
        dtype = field.codec_argument or field.dtype or _DTYPES.get(field.kind)
        return replace(field, dtype=dtype, shape=field.shape or _SHAPES.get(field.kind))

    @classmethod
    def fixed_array(cls, field: Field) -> FixedArray | None:
        """Return (dtype, shape) of the values, or None if a length varies. The argument of the codec sets the dtype."""
        return base.array_of(field)

    @classmethod
    def list_dtype(cls, field: Field) -> str | None:
        """Return the dtype of a field with one dimension of any length, else None."""
        described = cls.complete(field)
        return described.dtype if described.shape == (None,) else None

    def encode(self, value: Any) -> bytes:
        """Return the numbers of an array. Raises InvalidRequest for its dtype, BadInput for its shape or values."""
        given = self._cast(value)
        if not self._fits(given.shape) or max(given.shape, default=0) >= 1 << 32:
            raise BadInput(f"value has shape {given.shape}, expected {self._shape}; None allows any length")
        lengths = b"" if self._bare else np.asarray(given.shape, _LENGTH).tobytes()
        return lengths + given.astype(self._little, copy=False).tobytes()

    def decode(
        self, buffer: base.Buffer, view: View | None = None, out: Any = None, *, header: Header | None = None
    ) -> Any:
        """Return the array in the stored dtype; raises CorruptRecord unless the number of bytes is exact."""
        field, shape = self.field, self.shape(buffer)
        values = self._values(buffer, shape)
        values = values.astype(self._dtype, copy=False)  # bytes are swapped on a big-endian machine
        if view is not None:
            return warp(values, view, field.kind, invalid=field.invalid, out=out)
        return values.copy() if out is None else deliver(values, out=out)

    def in_place(self, buffer: base.Buffer) -> base.Pixels | None:
        """Return the numbers in the memory of the buffer; None if a big-endian machine must swap their bytes."""
        values = self._values(buffer, self.shape(buffer))
        return values if values.dtype.isnative else None

    def _values(self, buffer: base.Buffer, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        offset = 0 if self._bare else _LENGTH.itemsize * len(shape)
        return read_numbers(buffer, self._dtype, offset=offset).reshape(shape)

    def shape(self, buffer: base.Buffer) -> tuple[int, ...]:
        """Return the array's shape, from the number of bytes or the stored lengths; raises CorruptRecord."""
        found, fits = len(buffer), True
        if self._fixed is not None:
            shape, expected = self._fixed, self._fixed_bytes
        elif self._bare:
            rows = found // self._row_bytes
            shape, expected = (rows, *self._row), rows * self._row_bytes
        else:
            offset = _LENGTH.itemsize * len(self._shape)
            shape = tuple(np.frombuffer(buffer, _LENGTH, len(self._shape)).tolist()) if found >= offset else ()
            expected = offset + math.prod(shape) * self._dtype.itemsize
            is_bounded = math.prod(max(1, length) for length in shape) * self._dtype.itemsize < _MAX_BYTES
            fits = is_bounded and self._fits(shape)
        if not fits or found != expected:
            raise CorruptRecord(
                f"field {self.field.name!r}: {found} bytes for shape {shape}, expected {expected} and {self._shape}; "
                f"pack again from the source"
            )
        return shape

    def _fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == len(self._shape) and all(
            want in (None, have) for want, have in zip(self._shape, shape, strict=True)
        )

    def _cast(self, value: Any) -> np.ndarray[Any, Any]:
        is_array = isinstance(value, np.ndarray)
        if is_array and value.dtype == self._dtype:
            return np.asarray(value)
        if self.argument is not None and is_array and value.dtype.kind == self._dtype.kind == "f":
            return round_floats(value, self._dtype)
        as_it_is = is_array and np.can_cast(value.dtype, self._dtype, "safe")
        if self.field.kind in PIXEL_KINDS and self.argument is None and not as_it_is:
            raise InvalidRequest(
                f"field {self.field.name!r}: codec 'raw' holds {self._dtype}, found {form(value)}, which is never "
                f"narrowed silently; use --codec {self.field.name}=raw:{self._dtype} to narrow it"
            )
        return cast_exactly(value, self._dtype)
