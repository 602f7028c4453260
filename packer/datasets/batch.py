"""Batch: samples collated into one tensor or list per field.

torch's DataLoader passes all indices of a batch to `__getitems__` of a dataset. A PackDataset returns a Batch, and
DataLoader passes it to the collate function. A Batch is a sequence of samples, so that every collate function works.
This module registers the classes of these samples in torch's table of collate functions. So torch's default collate
returns the tensors that the Batch already contains. In a worker process, the tensors are in shared memory.

Collator collates samples as torch's default collate does, but accepts values of different shapes. They become a list of
tensors, or with `pad` one tensor with zeros after each value. A field whose schema allows values of different lengths
is a list in every batch, even if all values have the same length.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, get_args, overload

import numpy as np
import torch

from packer.errors import InvalidRequest, MixedShapes
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, Field, Schema
from packer.system._torch_private import register_collate

RaggedPolicy = Literal["list", "pad"]
RAGGED: tuple[RaggedPolicy, ...] = get_args(RaggedPolicy)
_IMAGE_NDIM = 3
_AS_THEY_ARE = ("text", "json", "bytes")
_TORCHVISION = "torchvision.transforms"
_GEOMETRY = f"{_TORCHVISION}.v2._geometry"  # torchvision's module of all transforms that move pixels
_FIRST = f"{_TORCHVISION}.transforms"  # module of version 1
_ANY_SAMPLE = ("Compose", "RandomApply", "RandomChoice", "RandomOrder", "Lambda")
_MOVING = (_GEOMETRY, f"{_TORCHVISION}.v2._auto_augment", f"{_TORCHVISION}.autoaugment")


class BatchRow(dict[str, Any]):
    """One sample of a Batch as a dict. Its tensors share memory with the tensors of the batch."""


class TupleRow(tuple[Any, ...]):
    """One sample of a Batch as a tuple. Its tensors share memory with the tensors of the batch."""

    __slots__ = ()


class Batch(Sequence[Any]):
    """The samples of one batch as a sequence. It stores one tensor or list per field, and makes samples on demand."""

    def __init__(self, fields: dict[str, Any], count: int, as_tuple: tuple[str, ...] | None) -> None:
        """Create a batch.

        Args:
            fields: For each field a tensor, a tuple of tensors, or a list of the values if their lengths differ.
            count: Number of samples.
            as_tuple: Names of the fields if samples are tuples, in the order of the tuple. None if samples are dicts.
        """
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
        """Return a dict of the fields, or a list for `as_tuple`. Raises MixedShapes for images of several sizes."""
        for name, values in self.fields.items():
            if isinstance(values, Ragged):
                values.refuse(name)
        if self.as_tuple is None:
            return self.fields
        return [self.fields[name] for name in self.as_tuple]


class Ragged(list[Any]):
    """Images of different sizes, which do not fit into one tensor."""

    def padded(self) -> torch.Tensor:
        """Return one tensor (N, ..., largest H, largest W). Zeros fill the right and the bottom of smaller images."""
        shape = (len(self), *self[0].shape[:-2], *(max(value.shape[axis] for value in self) for axis in (-2, -1)))
        layout = torch.channels_last if len(shape) == _IMAGE_NDIM + 1 else torch.contiguous_format
        batch = torch.empty(shape, dtype=self[0].dtype, memory_format=layout).zero_()
        for at, value in enumerate(self):
            batch[at, ..., : value.shape[-2], : value.shape[-1]] = value
        return batch

    def refuse(self, name: str) -> None:
        """Raise MixedShapes with the name of the field and the shapes of its images."""
        shapes = sorted({"x".join(map(str, value.shape)) for value in self})
        named = ", ".join(shapes[:3]) + ", ..." * (len(shapes) > 3)
        raise MixedShapes(
            f"field {name!r}: images of {len(shapes)} shapes in one batch ({named}): pass a "
            "geometry that gives them one size, such as geometry=Resize((224, 224)) or RandomResizedCrop(224) of "
            "packer.geometry, or pack them with --resize WxH; for torchvision detectors, "
            "DetectionCollate(first_label=1, scale=True)"
        )


def _row(values: Any, position: int) -> Any:
    """Return the value of the sample at `position`. If `values` is a tensor (N,), this is a Python number."""
    if isinstance(values, tuple):
        return tuple(_row(each, position) for each in values)
    value = values[position]
    return value.item() if isinstance(value, torch.Tensor) and value.ndim == 0 else value


def _collate(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(batch, Batch):
        return batch.collated()
    kind = tuple if isinstance(batch[0], tuple) else dict  # rows in a list that a collate function made
    return torch.utils.data.default_collate([kind(row) for row in batch])


register_collate(BatchRow, _collate)
register_collate(TupleRow, _collate)


def channels_first(field: Field, tensor: torch.Tensor) -> torch.Tensor:
    """Return images (..., H, W, 3) as (..., 3, H, W) and depth as (..., 1, H, W), not copied. Masks are unchanged."""
    if field.kind == "image":
        return tensor.movedim(-1, -3)
    return tensor.unsqueeze(-3) if field.kind == "depth" else tensor


def as_pil(field: Field, value: Any) -> Any:
    """Return pixels as a PIL image of mode RGB (image), F (depth), L or I (mask). Other values are unchanged."""
    if field.kind not in PIXEL_KINDS:
        return value
    image: Any = import_or_explain("PIL.Image", 'output="pil"')
    return image.fromarray(np.ascontiguousarray(value))


def as_tv(schema: Schema, sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample with images, boxes and points as torchvision's tv_tensors.

    A depth is a Mask, because transforms move a Mask with the images, but do not mix or change its values. In
    KeyPoints, whole numbers are pixel centers. So 0.5 is subtracted from fields with `Field.edges`, where they are
    pixel edges. Then torchvision flips points and boxes as packer.geometry does.

    Args:
        schema: The fields of the sample.
        sample: Values in torch's layout, such as images (3, H, W).

    Raises:
        MissingPackage: torchvision is not installed.
        InvalidRequest: The images of a sample with boxes or points differ in size, or torchvision has no KeyPoints.
    """
    tv: Any = import_or_explain("torchvision.tv_tensors", 'output="tv"')
    sizes = [tuple(sample[field.name].shape[-2:]) for field in schema if field.kind in PIXEL_KINDS]
    made: dict[str, Any] = {}
    for field in schema:
        value = sample[field.name]
        if field.kind == "image":
            value = tv.Image(value)
        elif field.kind in ("depth", "mask"):
            value = tv.Mask(value)
        elif field.kind in ("boxes", "points") and sizes:
            if len(set(sizes)) > 1:
                raise InvalidRequest(
                    f'field {field.name!r}: its images have {len(set(sizes))} sizes, and output="tv" has one for '
                    "its coordinates: choose one image with fields=, or use packer.geometry"
                )
            if field.kind == "boxes":
                value = tv.BoundingBoxes(value, format="XYXY", canvas_size=sizes[0])
            elif hasattr(tv, "KeyPoints"):
                value = tv.KeyPoints(value - 0.5 if field.edges else value, canvas_size=sizes[0])
            else:
                raise InvalidRequest(
                    f"field {field.name!r}: points move with the image from torchvision 0.23 on; pip install -U "
                    "torchvision, or leave the field out with fields="
                )
        made[field.name] = value
    return made


