"""Ranks: which share of the samples is this process's."""

import torch

from packer.errors import Refused


def place_among_ranks(rank: int | None, world_size: int | None, *, given_order: bool) -> tuple[int, int]:
    """rank and world_size as given, else as torch.distributed has them, else 0 of 1."""
    if (rank is None) != (world_size is None):
        raise Refused(f"rank={rank}, world_size={world_size}: pass both or neither")
    if rank is not None and world_size is not None:
        return rank, world_size
    distributed = torch.distributed
    if given_order or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
