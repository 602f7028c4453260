"""packer: image folders packed once into LMDB, HDF5, .pth or BMP, and read back at the speed of the machine."""

from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.datasets import PackDataset

__version__ = "0.1.0"
__all__ = ["__version__", "open"]


def open(path: str | PathLike[str], **options: Any) -> "PackDataset":  # noqa: A001  packer.open reads well
    """The data set of any pack, whatever its format; options as of packer.datasets.PackDataset."""
    from packer.datasets import open_pack  # noqa: PLC0415  brings torch: `import packer` stays light

    return open_pack(path, **options)
