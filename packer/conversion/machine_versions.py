"""Machine versions: the versions of everything on a machine that determines the bytes of a part.

A machine must not build parts if its versions differ from those of the machine that runs `convert`. Equal versions of a
Python package may contain different C libraries, so the versions of the C libraries are compared, too. Pixels that
OpenCV computes also depend on the processor, so the checksum of a small computed image can be one of the versions.
"""

import platform
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from zlib import crc32

import numpy as np

from packer import __version__
from packer.errors import InvalidRequest

_PACKAGES = ("numpy", "torch", "simplejpeg", "PyTurboJPEG")  # not imported, because torch takes seconds to import
_MODULES: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "OpenCV": ("cv2", lambda cv2: str(cv2.__version__)),
    "LMDB": ("lmdb", lambda lmdb: ".".join(map(str, lmdb.version()))),
    "lmdb": ("lmdb", lambda lmdb: str(lmdb.__version__)),
    "HDF5": ("h5py", lambda h5py: str(h5py.version.hdf5_version)),
    "h5py": ("h5py", lambda h5py: str(h5py.version.version)),
}
_ABSENT = "not installed"
_PIXELS = "pixels"


def library_versions(*, pixels: bool) -> dict[str, str]:
    """Return the versions on this machine, by library. With `pixels`, the checksum of a computed image is included."""
    from packer.images.backends import strict_jpeg  # most conversions do without

    found = {"packer": __version__, "Python": ".".join(map(str, sys.version_info[:2])), "machine": platform.machine()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = _ABSENT
    for name, (module, ask) in _MODULES.items():
        try:
            found[name] = ask(import_module(module))
        except ImportError:
            found[name] = _ABSENT
    found["JPEG"] = strict_jpeg.describe(strict_jpeg.library())
    if pixels:
        found[_PIXELS] = _pixels()
    return found


def compares_pixels(versions: Mapping[str, str]) -> bool:
    """Return True if `versions`, a result of `library_versions`, contains the checksum of an image."""
    return _PIXELS in versions


def check_versions(node: str, expected: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Raise InvalidRequest if the versions of machine `node` differ from the expected versions.

    Args:
        node: the name of the machine that builds parts.
        expected: the versions of the machine that runs `convert`.
        found: the versions of machine `node`.
    """
    differing = [
        f"{name} {found.get(name)}, here {expected[name]}" for name in expected if found.get(name) != expected[name]
    ]
    if differing:
        differs = found.get(_PIXELS) != expected.get(_PIXELS)
        advice = ", or convert on machines with one kind of processor" if differs else ""
        raise InvalidRequest(
            f"{node}: has {'; '.join(differing)}: a pack could have other bytes; install the same there{advice}"
        )


def _pixels() -> str:
    """Return the CRC-32 of a small image after OpenCV resizes, rotates and encodes it."""
    import cv2  # slow import

    rows, columns, channels = np.indices((93, 131, 3))
    image = ((rows * 37 + columns * 101 + channels * 59 + rows * columns) % 256).astype(np.uint8)
    turned = cv2.getRotationMatrix2D((60.5, 40.25), 33.0, 1.3)
    made = [cv2.resize(image, (61, 47), interpolation=how) for how in (cv2.INTER_AREA, cv2.INTER_LINEAR)]
    made.append(cv2.resize(image, (201, 147), interpolation=cv2.INTER_CUBIC))
    made.append(cv2.warpAffine(image, turned, (131, 93), flags=cv2.INTER_LINEAR))
    made += [cv2.imencode(suffix, image)[1] for suffix in (".jpg", ".png")]
    made.append(cv2.imdecode(made[-2], cv2.IMREAD_COLOR))
    total = 0
    for each in made:
        total = crc32(np.ascontiguousarray(each).tobytes(), total)
    return f"{total:08x}"
