"""Names of torch that are private, each with what packer needs it for and the versions whose code was read.

torch promises nothing of them, so they are named here only: a new release is read against this list. Names and
signatures were compared in torch 2.6.0 and 2.13.0, those of `_new_shared` and `_shutdown_workers` in 2.14.1 too.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.collate import default_collate_fn_map

CollateFunction = Callable[..., Any]


def register_collate(kind: type, collate: CollateFunction) -> None:
    """Have torch's default collate call a function for batches whose first sample is of this type.

    `default_collate` documents the table as the place for new types; it is importable from a private module only.
    """
    default_collate_fn_map[kind] = collate


def storage_over_file(descriptor: int, size: int) -> torch.UntypedStorage:
    """A storage over the first bytes of a file in memory, with a mapping of its own, as torch makes of one it receives.

    torch.multiprocessing rebuilds a storage by this call; the caller closes its descriptor.
    """
    storages: Any = torch.UntypedStorage
    storage: torch.UntypedStorage = storages._new_shared_fd_cpu(descriptor, size)
    return storage


def new_shared_storage(size: int) -> torch.UntypedStorage:
    """A new storage in shared memory, as torch's collate makes one in a worker process."""
    storages: Any = torch.UntypedStorage
    storage: torch.UntypedStorage = storages._new_shared(size, device="cpu")
    return storage


def end_workers(iterator: Any) -> None:
    """End the worker processes of a DataLoader's iterator now, as its destructor does at a time of its own.

    A traceback may hold the iterator, and a collection may end its queues before it: then the processes would stay.
    """
    iterator._shutdown_workers()
