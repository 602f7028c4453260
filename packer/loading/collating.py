"""Collating: the values of a batch's samples as one value per field, as torch's default collate has it.

What has no one shape becomes a list of tensors, or with `pad` one tensor with zeros behind each value.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from packer.batching import Ragged
from packer.errors import Refused

RAGGED = ("list", "pad")
_PICTURE_NDIM = 3


class Collator:
    """Puts samples together; for several threads."""

    def __init__(self, ragged: str) -> None:
        """ragged: "list" or "pad", for tensors that differ in their first length; raises Refused."""
        if ragged not in RAGGED:
            raise Refused(f"ragged={ragged!r}: expected one of {', '.join(RAGGED)}")
        self._pad = ragged == "pad"

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Batched fields, the odd ones padded where that was asked for; raises Refused for pictures of many sizes."""
        batch: dict[str, Any] = {}
        for name, values in fields.items():
            if isinstance(values, Ragged):
                values.refuse(name)
            batch[name] = values
            if self._pad and _is_ragged(values):
                batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
                batch[f"{name}_count"] = torch.tensor([len(value) for value in values])
        return batch

    def samples(self, samples: Sequence[Any]) -> Any:
        """Dicts, tuples and lists member by member, arrays and tensors stacked, numbers a tensor, others a list."""
        first = samples[0]
        if isinstance(first, dict):
            return self.fields({name: self.samples([sample[name] for sample in samples]) for name in first})
        if isinstance(first, (tuple, list)):
            return [self.samples(column) for column in zip(*samples, strict=True)]
        if isinstance(first, (np.ndarray, torch.Tensor)):
            return _stacked([torch.as_tensor(sample) for sample in samples])
        return torch.tensor(samples) if isinstance(first, (bool, int, float)) else list(samples)


def _stacked(values: list[torch.Tensor]) -> Any:
    first = values[0]
    if all(value.shape == first.shape for value in values):
        return torch.stack(values)
    return Ragged(values) if first.ndim == _PICTURE_NDIM and first.dtype == torch.uint8 else values


def _is_ragged(values: Any) -> bool:
    """Whether a field is a list of tensors that differ at most in their first length."""
    if not isinstance(values, list) or not values or not all(isinstance(value, torch.Tensor) for value in values):
        return False
    return all(value.ndim >= 1 and value.shape[1:] == values[0].shape[1:] for value in values)


def bytes_of(batch: Any) -> int:
    """Bytes of all tensors of a batch."""
    if isinstance(batch, torch.Tensor):
        return batch.numel() * batch.element_size()
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return sum(map(bytes_of, values))
