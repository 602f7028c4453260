"""External source: a pack's samples for DALI's `fn.external_source`, one batch or one sample for each call.

DALI asks by the number of the epoch and of the batch, and a source is a function of these alone: it keeps no position,
it pickles, any of DALI's worker processes may make any batch, and a pipeline that goes on from a checkpoint of DALI's
gets what would have come next. The order is that of packer.Loader with the same seed, epoch and rank.

Images leave as the bytes of their files, for `fn.decoders.image` on CPU or GPU, or as pixels that packer has decoded.
"""

from collections.abc import Sequence
from os import PathLike, getpid
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset

from packer.datasets.batch_decoder import take_new
from packer.datasets.pack_dataset import PackDataset, open_pack
from packer.errors import InvalidRequest, UnknownKey, WrongType
from packer.geometry import Geometry, draw
from packer.loading.batch_jobs import unwrapped
from packer.loading.sampling import EpochSteps, Indices, Order, Step, rank_and_world_size
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, Field
from packer.system.argument_types import check_switches

LastBatch = Literal["partial", "drop", "fill"]
LAST_BATCHES: tuple[LastBatch, ...] = get_args(LastBatch)
Array = npt.NDArray[Any]
Values = Array | list[Array]  # of one field in a batch: one array (N, ...), or N arrays where shapes may differ

_BYTES = ("text", "bytes")  # kinds whose values are uint8 (n,)
_DALI_NAMES = {"float32": "FLOAT", "": "NO_TYPE"}  # where DALI's name of a dtype is another


class BatchInfo(Protocol):
    """What DALI calls a source of batches with: nvidia.dali.types.BatchInfo."""

    @property
    def iteration(self) -> int:
        """Number of the batch in its epoch."""

    @property
    def epoch_idx(self) -> int:
        """Number of the epoch: how often the pipeline has been reset."""


class SampleInfo(BatchInfo, Protocol):
    """What DALI calls a source of samples with: nvidia.dali.types.SampleInfo."""

    @property
    def idx_in_epoch(self) -> int:
        """Number of the sample in its epoch, of those that this pipeline asks for."""

    @property
    def idx_in_batch(self) -> int:
        """Position of the sample in its batch."""


