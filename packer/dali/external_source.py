"""External source: gives the samples of a pack to `fn.external_source` of NVIDIA DALI, a batch or a sample per call.

The result of a call depends only on the numbers of the epoch, batch and sample, and a source can be pickled. So any
worker process of DALI may make any batch, and a pipeline may continue from a checkpoint. The order of the samples is
that of packer.Loader with the same seed, epoch and rank.

With encoded=True, images are the bytes of their files, for `fn.decoders.image`. Otherwise packer decodes the pixels.
"""

from collections.abc import Sequence
from os import PathLike, getpid
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from torch.utils.data import Subset

from packer.datasets.batch_decoder import take_new
from packer.datasets.pack_dataset import PackDataset
from packer.datasets.pack_dataset import open as open_pack
from packer.errors import InvalidRequest, UnknownKey, WrongType
from packer.geometry import Geometry, draw
from packer.loading.batch_jobs import unwrapped
from packer.loading.sample_order import EpochSteps, Indices, Order, Step, rank_and_world_size
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, Field
from packer.system.argument_types import check_parameters

LastBatch = Literal["partial", "drop", "fill"]
Array = npt.NDArray[Any]
Values = Array | list[Array]  # a field in a batch: one array (N, ...), or N arrays if their shapes may differ

_BYTES = ("text", "bytes")  # kinds with values uint8 (n,)
_DALI_NAMES = {"float32": "FLOAT", "": "NO_TYPE"}  # NumPy name -> DALI name, if they differ


class BatchInfo(Protocol):
    """The part of nvidia.dali.types.BatchInfo that a source of batches reads. DALI passes it in each call."""

    @property
    def iteration(self) -> int:
        """Number of the batch in its epoch, from 0."""

    @property
    def epoch_idx(self) -> int:
        """Number of the epoch, from 0: how often the pipeline was reset."""


class SampleInfo(BatchInfo, Protocol):
    """The part of nvidia.dali.types.SampleInfo that a source of samples reads. DALI passes it in each call."""

    @property
    def idx_in_epoch(self) -> int:
        """Number of the sample in the epoch of this pipeline, from 0."""

    @property
    def idx_in_batch(self) -> int:
        """Position of the sample in its batch, from 0."""


class _Output(NamedTuple):
    """One output of DALI. `dtype` is a NumPy name. If the values decide, `dtype` is empty or `ndim` is None."""

    dtype: str
    ndim: int | None
    layout: str = ""


def _output(field: Field, *, is_file: bool) -> _Output:
    if is_file or field.kind in _BYTES:
        return _Output("uint8", 1)
    if field.kind in PIXEL_KINDS:
        return _Output(field.pixel_dtype, 3, "HWC")
    ndim = len(field.shape) if field.shape else 0 if field.kind == "number" else None
    return _Output("float32" if field.kind in ("points", "boxes") else field.dtype or "", ndim)


