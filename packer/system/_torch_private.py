"""Private names of torch that packer uses, and the versions whose code was compared.

torch may change them, so only this module uses them, and each release of torch is compared with it. Names and
signatures were compared in torch 2.6.0 and 2.13.0, those of `_new_shared` and `_shutdown_workers` also in 2.14.1.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.collate import default_collate_fn_map

CollateFunction = Callable[..., Any]


def register_collate(kind: type, collate: CollateFunction) -> None:
    """Register a function of torch's default collate for batches whose first sample has a type.

    `default_collate` documents the table, which only a private module exports.
    """
    default_collate_fn_map[kind] = collate


def storage_over_file(descriptor: int, size: int) -> torch.UntypedStorage:
    """Return a storage over the first bytes of a file in memory, with its own mapping.

    The caller closes the descriptor. torch.multiprocessing rebuilds received storages by this call.
    """
    storages: Any = torch.UntypedStorage
    storage: torch.UntypedStorage = storages._new_shared_fd_cpu(descriptor, size)
    return storage


def new_shared_storage(size: int) -> torch.UntypedStorage:
    """Return a new storage in shared memory, as torch's collate does in a worker process."""
    storages: Any = torch.UntypedStorage
    storage: torch.UntypedStorage = storages._new_shared(size, device="cpu")
    return storage


def end_workers(iterator: Any) -> None:
    """End the worker processes of a DataLoader's iterator now, instead of in its destructor.

    A traceback may keep the iterator alive, or its queues may end first; then the processes would stay.
    """
    iterator._shutdown_workers()
