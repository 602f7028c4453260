"""packer: image datasets packed once into LMDB, HDF5, .pth or BMP, and loaded fast by PyTorch."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packer import dali, datasets, errors, geometry, grasp, loading, sources
    from packer.conversion.append import append
    from packer.conversion.convert import convert
    from packer.conversion.writer import Writer
    from packer.conversion.writer_shards import finish
    from packer.datasets.pack_dataset import concat
    from packer.datasets.pack_dataset import open as open
    from packer.inspect.extraction import extract
    from packer.inspect.verify import verify
    from packer.loading.loader import Loader
    from packer.loading.mix import Mix
    from packer.tools.wait_monitor import monitor

__version__ = "0.1.0"
# `open` is public too. It is not in this list, because `from packer import *` must not replace the builtin function.
__all__ = [
    "Loader",
    "Mix",
    "Writer",
    "__version__",
    "append",
    "concat",
    "convert",
    "dali",
    "datasets",
    "errors",
    "extract",
    "finish",
    "geometry",
    "grasp",
    "loading",
    "monitor",
    "sources",
    "verify",
]

# function or class -> module. It is imported on first use: `import packer` and `packer --help` load neither torch nor
# OpenCV.
_HOMES = {
    "Loader": "packer.loading.loader",
    "Mix": "packer.loading.mix",
    "append": "packer.conversion.append",
    "concat": "packer.datasets.pack_dataset",
    "Writer": "packer.conversion.writer",
    "convert": "packer.conversion.convert",
    "extract": "packer.inspect.extraction",
    "finish": "packer.conversion.writer_shards",
    "monitor": "packer.tools.wait_monitor",
    "open": "packer.datasets.pack_dataset",
    "verify": "packer.inspect.verify",
}


def __dir__() -> list[str]:
    """Return the public names, for `dir(packer)` and completion."""
    return sorted([*__all__, "__doc__", "open"])


if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error

    def __getattr__(name):
        """Import and return a public name or a submodule at its first use. Raises AttributeError for other names."""
        if name in _HOMES:
            found = getattr(importlib.import_module(_HOMES[name]), name)
        elif name in __all__:
            found = importlib.import_module(f"packer.{name}")
        else:
            raise AttributeError(f"module 'packer' has no attribute {name!r}")
        globals()[name] = found
        return found
