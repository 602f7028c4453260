"""Every way to call libjpeg-turbo: PyTurboJPEG on the system's library, or on one that a test package brings.

`pytest --libturbojpeg=absent` hides the system's library from this process and from every program that it starts, and
`--libturbojpeg=bundled` gives them the one of the test package: a machine of either kind tests both.
"""

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import turbojpeg

from packer.images.backends import simplejpeg as simplejpeg_backend
from packer.images.backends import strict_jpeg
from packer.images.backends import turbojpeg as turbojpeg_backend
from packer.images.file_types._header_record import Buffer, Header

ABSENT: dict[str, str] = {}  # name -> why it does not work here


def bundled() -> Path | None:
    """The shared object of pylibjxl, which exports the TurboJPEG functions of its libjpeg-turbo; None without it."""
    spec = importlib.util.find_spec("pylibjxl")
    places = spec.submodule_search_locations if spec is not None else None
    return next((path for place in places or () for path in Path(place).glob("_pylibjxl*.so")), None)


def _pyturbojpeg() -> strict_jpeg.JPEGLibrary:
    """On the library that PyTurboJPEG finds, else on the bundled one; RuntimeError or OSError without either."""
    path = bundled()
    try:
        found = turbojpeg_backend.PyTurboJPEG()
    except (RuntimeError, OSError):
        if path is None:
            raise
        with mock.patch.object(turbojpeg, "TurboJPEG", partial(turbojpeg.TurboJPEG, str(path))):
            found = turbojpeg_backend.PyTurboJPEG()
    if path is not None and str(path) in Path("/proc/self/maps").read_text():
        found.binary = path.name
    return found


def _working() -> dict[str, strict_jpeg.JPEGLibrary]:
    found: dict[str, strict_jpeg.JPEGLibrary] = {}
    try:
        found["PyTurboJPEG"] = _pyturbojpeg()
    except (RuntimeError, OSError) as error:
        cause = str(error).splitlines()[0]
        ABSENT["PyTurboJPEG"] = f"{cause}, nor pylibjxl's, which needs Python 3.11; install libturbojpeg0"
    found["simplejpeg"] = simplejpeg_backend.SimpleJPEG()
    return found


LIBRARIES = _working()
EACH_LIBRARY = [
    *LIBRARIES,
    *(pytest.param(name, marks=pytest.mark.skip(reason=why)) for name, why in ABSENT.items()),
]


class Noted:
    """A library that tells of each call before it makes it, once, however the library does its work inside.

    It stands in for the library as `libjpeg.library` gives it out.
    """

    def __init__(self, library: strict_jpeg.JPEGLibrary, note: Callable[[str, dict[str, Any]], None]) -> None:
        self.name, self.binary = library.name, library.binary
        self._library = library
        self._note = note

    def decode(self, buffer: Buffer, pixels: Any, **how: Any) -> None:
        self._note("decode", how)
        self._library.decode(buffer, pixels, **how)

    @property
    def decode_region(self) -> strict_jpeg.RegionDecoder | None:
        return self._decode_region if self._library.decode_region is not None else None

    def _decode_region(self, buffer: Buffer, pixels: Any, **how: Any) -> None:
        self._note("decode_region", how)
        assert self._library.decode_region is not None
        self._library.decode_region(buffer, pixels, **how)

    def check(self, buffer: Buffer, found: Header) -> None:
        self._note("check", {})
        self._library.check(buffer, found)
