"""Target: the memory that a result is written to, the caller's or new."""

from typing import Any

import numpy as np
import numpy.typing as npt

from packer.errors import Refused


def target(shape: tuple[int, ...], dtype: npt.DTypeLike, *, out: Any = None) -> npt.NDArray[Any]:
    """`out` as a plain array, or a new one, not initialised; raises Refused unless `out` is C-contiguous and exact."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise Refused(f"out: expected a NumPy array of {np.dtype(dtype)} {shape}, found {type(out).__name__}")
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        order = "C-contiguous" if out.flags.c_contiguous else "not C-contiguous"
        access = "writable" if out.flags.writeable else "read-only"
        raise Refused(
            f"out: expected a C-contiguous writable array of {np.dtype(dtype)} {shape}, "
            f"found {out.dtype} {out.shape}, {order}, {access}"
        )
    return out.view(np.ndarray)


def deliver(value: npt.NDArray[Any], *, out: Any = None) -> npt.NDArray[Any]:
    """`value` itself, C-contiguous, or copied into `out`; raises Refused unless `out` is exact."""
    if out is None:
        return np.ascontiguousarray(value)
    np.copyto(target(value.shape, value.dtype, out=out), value)
    return out  # type: ignore[no-any-return]


def form(value: Any) -> str:
    """What a value is, for messages: dtype and shape of an array, else its type."""
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
