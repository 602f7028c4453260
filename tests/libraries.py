"""Every way to call libjpeg-turbo that works here: PyTurboJPEG needs the system's library, which may be absent."""

import pytest

from packer.decoders import libjpeg, simple, turbo

ABSENT: dict[str, str] = {}  # name -> why it does not work here


def _working() -> dict[str, libjpeg.Library]:
    found: dict[str, libjpeg.Library] = {}
    try:
        found["PyTurboJPEG"] = turbo.Library()
    except (RuntimeError, OSError) as error:
        ABSENT["PyTurboJPEG"] = f"PyTurboJPEG does not work here: {error}; install libturbojpeg0 to test with it"
    found["simplejpeg"] = simple.Library()
    return found


LIBRARIES = _working()
EACH_LIBRARY = [
    *LIBRARIES,
    *(pytest.param(name, marks=pytest.mark.skip(reason=why)) for name, why in ABSENT.items()),
]
