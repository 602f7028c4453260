"""Exact casts: conversion of arrays to another dtype without a change of values, and checks of output arrays."""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.schema import Buffer as Buffer

_NUMBERS = "biuf"


def cast_exactly(value: Any, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return `value` as an array of `dtype` with equal elements (NaN equals NaN). Copy only if necessary.

    Raises BadInput if `dtype` cannot represent an element, and InvalidRequest if `value` does not contain numbers.
    """
    wanted = np.dtype(dtype)
    try:
        given = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise InvalidRequest(f"expected numbers of one shape, found {type(value).__name__}: {error}") from error
    if given.dtype.kind not in _NUMBERS:
        raise InvalidRequest(f"expected {wanted} numbers, found {type(value).__name__} of {given.dtype}")
    loses = given.dtype.kind in "iu" and given.dtype.itemsize == 8 and wanted.kind == "f"  # safe for NumPy
    if np.can_cast(given.dtype, wanted, "safe") and not loses:
        return given.astype(wanted, copy=False)
    with np.errstate(invalid="ignore", over="ignore"):
        made = given.astype(wanted)
        same = _equal(given, made)
    if not same.all():
        place = tuple(int(axis) for axis in np.argwhere(~same)[0])
        raise BadInput(f"{given.dtype} value {given[place]} does not fit {wanted} exactly; use a wider dtype")
    return made


def _equal(given: npt.NDArray[Any], made: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return elementwise equality as bool. The comparison is exact, unlike NumPy's comparison of int64 and float64."""
    if given.dtype.kind == made.dtype.kind == "f":
        return np.asarray((given == made) | (np.isnan(given) & np.isnan(made)))
    if given.dtype.kind == "f" or made.dtype.kind == "f":
        floats, whole = (given, made) if given.dtype.kind == "f" else (made, given)
        # int64 represents every integral float below 2**63 exactly
        inside = np.isfinite(floats) & (np.abs(floats) < 2.0**63)
        as_int = np.where(inside, floats, 0).astype(np.int64)
        fits = whole <= np.iinfo(np.int64).max if whole.dtype == np.uint64 else np.True_
        return np.asarray(inside & fits & (as_int == floats) & (as_int == whole.astype(np.int64)))
    return np.asarray(given == made)  # NumPy compares signed with unsigned exactly


def round_floats(given: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return a float array rounded to a narrower float dtype. Keep NaN and infinity. Raises BadInput for overflow."""
    with np.errstate(over="ignore"):
        made = given.astype(dtype)
    lost = np.isinf(made) & np.isfinite(given)
    if lost.any():
        raise BadInput(f"value {given[lost].flat[0]} is beyond {np.dtype(dtype)}; use raw:{given.dtype}")
    return made


def read_numbers(buffer: Buffer, dtype: np.dtype[Any], *, offset: int = 0) -> npt.NDArray[Any]:
    """Return the bytes of `buffer` from `offset` to the end as an array (n,) of little-endian numbers, without a copy.

    Raises CorruptRecord if `dtype` is bool and a byte is neither 0 nor 1.
    """
    values = np.frombuffer(buffer, dtype.newbyteorder("<"), offset=offset)
    if dtype == np.bool_ and values.view(np.uint8).max(initial=0) > 1:
        raise CorruptRecord("a truth value is neither 0 nor 1; pack again from the source")
    return values


def target(shape: tuple[int, ...], dtype: npt.DTypeLike, *, out: Any = None) -> npt.NDArray[Any]:
    """Return `out`, or a new uninitialized array if `out` is None.

    Raises InvalidRequest if `out` is not a writable C-contiguous array of this shape and dtype.
    """
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise InvalidRequest(f"out: expected a NumPy array of {np.dtype(dtype)} {shape}, found {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        order = "C-contiguous" if out.flags.c_contiguous else "not C-contiguous"
        access = "writable" if out.flags.writeable else "read-only"
        raise InvalidRequest(
            f"out: expected a C-contiguous writable array of {np.dtype(dtype)} {shape}, "
            f"found {out.dtype} {out.shape}, {order}, {access}"
        )
    return out.view(np.ndarray)


def deliver(value: npt.NDArray[Any], *, out: Any = None) -> npt.NDArray[Any]:
    """Copy `value` into `out` and return `out`. If `out` is None, return `value` as a C-contiguous array.

    Raises InvalidRequest if `out` is not a writable C-contiguous array with the shape and dtype of `value`.
    """
    if out is None:
        return np.ascontiguousarray(value)
    np.copyto(target(value.shape, value.dtype, out=out), value)
    return out  # type: ignore[no-any-return]


def form(value: Any) -> str:
    """Return a description for messages: dtype and shape of an array, or the type name of another value."""
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
