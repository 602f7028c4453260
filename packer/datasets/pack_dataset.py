"""Pack dataset: map-style torch datasets over packs. They can be pickled, and work with fork, spawn and threads."""

import copy
import hashlib
import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, get_worker_info

from packer.copies.staged_copies import StagedRecipe
from packer.datasets import rows_and_columns as rows
from packer.datasets.batch import Batch, as_pil, as_tv, image_transforms, moving_transform
from packer.datasets.batch_decoder import BatchDecoder, CollateFields, PackBatchDecoder, Take, take_new
from packer.errors import BadIndex, InvalidRequest, UnknownKey, WrongType, printable
from packer.geometry import BoxRule, Geometry, draw
from packer.images import DCT, DecoderName
from packer.pack import derived_pack
from packer.pack import manifest as manifests
from packer.pack.derived_pack import ChangedPack, JoinedPacks, PackRecipe
from packer.pack.manifest import COLLECTION, Manifest
from packer.pack.part_readers import open_unreplaced
from packer.pack.reader import Pack, VerifyMode
from packer.pack.sample_decoder import SampleDecoder
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, Field, Schema
from packer.stores.url import StoreURL, is_url, path_or_url
from packer.system.argument_types import check_arguments, check_parameters
from packer.system.shared_memory import SharedMemory

if TYPE_CHECKING:  # a pack in a folder is opened without the modules for URLs
    import pyarrow

    from packer.copies.part_schedule import PartSchedule
    from packer.datasets.rows_and_columns import DatasetColumns
    from packer.inspect.notebook import Drawing

Output = Literal["torch", "numpy", "pil", "tv"]
_SET_BY_OPENING = ("transform", "geometry", "output", "as_tuple")
_OF_PIL = ("ToTensor", "PILToTensor")  # transforms of torchvision that do not accept tensors
_OF_IMAGE_FOLDER = ("target_transform", "transforms", "loader")  # attributes of torchvision's ImageFolder
_UNCALLED = "nothing calls it, unlike in torchvision's ImageFolder;"
# attributes that have no effect in a subclass without its own `__getitem__`, and what to do instead
_WITHOUT_EFFECT = {
    **dict.fromkeys(_OF_IMAGE_FOLDER, f"{_UNCALLED} give transform= a function of the sample, or override __getitem__"),
    **dict.fromkeys(
        ("find_classes", "make_dataset", "is_valid_file"),
        f"{_UNCALLED} packer convert chose samples and classes; override __getitem__",
    ),
    **dict.fromkeys(
        ("classes", "class_to_idx", "targets", "samples", "imgs"),
        "samples and batches do not have it, because they come from the pack; override __getitem__ as well",
    ),
}
_LISTED = 3  # elements of a sequence in a text
_FIRST = 12  # samples of show()
_SHOWN = 4  # classes in a text, samples in a notebook
Transform = Callable[[Any], Any]
Indices = Sequence[int] | npt.NDArray[np.int64]
Element = TypeVar("Element")


class ChangedOptions(TypedDict, total=False):
    """The options of `packer.open` that `PackDataset.with_` changes."""

    fields: Sequence[str] | None
    split: str | None
    geometry: Geometry | None
    transform: Transform | None
    output: Output
    as_tuple: Sequence[str] | None
    decoder: DecoderName
    dct: DCT
    boxes: BoxRule | None


class LazySequence(Sequence[Element]):
    """A sequence of `count` elements. It calls the function `get` with an index to make the element at this index."""

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
        shown = [repr(element) for element in self[:_LISTED]] + ["..."] * (self._count > _LISTED)
        return f"[{', '.join(shown)}] ({self._count} in all)"


class RandomStream:
    """The geometry and the random numbers of one sample. The numbers depend only on (seed, epoch, index).

    packer.Loader makes one stream per sample. If `__getitem__` of a subclass reads several samples, each of these reads
    takes the next numbers of the stream.
    """

    def __init__(
        self, geometry: Geometry | None, *, seed: int, epoch: int, index: int, first: Sequence[float] = ()
    ) -> None:
        """Create a stream. `first` contains its first numbers, if they are drawn already."""
        self.geometry = geometry
        self._first = first
        self._key = seed, epoch, np.asarray([index], np.int64)
        self._taken = 0

    def take(self) -> list[float]:
        """Return the next random numbers r, 0 <= r < 1: as many as the geometry draws for one sample."""
        count = self.geometry.draws if self.geometry is not None else 0
        self._taken += count
        if self._taken <= len(self._first):
            return list(self._first[self._taken - count : self._taken])
        numbers: list[float] = draw(*self._key, self._taken)[0, self._taken - count :].tolist() if count else []
        return numbers


_reading: ContextVar[tuple["PackDataset", RandomStream] | None] = ContextVar("reading", default=None)