class ExternalSource:
    """A callable for `fn.external_source`; `source` makes it.

    Called with DALI's BatchInfo it returns a tuple with the values of each field in one batch, called with SampleInfo a
    tuple with the values of one sample. Raises StopIteration behind the last batch of an epoch, as often as it is
    asked; InvalidRequest where the pipeline calls it otherwise than it was made for, CorruptRecord for damaged data.
    """

    def __init__(
        self,
        dataset: PackDataset,
        chosen: Indices | None,
        *,
        order: Order,
        encoded: bool,
        batch: bool,
        last_batch: LastBatch,
        first_epoch: int,
    ) -> None:
        """dataset: with the fields that are wanted, and no others. chosen: the indices of a Subset of it."""
        schema = dataset.schema
        self._files = [field.name for field in schema if encoded and field.kind == "image"]
        others = [field.name for field in schema if field.name not in self._files]
        self._fields = schema.fields
        self._encoded = dataset.with_fields(self._files) if self._files else None
        self._decoded = dataset.with_fields(others) if others else None
        self._geometry = dataset.geometry
        self._chosen = chosen
        self._order = order
        self._batch = batch
        self._last_batch = last_batch
        self._first_epoch = first_epoch
        self._epoch: EpochSteps | None = None  # the one that was asked for last
        self._pid = getpid()  # of the process that runs the pipeline; DALI's workers are others

    def __len__(self) -> int:
        """Batches of an epoch, the same on every rank."""
        return len(self._order)

    @property
    def samples(self) -> int:
        """Samples of an epoch on this rank, without those that fill its last batch: `size` of DALI's iterators."""
        mine = len(range(self._order.rank, self._order.count, self._order.world_size))
        return len(self) * self._order.batch_size if self._last_batch == "drop" else mine

    @property
    def names(self) -> tuple[str, ...]:
        """The fields, in the order of the outputs."""
        return tuple(field.name for field in self._fields)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """NumPy name of each output's dtype; empty where only the values tell."""
        return tuple(self._dtype(field) for field in self._fields)

    @property
    def ndims(self) -> tuple[int | None, ...]:
        """Number of each output's dimensions, of one sample; None where only the values tell."""
        return tuple(self._ndim(field) for field in self._fields)

    @property
    def layouts(self) -> tuple[str, ...]:
        """DALI's layout of each output: "HWC" for pixels, else empty."""
        return tuple("HWC" if field.kind in PIXEL_KINDS and not self._is_file(field) else "" for field in self._fields)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `fn.external_source` that follow from the source: itself, num_outputs, batch, dtype, ...

        `parallel`, `prefetch_queue_depth`, `device` and others are the caller's. Raises MissingPackage without DALI.
        """
        types: Any = import_or_explain("nvidia.dali.types", "packer.dali's arguments()")
        return {
            "source": self,
            "num_outputs": len(self._fields),
            "batch": self._batch,
            "batch_info": self._batch,
            "dtype": [getattr(types, _DALI_NAMES.get(name, name.upper())) for name in self.dtypes],
            "ndim": list(self.ndims),
            "layout": list(self.layouts),
        }

    def __call__(self, info: BatchInfo | SampleInfo) -> tuple[Any, ...]:
        """The batch, or the sample, that DALI asks for; see the class."""
        of_sample = hasattr(info, "idx_in_epoch")
        if of_sample == self._batch or not hasattr(info, "epoch_idx"):
            wanted = "batch=True, batch_info=True" if self._batch else "batch=False"
            raise InvalidRequest(
                f"packer.dali.source: called with {type(info).__name__}: call fn.external_source with {wanted}, "
                "or with **source.arguments()"
            )
        if info.iteration >= len(self):
            raise StopIteration
        epoch = self._steps(info.epoch_idx + self._first_epoch)
        if self._batch:
            return tuple(self._values(self._step(epoch, info.iteration)))
        step = self._step(epoch, info.iteration)
        position = self._position(info)
        one = Step(step.indices[position : position + 1], step.passes[position : position + 1])
        return tuple(np.asarray(values[0]) for values in self._values(one))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": None}  # an order of a million samples is 8 MB

    # ---- which samples

    def _steps(self, number: int) -> EpochSteps:
        epoch = self._epoch
        if epoch is None or epoch.epoch != number:
            epoch = self._epoch = EpochSteps(self._order, number, 0, self._order.of_pass(number))
        return epoch

    def _step(self, epoch: EpochSteps, number: int) -> Step:
        """A batch of the Loader's; with "fill" a full one, the rank's own samples again behind its last."""
        if self._last_batch != "fill":
            return epoch.at(number)
        size = self._order.batch_size
        positions = np.arange(number * size, (number + 1) * size, dtype=np.int64) % len(epoch.mine)
        return Step(epoch.mine[positions], np.full(size, epoch.epoch, np.int64))

    def _position(self, info: Any) -> int:
        """Position of a sample in its batch, where the pipeline's batches are as long as the source's."""
        size, position = self._order.batch_size, int(info.idx_in_batch)
        if position >= size or info.idx_in_epoch != info.iteration * size + position:
            raise InvalidRequest(
                f"packer.dali.source: sample {info.idx_in_epoch} is asked for as number {position} of batch "
                f"{info.iteration}, but batches are of {size}: give the source the pipeline's batch_size"
            )
        return position

    # ---- their values

    def _values(self, step: Step) -> list[Values]:
        indices = step.indices if self._chosen is None else self._chosen[step.indices]
        found: dict[str, Values] = {}
        if self._encoded is not None:
            found.update(self._read_files(self._encoded, indices))
        if self._decoded is not None:
            found.update(self._decode(self._decoded, Step(indices, step.passes), drawn_for=step.indices))
        return [found[field.name] for field in self._fields]

    def _read_files(self, dataset: PackDataset, indices: Indices) -> dict[str, Values]:
        """Copies of the stored bytes: records lie in mapped pages, which go with their reader."""
        chosen = dataset.pack_indices(indices).tolist()
        with dataset.sample_decoder().pack.records(chosen, self._files) as records:
            return {
                name: [np.array(np.frombuffer(record[name], np.uint8)) for record in records] for name in self._files
            }

    def _decode(self, dataset: PackDataset, step: Step, *, drawn_for: Indices) -> dict[str, Values]:
        """As a batch of the Loader has them, in DALI's layouts. drawn_for: what random numbers depend on."""
        if getpid() != self._pid:  # OpenCV's own threads would only fight with the other workers
            import_or_explain("cv2", "a worker of DALI's").setNumThreads(0)
        geometry, random = self._geometry, []
        if geometry is not None and geometry.draws:
            random = draw(self._order.seed, step.passes, drawn_for, geometry.draws).tolist()
        decoder = dataset.batch_decoder(step.indices, geometry, random=random, take=take_new)
        decoder.fill(0, len(step.indices))
        return {field.name: _for_dali(field, values) for field, values in self._named(decoder.fields())}

    def _named(self, values: dict[str, Any]) -> list[tuple[Field, Any]]:
        return [(field, values[field.name]) for field in self._fields if field.name in values]

    # ---- what DALI wants to know of them

    def _is_file(self, field: Field) -> bool:
        return field.name in self._files

    def _dtype(self, field: Field) -> str:
        if self._is_file(field) or field.kind in _BYTES:
            return "uint8"
        if field.kind in PIXEL_KINDS:
            return field.pixel_dtype
        return "float32" if field.kind in ("points", "boxes") else field.dtype or ""

    def _ndim(self, field: Field) -> int | None:
        if self._is_file(field) or field.kind in _BYTES:
            return 1
        if field.kind in PIXEL_KINDS:
            return 3
        return 0 if field.kind == "number" and not field.shape else len(field.shape) if field.shape else None


