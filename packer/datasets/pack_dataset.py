"""Pack dataset: torch data sets over packs, with random access; they pickle, and work under fork, spawn and threads."""

import copy
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar, get_args, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset, get_worker_info

from packer.datasets.batch import Batch, as_pil, as_torch, as_tv, moving_transform
from packer.datasets.batch_decoder import BatchDecoder, BatchFiller, Take, take_new
from packer.errors import BadIndex, CorruptPack, InvalidRequest, UnknownKey, WrongType, printable
from packer.geometry import BoxRule, Geometry, draw
from packer.images import DCT, DCTS, DecoderName
from packer.pack import manifest as manifests
from packer.pack.part_readers import open_unreplaced
from packer.pack.parts import PartSupply
from packer.pack.reader import Pack, VerifyMode
from packer.pack.sample_decoder import SampleDecoder
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, Schema
from packer.staging.staged_copies import open_staged
from packer.stores.url import StoreURL, URLPath, is_url, path_or_url
from packer.system.shared_memory import SharedMemory

if TYPE_CHECKING:  # a pack in a folder is opened without what reads URLs
    from packer.inspect.notebook import Drawing
    from packer.pack.stored_head import StoredPack
    from packer.remote.remote_pack import RemoteLocation

Output = Literal["torch", "numpy", "pil", "tv"]
OUTPUTS: tuple[Output, ...] = get_args(Output)
_OF_IMAGE_FOLDER = ("target_transform", "transforms", "loader")  # attributes of torchvision's without effect here
_SET_BY_OPENING = ("transform", "geometry", "output", "as_tuple")
_CHOSEN_BY_CONVERT = ("find_classes", "make_dataset", "is_valid_file")  # methods of ImageFolder's that list a folder
_OF_THE_PACK = ("classes", "class_to_idx", "targets", "samples", "imgs")
_LISTED = 3  # elements of a sequence in a text
_SHOWN = 4  # classes in a text, samples in a notebook
Transform = Callable[[Any], Any]
Indices = Sequence[int] | npt.NDArray[np.int64]
Element = TypeVar("Element")


class LazySequence(Sequence[Element]):
    """`count` elements, each made by a function of its index when it is asked for: none takes memory before."""

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
    """The geometry of one sample that packer.Loader makes, and its random numbers: of (seed, epoch, index) alone.

    A `__getitem__` of a subclass may read several samples to make one; each further read takes the numbers that follow.
    """

    def __init__(self, geometry: Geometry | None, *, seed: int, epoch: int, index: int) -> None:
        self.geometry = geometry
        self._key = seed, epoch, np.asarray([index], np.int64)
        self._taken = 0

    def take(self) -> list[float]:
        """As many numbers 0 <= r < 1 as the geometry draws."""
        count = self.geometry.draws if self.geometry is not None else 0
        self._taken += count
        numbers: list[float] = draw(*self._key, self._taken)[0, self._taken - count :].tolist() if count else []
        return numbers


_reading: ContextVar[tuple["PackDataset", RandomStream] | None] = ContextVar("reading", default=None)


