"""Batch: the samples of one batch, decoded into one tensor per field; what `__getitems__` returns.

A stock DataLoader hands a data set that has `__getitems__` all indices of a batch, and what comes back to the collate
function. Batch is a sequence of samples there, so that any collate function works, and torch's own finds the finished
tensors: its table of collate functions, which torch documents as the place for new types, gets two entries here.
In a worker process the tensors lie in shared memory from the start: nothing is copied on the way to the trainer.
A lazy sequence is as long as a data set, and makes an element when it is asked for, so that none takes memory before.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np
import torch

from packer.errors import InvalidRequest, MixedShapes
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, Field, Schema
from packer.system._torch_private import register_collate


class BatchRow(dict[str, Any]):
    """One sample of a Batch, its tensors views of the batch's."""


class TupleRow(tuple[Any, ...]):
    """One sample of a Batch as the tuple that `as_tuple` asked for."""

    __slots__ = ()


class Batch(Sequence[Any]):
    """Samples of one batch. `fields`: a tensor per field (or a tuple of them), or a list where lengths differ."""

    def __init__(self, fields: dict[str, Any], count: int, as_tuple: tuple[str, ...] | None) -> None:
        self.fields = fields
        self.as_tuple = as_tuple
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, position: int) -> Any: ...
    @overload
    def __getitem__(self, position: slice) -> list[Any]: ...
    def __getitem__(self, position: int | slice) -> Any:
        if isinstance(position, slice):
            return [self[at] for at in range(*position.indices(self._count))]
        if not -self._count <= position < self._count:
            raise IndexError(f"position {position} is outside a batch of {self._count}")
        row = {name: _row(values, position) for name, values in self.fields.items()}
        return BatchRow(row) if self.as_tuple is None else TupleRow(row[name] for name in self.as_tuple)

    def collated(self) -> Any:
        """What torch's default collate returns: a dict of batched values, or a list of them with `as_tuple`."""
        for name, values in self.fields.items():
            if isinstance(values, Ragged):
                values.refuse(name)
        if self.as_tuple is None:
            return self.fields
        return [self.fields[name] for name in self.as_tuple]


class Ragged(list[Any]):
    """Pictures of different sizes: fine one by one, but no batch."""

    def refuse(self, name: str) -> None:
        """Raise the error that tells what to do."""
        shapes = sorted({"x".join(map(str, value.shape)) for value in self})
        named = ", ".join(shapes[:3]) + ", ..." * (len(shapes) > 3)
        raise MixedShapes(
            f"field {name!r}: pictures of {len(shapes)} shapes in one batch ({named}): pass a "
            "geometry that gives them one size, such as geometry=Resize((224, 224)) or RandomResizedCrop(224) of "
            "packer.geometry, or pack them with --resize WxH"
        )


def _row(values: Any, position: int) -> Any:
    """One sample's value, a number as a Python number, as `dataset[i]` gives it; of a tuple of values, a tuple."""
    if isinstance(values, tuple):
        return tuple(_row(each, position) for each in values)
    value = values[position]
    return value.item() if isinstance(value, torch.Tensor) and value.ndim == 0 else value


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(batch, Batch):
        return batch.collated()
    kind = tuple if isinstance(batch[0], tuple) else dict  # rows that a collate function has put in a list of its own
    return torch.utils.data.default_collate([kind(row) for row in batch])


register_collate(BatchRow, _collate)
register_collate(TupleRow, _collate)


def as_torch(field: Field, value: Any) -> Any:
    """A decoded value in torch's layout: image (3, H, W) and depth (1, H, W) as views, arrays as tensors."""
    if not isinstance(value, np.ndarray):
        return value
    return channels_first(field, torch.from_numpy(value))


def channels_first(field: Field, tensor: torch.Tensor) -> torch.Tensor:
    """(..., H, W, 3) -> (..., 3, H, W) for images and (..., H, W) -> (..., 1, H, W) for depth; a view."""
    if field.kind == "image":
        return tensor.movedim(-1, -3)
    return tensor.unsqueeze(-3) if field.kind == "depth" else tensor


def as_pil(field: Field, value: Any) -> Any:
    """Pictures as PIL images (RGB, F or L), other values as they are; needs Pillow."""
    if field.kind not in PIXEL_KINDS:
        return value
    image: Any = import_or_explain("PIL.Image", 'output="pil"')
    return image.fromarray(np.ascontiguousarray(value))


def as_tv(schema: Schema, sample: Mapping[str, Any]) -> dict[str, Any]:
    """A decoded sample with pictures, boxes and points as torchvision's tv_tensors; raises MissingPackage,
    InvalidRequest.

    A depth is a Mask: what moves pictures moves it, without mixing its values, and what changes colours leaves it.
    torchvision flips points about (width - 1) / 2 and boxes about width / 2, as packer.geometry does.
    """
    tv: Any = import_or_explain("torchvision.tv_tensors", 'output="tv"')
    sizes = [sample[field.name].shape[:2] for field in schema if field.kind in PIXEL_KINDS]
    made: dict[str, Any] = {}
    for field in schema:
        value = as_torch(field, sample[field.name])
        if field.kind == "image":
            value = tv.Image(value)
        elif field.kind in ("depth", "mask"):
            value = tv.Mask(value)
        elif field.kind in ("boxes", "points") and sizes:
            if len(set(sizes)) > 1:
                raise InvalidRequest(
                    f'field {field.name!r}: its pictures have {len(set(sizes))} sizes, and output="tv" has one for '
                    "its coordinates: choose one picture with fields=, or use packer.geometry"
                )
            if field.kind == "boxes":
                value = tv.BoundingBoxes(value, format="XYXY", canvas_size=sizes[0])
            elif hasattr(tv, "KeyPoints"):
                value = tv.KeyPoints(value, canvas_size=sizes[0])
            else:
                raise InvalidRequest(
                    f"field {field.name!r}: points move with the picture from torchvision 0.23 on; pip install -U "
                    "torchvision, or leave the field out with fields="
                )
        made[field.name] = value
    return made


# ---- lazy sequences

Element = TypeVar("Element")
_SHOWN = 3


class LazySequence(Sequence[Element]):
    """`count` elements, each given by a function of its index."""

    def __init__(self, get: Callable[[int], Element], count: int) -> None:
        self._get = get
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Element: ...
    @overload
    def __getitem__(self, index: slice) -> list[Element]: ...
    def __getitem__(self, index: int | slice) -> Element | list[Element]:
        if isinstance(index, slice):
            return [self._get(at) for at in range(*index.indices(self._count))]
        return self._get(index)

    def __iter__(self) -> Iterator[Element]:
        return (self._get(index) for index in range(self._count))

    def __repr__(self) -> str:
        shown = [repr(element) for element in self[:_SHOWN]] + ["..."] * (self._count > _SHOWN)
        return f"[{', '.join(shown)}] ({self._count} in all)"
