"""packer: image folders packed once into LMDB, HDF5, .pth or BMP, and read back at the speed of the machine."""

import importlib
from collections.abc import Callable, Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.datasets.pack_dataset import PackDataset
    from packer.geometry import Geometry
    from packer.grasp.dataset import GraspDataset
    from packer.loading import BackgroundIterator, CUDAPrefetcher, DataLoaderX, Loader
    from packer.tools.monitor import Monitor

__version__ = "0.1.0"
__all__ = [
    "BackgroundIterator",
    "CUDAPrefetcher",
    "DataLoaderX",
    "GraspDataset",
    "Loader",
    "__version__",
    "monitor",
    "open",
]


def open(
    path: str | PathLike[str],
    fields: Sequence[str] | None = None,
    *,
    split: str | None = None,
    geometry: "Geometry | None" = None,
    transform: Callable[[Any], Any] | None = None,
    output: str = "torch",
    as_tuple: Sequence[str] | None = None,
    decoder: str = "auto",
    dct: str = "accurate",
    verify: str = "first",
    stage: str | PathLike[str] | None = None,
) -> "PackDataset":  # packer.open reads well
    """The data set of any pack, whatever its format; arguments as of packer.datasets.PackDataset."""
    from packer.datasets.pack_dataset import open_pack  # brings torch: `import packer` stays light

    return open_pack(
        path,
        fields,
        split=split,
        geometry=geometry,
        transform=transform,
        output=output,
        as_tuple=as_tuple,
        decoder=decoder,
        dct=dct,
        verify=verify,
        stage=stage,
    )


def monitor(loader: Iterable[Any], **options: Any) -> "Monitor":
    """The same batches, and at the end of the program how long the loop waited for them; options as of Monitor."""
    from packer.tools.monitor import Monitor  # `import packer` stays light

    return Monitor(loader, **options)


_MODULES = ("datasets", "errors", "geometry", "grasp", "loading")


def __dir__() -> list[str]:
    """What a user needs, for completion."""
    return sorted([*__all__, *_MODULES, "__doc__"])


def __getattr__(name: str) -> Any:
    """The loaders, packer.GraspDataset and the modules, which bring torch, when they are first asked for."""
    if name in _MODULES:
        return importlib.import_module(f"packer.{name}")
    if name == "GraspDataset":
        from packer.grasp.dataset import GraspDataset  # brings torch

        return GraspDataset
    if name in __all__:
        from packer import loading  # brings torch

        return getattr(loading, name)
    raise AttributeError(f"module 'packer' has no attribute {name!r}")