class PackDataset(Dataset[Any]):
    """Map-style torch dataset over a pack of any format. A sample is a dict of its fields.

    | kind   | output="torch"          | "numpy"     | "pil"       | "tv" (tv_tensors) |
    |--------|-------------------------|-------------|-------------|-------------------|
    | image  | uint8 (3, H, W), RGB    | (H, W, 3)   | mode RGB    | Image             |
    | depth  | float32 (1, H, W)       | (H, W)      | mode F      | Mask              |
    | mask   | uint8 (H, W), or int32 if it has 16 bit | (H, W) | mode L, or I | Mask    |
    | boxes  | float32 (N, 4), x0, y0, x1, y1 in px | as torch | as numpy | BoundingBoxes   |
    | points | float32 (..., 2), x, y in px of the returned image | as torch | as numpy | KeyPoints |
    | number | int or float; an array as a tensor | an array | an array | as torch       |
    | text, json, bytes | unchanged    | unchanged   | unchanged   | unchanged         |

    The output "tv" needs torchvision. With it, torchvision.transforms.v2 moves images, boxes and points together. With
    plain tensors, these transforms move only the first image. Whole numbers are pixel edges in boxes and pixel centers
    in points. In points with `Field.edges` they are pixel edges, but "tv" converts these points to pixel centers.

    A subclass may override `__getitem__`, and call `super().__getitem__(index)` in it. All loaders call the override
    for each sample. In packer.Loader, the call of `super()` uses the geometry and random numbers of the Loader.

    Returned values stay valid, and you may change them. A dataset pickles to a few KB: the folder and the options, but
    no open file. Damaged data raises CorruptPack.
    """

    format: ClassVar[str | None] = None  # the format that the pack must have; None for any
    # the methods `__getitem__` and `sample_at` whose samples `batch_decoder` decodes; None if a subclass replaced them
    _decoded_as: ClassVar[tuple[object, object] | None]
    _changeable: ClassVar[frozenset[str]] = frozenset(ChangedOptions.__annotations__)  # by `with_`
    _selects = False  # True if `_select` chooses the samples also without a split

    def __init_subclass__(cls, *, format: str | None = None, **named: Any) -> None:
        super().__init_subclass__(**named)
        if format is not None:
            cls.format = format
        order = cls.__mro__

        def depth(name: str) -> int:
            return next(at for at, each in enumerate(order) if name in vars(each))

        is_complete = depth("batch_decoder") <= min(depth("__getitem__"), depth("sample_at"))
        cls._decoded_as = (cls.__getitem__, cls.sample_at) if is_complete else None
        cls._check_overrides()

    @classmethod
    def decodes_batches(cls) -> bool:
        """Return True if this class decodes a batch as a whole, False if a subclass overrides `__getitem__`.

        The result may change, because a notebook may assign another `__getitem__` to the class at any time.
        """
        return cls._decoded_as == (cls.__getitem__, cls.sample_at)

    @classmethod
    def _check_overrides(cls) -> None:
        """Raise WrongType for an attribute that a subclass defines and that would have no effect."""
        for name in (*_SET_BY_OPENING, "fields", "split_name"):
            if name in vars(cls):
                raise WrongType(
                    f"{cls.__name__}.{name}: opening a dataset sets it; give {name}= to super().__init__, or override "
                    "__getitem__"
                )
        if "__getitems__" in vars(cls) and "__getitem__" not in vars(cls):
            raise WrongType(
                f"{cls.__name__}.__getitems__ without __getitem__: packer.Loader and dataset[i] do not call it; "
                "override __getitem__"
            )
        if not cls.decodes_batches():
            return  # its own __getitem__ may use the attributes below
        own = {name for kind in cls.__mro__ if kind not in PackDataset.__mro__ for name in vars(kind)}
        for name, reason in _WITHOUT_EFFECT.items():
            if name in own:
                raise WrongType(f"{cls.__name__}.{name}: {reason}")

    def __init__(
        self,
        path: str | PathLike[str],
        fields: Sequence[str] | None = None,
        *,
        split: str | None = None,
        geometry: Geometry | None = None,
        transform: Transform | None = None,
        output: Output = "torch",
        as_tuple: Sequence[str] | None = None,
        decoder: DecoderName = "auto",
        dct: DCT = "accurate",
        verify: VerifyMode = "first",
        stage: str | PathLike[str] | None = None,
        stage_as: str | None = None,
        boxes: BoxRule | None = None,
        cache: str | PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        patience: float | None = None,
    ) -> None:
        """Open a pack. The arguments and the errors are those of `packer.open`."""
        check_parameters(PackDataset.__init__, locals())
        for name in _SET_BY_OPENING:
            if name in vars(self) and "_count" not in vars(self):
                raise WrongType(
                    f"{type(self).__name__}.{name}: it is set before super().__init__, which sets it too; give {name}= "
                    "to super().__init__, or set it afterwards"
                )
        self._recipe: PackRecipe
        if is_url(path):
            if stage is not None or stage_as is not None:
                raise InvalidRequest(f"{path}: stage= is for packs on a disk, and this is a URL; give cache= instead")
            from packer.copies.remote_pack import RemoteRecipe, remote_location  # not imported for a pack in a folder

            location = remote_location(str(path), cache=cache, cache_limit=cache_limit, patience=patience)
            self.path: Path | StoreURL = location.url
            self._recipe = RemoteRecipe(location, location.find())
        else:
            self.path = path_or_url(path).absolute()
            remote = _remote_members(cache, cache_limit, patience)
            staged = os.fspath(stage) if stage is not None else None
            self._recipe = StagedRecipe(self.path, remote=remote, stage=staged, codec=stage_as)
        self._stage_as = stage_as
        self.geometry = geometry
        self.output = output
        self._choose_fields(fields, as_tuple)
        self._decoder = decoder
        self._dct = dct
        self._verify = verify
        self._box_rule = boxes
        self._sample_decoder_or_none: SampleDecoder | None = None
        self._shares_pack = False  # another dataset has the same open pack, which the last of them closes
        self._rows: npt.NDArray[np.int64] | None = None  # the chosen rows of the pack, None for all or a split
        self._shared: SharedMemory | None = None  # in a worker process
        self._choose_split(split)
        self.transform = transform

    def _choose_fields(self, fields: Sequence[str] | None, as_tuple: Sequence[str] | None) -> None:
        self.as_tuple = tuple(as_tuple) if as_tuple is not None else None
        names = fields if fields is not None else self.as_tuple
        self._fields = tuple(dict.fromkeys(names)) if names is not None else None

    def _choose_split(self, split: str | None) -> None:
        self._split = split
        self._takes_all = split is None and self._rows is None and not self._selects
        self._indices: npt.NDArray[np.int64] | None = None
        self._targets: list[int] | None = None
        self._count = len(self._chosen(self.sample_decoder()))

    @property
    def fields(self) -> tuple[str, ...] | None:
        """Names of the fields in a sample, as given to `packer.open`. None for all fields that are not hidden."""
        return self._fields

    @property
    def is_remote(self) -> bool:
        """True if at least one part of the pack is behind a URL, False if all are in folders."""
        return any(member.is_remote for member in self.sample_decoder().pack.members)

    @property
    def split_name(self) -> str | None:
        """Name of the split, as given to `packer.open`. None if the dataset has no `split`."""
        return self._split

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits of the pack: the values that `split=` accepts. Empty if the pack has no splits."""
        return _splits_of(self.sample_decoder().pack)

    def with_(self, **options: Unpack[ChangedOptions]) -> Self:
        """Return a dataset over the same open pack with other options. This dataset does not change.

        Both datasets use the open files of the pack. Closing one of them does not close the files of the other.

        Args:
            options: Options of `packer.open`: fields, split, geometry, transform, output, as_tuple, decoder, dct and
                boxes. An option that is not given keeps its value. But `as_tuple` without `fields` reads only the
                fields of the tuple.

        Raises:
            WrongType: An option does not exist, can only be set by `packer.open`, or has the wrong type.
            InvalidRequest: The options contradict each other.
            UnknownKey: The pack does not have the split or the field.
            CorruptPack: The pack is damaged.
        """
        for name in options:
            if name not in self._changeable:
                raise WrongType(
                    f"{type(self).__name__}.with_: {name}=: expected one of {', '.join(sorted(self._changeable))}; "
                    "open the pack again for other options"
                )
        check_arguments(options, ChangedOptions.__annotations__)
        pack = self.sample_decoder().pack
        other = copy.copy(self)
        other.geometry = options.get("geometry", self.geometry)
        other.output = options.get("output", self.output)
        other._decoder = options.get("decoder", self._decoder)
        other._dct = options.get("dct", self._dct)
        other._box_rule = options.get("boxes", self._box_rule)
        if options.keys() & {"fields", "as_tuple"}:
            other._choose_fields(options.get("fields"), options.get("as_tuple", self.as_tuple))
        other._sample_decoder_or_none = other._decoder_of(pack)
        self._shares_pack = other._shares_pack = True
        if "split" in options:
            other._choose_split(options["split"])
        other.transform = options.get("transform", self.transform)
        return other

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OF_IMAGE_FOLDER and self.decodes_batches():
            raise AttributeError(f"{type(self).__name__}.{name}: {_WITHOUT_EFFECT[name]}")
        if name == "transform" and "_count" in vars(self):
            self.check_transform(value, gets_image=self.as_tuple is not None)
        super().__setattr__(name, value)

    def check_transform(self, transform: object, *, gets_image: bool) -> None:
        """Raise InvalidRequest for a transform of torchvision that does not fit the samples.

        Transforms of torchvision's version 1 accept one image only. In samples of plain tensors, transforms v2 move
        only the first image. Other images, boxes and points would then not fit it.

        Args:
            transform: A function of the sample.
            gets_image: True if the transform gets only the first value of a tuple. False if it gets the complete
                sample.
        """
        names = image_transforms(transform)
        if gets_image:
            names = [name for name in names if name in _OF_PIL and self.output in ("torch", "tv")]
        if names:
            raise InvalidRequest(
                f"{self.path}: transform={names[0]} is for one image of PIL; open the pack with "
                'as_tuple=("image", "label") and output="pil", or use torchvision.transforms.v2'
            )
        left = self._not_moved()
        moves_all = self.output == "tv" and not gets_image
        if not moves_all and left and (name := moving_transform(transform)) is not None:
            raise InvalidRequest(
                f"{self.path}: transform={name} moves one image and leaves {', '.join(left)} in place; open the "
                'pack with output="tv" and without as_tuple, or give geometry= one of packer.geometry\'s'
            )

    def _not_moved(self) -> list[str]:
        """Return the fields that transforms of torchvision do not move in samples of plain tensors."""
        images = [field.name for field in self.schema if field.kind in PIXEL_KINDS]
        return images[1:] + [field.name for field in self.schema if field.kind in ("points", "boxes")]

    # ---- opening: per process, on first use

    def sample_decoder(self) -> SampleDecoder:
        """Return the decoder of samples. The first call in a process, or after `close`, opens the pack."""
        sample_decoder = self._sample_decoder_or_none
        if sample_decoder is None or sample_decoder.pack.pid != os.getpid():
            self._sample_decoder_or_none = None  # closes an inherited one before the pack is opened again
            sample_decoder = self._sample_decoder_or_none = self._open()
        return sample_decoder

    def _open(self) -> SampleDecoder:
        pack = self._recipe.open(self._verify)
        found = pack.manifest.format
        if self.format is not None and found not in (self.format, COLLECTION):
            pack.close()
            raise InvalidRequest(
                f"{self.path}: the pack's format is {found!r}, {type(self).__name__} reads {self.format!r}; "
                "packer.open reads any"
            )
        self._recipe = self._recipe.pinned(pack)
        if get_worker_info() is not None:  # OpenCV's threads would compete with the other workers
            import_or_explain("cv2", "a data loader worker").setNumThreads(0)
        self._shares_pack = False
        return self._decoder_of(pack)

    def _decoder_of(self, pack: Pack) -> SampleDecoder:
        self._check_names(pack)
        return SampleDecoder(pack, self._fields, decoder=self._decoder, dct=self._dct, boxes=self._box_rule)

    def _check_names(self, pack: Pack) -> None:
        missing = set(self.as_tuple or ()) - set(self._fields or pack.schema.names)
        if missing:
            raise UnknownKey(f"as_tuple names {sorted(missing)[0]!r}, which is not among fields")

    def _chosen(self, sample_decoder: SampleDecoder) -> npt.NDArray[np.int64] | range:
        if self._takes_all:
            return range(len(sample_decoder.pack))
        if self._indices is None:
            rows = self._rows
            if rows is None or self._split is not None:
                found = self._select(sample_decoder.pack, self._split)
                rows = found if rows is None else rows[np.isin(rows, found)]
            self._indices = rows
        return self._indices

    def _select(self, pack: Pack, split: str | None) -> npt.NDArray[np.int64]:
        names = _splits_of(pack)
        if split not in names:
            known = (
                f"splits: {', '.join(names)}" if names else "the pack has no splits; packer convert --split makes them"
            )
            raise UnknownKey(f"{pack.folder}: no split {split!r}; {known}")
        return np.flatnonzero(pack.index.column("split") == names.index(split))

    def close(self) -> None:
        """Close the files of the pack in this process. A later read opens them again.

        A file stays open while another dataset, or a batch that a Loader decodes, uses it. A second call has no effect.
        """
        sample_decoder, self._sample_decoder_or_none = self._sample_decoder_or_none, None
        self._indices = self._shared = None
        if sample_decoder is not None and not self._shares_pack and sample_decoder.pack.pid == os.getpid():
            sample_decoder.pack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sample_decoder_or_none": None, "_indices": None, "_shared": None, "_targets": None}

    # ---- samples

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        """Return one sample for a whole number, or a list of samples for a slice.

        Args:
            index: A whole number or a slice, as for a list. Negative numbers count from the end.

        Raises:
            BadIndex: The number is outside the dataset.
            WrongType: `index` has another type, or it is a slice and a subclass overrides `__getitem__`.
            CorruptRecord: The sample is damaged.
        """
        try:
            at = operator.index(index)
        except TypeError:
            if isinstance(index, slice) and self.decodes_batches():
                return [self[at] for at in range(*index.indices(self._count))]
            raise WrongType(
                f"{self.path}: index {index!r:.60}: expected a whole number; for a key dataset[dataset.index_of(key)], "
                "for a list torch.utils.data.Subset(dataset, list), for a slice of a dataset with its own __getitem__ "
                "[dataset[i] for i in range(...)]"
            ) from None
        reading = _reading.get()
        if reading is not None and reading[0] is self:
            return self.sample_at(at, reading[1].geometry, reading[1].take())
        return self.sample_at(at, self.geometry, self._random([at])[0])

    @contextmanager
    def reading(self, stream: RandomStream) -> Iterator[None]:
        """Return a `with` block in which `dataset[index]` uses the geometry and random numbers of `stream`.

        packer.Loader uses it for one sample. Reads in other threads are not affected.
        """
        token = _reading.set((self, stream))
        try:
            yield
        finally:
            _reading.reset(token)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """Return the samples of a batch, as torch's DataLoader requests them: as a Batch if the options allow it."""
        if not self.decodes_batches() or self.transform is not None or self.output != "torch":
            return [self[index] for index in indices]
        if self._shared is None and get_worker_info() is not None:
            self._shared = SharedMemory()
        take = self._shared.take if self._shared is not None else take_new
        decoder = self.batch_decoder(indices, self.geometry, random=self._random(indices), take=take)
        decoder.fill(0, len(indices))
        return Batch(decoder.fields(), len(indices), self.as_tuple)

    def batch_decoder(
        self,
        indices: Indices,
        geometry: Geometry | None,
        *,
        random: Sequence[Sequence[float]],
        take: Take,
        collate: CollateFields = dict,
    ) -> BatchDecoder:
        """Return a decoder for the batch of the samples at `indices`. packer.Loader shares its work among threads.

        Args:
            indices: Indices of samples.
            geometry: Replaces the geometry of the dataset. None for no geometry.
            random: For each sample, as many random numbers as the geometry draws.
            take: A function of a size in bytes. It returns memory for the batch, as `take_new` does.
            collate: A function that returns the batch for a dict of the batched fields.
        """
        return PackBatchDecoder(
            self.sample_decoder(),
            self.pack_indices(indices),
            take=take,
            geometry=geometry,
            random=random,
            collate=collate,
        )

    def sample_at(self, index: int, geometry: Geometry | None, random: Sequence[float]) -> Any:
        """Return the sample at `index` with a geometry and random numbers that you choose.

        Args:
            index: Index of the sample. Negative indices count from the end.
            geometry: Replaces the geometry of the dataset. None for no geometry.
            random: Numbers 0 <= r < 1, as many as the geometry draws.
        """
        sample_decoder = self.sample_decoder()
        sample = sample_decoder.sample(self._pack_index(sample_decoder, index), geometry, random)
        if self.output == "pil":
            sample = {field.name: as_pil(field, sample[field.name]) for field in sample_decoder.schema.fields}
        elif self.output != "numpy":
            sample = {field.name: as_torch(field, sample[field.name]) for field in sample_decoder.schema.fields}
            if self.output == "tv":
                sample = as_tv(sample_decoder.schema, sample)
        if self.as_tuple is None:
            return self.transform(sample) if self.transform else sample
        first, *rest = (sample[name] for name in self.as_tuple)
        return (self.transform(first) if self.transform else first, *rest)

    def pack_indices(self, indices: Indices) -> npt.NDArray[np.int64]:
        """Return the row in the pack of each sample at `indices`, int64 (n,). Raises BadIndex, WrongType."""
        given = np.asarray(indices)
        if given.dtype.kind not in "iu" and given.size:
            raise WrongType(f"{self.path}: indices {indices!r:.60}: expected whole numbers")
        given = given.astype(np.int64, copy=False)
        outside = (given < -self._count) | (given >= self._count)
        if outside.any():
            raise self._bad_index(int(given[outside][0]))
        rows = given % max(self._count, 1)
        return rows if self._takes_all else np.asarray(self._chosen(self.sample_decoder()), np.int64)[rows]

    def stored_samples(self) -> PackRecipe:
        """Return a recipe for a pack of the samples of this dataset. packer.convert copies their records.

        Raises InvalidRequest if geometry, transform, boxes, stage_as or a subclass makes other samples.
        """
        makers = {"geometry": self.geometry, "transform": self.transform, "boxes": self._box_rule}
        changed = [f"{name}=" for name, maker in {**makers, "stage_as": self._stage_as}.items() if maker is not None]
        if changed or not self.decodes_batches():
            raise InvalidRequest(
                f"{self.path}: {(changed or ['__getitem__'])[0]} changes the samples, and convert copies the pack's "
                "records: open the pack without it (convert has resize=), or give the samples: iter(dataset), "
                "length=len(dataset)"
            )
        return self.recipe()

    def _random(self, indices: Sequence[int]) -> list[list[float]]:
        draws, count = self.geometry.draws if self.geometry is not None else 0, len(indices)
        return torch.rand(count, draws, dtype=torch.float64).tolist() if draws else [[]] * count

    def _pack_index(self, sample_decoder: SampleDecoder, index: int) -> int:
        if not -self._count <= index < self._count:
            raise self._bad_index(index)
        return index % self._count if self._takes_all else int(self._chosen(sample_decoder)[index])

    def _bad_index(self, index: int) -> BadIndex:
        return BadIndex(f"sample index {index} is outside the data set of {self._count} samples")

    def fetch_ahead(
        self, indices: Indices | None = None, *, rank: int = 0, world_size: int = 1
    ) -> "PartSchedule | None":
        """Start to download the parts of a pack at a URL, in the order in which samples need them.

        Args:
            indices: Indices of the samples of all ranks, in the order of reading. None for all samples in their order.
            rank: Number of this process. It reads the samples at indices[rank::world_size].
            world_size: Number of processes. Each process may use 1 / world_size of cache_limit.

        Returns:
            The schedule of the downloads. None if the pack is on a disk, or the dataset is over several packs.

        Raises:
            InvalidRequest: The parts that are read at the same time are larger than cache_limit.
        """
        supply = self.sample_decoder().pack.supply
        if supply is None:
            return None
        from packer.copies.part_schedule import PartSchedule  # not imported for a pack in a folder

        return PartSchedule(supply, self.part_numbers(indices), rank=rank, world_size=world_size)

    def part_numbers(self, indices: Indices | None = None) -> npt.NDArray[np.int64]:
        """Return the number of the part that contains each sample, int64 (n,). Raises BadIndex.

        The samples are those at `indices`, or all samples if `indices` is None.
        """
        chosen = np.arange(self._count) if indices is None else indices
        return self.sample_decoder().pack.part_numbers(self.pack_indices(chosen))

    # ---- properties of all samples, from the index

    @property
    def schema(self) -> Schema:
        """The fields of a sample, in order. The class is packer.schema.Schema."""
        return self.sample_decoder().schema

    @property
    def classes(self) -> list[str]:
        """Class names by number: those of the field `label`, else `box_labels`, else `mask`. Empty without classes."""
        schema = self.sample_decoder().pack.schema
        named = (schema[name].classes for name in ("label", "box_labels", "mask") if name in schema)
        return list(next(filter(None, named), ()))

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return the values of the number field `name`, such as "label", of all samples, as a new array (n, ...).

        The values come from the index, so that no part is read. Raises UnknownKey if the index does not have the field.
        """
        sample_decoder = self.sample_decoder()
        values = sample_decoder.pack.index.column(name)
        chosen = self._chosen(sample_decoder)
        dtype = values.dtype.newbyteorder("=")
        return (values if isinstance(chosen, range) else values[chosen]).astype(dtype)

    def index_of(self, key: str) -> int:
        """Return the index of the sample with this key. Raises UnknownKey if no sample has it."""
        found = self._find(key)
        if found is None:
            self.sample_decoder().pack.index.index_of(key)
            raise UnknownKey(f"key {key!r} is not in the split {self.split_name!r}")
        return found

    def _find(self, key: str) -> int | None:
        sample_decoder = self.sample_decoder()
        index = sample_decoder.pack.index.find(key)
        if index is None or self._takes_all:
            return index
        found = np.flatnonzero(np.asarray(self._chosen(sample_decoder)) == index)
        return int(found[0]) if len(found) else None

    def __contains__(self, key: object) -> bool:
        """Return True if a sample has this key. Raises WrongType if `key` is not a str."""
        if not isinstance(key, str):
            raise WrongType(f"{type(key).__name__} in {type(self).__name__}: expected the key of a sample")
        return self._find(key) is not None

    def keys(self) -> Sequence[str]:
        """Return the keys of all samples, in order. Each key is read when you access it."""
        return LazySequence(self.key, len(self))

    def key(self, index: int) -> str:
        """Return the key of the sample at `index`. Raises BadIndex."""
        sample_decoder = self.sample_decoder()
        return sample_decoder.pack.index.key(self._pack_index(sample_decoder, index))

    # ---- other rows and columns, without a copy of an image

    def where(self, condition: "str | npt.ArrayLike | Callable[[DatasetColumns], npt.ArrayLike]") -> Self:
        """Return a dataset of the samples that meet a condition, in the same order.

        Args:
            condition: A text such as "label == 'cup' and width >= 256", in the language of docs/check/select.md. Or a
                bool array (n,) with a value per sample. Or a function of `columns()` that returns this array.

        Raises:
            InvalidRequest: The text is malformed, or the array has another dtype or shape.
        """
        return self._with_positions(rows.where(self.columns(), condition))

    def select(self, indices: Indices) -> Self:
        """Return a dataset of the samples at `indices`, in that order. Raises BadIndex."""
        return self._with_positions(np.asarray(indices))

    def drop(self, keys: Iterable[str]) -> Self:
        """Return a dataset without the samples that have these keys. Raises UnknownKey, or WrongType for an index."""
        keys = [keys] if isinstance(keys, str) else list(keys)
        if not all(isinstance(key, str) for key in keys):
            raise WrongType(f"{self.path}: drop: expected keys, found {keys!r:.60}; select keeps samples by index")
        kept = np.ones(len(self), bool)
        kept[self.columns().positions(keys)] = False
        return self._with_positions(np.flatnonzero(kept))

    def sample(self, count: int | float, *, seed: int = 0) -> Self:
        """Return a dataset of random samples, in the order of this dataset.

        Args:
            count: The number of samples as an int, or a share of all samples as a float from 0 to 1.
            seed: Equal seeds choose equal samples.

        Raises:
            InvalidRequest: `count` is larger than the number of samples, or the share is not from 0 to 1.
        """
        return self._with_positions(rows.sampled(len(self), count, seed))

    def split(
        self, *, stratify: str | None = None, by: str | None = None, seed: int = 0, **shares: float
    ) -> dict[str, Self]:
        """Divide the samples at random into datasets, each in the order of this dataset.

        Args:
            stratify: A field, such as "label". Each dataset gets its share of the samples of each value.
            by: A field, such as "object_id". All samples with an equal value are in the same dataset.
            seed: Equal seeds choose equal samples.
            shares: The share of each dataset, such as train=0.8, val=0.2. Their sum is at most 1.

        Returns:
            A dict from the names of the shares to the datasets. No sample is in two of them.

        Raises:
            InvalidRequest: The shares are invalid, or samples with an equal value of `by` differ in `stratify`.
            UnknownKey: The index does not have the field.
        """
        found = rows.divided(self.columns(), shares, stratify=stratify, by=by, seed=seed)
        return {name: self._with_positions(positions) for name, positions in found.items()}

    def with_column(
        self,
        name: str,
        values: "rows.NewValues",
        *,
        kind: "rows.NewKind | None" = None,
        classes: Sequence[str] | None = None,
    ) -> Self:
        """Return a dataset with a new field, or with other values of an existing field, but not of images.

        Args:
            name: The name of the field.
            values: A value for each sample, in order. Or a dict from keys to values. Or the path of a CSV file with the
                column `key` and a column of this name. Samples without an entry keep their value. If the field has
                classes, a text is the name of a class.
            kind: "number", "text", "json", "points" or "boxes". None keeps the kind of an existing field. For a new
                field, None means text if the first value is a str, else number.
            classes: The class names of a number field. If the field has classes, they come first, and new ones follow.

        Raises:
            InvalidRequest: The values do not fit the field, or a sample of a new field has no value.
            UnknownKey: `values` contains a key that no sample has.
        """
        field, given = rows.new_values(self.columns(), name, values, kind=kind, classes=classes)
        return self.over(ChangedPack(self.recipe(), partial(derived_pack.with_field, field=field, values=given)))

    def rename(self, **names: str) -> Self:
        """Return a dataset whose fields have other names, such as rename(rgb="image").

        Args:
            names: The new name of each renamed field, by its old name.

        Raises:
            UnknownKey: The pack does not have a field with the old name.
            InvalidRequest: Two fields would have the same name, or a name is `key`.
        """
        other = self.over(ChangedPack(self.recipe(), partial(derived_pack.renamed, names=names)))
        other.as_tuple = tuple(names.get(name, name) for name in self.as_tuple) if self.as_tuple is not None else None
        other._fields = tuple(names.get(name, name) for name in self._fields) if self._fields is not None else None
        return other

    def table(self) -> "pyarrow.Table":
        """Return an Arrow table of the fields, except pixels and bytes. Needs pyarrow.

        It contains sizes of images and counts of boxes. Classes are texts. Convert it with `.to_pandas()`.
        """
        from packer.datasets.arrow_table import arrow_table  # training does not need it

        return arrow_table(self.sample_decoder().pack, self.pack_indices(np.arange(len(self))))

    def save(self, path: str | PathLike[str]) -> None:
        """Write a collection of the samples of this dataset. packer.open opens a collection like a pack.

        The collection contains an index, and the relative paths of the packs that contain the images. It does not
        contain options such as `geometry`.

        Args:
            path: The new folder.

        Raises:
            PackExists: The folder exists.
            InvalidRequest: The pack has an index of version 1. `packer convert` makes a pack that can be saved.
            StorageError: The folder cannot be written.
        """
        from packer.conversion.derived_pack_writer import save_collection  # training does not need it

        with closing(self._chosen_recipe(self.pack_indices(np.arange(len(self)))).open(self._verify)) as pack:
            save_collection(pack, Path(path))

    def columns(self) -> "DatasetColumns":
        """Return the values in the index, in the order of samples, by the names that conditions of `where` use."""
        return rows.DatasetColumns(self.sample_decoder().pack, self.pack_indices(np.arange(len(self))))

    def recipe(self) -> PackRecipe:
        """Return a recipe for a pack of the samples of this dataset. Any process may open the pack with it."""
        return self._recipe if self._takes_all else self._chosen_recipe(self.pack_indices(np.arange(len(self))))

    def _chosen_recipe(self, chosen: npt.NDArray[np.int64]) -> PackRecipe:
        return ChangedPack(self._recipe, partial(derived_pack.selected, indices=chosen))

    def _with_positions(self, positions: npt.NDArray[np.int64]) -> Self:
        self._check_selectable()
        other = copy.copy(self)
        other._rows = self.pack_indices(positions)
        self._shares_pack = other._shares_pack = True
        other._choose_split(None)
        return other

    def over(self, recipe: PackRecipe) -> Self:
        """Return a dataset with the options of this dataset over all samples of the pack that `recipe` opens."""
        self._check_selectable()
        kind: Any = PackDataset if type(self) in _BY_FORMAT.values() else type(self)
        other: Self = kind.__new__(kind)
        vars(other).update(vars(self))
        other._recipe, other._rows = recipe, None
        other._sample_decoder_or_none, other._shares_pack = None, False
        other._choose_split(None)
        return other

    def makes_samples_like(self, other: "PackDataset") -> bool:
        """Return True if `other` has the same class and options. Equal records then give equal samples."""
        ours, theirs = (
            (type(each) if type(each) not in _BY_FORMAT.values() else PackDataset, each.geometry, each.output)
            + (each.as_tuple, each.fields, each._decoder, each._dct, each._box_rule, each._verify)
            for each in (self, other)
        )
        return ours == theirs and self.transform is other.transform

    def _check_selectable(self) -> None:
        """Do nothing. A subclass whose samples are not rows of the pack raises InvalidRequest here."""

    @property
    def content_id(self) -> str:
        """Id of the pack. If methods such as `select` chose samples, a digest of this id and their rows."""
        pack_id = self.sample_decoder().pack.manifest.pack_id
        if self._rows is None:
            return pack_id
        return hashlib.sha256(pack_id.encode() + self._rows.astype("<i8").tobytes()).hexdigest()

    # ---- the attributes of torchvision's ImageFolder

    @property
    def targets(self) -> list[int]:
        """The label of each sample, in order. Raises AttributeError if the pack does not have the field `label`."""
        if self._targets is None:
            if "label" not in self.sample_decoder().pack.schema:
                raise AttributeError(f"{self!r} has no field 'label', so no targets")
            self._targets = self.column("label").tolist()
        return self._targets

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The number of each class, by its name. Empty if the pack has no classes."""
        return {name: value for value, name in enumerate(self.classes)}

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """(key, label) of each sample, read when you access it. In a packed folder, the key is the relative path."""
        return LazySequence(lambda index: (self.key(index), self.targets[index]), len(self))

    @property
    def imgs(self) -> Sequence[tuple[str, int]]:
        """(key, label) of each sample: `samples` under torchvision's other name."""
        return self.samples

    # ---- display

    def show(self, index: int | None = None) -> "Drawing":
        """Return a drawing of the sample at `index`, or with None of the first 12 samples. Jupyter displays it.

        The drawing shows stored images and labels, without geometry. If the pack is at a URL, this downloads the parts
        of the samples. Raises BadIndex, CorruptPack and StoreError.
        """
        from packer.inspect.notebook import SMALL_PX, WIDTH_PX, draw_samples  # training does not need it

        first = range(min(len(self), _FIRST) or 1)  # without a sample, its key is a BadIndex
        keys = [self.key(each) for each in (first if index is None else [index])]
        width_px = SMALL_PX if index is None else WIDTH_PX
        return draw_samples(self.sample_decoder().pack, Path(str(self.path)).name, keys, width_px=width_px)

    def __repr__(self) -> str:
        split = f", split={self.split_name!r}" if self.split_name else ""
        fields = ", ".join(f"{name} {what}" for name, what, _ in self._described())
        pack, places = self.sample_decoder().pack, [str(self.path)]
        if pack.is_in_memory:
            places = list(dict.fromkeys(member.place for member in pack.members))
        of = f" of {len(pack)}" if self._rows is not None else ""
        size = pack.part_bytes / 1e6
        copy = f"; read as {self._stage_as} from {pack.folder}" if self._stage_as is not None else ""
        return printable(
            f"{type(self).__name__}({', '.join([*map(repr, places[:_LISTED]), *['...'] * (len(places) > _LISTED)])}"
            f"{split}: {len(self)}{of} samples, {size:,.1f} MB; {fields}{copy})"
        )

    def _repr_html_(self) -> str:
        from packer.inspect.notebook import SMALL_PX, draw_samples, html_table  # training does not need it

        split = f", split {self.split_name}" if self.split_name else ""
        drawing = None
        if not self.is_remote and len(self) >= _SHOWN:  # a pack at a URL would download a part
            keys = [self.key(len(self) * number // _SHOWN) for number in range(_SHOWN)]
            name = Path(str(self.path)).name
            drawing = draw_samples(self.sample_decoder().pack, name, keys, width_px=SMALL_PX)
        title = f"{type(self).__name__}: {self.path}{split}, {len(self)} samples"
        return html_table(title, self._described(), drawing)

    def _described(self) -> list[tuple[str, str, str]]:
        """Return for each field its name, its kind with shape or classes, and its codec."""
        found = []
        for field in self.schema:
            unknown = ("H", "W") if field.kind in PIXEL_KINDS else ("N",) * len(field.shape or ())
            lengths = [str(length or letter) for length, letter in zip_longest(field.shape or (), unknown)]
            what = field.kind + (f" ({', '.join(lengths)})" if field.shape else "")
            if field.classes and field.kind == "number":
                names = [*field.classes[:_SHOWN], *["..."] * (len(field.classes) > _SHOWN)]
                what = f"of {len(field.classes)} classes ({', '.join(names)})"
            found.append((field.name, what, field.codec))
        return found


PackDataset._decoded_as = PackDataset.__getitem__, PackDataset.sample_at


def _splits_of(pack: Pack) -> tuple[str, ...]:
    return pack.schema["split"].classes or () if "split" in pack.schema else ()


def as_torch(field: Field, value: Any) -> Any:
    """Return arrays as tensors without a copy: images (3, H, W), depth (1, H, W). Other values are unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    tensor = torch.from_numpy(value)
    if field.kind == "image":
        return tensor.permute(2, 0, 1)
    return tensor.unsqueeze(0) if field.kind == "depth" else tensor


class LMDBDataset(PackDataset, format="lmdb"):
    """A PackDataset that opens only packs of the format lmdb and collections."""


class HDF5Dataset(PackDataset, format="hdf5"):
    """A PackDataset that opens only packs of the format hdf5 and collections."""


class PthDataset(PackDataset, format="pth"):
    """A PackDataset that opens only packs of the format pth and collections."""


class BMPDataset(PackDataset, format="bmp"):
    """A PackDataset that opens only packs of the format bmp and collections."""


class TFRecordDataset(PackDataset, format="tfrecord"):
    """A PackDataset that opens only packs of the format tfrecord and collections."""


class WebDatasetDataset(PackDataset, format="webdataset"):
    """A PackDataset that opens only packs of the format webdataset and collections."""


class RecordIODataset(PackDataset, format="recordio"):
    """A PackDataset that opens only packs of the format recordio and collections."""


class CaffeLMDBDataset(PackDataset, format="caffe-lmdb"):
    """A PackDataset that opens only packs of the format caffe-lmdb and collections."""


class EfficientLMDBDataset(PackDataset, format="efficient-lmdb"):
    """A PackDataset that opens only packs of the format efficient-lmdb and collections."""


class BasicSRLMDBDataset(PackDataset, format="basicsr-lmdb"):
    """A PackDataset that opens only packs of the format basicsr-lmdb and collections."""


class N5Dataset(PackDataset, format="n5"):
    """A PackDataset that opens only packs of the format n5 and collections."""


_BY_FORMAT = {kind.format: kind for kind in PackDataset.__subclasses__()}


def manifest_at(
    path: str | PathLike[str],
    *,
    cache: str | PathLike[str] | None,
    cache_limit: int | str | None,
    patience: float | None,
) -> Manifest:
    """Return the manifest of a pack in a folder or at a URL. Raises InvalidRequest for a URL without `cache`."""
    if not is_url(path):
        return manifests.read(path_or_url(path))
    from packer.copies.remote_pack import remote_location  # not imported for a pack in a folder

    return remote_location(str(path), cache=cache, cache_limit=cache_limit, patience=patience).read_manifest()[1]


def _remote_members(
    cache: str | PathLike[str] | None, cache_limit: int | str | None, patience: float | None
) -> Callable[[str], Pack] | None:
    """Return a function that opens the packs at URLs of a collection. None if all arguments are None."""
    if cache is cache_limit is patience is None:
        return None
    from packer.copies.remote_pack import open_member  # not imported for a pack in a folder

    return partial(open_member, cache=cache, cache_limit=cache_limit, patience=patience)


def open(
    path: str | PathLike[str],
    fields: Sequence[str] | None = None,
    *,
    split: str | None = None,
    geometry: Geometry | None = None,
    transform: Transform | None = None,
    output: Output = "torch",
    as_tuple: Sequence[str] | None = None,
    decoder: DecoderName = "auto",
    dct: DCT = "accurate",
    verify: VerifyMode = "first",
    stage: str | PathLike[str] | None = None,
    stage_as: str | None = None,
    boxes: BoxRule | None = None,
    cache: str | PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    patience: float | None = None,
) -> PackDataset:
    """Open a pack of any format as a torch dataset.

    Args:
        path: The folder of the pack, or its URL, such as "s3://bucket/photos.pack".
        fields: Names of the fields to read. None reads all fields that are not hidden, or with `as_tuple` its fields.
        split: Name of a split that `packer convert --split` stored. None reads all samples.
        geometry: Moves pixels, points and boxes together, such as packer.geometry.RandomResizedCrop(224). Its random
            numbers come from torch's generator. In packer.Loader they depend on (seed, epoch, sample index).
        transform: A function of the sample. With `as_tuple`, it gets only the first value, as in torchvision.
        output: The types of the values: "torch", "numpy", "pil" or "tv". The class PackDataset has a table of them.
        as_tuple: Names of fields. Samples are then tuples of these fields. None for dicts.
        decoder: The image decoder: "auto", "turbojpeg" or "opencv". All three return the same pixels.
        dct: "accurate", or "fast" for libjpeg's faster transform. It changes pixels by a few levels.
        verify: "first" compares each value with its crc32 when a process first reads it. The choice "always" compares
            at each read, "never" at none. "open" is "first", and compares each part's sha256 before its first read.
        stage: Where `packer stage` made a copy: "auto" for shared memory, or the folder of `--to`. None for no copy.
        stage_as: The codec of a copy that `packer stage --as` made, such as "ycc420". It changes pixels. None for the
            codec of the pack.
        boxes: Cuts or drops boxes that reach out of the returned image. Dropped boxes lose their rows in all related
            fields, too. None keeps all boxes unchanged.
        cache: A local folder for the parts that are downloaded from URLs. A URL, or a collection of packs at URLs,
            requires it. None for packs in folders.
        cache_limit: The largest size of `cache`, in bytes or as a text such as "200GB". None for the complete disk.
        patience: Seconds to wait for a store that does not answer, before StoreError is raised. None for 180.

    Returns:
        A map-style torch dataset: the class of packer.datasets for the format of the pack, such as LMDBDataset.

    Raises:
        WrongType: An argument has the wrong type.
        InvalidRequest: The path is not a pack, or the options contradict each other.
        UnknownKey: The pack does not have the split or the field.
        CorruptPack: The pack is damaged.
    """
    given: dict[str, Any] = dict(locals())

    def opened() -> PackDataset:
        manifest = manifest_at(path, cache=cache, cache_limit=cache_limit, patience=patience)
        kind: type[PackDataset] = _BY_FORMAT.get(manifest.format, PackDataset)
        return kind(**given)

    return opened() if is_url(path) else open_unreplaced(path_or_url(path), opened)


def joined(datasets: Sequence[PackDataset], prefixes: Sequence[str]) -> PackDataset:
    """Return what `concat` returns, but accept samples with equal keys. Raises InvalidRequest if the fields differ."""
    recipes = [
        each.recipe()
        if each.fields is None
        else ChangedPack(each.recipe(), partial(derived_pack.only_fields, names=each.fields))
        for each in datasets
    ]
    return datasets[0].over(JoinedPacks(recipes, prefixes))


def concat(*datasets: PackDataset, prefixes: Sequence[str] | None = None) -> PackDataset:
    """Return a dataset of the samples of all `datasets`, one after another, with the options of the first one.

    Class lists are merged by name. The classes of the first dataset keep their numbers, and new names follow them.

    Args:
        datasets: Datasets over packs or collections, with equal fields.
        prefixes: For each dataset, a text that precedes its keys, such as ["day1/", "day2/"]. None keeps the keys.

    Raises:
        InvalidRequest: The fields of the datasets differ.
        BadInput: Two samples have the same key.
    """
    if not datasets:
        raise InvalidRequest("concat: expected at least one dataset")
    given = [""] * len(datasets) if prefixes is None else prefixes
    if len(given) != len(datasets):
        raise InvalidRequest(f"concat: expected {len(datasets)} prefixes, found {len(given)}")
    found = joined(datasets, list(given))
    found.sample_decoder().pack.index.arrays["key_order"]  # raises BadInput for repeated keys
    return found