def moving_transform(transform: object) -> str | None:
    """Return the name of the first torchvision transform in `transform` that moves pixels, or None without one.

    All classes of torchvision's modules for geometry (v2) and automatic augmentation move pixels. A class of
    torchvision's version 1 moves pixels if the v2 module for geometry has a class of the same name. Transforms in
    containers such as Compose are found. Functions and classes of users are not recognized.
    """
    for each in _inner(transform):
        for kind in type(each).__mro__:
            is_first = kind.__module__ == _FIRST
            if kind.__module__ in _MOVING or (is_first and hasattr(import_module(_GEOMETRY), kind.__name__)):
                return kind.__name__
    return None


def image_transforms(transform: object) -> list[str]:
    """Return the names of the transforms in `transform` that accept one image only: those of torchvision's version 1.

    Its containers and Lambda are not in the list, because they also accept other samples.
    """
    kinds = map(type, _inner(transform))
    names = [kind.__name__ for kind in kinds if kind.__module__ in (_FIRST, f"{_TORCHVISION}.autoaugment")]
    return [name for name in names if name not in _ANY_SAMPLE]


def _inner(transform: object) -> Iterator[object]:
    """Yield a transform and, if it is a container of torch or torchvision such as Compose, all transforms in it."""
    yield transform
    if not type(transform).__module__.startswith(("torch.", "torchvision.")):
        return
    listed = getattr(transform, "transforms", None)
    inner = [*listed] if isinstance(listed, (list, tuple)) else []
    inner += transform.children() if isinstance(transform, torch.nn.Module) else []
    for each in inner:
        yield from _inner(each)