class ExternalSource:
    """A callable for `fn.external_source`. The function `source` creates it.

    A call with DALI's BatchInfo returns a tuple with a batch of each field. A call with SampleInfo returns a tuple with
    the values of one sample. After the last batch of an epoch, a call raises StopIteration. Damaged data raises
    CorruptRecord. A call that does not fit the options of `source` raises InvalidRequest.
    """

    def __init__(
        self,
        dataset: PackDataset,
        *,
        order: Order,
        encoded: bool,
        batch: bool,
        last_batch: LastBatch,
        first_epoch: int,
    ) -> None:
        """Create a source. Users call the function `source` instead.

        Args:
            dataset: Dataset with only the fields of the outputs.
            order: Order of the samples in each epoch.
            encoded: True returns images as the bytes of their files. False returns pixels.
            batch: True if DALI requests batches, False if it requests samples.
            last_batch: The argument of `source`.
            first_epoch: The argument of `source`.
        """
        schema = dataset.schema
        self._files = [field.name for field in schema if encoded and field.kind == "image"]
        others = [field.name for field in schema if field.name not in self._files]
        self._fields = schema.fields
        self._outputs = [_output(field, is_file=field.name in self._files) for field in schema]
        self._encoded = dataset.with_(fields=self._files, as_tuple=None) if self._files else None
        self._decoded = dataset.with_(fields=others, as_tuple=None) if others else None
        self._geometry = dataset.geometry
        self._order = order
        self._batch = batch
        self._last_batch = last_batch
        self._first_epoch = first_epoch
        self._epoch: EpochSteps | None = None  # of the last call
        self._pid = getpid()  # of the process of the pipeline, not of DALI's workers

    def __len__(self) -> int:
        """Return the number of batches of an epoch. It is the same on every rank."""
        return len(self._order)

    @property
    def samples(self) -> int:
        """Number of different samples of an epoch on this rank. Pass it as `size` to DALI's iterators."""
        mine = len(range(self._order.rank, self._order.count, self._order.world_size))
        return len(self) * self._order.batch_size if self._last_batch == "drop" else mine

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields, in the order of the outputs."""
        return tuple(field.name for field in self._fields)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """NumPy name of the dtype of each output, or an empty text if the dtype depends on the values."""
        return tuple(output.dtype for output in self._outputs)

    @property
    def ndims(self) -> tuple[int | None, ...]:
        """Number of dimensions of one sample of each output, or None if it depends on the values."""
        return tuple(output.ndim for output in self._outputs)

    @property
    def layouts(self) -> tuple[str, ...]:
        """DALI's layout of each output: "HWC" for pixels, and an empty text for other fields."""
        return tuple(output.layout for output in self._outputs)

    def arguments(self) -> dict[str, Any]:
        """Return a dict of the arguments of `fn.external_source` that this source determines.

        They are source, num_outputs, batch, batch_info, dtype, ndim and layout. Pass further ones, such as `parallel`
        and `device`, yourself. Raises MissingPackage if DALI is not installed.
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
        """Return a batch for a BatchInfo, or one sample for a SampleInfo. The class lists the errors."""
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
        """Return batch `number` of an epoch. If `last_batch` is "fill", it has the full batch size."""
        if self._last_batch != "fill":
            return epoch.at(number)
        size = self._order.batch_size
        positions = np.arange(number * size, (number + 1) * size, dtype=np.int64) % len(epoch.mine)
        return Step(epoch.mine[positions], np.full(size, epoch.epoch, np.int64))

    def _position(self, info: Any) -> int:
        """Return the position of a sample in its batch. Raises InvalidRequest if DALI uses another batch size."""
        size, position = self._order.batch_size, int(info.idx_in_batch)
        if position >= size or info.idx_in_epoch != info.iteration * size + position:
            raise InvalidRequest(
                f"packer.dali.source: sample {info.idx_in_epoch} is requested as number {position} of batch "
                f"{info.iteration}, but batches are of {size}: give the source the pipeline's batch_size"
            )
        return position

    # ---- their values

    def _values(self, step: Step) -> list[Values]:
        found: dict[str, Values] = {}
        if self._encoded is not None:
            found.update(self._read_files(self._encoded, step.indices))
        if self._decoded is not None:
            found.update(self._decode(self._decoded, step))
        return [found[field.name] for field in self._fields]

    def _read_files(self, dataset: PackDataset, indices: Indices) -> dict[str, Values]:
        """Return the files of the images as copies, because `records` are valid only within the `with` block."""
        chosen = dataset.pack_indices(indices).tolist()
        with dataset.sample_decoder().pack.records(chosen, self._files) as records:
            return {
                name: [np.array(np.frombuffer(record[name], np.uint8)) for record in records] for name in self._files
            }

    def _decode(self, dataset: PackDataset, step: Step) -> dict[str, Values]:
        if getpid() != self._pid:  # OpenCV's threads would compete with the other workers
            import_or_explain("cv2", "a worker of DALI's").setNumThreads(0)
        geometry, random = self._geometry, []
        if geometry is not None and geometry.draws:
            random = draw(self._order.seed, step.passes, step.indices, geometry.draws).tolist()
        decoder = dataset.batch_decoder(step.indices, geometry, random=random, take=take_new)
        decoder.fill(0, len(step.indices))
        values = decoder.fields()
        return {field.name: _for_dali(field, values[field.name]) for field in self._fields if field.name in values}


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
    """Return a source that gives the samples of a pack to `fn.external_source` of NVIDIA DALI.

    | field                    | one sample of it                                                                |
    |--------------------------|---------------------------------------------------------------------------------|
    | image                    | uint8 (n,), the bytes of the file; with encoded=False uint8 (H, W, 3), RGB, "HWC" |
    | mask, depth              | mask: uint8 (H, W, 1), or int32 for 16 bit; depth: float32 (H, W, 1); "HWC"     |
    | points, boxes            | float32, points (..., 2), boxes (N, 4), in px of the returned image            |
    | number                   | the dtype and shape of the field; () for one number                              |
    | text, bytes, key         | uint8 (n,), text as UTF-8                                                        |

    A batch contains one array (N, ...) per field, or a list of N arrays if their shapes may differ.

    Args:
        dataset: The folder of a pack, a dataset of `packer.open`, or torch's Subset of this dataset.
        batch_size: Batch size of the pipeline.
        fields: Names of the fields, in the order of the outputs.
        encoded: True returns images as the bytes of their files, False as pixels. Masks and depths are always decoded,
            because DALI changes the classes of a palette into colors and does not read float TIFF.
        batch: True for a source of batches. False for a source of samples, so that DALI's workers share a batch.
        last_batch: "partial" returns an incomplete last batch of an epoch, for batch=True only. The choice "drop" skips
            this batch. The choice "fill" completes it with the first samples of the rank in this epoch.
        shuffle: True shuffles the samples in each epoch, as packer.Loader does. False keeps their order.
        seed: Seed of the order and of the random numbers, as in packer.Loader.
        geometry: Crops, scales or rotates decoded images and labels. None uses the geometry of the dataset.
        rank: Number of this process. None uses the rank in torch.distributed at this call.
        world_size: Number of processes. None uses that of torch.distributed at this call.
        first_epoch: Number to add to DALI's epoch, for a run that continues. DALI counts from 0 in every process.

    Raises:
        WrongType: An argument has the wrong type.
        InvalidRequest: Arguments contradict each other, or DALI cannot read a field.
        UnknownKey: The pack does not have one of the fields.
    """
    check_parameters(source, locals())
    if last_batch == "partial" and not batch:
        raise InvalidRequest(
            'last_batch="partial" with batch=False: DALI drops an incomplete batch of single samples; pass '
            'last_batch="drop" or "fill", or batch=True'
        )
    if first_epoch < 0:
        raise InvalidRequest(f"first_epoch={first_epoch}: expected a whole number, at least 0")
    if not fields:
        raise WrongType(f'fields={fields!r}: expected field names, such as ("image", "label")')
    if isinstance(dataset, (str, PathLike)):
        pack = open_pack(dataset, fields, geometry=geometry)
    else:
        pack = _of_a_pack(dataset, fields, geometry)
    _check_fields(pack, encoded=encoded)
    rank, world_size = rank_and_world_size(rank, world_size, distributed=True)
    order = Order(len(pack), batch_size, shuffle, seed, last_batch == "drop", rank=rank, world_size=world_size)
    return ExternalSource(
        pack, order=order, encoded=encoded, batch=batch, last_batch=last_batch, first_epoch=first_epoch
    )


def _of_a_pack(dataset: PackDataset | Subset[Any], fields: Sequence[str], geometry: Geometry | None) -> PackDataset:
    """Return the dataset with these fields and this geometry. A torch Subset becomes a dataset of its samples."""
    inner, chosen = unwrapped(dataset)
    if not isinstance(inner, PackDataset):
        raise WrongType(f"dataset: expected a pack's folder or its data set, found {type(inner).__name__}")
    if type(inner).batch_decoder is not PackDataset.batch_decoder or not inner.decodes_batches():
        raise InvalidRequest(
            f"dataset: {type(inner).__name__} makes its own samples: give the pack's folder, or packer.open(...)"
        )
    if inner.transform is not None:
        raise InvalidRequest("dataset: it has a transform; open the pack without it, and use DALI's operators")
    if missing := [name for name in fields if name not in inner.schema.names]:
        raise UnknownKey(f"fields: {missing[0]!r} is not in the data set; it has {', '.join(inner.schema.names)}")
    inner = inner if chosen is None else inner.select(chosen)
    return inner.with_(fields=fields, as_tuple=None, geometry=geometry or inner.geometry)


def _check_fields(pack: PackDataset, *, encoded: bool) -> None:
    """Raise InvalidRequest for JSON, and with `encoded` for images without files or a dataset with a geometry."""
    sample_decoder = pack.sample_decoder()
    for field in pack.schema:
        if field.kind == "json":
            raise InvalidRequest(f"fields: {field.name!r} is JSON and not an array; leave it out, and use the key")
        if not encoded or field.kind != "image":
            continue
        if sample_decoder.file_decoder(field) is None:
            raise InvalidRequest(
                f"fields: {field.name!r} is stored as pixels (codec {field.codec}), not as files: pass encoded=False"
            )
        if pack.geometry is not None:
            raise InvalidRequest(
                "geometry: files are not decoded here; pass encoded=False, or move pixels with DALI's operators"
            )


def _for_dali(field: Field, values: Any) -> Values:
    """Return one field of a batch as NumPy arrays in DALI's layout. Tensors are not copied."""
    if field.kind == "text":
        return [np.frombuffer(value.encode("utf-8", "surrogateescape"), np.uint8) for value in values]
    if field.kind == "bytes":
        return [np.frombuffer(value, np.uint8) for value in values]
    if isinstance(values, list):
        return [_channels_last(field, value.numpy()) for value in values]
    return _channels_last(field, values.numpy())


def _channels_last(field: Field, array: Array) -> Array:
    """Return pixels as (..., H, W, C), without a copy. Fields without pixels are unchanged."""
    if field.kind == "mask":
        return array[..., None]
    return np.moveaxis(array, -3, -1) if field.kind in PIXEL_KINDS else array
