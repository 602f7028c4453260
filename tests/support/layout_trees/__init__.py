"""Small trees of the sources that read layouts of annotations: one module each, named as the source, with `build`."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial
from pathlib import Path


def builders() -> dict[str, Callable[[Path], Path]]:
    """The name of every source here -> what makes its tree below a folder, and says where it lies."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name.replace("_", "-"): partial(_build, name) for name in names}


def _build(name: str, root: Path) -> Path:
    module = importlib.import_module(f"{__name__}.{name}")  # late: they take their images from source_trees
    place: Path = module.build(root)
    return place
