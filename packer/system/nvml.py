"""NVML: how busy NVIDIA's GPUs are, asked of the driver's own library; no package is needed.

Source: NVML API Reference Guide, nvmlDeviceGetUtilizationRates: the share of the last sample period, 1/6 to 1 s, in
which at least one kernel ran.
"""

import ctypes
from collections.abc import Callable
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
_SUCCESS = 0


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Nvml:
    """The GPUs of this machine, all that the driver shows to this process."""

    def __init__(self, library: Any, handles: list[ctypes.c_void_p]) -> None:
        self._library = library
        self._handles = handles

    @classmethod
    def open(cls, load: Callable[[str], Any] = ctypes.CDLL) -> "Nvml | None":
        """None where the library is absent, or shows no GPU. load: finds a library by its name."""
        try:
            library = load(_LIBRARY)
            if library.nvmlInit_v2() != _SUCCESS:
                return None
            count = ctypes.c_uint()
            if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != _SUCCESS:
                return None
            handles = [ctypes.c_void_p() for _ in range(count.value)]
            for number, handle in enumerate(handles):
                if library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(number), ctypes.byref(handle)) != _SUCCESS:
                    return None
        except (OSError, AttributeError):  # no such library, or one without these functions
            return None
        return cls(library, handles) if handles else None

    def busy(self) -> list[int | None]:
        """Percent per GPU, 0 to 100; None for one that does not tell."""
        found: list[int | None] = []
        for handle in self._handles:
            rates = _Utilization()
            failed = self._library.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates))
            found.append(None if failed else int(rates.gpu))
        return found
