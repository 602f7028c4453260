"""Private functions of torch that packer calls, and the torch versions that have been checked.

torch may change private functions in a release. Therefore only this module calls them, and each torch release is
checked. The checked versions are 2.6.0 and 2.13.0. `_new_shared` and `_shutdown_workers` are also checked in 2.14.1.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data._utils.collate import default_collate_fn_map

CollateFunction = Callable[..., Any]


def register_collate(kind: type, collate: CollateFunction) -> None:
    """Make torch's `default_collate` call `collate` for batches whose first sample has type `kind`.

    torch documents the table of these functions with `default_collate`, but exports it from a private module.
    """
    default_collate_fn_map[kind] = collate


def storage_over_file(descriptor: int, size: int) -> torch.UntypedStorage:
    """Return a storage of `size` bytes that maps the start of the file `descriptor` in memory.

    The caller of this function must close the descriptor. torch.multiprocessing uses the same private function.
    """
    storages: Any = torch.UntypedStorage
    storage: torch.UntypedStorage = storages._new_shared_fd_cpu(descriptor, size)
    return storage


def new_shared_storage(size: int) -> torch.UntypedStorage:
    """Return a new storage of `size` bytes in shared memory, as torch's collate does in a worker process."""
    storages: Any = torch.UntypedStorage
    storage: torch.UntypedStorage = storages._new_shared(size, device="cpu")
    return storage


def end_workers(iterator: Any) -> None:
    """End the worker processes of a DataLoader iterator now, instead of in the destructor of the iterator.

    If a traceback references the iterator, the destructor runs late, and the worker processes remain until then.
    """
    iterator._shutdown_workers()