class PartSchedule:
    """The parts that a pass reads, in its order: their supply is told which are needed next, and which no more."""

    def __init__(
        self, supply: PartSupply, numbers: npt.NDArray[np.int64], *, rank: int = 0, world_size: int = 1
    ) -> None:
        """numbers: the part of each sample of all ranks, which take turns, in the order of the pass.

        A rank fetches ahead into its share of the room, or into what its own pass reads from at a time, if that is
        more: a part that is fetched ahead in the room of another rank would be removed before it is read.
        Raises InvalidRequest where the parts that are read at a time do not fit into the supply's room.
        """
        self._supply = supply
        self._count = len(numbers[rank::world_size])
        parts, first = np.unique(numbers[rank::world_size], return_index=True)
        every, from_end = np.unique(numbers[::-1], return_index=True)
        # on any rank: a part that a cut goes through stays for the other one
        last = (len(numbers) - 1 - from_end[np.searchsorted(every, parts)]) // world_size
        sizes = np.asarray(supply.part_bytes, np.int64)[parts]
        room, needed = supply.room_bytes, _most_at_once(first, last, sizes)
        if room is not None and needed > room:
            raise InvalidRequest(
                f"{supply.url}: this order of samples reads from {needed:,} bytes of parts at a time, and the cache "
                f"holds {room:,} of them, so that each part would be fetched many times; raise cache_limit, or choose "
                "an order that reads from fewer parts at a time"
            )
        order = np.argsort(first)
        self._parts, self._last, self._sizes = parts[order], last[order], sizes[order]  # in the order of their reads
        self._share = int(sizes.sum()) if room is None else max(needed, room // world_size)
        self._fits = bool(sizes.sum() <= self._share)
        self._is_left = np.ones(len(parts), bool)
        self._asked = self._fitting()
        supply.give_up(self._parts[self._asked :].tolist())
        supply.fetch_ahead(self._parts[: self._asked].tolist())

    def _fitting(self) -> int:
        """How many parts, from the first of the pass on, the share holds once those that are over have made room."""
        return int(np.searchsorted(np.cumsum(self._sizes * self._is_left), self._share, side="right"))

    def is_over(self, count: int) -> bool:
        """Whether so many samples are all of the pass."""
        return count >= self._count

    def advance(self, count: int) -> None:
        """So many samples of the pass have been made."""
        is_over = self._is_left & (self._last < count)
        if is_over.any() and not self._fits:
            self._is_left &= ~is_over
            self._supply.give_up(self._parts[is_over].tolist())
            asked, self._asked = self._asked, self._fitting()
            self._supply.fetch_ahead(self._parts[asked : self._asked].tolist(), more=True)


def _most_at_once(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> int:
    """The most bytes of parts that a position of a pass lies between the first and the last sample of."""
    begun, ended = np.argsort(first), np.argsort(last)
    done = np.searchsorted(last[ended], first[begun])
    there = np.cumsum(sizes[begun]) - np.concatenate(([0], np.cumsum(sizes[ended])))[done]
    return int(there.max(initial=0))


class PackDataset(Dataset[Any]):
    """The samples of a pack of any format, as dicts.

    | kind   | output="torch"          | "numpy"            | "pil"      | "tv": tv_tensors' |
    |--------|-------------------------|--------------------|------------|-------------------|
    | image  | uint8 (3, H, W), RGB    | (H, W, 3)          | mode RGB   | Image             |
    | depth  | float32 (1, H, W)       | (H, W)             | mode F     | Mask              |
    | mask   | uint8 (H, W); int32     | (H, W)             | mode L; I  | Mask              |
    |        | where it has 16 bit     |                    |            |                   |
    | boxes  | float32 (N, 4), x0, y0, x1, y1 | as torch    | as numpy   | BoundingBoxes     |
    | points | float32 (..., 2), x, y in px of the image that is returned | | | KeyPoints      |
    | number | int or float; arrays as a tensor | as an array | as an array | as torch        |
    | text, json, bytes | as they are  |                    |            |                   |

    "tv" needs torchvision. Its transforms (torchvision.transforms.v2) then move images, boxes and points as one; of
    plain tensors they move the first alone. Its boxes have pixel centers at 0.5, 1.5, ...; everything else has them at
    0, 1, ...

    A subclass may have a `__getitem__` of its own, with `super().__getitem__(index)` in it: torch's DataLoader and
    packer.Loader read through it, one sample at a time, with the geometry and random numbers of the Loader.

    Everything that is returned is the caller's own memory. The object holds the folder and the options, nothing open:
    it pickles to a few KB. Damaged data raises CorruptPack; it never comes back as gray or stale pixels.
    """

    format: ClassVar[str | None] = None  # the format that the pack must have, None for any
    _decoded_as: ClassVar[tuple[object, object] | None]  # the ways to one sample that `batch_decoder` makes batches of
    _selects = False  # whether the samples are chosen by `_select` where no split was given, too

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        order = cls.__mro__

        def depth(name: str) -> int:
            return next(at for at, each in enumerate(order) if name in vars(each))

        is_whole = depth("batch_decoder") <= min(depth("__getitem__"), depth("sample"))
        cls._decoded_as = (cls.__getitem__, cls.sample) if is_whole else None
        cls._check_overrides()

    @classmethod
    def decodes_batches(cls) -> bool:
        """Whether batches are decoded as a whole: not where the class makes samples in its own way, then one by one.

        Looked up anew for each batch: a notebook may give the class another `__getitem__` at any time.
        """
        return cls._decoded_as == (cls.__getitem__, cls.sample)

    @classmethod
    def _check_overrides(cls) -> None:
        """Raise WrongType for an attribute of a subclass that would have no effect."""
        for name in (*_SET_BY_OPENING, "fields", "split"):
            if name in vars(cls):
                raise WrongType(
                    f"{cls.__name__}.{name}: opening a data set sets it, so that the class's own would be passed over; "
                    f"give {name}= to super().__init__, or override __getitem__"
                )
        if "__getitems__" in vars(cls) and "__getitem__" not in vars(cls):
            raise WrongType(
                f"{cls.__name__}.__getitems__ without __getitem__: packer.Loader and dataset[i] would pass it over; "
                "override __getitem__, through which all of them read then"
            )
        if not cls.decodes_batches():
            return  # whose own __getitem__ may use them
        for name in (*_OF_IMAGE_FOLDER, *_CHOSEN_BY_CONVERT):
            if hasattr(cls, name):
                raise WrongType(f"{cls.__name__}.{name}: {_nothing_calls(name)}")
        for name in _OF_THE_PACK:
            if getattr(cls, name) is not getattr(PackDataset, name):
                raise WrongType(
                    f"{cls.__name__}.{name}: it says what samples and batches do not have, which are the pack's; "
                    "override __getitem__ as well"
                )

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
        """path: of the pack's folder, or its URL, such as "s3://bucket/photos.pack".

        fields: names to read, None for all that are not bookkeeping.

        split: only the samples that --split gave this name. geometry: moves pixels, points and boxes as one, such as
        packer.geometry.RandomResizedCrop(224); its random numbers come from torch's generator here, as those of
        torchvision's transforms do, and from (seed, epoch, sample) in packer.Loader. transform: called with the sample
        that would be returned; with as_tuple, with its first value, as torchvision's data sets do. as_tuple: field
        names; samples are tuples. decoder: "auto", "turbojpeg" or "opencv", all with the same pixels. dct: "fast" for
        libjpeg's quicker one, which differs by a few levels. verify: compare a value's crc32 the "first" time that a
        process reads it, "always" or "never"; "open" also hashes each part before its first read. stage: read what
        `packer stage` has copied from the copy, "auto" in shared memory, or the folder that --to named. stage_as: read
        the copy that `packer stage --as` made there, such as "ycc420"; its pixels differ, so nobody gets it unasked.
        boxes: what becomes of boxes that reach out of the image that is returned: packer.geometry.BoxRule cuts or
        drops them, with the rows of all fields that belong to them; None leaves them as they are.
        Of a URL alone: cache: a folder on a disk of this machine, into which each part is fetched once when it is
        needed. cache_limit: bytes that all files there may take, or a text such as "200GB"; None for the whole disk.
        patience: seconds for which a store that does not answer is waited for, before StoreError is raised.
        Raises InvalidRequest where there is no such pack, split or option, CorruptPack where it is damaged.
        """
        if output not in OUTPUTS:
            raise InvalidRequest(f"output={output!r}: expected one of {', '.join(OUTPUTS)}")
        if dct not in DCTS:
            raise InvalidRequest(f"dct={dct!r}: expected one of {', '.join(DCTS)}")
        if geometry is not None and not isinstance(geometry, Geometry):
            raise InvalidRequest(
                f"geometry={geometry!r}: expected one of packer.geometry's, such as Resize((224, 224))"
            )
        if boxes is not None and not isinstance(boxes, BoxRule):
            raise InvalidRequest(
                f"boxes={boxes!r}: expected a rule such as packer.geometry.BoxRule(clip=True, least_visible=0.25); "
                "fields= chooses fields"
            )
        for name, names in (("fields", fields), ("as_tuple", as_tuple)):
            if names is not None and (isinstance(names, (str, bytes)) or not isinstance(names, Sequence)):
                raise WrongType(f'{name}={names!r}: expected field names, such as ("image", "label")')
        if transform is not None and not callable(transform):
            raise WrongType(f"transform={transform!r}: expected a function of a sample")
        for name in _SET_BY_OPENING:
            if name in vars(self) and "_count" not in vars(self):
                raise WrongType(
                    f"{type(self).__name__}.{name}: it is set before super().__init__, which sets it too; give {name}= "
                    "to super().__init__, or set it behind that"
                )
        self._location = location_of(path, cache=cache, cache_limit=cache_limit, patience=patience)
        if self._location is not None and (stage is not None or stage_as is not None):
            raise InvalidRequest(
                f"{path}: stage= is for packs on a disk; cache= names where this one's parts are kept, or open the "
                "folder that packer stage prints"
            )
        self._stored: StoredPack | None = None  # the pack behind the URL, the same one in every process
        self.path: Path | StoreURL = self._location.url if self._location is not None else path_or_url(path).absolute()
        self.geometry = geometry
        self.output = output
        self.as_tuple = tuple(as_tuple) if as_tuple is not None else None
        names = fields if fields is not None else self.as_tuple
        self._fields = tuple(dict.fromkeys(names)) if names is not None else None
        self._split = split
        self._takes_all = split is None and not self._selects
        self._decoder = decoder
        self._dct = dct
        self._verify = verify
        self._stage = os.fspath(stage) if stage is not None else None
        self._stage_as = stage_as
        self._box_rule = boxes
        self._sample_decoder_or_none: SampleDecoder | None = None
        self._indices: npt.NDArray[np.int64] | None = None
        self._pack_id: str | None = None
        self._shared: SharedMemory | None = None  # in a worker process
        self._targets: list[int] | None = None
        self._count = len(self._chosen(self.sample_decoder()))
        self.transform = transform

    @property
    def fields(self) -> tuple[str, ...] | None:
        """The field names given when it was opened, None for all that are not bookkeeping."""
        return self._fields

    @property
    def is_remote(self) -> bool:
        """Whether the pack is behind a URL."""
        return self._location is not None

    @property
    def split(self) -> str | None:
        """The split given when it was opened, None for all samples."""
        return self._split

    def with_fields(self, fields: Sequence[str]) -> Self:
        """The same data set with these fields as dicts, opened by itself; raises UnknownKey, CorruptPack."""
        other = copy.copy(self)
        other._fields, other.as_tuple = tuple(dict.fromkeys(fields)), None
        other.sample_decoder()
        return other

    def __setattr__(self, name: str, value: object) -> None:
        if name in _OF_IMAGE_FOLDER and self.decodes_batches():
            raise AttributeError(f"{type(self).__name__}.{name}: {_nothing_calls(name)}")
        if name == "transform" and "_count" in vars(self):
            self.check_transform(value, moves_all=self.output == "tv" and self.as_tuple is None)
        super().__setattr__(name, value)

    def check_transform(self, transform: object, *, moves_all: bool) -> None:
        """Raise InvalidRequest for a transform that would move one image and leave the rest of a sample in place.

        moves_all: whether samples reach it as a whole, with output="tv".
        """
        left = self._not_moved()
        if not moves_all and left and (name := moving_transform(transform)) is not None:
            raise InvalidRequest(
                f"{self.path}: transform={name} moves one image and leaves {', '.join(left)} in place; open the "
                'pack with output="tv" and without as_tuple, or give geometry= one of packer.geometry\'s'
            )

    def _not_moved(self) -> list[str]:
        """Return the fields that torchvision's transforms leave in place: they move one image of plain tensors."""
        images = [field.name for field in self.schema if field.kind in PIXEL_KINDS]
        return images[1:] + [field.name for field in self.schema if field.kind in ("points", "boxes")]

    # ---- opening: per process, on first use

    def sample_decoder(self) -> SampleDecoder:
        """What decodes the samples of the open pack in this process; packer.Loader calls it."""
        sample_decoder = self._sample_decoder_or_none
        if sample_decoder is None or sample_decoder.pack.pid != os.getpid():
            self._sample_decoder_or_none = None  # an inherited one must be gone before the pack is opened again
            sample_decoder = self._sample_decoder_or_none = self._open()
        return sample_decoder

    def _open(self) -> SampleDecoder:
        pack = self._opened_pack()
        try:
            self._check_format(pack.manifest.format)
        except InvalidRequest:
            pack.close()
            raise
        if self._pack_id not in (None, pack.manifest.pack_id):
            raise CorruptPack(f"{self.path}: another pack than when the data set was made; make the data set anew")
        self._pack_id = pack.manifest.pack_id
        if get_worker_info() is not None:  # OpenCV's own threads would only fight with the other workers
            import_or_explain("cv2", "a data loader worker").setNumThreads(0)
        self._check_names(pack)
        return SampleDecoder(pack, self._fields, decoder=self._decoder, dct=self._dct, boxes=self._box_rule)

    def _opened_pack(self) -> Pack:
        if self._location is not None:
            from packer.remote.remote_pack import open_remote  # a pack in a folder does without

            self._stored = self._stored or self._location.find()
            return open_remote(self._location, self._stored, verify=self._verify)
        return open_unreplaced(Path(str(self.path)), self._opened_folder)

    def _opened_folder(self) -> Pack:
        folder = Path(str(self.path))
        if self._stage is not None:  # nothing is copied for a data set that does not read it
            self._check_format(manifests.read(folder).format)
        return open_staged(folder, stage=self._stage, codec=self._stage_as, verify=self._verify)

    def _check_format(self, found: str) -> None:
        if self.format not in (None, found):
            raise InvalidRequest(
                f"{self.path}: the pack's format is {found!r}, {type(self).__name__} reads {self.format!r}; "
                "packer.open reads any"
            )

    def _check_names(self, pack: Pack) -> None:
        missing = set(self.as_tuple or ()) - set(self._fields or pack.schema.names)
        if missing:
            raise UnknownKey(f"as_tuple names {sorted(missing)[0]!r}, which is not among fields")

    def _chosen(self, sample_decoder: SampleDecoder) -> npt.NDArray[np.int64] | range:
        if self._takes_all:
            return range(len(sample_decoder.pack))
        if self._indices is None:
            self._indices = self._select(sample_decoder.pack, self.split)
        return self._indices

    def _select(self, pack: Pack, split: str | None) -> npt.NDArray[np.int64]:
        names = pack.schema["split"].classes if "split" in pack.schema else None
        if not names or split not in names:
            raise UnknownKey(f"{pack.folder}: no split {split!r}; splits: {', '.join(names or ()) or 'none'}")
        return np.flatnonzero(pack.index.column("split") == names.index(split))

    def close(self) -> None:
        """Let go of the pack's files in this process; may be called twice. Reading on opens them again.

        A file stays open while another data set, or a batch that a Loader is making, needs it.
        """
        sample_decoder, self._sample_decoder_or_none = self._sample_decoder_or_none, None
        self._indices = self._shared = None
        if sample_decoder is not None and sample_decoder.pack.pid == os.getpid():
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

    def __getitem__(self, index: int) -> Any:
        try:
            at = operator.index(index)
        except TypeError:
            raise WrongType(
                f"{self.path}: index {index!r:.60}: expected a whole number; for a range of samples "
                "torch.utils.data.Subset(dataset, range(...)), for a key dataset[dataset.index_of(key)]"
            ) from None
        reading = _reading.get()
        if reading is not None and reading[0] is self:
            return self.sample(at, reading[1].geometry, reading[1].take())
        return self.sample(at, self.geometry, self._random([at])[0])

    @contextmanager
    def reading(self, stream: RandomStream) -> Iterator[None]:
        """Have `[index]` in this thread take its geometry and random numbers from `stream`; packer.Loader calls it."""
        token = _reading.set((self, stream))
        try:
            yield
        finally:
            _reading.reset(token)

    def __getitems__(self, indices: Sequence[int]) -> Sequence[Any]:
        """The samples of a whole batch, decoded into one tensor per field; a stock DataLoader calls this."""
        if not self.decodes_batches() or self.transform is not None or self.output != "torch":
            return [self[index] for index in indices]
        if self._shared is None and get_worker_info() is not None:
            self._shared = SharedMemory()
        take = self._shared.take if self._shared is not None else take_new
        decoder = self.batch_decoder(indices, self.geometry, random=self._random(indices), take=take)
        decoder.fill(0, len(indices))
        return Batch(decoder.fields(), len(indices), self.as_tuple)

    def batch_decoder(
        self, indices: Indices, geometry: Geometry | None, *, random: Sequence[Sequence[float]], take: Take
    ) -> BatchFiller:
        """The decoder of a batch of these samples, which any number of threads fill; packer.Loader calls it."""
        return BatchDecoder(
            self.sample_decoder(), self.pack_indices(indices), take=take, geometry=geometry, random=random
        )

    def sample(self, index: int, geometry: Geometry | None, random: Sequence[float]) -> Any:
        """As `dataset[index]`, through another geometry with given random numbers, 0 <= r < 1, as many as it draws."""
        sample_decoder = self.sample_decoder()
        return self._finished(
            sample_decoder, sample_decoder.sample(self._pack_index(sample_decoder, index), geometry, random)
        )

    def pack_indices(self, indices: Indices) -> npt.NDArray[np.int64]:
        """Indices of the samples in the pack; raises BadIndex."""
        given = np.asarray(indices)
        if given.dtype.kind not in "iu" and given.size:
            raise WrongType(f"{self.path}: indices {indices!r:.60}: expected whole numbers")
        given = given.astype(np.int64, copy=False)
        outside = (given < -self._count) | (given >= self._count)
        if outside.any():
            raise self._bad_index(int(given[outside][0]))
        return (
            given % max(self._count, 1)
            if self._takes_all
            else np.asarray(self._chosen(self.sample_decoder()), np.int64)[given]
        )

    def stored_rows(self, indices: Indices | None = None) -> Indices | None:
        """Rows of the pack whose records these samples are, or all samples; None for all rows. packer.convert calls it.

        Raises InvalidRequest where the samples are not the records, BadIndex, and CorruptPack for a pack that was
        replaced.
        """
        makers = {"geometry": self.geometry, "transform": self.transform, "boxes": self._box_rule}
        changed = [f"{name}=" for name, maker in makers.items() if maker is not None]
        if changed or not self.decodes_batches():
            raise InvalidRequest(
                f"{self.path}: {(changed or ['__getitem__'])[0]} changes the samples, and convert copies the pack's "
                "records: open the pack without it (convert has resize=), or give the samples: iter(dataset), "
                "length=len(dataset)"
            )
        self.close()
        self.sample_decoder()  # opened again: the rows are of the pack that is there now
        if indices is None and self._takes_all:
            return None
        return self.pack_indices(np.arange(self._count) if indices is None else indices)

    def _random(self, indices: Sequence[int]) -> list[list[float]]:
        draws, count = self.geometry.draws if self.geometry is not None else 0, len(indices)
        return torch.rand(count, draws, dtype=torch.float64).tolist() if draws else [[]] * count

    def _pack_index(self, sample_decoder: SampleDecoder, index: int) -> int:
        if not -self._count <= index < self._count:
            raise self._bad_index(index)
        return index % self._count if self._takes_all else int(self._chosen(sample_decoder)[index])

    def _bad_index(self, index: int) -> BadIndex:
        return BadIndex(f"sample index {index} is outside the data set of {self._count} samples")

    def _finished(self, sample_decoder: SampleDecoder, sample: dict[str, Any]) -> Any:
        if self.output == "tv":
            sample = as_tv(sample_decoder.schema, sample)
        elif self.output != "numpy":
            convert = as_torch if self.output == "torch" else as_pil
            sample = {field.name: convert(field, sample[field.name]) for field in sample_decoder.schema.fields}
        if self.as_tuple is None:
            return self.transform(sample) if self.transform else sample
        first, *rest = (sample[name] for name in self.as_tuple)
        return (self.transform(first) if self.transform else first, *rest)

    def fetch_ahead(
        self, indices: Indices | None = None, *, rank: int = 0, world_size: int = 1
    ) -> "PartSchedule | None":
        """Begin to bring what these samples, or all, lie in, in the order in which they are first read.

        rank, world_size: of the ranks that take turns in `indices`; each fetches into its share of cache_limit.
        Returns at once; packer.Loader calls it with each epoch's order. None for a pack on a disk, where all is there.
        Raises InvalidRequest where cache_limit does not hold the parts that are read from at a time.
        """
        if self._location is None:
            return None
        pack = self.sample_decoder().pack
        if pack.supply is None:
            return None
        return PartSchedule(pack.supply, self.part_numbers(indices), rank=rank, world_size=world_size)

    def part_numbers(self, indices: Indices | None = None) -> npt.NDArray[np.int64]:
        """The number of the part that each of these samples, or of all, lies in: what shuffles by blocks are made of.

        Raises BadIndex.
        """
        chosen = np.arange(self._count) if indices is None else indices
        return self.sample_decoder().pack.part_numbers(self.pack_indices(chosen))

    # ---- what is known of all samples without reading any

    @property
    def schema(self) -> Schema:
        """The fields that samples have, in order; see packer.schema."""
        return self.sample_decoder().schema

    @property
    def classes(self) -> list[str]:
        """Class names of the field `label`, by value, a list as torchvision's; empty where there are none."""
        schema = self.sample_decoder().pack.schema
        return list(schema["label"].classes or ()) if "label" in schema else []

    def column(self, name: str) -> npt.NDArray[Any]:
        """All values of a number field, such as "label": a copy [n, ...], for samplers and statistics."""
        sample_decoder = self.sample_decoder()
        values = sample_decoder.pack.index.column(name)
        chosen = self._chosen(sample_decoder)
        dtype = values.dtype.newbyteorder("=")
        return (values if isinstance(chosen, range) else values[chosen]).astype(dtype)

    def index_of(self, key: str) -> int:
        """The index of the sample with that key, found by bisection; raises UnknownKey."""
        found = self._find(key)
        if found is None:
            self.sample_decoder().pack.index.index_of(key)
            raise UnknownKey(f"key {key!r} is not in the split {self.split!r}")
        return found

    def _find(self, key: str) -> int | None:
        sample_decoder = self.sample_decoder()
        index = sample_decoder.pack.index.find(key)
        if index is None or self._takes_all:
            return index
        found = np.flatnonzero(np.asarray(self._chosen(sample_decoder)) == index)
        return int(found[0]) if len(found) else None

    def __contains__(self, key: object) -> bool:
        """Whether a sample has that key; raises WrongType for anything but a text, which would decode every sample."""
        if not isinstance(key, str):
            raise WrongType(f"{type(key).__name__} in {type(self).__name__}: expected the key of a sample")
        return self._find(key) is not None

    def keys(self) -> Sequence[str]:
        """The keys of all samples, in order: a sequence that holds no Python object per sample."""
        return LazySequence(self.key, len(self))

    def key(self, index: int) -> str:
        """The key of one sample."""
        sample_decoder = self.sample_decoder()
        return sample_decoder.pack.index.key(self._pack_index(sample_decoder, index))

    # ---- as torchvision's ImageFolder has it

    @property
    def targets(self) -> list[int]:
        """The label of every sample, in order; raises AttributeError where there is no field `label`."""
        if self._targets is None:
            if "label" not in self.sample_decoder().pack.schema:
                raise AttributeError(f"{self!r} has no field 'label', so no targets")
            self._targets = self.column("label").tolist()
        return self._targets

    @property
    def class_to_idx(self) -> dict[str, int]:
        """The label of each class name; empty where there are none."""
        return {name: value for value, name in enumerate(self.classes)}

    @property
    def samples(self) -> Sequence[tuple[str, int]]:
        """(key, label) of every sample, made when it is asked for; the key is the path in the packed folder."""
        return LazySequence(lambda index: (self.key(index), self.targets[index]), len(self))

    @property
    def imgs(self) -> Sequence[tuple[str, int]]:
        """The same as `samples`."""
        return self.samples

    # ---- to look at

    def show(self, index: int) -> "Drawing":
        """An image of one sample with its labels, as it is stored, no geometry applied; Jupyter displays it.

        Of a pack at a URL its part comes into the cache. Raises BadIndex, CorruptPack, StoreError.
        """
        from packer.inspect.notebook import draw_open_samples, draw_samples  # training does without it

        if self._location is not None:
            name = URLPath(str(self._location.url)).name
            return draw_open_samples(self.sample_decoder().pack, name, [self.key(index)])
        return draw_samples(Path(str(self.path)), [self.key(index)])

    def __repr__(self) -> str:
        split = f", split={self.split!r}" if self.split else ""
        fields = ", ".join(f"{name} {what}" for name, what, _ in self._described())
        pack = self.sample_decoder().pack
        size = sum(part.bytes for part in pack.manifest.parts) / 1e6
        copy = f"; read as {self._stage_as} from {pack.folder}" if self._stage_as is not None else ""
        return printable(
            f"{type(self).__name__}({str(self.path)!r}{split}: {len(self)} samples, {size:,.1f} MB; {fields}{copy})"
        )

    def _repr_html_(self) -> str:
        from packer.inspect.notebook import html_table  # as above

        split = f", split {self.split}" if self.split else ""
        shown = [self.key(len(self) * number // _SHOWN) for number in range(_SHOWN)] if len(self) >= _SHOWN else []
        title = f"{type(self).__name__}: {self.path}{split}, {len(self)} samples"
        folder = Path(str(self.path))
        return html_table(title, self._described(), folder, shown if self._location is None else [])

    def _described(self) -> list[tuple[str, str, str]]:
        """Name, what its values are, and codec of each field."""
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


PackDataset._decoded_as = PackDataset.__getitem__, PackDataset.sample


def _nothing_calls(name: str) -> str:
    """What to do in the place of a hook of torchvision's ImageFolder."""
    instead = "give transform= a function of the sample, or"
    if name in _CHOSEN_BY_CONVERT:
        instead = "samples and classes were chosen when the pack was made (packer convert);"
    return f"nothing here would call it, unlike in torchvision's ImageFolder; {instead} override __getitem__"


class LMDBDataset(PackDataset):
    """A pack of format lmdb; see PackDataset."""

    format = "lmdb"


class HDF5Dataset(PackDataset):
    """A pack of format hdf5; see PackDataset."""

    format = "hdf5"


class PthDataset(PackDataset):
    """A pack of format pth; see PackDataset."""

    format = "pth"


class BMPDataset(PackDataset):
    """A pack of format bmp; see PackDataset."""

    format = "bmp"


class TFRecordDataset(PackDataset):
    """A pack of format tfrecord; see PackDataset."""

    format = "tfrecord"


class WebDatasetDataset(PackDataset):
    """A pack of format webdataset; see PackDataset."""

    format = "webdataset"


class RecordIODataset(PackDataset):
    """A pack of format recordio; see PackDataset."""

    format = "recordio"


class CaffeLMDBDataset(PackDataset):
    """A pack of format caffe-lmdb; see PackDataset."""

    format = "caffe-lmdb"


class EfficientLMDBDataset(PackDataset):
    """A pack of format efficient-lmdb; see PackDataset."""

    format = "efficient-lmdb"


class BasicSRLMDBDataset(PackDataset):
    """A pack of format basicsr-lmdb; see PackDataset."""

    format = "basicsr-lmdb"


class N5Dataset(PackDataset):
    """A pack of format n5; see PackDataset."""

    format = "n5"


_OF_FORMAT: dict[str | None, type[PackDataset]] = {
    each.format: each
    for each in (
        LMDBDataset,
        HDF5Dataset,
        PthDataset,
        BMPDataset,
        TFRecordDataset,
        WebDatasetDataset,
        RecordIODataset,
        CaffeLMDBDataset,
        EfficientLMDBDataset,
        BasicSRLMDBDataset,
        N5Dataset,
    )
}


def location_of(
    path: str | PathLike[str],
    *,
    cache: str | PathLike[str] | None,
    cache_limit: int | str | None,
    patience: float | None,
) -> "RemoteLocation | None":
    """Where the pack behind a URL is and is kept; None for a folder, with which nothing is loaded that reads URLs.

    Raises InvalidRequest where what is given does not go together.
    """
    if is_url(path):
        from packer.remote.remote_pack import remote_location  # a pack in a folder does without

        return remote_location(str(path), cache=cache, cache_limit=cache_limit, patience=patience)
    for name, value in (("cache", cache), ("cache_limit", cache_limit), ("patience", patience)):
        if value is not None:
            raise InvalidRequest(f"{name}=: {os.fspath(path)} is a folder, which is read where it is; it is for URLs")
    return None


def open_pack(
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
    """The data set class of the pack's format where there is one, else PackDataset; arguments as of PackDataset."""
    location = location_of(path, cache=cache, cache_limit=cache_limit, patience=patience)

    folder = path_or_url(path)

    def opened() -> PackDataset:
        manifest = manifests.read(folder) if location is None else location.read_manifest()[1]
        return _OF_FORMAT.get(manifest.format, PackDataset)(
            path,
            fields,
            split=split,
            geometry=geometry,
            transform=transform,
            output=output,
            as_tuple=as_tuple,
            decoder=decoder,
            dct=dct,
            verify=verify,
            stage=stage,
            stage_as=stage_as,
            boxes=boxes,
            cache=cache,
            cache_limit=cache_limit,
            patience=patience,
        )

    return opened() if location is not None else open_unreplaced(folder, opened)
