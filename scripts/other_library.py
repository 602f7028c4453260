"""Prints which libturbojpeg the tests have not run with here, as pytest's option --libturbojpeg names it."""

import importlib.util
import sys

import turbojpeg

try:
    turbojpeg.TurboJPEG()
except (RuntimeError, OSError):
    if importlib.util.find_spec("pylibjxl") is not None:
        print("bundled")
    else:
        sys.stderr.write("tests with PyTurboJPEG are left out: apt install libturbojpeg0\n")
else:
    print("absent")
