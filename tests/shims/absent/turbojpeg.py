"""PyTurboJPEG as it is on a system without libturbojpeg: it stands before the real module, whose code it runs."""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).parent
_real = PathFinder.find_spec("turbojpeg", [path for path in sys.path if Path(path).resolve() != _HERE])
if _real is None or _real.loader is None:
    raise ModuleNotFoundError("No module named 'turbojpeg'", name="turbojpeg")
_real.loader.exec_module(sys.modules[__name__])


_load = globals()["TurboJPEG"].__init__


def _only_given(self: object, lib_path: "str | None" = None) -> None:
    if lib_path is None:
        raise RuntimeError("Unable to locate turbojpeg library automatically: hidden by the test run")
    _load(self, lib_path)


globals()["TurboJPEG"].__init__ = _only_given