def source(
    dataset: str | PathLike[str] | PackDataset | Subset[Any],
    batch_size: int,
    *,
    fields: Sequence[str] = ("image", "label"),
    encoded: bool = True,
    batch: bool = True,
    last_batch: LastBatch = "partial",
    shuffle: bool = False,
    seed: int = 0,
    geometry: Geometry | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    first_epoch: int = 0,
) -> ExternalSource:
    """A source of a pack's samples for `fn.external_source`, in batch mode or per sample, in DALI's workers or without.

    | field                    | one sample of it                                                                |
    |--------------------------|---------------------------------------------------------------------------------|
    | image                    | uint8 (n,): the file's bytes; with encoded=False uint8 (H, W, 3), RGB, "HWC"     |
    | mask, depth              | uint8 (H, W, 1), int32 of 16 bit; float32 (H, W, 1), "HWC"                      |
    | points, boxes            | float32 (..., 2), (N, 4), in px of the image as it is returned                 |
    | number                   | the field's dtype and shape; of one number ()                                    |
    | text, bytes, key         | uint8 (n,), text as UTF-8                                                        |

    A batch has, for each field, one array (N, ...), or N arrays where their shapes may differ.

    dataset: a pack's folder, or a data set of one, also in torch's Subset. batch_size: the pipeline's. encoded: masks
    and depths are decoded all the same: DALI turns the classes of a palette into colors, and reads no float TIFF.
    batch: one call makes a batch; else a sample, so that DALI's workers share a batch. last_batch: of an epoch;
    "partial" gives what there is, as Loader does, in batch mode alone, "drop" leaves it out, "fill" goes on with the
    rank's first samples of that epoch until it is full. shuffle, seed, geometry: as of packer.Loader: the same samples
    in the same order, moved by the same random numbers; geometry is of decoded images. rank, world_size: by default
    as torch.distributed has them at this call.
    first_epoch: DALI counts epochs from 0 in every process; a run that goes on at epoch 7 says so here.
    Raises InvalidRequest for what does not go together, UnknownKey for a field or split that is not there.
    """
    check_switches({"encoded": encoded, "batch": batch, "shuffle": shuffle})
    if last_batch not in LAST_BATCHES:
        raise InvalidRequest(f"last_batch={last_batch!r}: expected one of {', '.join(LAST_BATCHES)}")
    if last_batch == "partial" and not batch:
        raise InvalidRequest(
            'last_batch="partial" with batch=False: of samples that are made one by one DALI drops a batch that ends '
            'early; pass last_batch="drop" or "fill", or batch=True'
        )
    if not isinstance(first_epoch, int) or isinstance(first_epoch, bool) or first_epoch < 0:
        raise InvalidRequest(f"first_epoch={first_epoch!r}: expected a whole number, at least 0")
    if isinstance(fields, str) or not isinstance(fields, Sequence) or not fields:
        raise WrongType(f'fields={fields!r}: expected field names, such as ("image", "label")')
    if isinstance(dataset, (str, PathLike)):
        pack, chosen = open_pack(dataset, fields, geometry=geometry), None
    else:
        pack, chosen = _of_a_pack(dataset, fields, geometry)
    _check_fields(pack, encoded=encoded)
    rank, world_size = rank_and_world_size(rank, world_size, distributed=True)
    count = len(pack) if chosen is None else len(chosen)
    order = Order(count, batch_size, shuffle, seed, last_batch == "drop", rank=rank, world_size=world_size)
    return ExternalSource(
        pack, chosen, order=order, encoded=encoded, batch=batch, last_batch=last_batch, first_epoch=first_epoch
    )


