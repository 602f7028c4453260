"""PyTurboJPEG on the libjpeg-turbo that pylibjxl brings: it stands before the real module, whose code it runs."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HERE = Path(__file__).parent
_real = PathFinder.find_spec("turbojpeg", [path for path in sys.path if Path(path).resolve() != _HERE])
if _real is None or _real.loader is None:
    raise ModuleNotFoundError("No module named 'turbojpeg'", name="turbojpeg")
_real.loader.exec_module(sys.modules[__name__])


def _bundled() -> str:
    spec = importlib.util.find_spec("pylibjxl")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        for path in Path(folder).glob("_pylibjxl*.so"):
            return str(path)
    raise RuntimeError("Unable to locate turbojpeg library automatically: pylibjxl is not installed")


_load = globals()["TurboJPEG"].__init__
globals()["TurboJPEG"].__init__ = lambda self, lib_path=None: _load(self, lib_path or _bundled())