# ---- collating


class Collator:
    """A collate function with a rule for values of different shapes. Threads may share it."""

    def __init__(
        self, ragged: RaggedPolicy, *, schema: Schema | None = None, as_tuple: tuple[str, ...] | None = None
    ) -> None:
        """Create a collator.

        Args:
            ragged: "list" returns values of different lengths as a list of tensors. The choice "pad" returns them as
                one tensor with zeros after each value, also images of different sizes.
            schema: The fields of the samples. None if the samples do not come from a pack.
            as_tuple: Names of the values if samples are tuples. A batch is then a list. None if samples are dicts.

        Raises:
            InvalidRequest: `ragged` is unknown. Or it is "pad" and `as_tuple` contains a field of varying length: "pad"
                adds a field `<name>_count`, which has no place in a tuple.
        """
        if ragged not in RAGGED:
            raise InvalidRequest(f"ragged={ragged!r}: expected one of {', '.join(RAGGED)}")
        self._pad = ragged == "pad"
        fields = schema if schema is not None else ()
        self._wide_masks = {field.name for field in fields if field.is_wide_mask}
        self._free = {field.name: field for field in fields if not (field.kind in PIXEL_KINDS or field.is_column)}
        self._sized = {
            field.name for field in fields if self._pad and field.kind in PIXEL_KINDS and None in (field.shape or ())
        }
        self._as_tuple = as_tuple
        varying = [name for name in as_tuple or () if name in self._free and self._free[name].kind not in _AS_THEY_ARE]
        if self._pad and varying:
            raise InvalidRequest(f'ragged="pad": a tuple has no place for the count of {varying[0]!r}; drop as_tuple')

    def fields(self, fields: dict[str, Any]) -> Any:
        """Return the batch: a dict, or a list if samples are tuples. `fields` contains the batched values by name.

        With "pad", lists of tensors of different lengths become one tensor. In dicts, images of different sizes do,
        too. Without "pad", or in tuples, images of different sizes raise MixedShapes.
        """
        batch = self._padded(fields)
        return batch if self._as_tuple is None else [batch[name] for name in self._as_tuple]

    def _padded(self, fields: dict[str, Any]) -> dict[str, Any]:
        batch: dict[str, Any] = {}
        for name, values in fields.items():
            is_sized = name in self._sized and self._as_tuple is None and isinstance(values, torch.Tensor | Ragged)
            if isinstance(values, Ragged) and not is_sized:
                values.refuse(name)
            batch[name] = values.padded() if isinstance(values, Ragged) else values
            if is_sized:
                batch[f"{name}_size"] = torch.tensor([value.shape[-2:] for value in values])
            elif self._pad and _is_ragged(values):
                batch[name] = torch.nn.utils.rnn.pad_sequence(values, batch_first=True)
                batch[f"{name}_count"] = torch.tensor([len(value) for value in values])
        return batch

    def samples(self, samples: Sequence[Any]) -> Any:
        """Return a batch of samples.

        Samples may be dicts, tuples or lists. The values at the same key or position are batched: arrays and tensors
        are stacked, and numbers become a tensor.
        """
        if isinstance(samples[0], dict):
            by_name = _columns(samples, "samples").items()
            return self._padded({name: self._column(name, values) for name, values in by_name})
        if self._as_tuple is not None and isinstance(samples[0], tuple):
            columns = dict(zip(self._as_tuple, zip(*samples, strict=True), strict=True))
            return self.fields({name: self._column(name, values) for name, values in columns.items()})
        return self._batched(samples, "sample")

    def _column(self, name: str, values: Sequence[Any]) -> Any:
        field = self._free.get(name)
        if name in self._wide_masks and _differ_as_masks(values):
            Ragged(_as_tensor(value) for value in values).refuse(name)
        if name in self._sized and all(isinstance(value, torch.Tensor) for value in values):
            return _stacked(values, name) if len({value.shape for value in values}) == 1 else Ragged(values)
        if field is None or not all(_is_of(field, value) for value in values):
            return self._batched(values, name)
        return [_as_tensor(value) if isinstance(value, np.ndarray) else value for value in values]

    def _batched(self, values: Sequence[Any], name: str) -> Any:
        first = values[0]
        if isinstance(first, dict):
            by_key = _columns(values, name).items()
            return {key: self._batched(column, f"{name}.{key}") for key, column in by_key}
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


