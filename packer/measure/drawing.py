"""Drawing: what all plots share. matplotlib is the optional extra `plot`, and loaded when something is drawn."""

import importlib.util
import io
from pathlib import Path
from typing import Any

from packer.errors import MissingPackage, Refused
from packer.files.save import save as save_file
from packer.registry import import_or_explain

BLUE, ORANGE, GRAY = "#3274a1", "#e1812c", "#8c8c8c"
# told apart by people who do not see all colours, too: Okabe and Ito, "Color universal design", 2008
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442", "#000000")
_DPI = 120
_SUFFIXES = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raise MissingPackage where matplotlib is absent, Refused for a file that it cannot write: before any work."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingPackage("--plot needs the package 'matplotlib': pip install matplotlib, or scripts/install plot")
    if path.suffix.lower() not in _SUFFIXES:
        raise Refused(f"{path}: cannot draw into it; expected a name that ends in {', '.join(_SUFFIXES)}")


def figure(width: float, height: float) -> Any:
    """A matplotlib Figure of that size in inches, of no window and no global state."""
    module: Any = import_or_explain("matplotlib.figure", "--plot")
    return module.Figure(figsize=(width, height), layout="constrained")


def plain(axes: Any, *, grid: str = "y") -> None:
    """Axes with a light grid behind and no frame."""
    axes.grid(axis=grid, color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save(drawn: Any, path: Path) -> None:
    """Write the file, replacing it; raises as files/save.py does."""
    data = io.BytesIO()
    drawn.savefig(data, dpi=_DPI, format=path.suffix[1:].lower())
    save_file(path, data.getvalue())
