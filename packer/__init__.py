"""packer: image folders packed once into LMDB, HDF5, .pth or BMP, and read back at the speed of the machine."""

from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.datasets import PackDataset
    from packer.loading import BackgroundIterator, CUDAPrefetcher, DataLoaderX, Loader

__version__ = "0.1.0"
__all__ = ["BackgroundIterator", "CUDAPrefetcher", "DataLoaderX", "Loader", "__version__", "open"]


def open(path: str | PathLike[str], **options: Any) -> "PackDataset":  # noqa: A001  packer.open reads well
    """The data set of any pack, whatever its format; options as of packer.datasets.PackDataset."""
    from packer.datasets import open_pack  # noqa: PLC0415  brings torch: `import packer` stays light

    return open_pack(path, **options)


def __getattr__(name: str) -> Any:
    """packer.Loader and the prefetchers, which bring torch, when they are first asked for."""
    if name in __all__:
        from packer import loading  # noqa: PLC0415  as above

        return getattr(loading, name)
    raise AttributeError(f"module 'packer' has no attribute {name!r}")
