"""Inputs: the network's input of a batch whose pictures travelled as bytes, made where the batch lies now."""

from collections.abc import Sequence

import torch


def as_input(x: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """float32 (N, C, S, S), depth first, of what `GraspDataset(..., pixels="uint8")` gives as x, on the same device.

    x: uint8 (N, 3, S, S), and after it the depth, float32 (N, 1, S, S), where there is any. A finished float32 x is
    returned as it is.
    """
    if isinstance(x, torch.Tensor):
        return x
    pixels, *depth = x
    floats = pixels.float() / 255
    floats = floats - floats.mean(dim=(-3, -2, -1), keepdim=True)
    return torch.cat([*depth, floats], dim=-3)
