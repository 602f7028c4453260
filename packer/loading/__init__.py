"""Loading: batches of a pack, decoded by threads into reused memory, and prefetchers for any loader."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packer.loading.background_iterator import BackgroundIterator
    from packer.loading.cuda_prefetcher import CUDAPrefetcher, DataLoaderX
    from packer.loading.loader import Loader
    from packer.loading.mix import Mix
    from packer.loading.size_buckets import SizeBuckets
    from packer.loading.weights import balanced

__all__ = ["BackgroundIterator", "CUDAPrefetcher", "DataLoaderX", "Loader", "Mix", "SizeBuckets", "balanced"]

_HOMES = {
    "BackgroundIterator": "packer.loading.background_iterator",
    "CUDAPrefetcher": "packer.loading.cuda_prefetcher",
    "DataLoaderX": "packer.loading.cuda_prefetcher",
    "Loader": "packer.loading.loader",
    "Mix": "packer.loading.mix",
    "SizeBuckets": "packer.loading.size_buckets",
    "balanced": "packer.loading.weights",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, because datasets and loaders import modules of this folder."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'packer.loading' has no attribute {name!r}")