def _columns(samples: Sequence[dict[str, Any]], where: str) -> dict[str, list[Any]]:
    """Return name -> its value in each sample. Raises InvalidRequest if the samples have different names."""
    for sample in samples:
        if odd := sample.keys() ^ samples[0].keys():
            raise InvalidRequest(
                f"{where}: {min(map(repr, odd))} is in some of a batch only; open all data sets with the same fields="
            )
    return {name: [sample[name] for sample in samples] for name in samples[0]}


def _stacked(values: Sequence[Any], name: str) -> Any:
    """Return one tensor, or a list if the shapes differ. Raises MixedShapes for images of different sizes."""
    if isinstance(values[0], np.ndarray) and all(value.shape == values[0].shape for value in values):
        return torch.from_numpy(np.stack(values))  # works with any strides and with read-only arrays
    tensors = [_as_tensor(value) for value in values]
    first = tensors[0]
    if all(value.shape == first.shape for value in tensors):
        return torch.stack(tensors)
    if any(_are_images(first, value) for value in tensors):
        Ragged(tensors).refuse(name)
    return tensors


def _as_tensor(value: Any) -> torch.Tensor:
    """Return a tensor. An array is copied, because torch refuses negative strides and warns about read-only memory."""
    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def _are_images(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if two tensors are images of different sizes, and not points or boxes of different counts."""
    if one.dtype == torch.uint8 and one.ndim in (_IMAGE_NDIM - 1, _IMAGE_NDIM):
        return one.shape != other.shape
    return one.ndim == other.ndim == _IMAGE_NDIM and one.shape[1:] != other.shape[1:]


def _differ_as_masks(values: Sequence[Any]) -> bool:
    """Return True for arrays (H, W) of different sizes. `_are_images` recognizes masks in uint8, but not in int32."""
    shapes = {value.shape if isinstance(value, (np.ndarray, torch.Tensor)) else None for value in values}
    return len(shapes) > 1 and all(shape is not None and len(shape) == _IMAGE_NDIM - 1 for shape in shapes)


def _is_of(field: Field, value: Any) -> bool:
    """Return True if a value has the type and shape of the field. A transform may have returned another value."""
    if field.kind in _AS_THEY_ARE:
        return not isinstance(value, (np.ndarray, torch.Tensor))
    if not isinstance(value, (np.ndarray, torch.Tensor)) or value.ndim == 0:
        return False
    shape = field.shape if field.shape is not None else (None,) * value.ndim
    return len(shape) == value.ndim and all(
        length in (None, found) for length, found in zip(shape, value.shape, strict=True)
    )


def _is_ragged(values: Any) -> bool:
    """Return True for a list of tensors whose shapes are equal except for the first axis."""
    if not isinstance(values, list) or not values or not all(isinstance(value, torch.Tensor) for value in values):
        return False
    return all(value.ndim >= 1 and value.shape[1:] == values[0].shape[1:] for value in values)


def bytes_of(batch: Any) -> int:
    """Return the size of all tensors of a batch in bytes, also of those in nested dicts, lists and tuples."""
    if isinstance(batch, torch.Tensor):
        return batch.numel() * batch.element_size()
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return sum(map(bytes_of, values))
