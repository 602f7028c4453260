"""packer: image folders packed once into LMDB, HDF5, .pth or BMP, and read back at the speed of the machine."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packer import dali, datasets, errors, geometry, grasp, loading
    from packer.conversion.convert import convert
    from packer.datasets.pack_dataset import (
        BasicSRLMDBDataset,
        BMPDataset,
        CaffeLMDBDataset,
        EfficientLMDBDataset,
        HDF5Dataset,
        LMDBDataset,
        N5Dataset,
        PackDataset,
        PthDataset,
        RecordIODataset,
        TFRecordDataset,
        WebDatasetDataset,
    )
    from packer.datasets.pack_dataset import open_pack as open
    from packer.grasp.dataset import GraspDataset
    from packer.inspect.extraction import extract
    from packer.inspect.pack_verification import verify
    from packer.loading.background_iterator import BackgroundIterator
    from packer.loading.loader import Loader
    from packer.loading.prefetchers import CUDAPrefetcher, DataLoaderX
    from packer.tools.wait_monitor import monitor

__version__ = "0.1.0"
__all__ = [
    "BMPDataset",
    "BackgroundIterator",
    "BasicSRLMDBDataset",
    "CUDAPrefetcher",
    "CaffeLMDBDataset",
    "DataLoaderX",
    "EfficientLMDBDataset",
    "GraspDataset",
    "HDF5Dataset",
    "LMDBDataset",
    "Loader",
    "N5Dataset",
    "PackDataset",
    "PthDataset",
    "RecordIODataset",
    "TFRecordDataset",
    "WebDatasetDataset",
    "__version__",
    "convert",
    "dali",
    "datasets",
    "errors",
    "extract",
    "geometry",
    "grasp",
    "loading",
    "monitor",
    "open",
    "verify",
]

# public name -> module, and its name there where that is another. They are imported when they are first asked for:
# `import packer` and `packer --help` load neither torch nor OpenCV.
_HOMES = {
    "BMPDataset": "packer.datasets.pack_dataset",
    "BackgroundIterator": "packer.loading.background_iterator",
    "BasicSRLMDBDataset": "packer.datasets.pack_dataset",
    "CUDAPrefetcher": "packer.loading.prefetchers",
    "CaffeLMDBDataset": "packer.datasets.pack_dataset",
    "DataLoaderX": "packer.loading.prefetchers",
    "EfficientLMDBDataset": "packer.datasets.pack_dataset",
    "GraspDataset": "packer.grasp.dataset",
    "HDF5Dataset": "packer.datasets.pack_dataset",
    "LMDBDataset": "packer.datasets.pack_dataset",
    "N5Dataset": "packer.datasets.pack_dataset",
    "Loader": "packer.loading.loader",
    "PackDataset": "packer.datasets.pack_dataset",
    "PthDataset": "packer.datasets.pack_dataset",
    "RecordIODataset": "packer.datasets.pack_dataset",
    "TFRecordDataset": "packer.datasets.pack_dataset",
    "WebDatasetDataset": "packer.datasets.pack_dataset",
    "convert": "packer.conversion.convert",
    "extract": "packer.inspect.extraction",
    "monitor": "packer.tools.wait_monitor",
    "open": "packer.datasets.pack_dataset:open_pack",
    "verify": "packer.inspect.pack_verification",
}


def __dir__() -> list[str]:
    """The public names, for completion."""
    return sorted([*__all__, "__doc__"])


if not TYPE_CHECKING:  # to a type checker a name that is not imported above is an error

    def __getattr__(name):
        """Import a public name, or a module that is not imported yet."""
        if name in _HOMES:
            module, _, inner = _HOMES[name].partition(":")
            found = getattr(importlib.import_module(module), inner or name)
        elif name in __all__:
            found = importlib.import_module(f"packer.{name}")
        else:
            raise AttributeError(f"module 'packer' has no attribute {name!r}")
        globals()[name] = found
        return found