def _of_a_pack(
    dataset: PackDataset | Subset[Any], fields: Sequence[str], geometry: Geometry | None
) -> tuple[PackDataset, Indices | None]:
    """The data set with those fields and that geometry, and the indices of a Subset."""
    inner, chosen = unwrapped(dataset)
    if not isinstance(inner, PackDataset):
        raise WrongType(f"dataset: expected a pack's folder or its data set, found {type(inner).__name__}")
    if type(inner).batch_decoder is not PackDataset.batch_decoder or not inner.decodes_batches():
        raise InvalidRequest(
            f"dataset: {type(inner).__name__} makes samples of its own: give the pack's folder, or packer.open(...)"
        )
    if inner.transform is not None:
        raise InvalidRequest("dataset: it has a transform, which DALI's operators are to do; open the pack without")
    if geometry is not None and not isinstance(geometry, Geometry):
        raise InvalidRequest(f"geometry={geometry!r:.60}: expected one of packer.geometry's")
    if missing := [name for name in fields if name not in inner.schema.names]:
        raise UnknownKey(f"fields: {missing[0]!r} is not in the data set; it has {', '.join(inner.schema.names)}")
    pack = inner.with_fields(fields)
    pack.geometry = geometry or inner.geometry
    return pack, chosen


def _check_fields(pack: PackDataset, *, encoded: bool) -> None:
    """Raise InvalidRequest for what DALI cannot have."""
    sample_decoder = pack.sample_decoder()
    for field in pack.schema:
        if field.kind == "json":
            raise InvalidRequest(f"fields: {field.name!r} is JSON, which is no array: leave it out, and take the key")
        if not encoded or field.kind != "image":
            continue
        if sample_decoder.file_decoder(field) is None:
            raise InvalidRequest(
                f"fields: {field.name!r} is stored as pixels (codec {field.codec}), not as files: pass encoded=False"
            )
        if pack.geometry is not None:
            raise InvalidRequest(
                "geometry: files are given as they are stored; pass encoded=False, or move pixels by DALI's operators"
            )


def _for_dali(field: Field, values: Any) -> Values:
    """One field of a batch as NumPy arrays in DALI's layouts: views of the batch's memory."""
    if field.kind == "text":
        return [np.frombuffer(value.encode("utf-8", "surrogateescape"), np.uint8) for value in values]
    if field.kind == "bytes":
        return [np.frombuffer(value, np.uint8) for value in values]
    if isinstance(values, list):
        return [_channels_last(field, value.numpy()) for value in values]
    return _channels_last(field, values.numpy())


def _channels_last(field: Field, array: Array) -> Array:
    """(..., H, W, C) of (..., C, H, W), or of a mask's (..., H, W)."""
    if field.kind == "mask":
        return array[..., None]
    return np.moveaxis(array, -3, -1) if field.kind in PIXEL_KINDS else array
