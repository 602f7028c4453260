"""Collate: the values of a batch's samples as one value per field, as torch's default collate has it.

What has no one shape becomes a list of tensors, or with `pad` one tensor with zeros behind each value. A pack's schema
says which fields may differ in length: they are treated alike in a batch whose lengths happen to be equal.
"""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch

from packer.datasets.batch import Ragged
from packer.errors import InvalidRequest
from packer.schema import PIXEL_KINDS, Field, Schema

RaggedPolicy = Literal["list", "pad"]
RAGGED: tuple[RaggedPolicy, ...] = get_args(RaggedPolicy)
_PICTURE_NDIM = 3
_AS_THEY_ARE = ("text", "json", "bytes")


class Collator:
    """Puts samples together; for several threads."""

    def __init__(
        self, ragged: RaggedPolicy, *, schema: Schema | None = None, as_tuple: tuple[str, ...] | None = None
    ) -> None:
        """ragged: "list" or "pad", for tensors that differ in their first length; raises InvalidRequest.

        schema: of the fields of samples that are dicts. as_tuple: the names of samples that are tuples.
        """
        if ragged not in RAGGED:
            raise InvalidRequest(f"ragged={ragged!r}: expected one of {', '.join(RAGGED)}")
        self._pad = ragged == "pad"
        fields = schema if schema is not None else ()
        self._free = {field.name: field for field in fields if not (field.kind in PIXEL_KINDS or field.is_column)}
        self._as_tuple = as_tuple
        varying = [name for name in as_tuple or () if name in self._free and self._free[name].kind not in _AS_THEY_ARE]
        if self._pad and varying:
            raise InvalidRequest(f'ragged="pad": a tuple has no place for the count of {varying[0]!r}; drop as_tuple')

    def fields(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Batched fields, the odd ones padded where that was asked for; raises InvalidRequest for pictures of many
        sizes.
        """
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
        if isinstance(samples[0], dict):
            names = samples[0].keys()
            return self.fields({name: self._column(name, [sample[name] for sample in samples]) for name in names})
        if self._as_tuple is not None and isinstance(samples[0], tuple):
            columns = dict(zip(self._as_tuple, zip(*samples, strict=True), strict=True))
            return list(self.fields({name: self._column(name, values) for name, values in columns.items()}).values())
        return self._batched(samples, "sample")

    def _column(self, name: str, values: Sequence[Any]) -> Any:
        """The values of one name in all samples."""
        field = self._free.get(name)
        if field is None or not all(_is_of(field, value) for value in values):
            return self._batched(values, name)
        return [_as_tensor(value) if isinstance(value, np.ndarray) else value for value in values]

    def _batched(self, values: Sequence[Any], name: str) -> Any:
        first = values[0]
        if isinstance(first, dict):
            names = first.keys()
            return {key: self._batched([value[key] for value in values], f"{name}.{key}") for key in names}
        if isinstance(first, (tuple, list)):
            if any(len(value) != len(first) for value in values):
                return list(values)
            columns = zip(*values, strict=True)
            return [self._batched(column, f"{name}[{at}]") for at, column in enumerate(columns)]
        if isinstance(first, (np.ndarray, torch.Tensor)):
            return _stacked(values, name)
        if isinstance(first, float) and not isinstance(first, np.generic):
            return torch.tensor(values, dtype=torch.float64)
        if isinstance(first, (bool, int, np.number, np.bool_)):
            return torch.as_tensor(np.asarray(values))
        return list(values)


def _stacked(values: Sequence[Any], name: str) -> Any:
    """A tensor, or a list where shapes differ; raises InvalidRequest where these are pictures."""
    if isinstance(values[0], np.ndarray) and all(value.shape == values[0].shape for value in values):
        return torch.from_numpy(np.stack(values))  # of any strides, also of read-only arrays
    tensors = [_as_tensor(value) for value in values]
    first = tensors[0]
    if all(value.shape == first.shape for value in tensors):
        return torch.stack(tensors)
    if any(_are_pictures(first, value) for value in tensors):
        Ragged(tensors).refuse(name)
    return tensors


def _as_tensor(value: Any) -> torch.Tensor:
    """Of an array, a copy: torch takes no negative strides, and warns of read-only memory."""
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def _are_pictures(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors that differ are pictures, and no lists of points or boxes, which differ in length alone."""
    if one.dtype == torch.uint8 and one.ndim in (_PICTURE_NDIM - 1, _PICTURE_NDIM):
        return one.shape != other.shape
    return one.ndim == other.ndim == _PICTURE_NDIM and one.shape[1:] != other.shape[1:]


def _is_of(field: Field, value: Any) -> bool:
    """Whether a value is still what the field holds, and not something that a transform has put in its place."""
    if field.kind in _AS_THEY_ARE:
        return not isinstance(value, (np.ndarray, torch.Tensor))
    if not isinstance(value, (np.ndarray, torch.Tensor)) or value.ndim == 0:
        return False
    shape = field.shape if field.shape is not None else (None,) * value.ndim
    return len(shape) == value.ndim and all(
        length in (None, found) for length, found in zip(shape, value.shape, strict=True)
    )


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
