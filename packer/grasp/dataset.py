"""GraspDataset: a torch dataset of training items for the networks GG-CNN and GR-ConvNet, and its augmentation.

GGCNNDataset and GRConvNetDataset have the constructors of the dataset classes in the networks' repositories. Training
scripts therefore need few changes (`examples/ggcnn.patch`, `examples/grconvnet.patch`). Source of the constructors:
dougsm/ggcnn and skumra/robotic-grasping, utils/data/cornell_data.py, jacquard_data.py and grasp_data.py.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from packer.datasets.batch import Batch
from packer.datasets.batch_decoder import CollateFields, Take, take_new
from packer.datasets.pack_dataset import Indices, PackDataset, Transform, manifest_at
from packer.errors import CorruptPack, InvalidRequest, UnknownKey, WrongType, printable
from packer.geometry import Geometry, View, draw
from packer.geometry.transforms import rotated, zoomed
from packer.grasp import targets
from packer.grasp.item_decoder import (
    DEPTH,
    NAMES,
    RGB,
    GraspBatchDecoder,
    GraspItem,
    ItemDecoder,
    ItemForm,
    normalized,
)
from packer.grasp.item_list import OWNER_FIELD, ItemUnit, PackItems, has_label_items
from packer.grasp.sample_splits import SliceSplit, Split
from packer.grasp.source_label_rules import Exact, kind_of, rule_of
from packer.grasp.targets import STYLES, Style, max_width
from packer.images import DCT, DecoderName
from packer.pack import manifest as manifests
from packer.pack.reader import Pack, VerifyMode
from packer.schema import PIXEL_KINDS
from packer.system.argument_types import check_parameters

Pixels = Literal["float32", "uint8"]
Number = Any  # a number, or a tensor with one number
TURNS = (0.0, math.pi / 2, 2 * math.pi / 2, 3 * math.pi / 2)  # radians, counter-clockwise in the displayed image
LEAST_ZOOM = 0.5


@dataclass(frozen=True)
class TurnAndZoom(Geometry):
    """A random rotation by 0, 90, 180 or 270 degrees, and a random zoom to the central 0.5 to 1 of height and width.

    `view` rotates around the center of the image. GraspDataset rotates around that of the grasps for some sources.

    Args:
        turn: True for a random rotation, False for none.
        zoom: True for a random zoom, False for none.
    """

    turn: bool = True
    zoom: bool = True
    draws = 2

    def chosen(self, random: Sequence[float]) -> tuple[float, float]:
        """Return (rotation in radians, visible share of height and width) for two random numbers 0 <= r < 1."""
        rot = TURNS[int(random[0] * len(TURNS))] if self.turn else 0.0
        return rot, LEAST_ZOOM + random[1] * (1 - LEAST_ZOOM) if self.zoom else 1.0

    def view(self, height: int, width: int, random: Sequence[float] = ()) -> View:
        """Return the view for an image of `height` x `width` px. `random` contains two numbers, 0 <= r < 1."""
        rot, zoom = self.chosen(random)
        return rotated(round(math.degrees(rot)), height, width).then(zoomed(zoom, height, width))


class GraspDataset(PackDataset):
    """Map-style dataset of the training items of a grasp network. It reads a pack of a grasp data set in any format.

    An item is `(x, (quality, cos, sin, width), index, rot, zoom)`:

    | value | content                                                                                          |
    |-------|--------------------------------------------------------------------------------------------------|
    | x     | float32 (C, S, S): depth in m minus its mean, clipped to -1 ... 1, then R, G, B / 255 minus their mean. |
    |       | With pixels="uint8" a tuple: uint8 (3, S, S), and float32 (1, S, S) for the depth                |
    | maps  | float32 (1, S, S) each, equal to the maps of the networks' own loaders: quality 0 or 1, cos and  |
    |       | sin of twice the angle, width 0 ... 1                                                            |
    | index | int, the index in the dataset                                                                    |
    | rot   | float, the rotation in radians, counter-clockwise: 0, pi / 2, pi or 3 pi / 2                     |
    | zoom  | float, the visible share of both sides, 0.5 ... 1                                                |
    """

    _changeable = frozenset({"transform", "decoder", "dct"})

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        for name in ("get_rgb", "get_depth", "get_gtbb"):
            if name in vars(cls):
                raise WrongType(
                    f"{cls.__name__}.{name}: items are not made through it, unlike in GG-CNN's own classes; override "
                    "__getitem__, or give transform= a function of the item"
                )

    def __init__(
        self,
        path: str | PathLike[str],
        output_size: int = 300,
        *,
        include_depth: bool = True,
        include_rgb: bool = True,
        random_rotate: bool = True,
        random_zoom: bool = True,
        style: Style | None = None,
        split: Split | str | None = None,
        seed: int | None = None,
        pixels: Pixels = "float32",
        transform: Transform | None = None,
        decoder: DecoderName = "auto",
        dct: DCT = "accurate",
        verify: VerifyMode = "first",
        items: ItemUnit = "image",
        exact: Exact | None = None,
        cache: str | PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        patience: float | None = None,
    ) -> None:
        """Open a pack.

        Args:
            path: Folder or URL of the pack.
            output_size: S, the side of the output in px.
            include_depth: True puts the depth into x. False leaves it out.
            include_rgb: True puts the image into x. False leaves it out.
            random_rotate: True rotates by 0, 90, 180 or 270 degrees at random. False does not rotate.
            random_zoom: True zooms at random. False shows both sides completely.
            style: Network. The width map is 1 at an opening of 150 px for "ggcnn", S / 2 px for "grconvnet". None
                selects the preset of the pack, or "ggcnn" if the pack was made without a preset.
            split: Name of a split of the pack, or a split of packer.grasp, such as SliceSplit(0.0, 0.9). None for all.
            seed: Seed of rot and zoom, which then depend on (seed, epoch, index) only, as in packer.Loader. Call
                `set_epoch` before each epoch. None draws from torch's generator.
            pixels: "float32", or "uint8" for an x that `packer.grasp.as_input` converts on the device (see the class).
            transform: Function of the item. None returns the item unchanged.
            decoder: JPEG decoder, "auto", "turbojpeg" or "opencv". All three return equal pixels.
            dct: "accurate", or "fast" for a faster JPEG transform, whose pixels differ by a few levels.
            verify: "first" compares each value with its crc32 at the first read, "always" at each read, "never" at
                none. The choice "open" is "first", and also hashes each part when it is opened.
            items: "image" for one item per image, with all its grasps. "label" for one item per label file. Only
                Grasp-Anything has several label files per image.
            exact: "fork" uses the fixed image sizes of andvg3/Grasp-Anything, a fork of GR-ConvNet. None uses the size
                of each image.
            cache: Local folder for downloaded parts. It is required if `path` is a URL. None if `path` is a folder.
            cache_limit: Largest size of `cache`, in bytes or as a text such as "200GB". None allows the complete disk.
            patience: Seconds to wait for a store that does not answer, before StoreError is raised. None waits 180 s.

        Raises:
            WrongType: An argument has a wrong type.
            InvalidRequest: The path is not a pack with grasps, or the options contradict each other.
            UnknownKey: The pack does not have the split or the field.
            CorruptPack: The pack is damaged.
        """
        check_parameters(GraspDataset.__init__, locals())
        if not (include_depth or include_rgb):
            raise InvalidRequest("include_depth=False, include_rgb=False: expected at least one of them")
        if output_size < 1:
            raise InvalidRequest(f"output_size={output_size!r}: expected a whole number of px, at least 1")
        manifest = manifest_at(path, cache=cache, cache_limit=cache_limit, patience=patience)
        schema = manifest.schema
        style = style or _preset_of(manifest)
        if exact is not None:
            _check_fork(kind_of(manifest), style, include_depth=bool(include_depth))
        fields = [name for name, wanted in ((RGB, include_rgb), (DEPTH, include_depth)) if wanted]
        if DEPTH in schema and include_depth and schema[DEPTH].invalid is not None:
            raise InvalidRequest(
                f"{path}: depth has missing pixels ({schema[DEPTH].invalid}), expected perfect depth; "
                "include_depth=False leaves it out"
            )
        self._label_rule = rule_of(manifest, path, exact=exact)
        self.output_size = output_size
        self.style = style
        self.seed = seed
        self.include_depth, self.include_rgb = bool(include_depth), bool(include_rgb)
        self.random_rotate, self.random_zoom = random_rotate, random_zoom
        self._rule = split if not isinstance(split, str) else None
        limit = max_width(style, output_size)
        self._form = ItemForm(
            output_size, limit, depth=self.include_depth, rgb=self.include_rgb, as_bytes=pixels == "uint8"
        )
        self._epoch = torch.zeros((), dtype=torch.int64)
        if seed is not None:
            self._epoch.share_memory_()  # type: ignore[no-untyped-call]  # shared, so that running workers use a new epoch
        self._means: npt.NDArray[np.float64] | None = None
        self._unit, self._exact = items, exact
        self._selects = items != "image" or exact is not None
        self._label_files: npt.NDArray[np.int64] | None = None  # label file of each item, set by `_select`
        fields.append(self._label_rule.field)
        if has_label_items(manifest, path, items, exact):
            fields.append(OWNER_FIELD)
        super().__init__(
            path,
            fields,
            split=None if split is None else str(split),
            geometry=TurnAndZoom(random_rotate, random_zoom),
            decoder=decoder,
            dct=dct,
            verify=verify,
            cache=cache,
            cache_limit=cache_limit,
            patience=patience,
        )
        if self.sample_decoder().pack.manifest.pack_id != manifest.pack_id:
            raise CorruptPack(f"{path}: it was replaced while it was opened; open it again")
        self.as_tuple = NAMES
        self.transform = transform
        if any(field.codec == "encoded" for field in self.schema if field.kind in PIXEL_KINDS):
            text = (
                f"{self.path}: its images are kept as files, which are decoded completely for every item; "
                f"packer convert --preset {style} makes a pack of the same items that is several times as fast"
            )
            warnings.warn(printable(text), stacklevel=2)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_means": None, "_label_files": None}

    def _not_moved(self) -> list[str]:
        return ["maps"]

    def _check_selectable(self) -> None:
        raise InvalidRequest(
            f"{self.path}: items of a GraspDataset are not rows of the pack; select in packer.open(...), save it, and "
            "give the collection to GraspDataset"
        )

    def _check_names(self, pack: Pack) -> None:
        """Check nothing, because the names in `as_tuple` are those of item values here, and not of fields."""

    def _select(self, pack: Pack, split: str | None) -> npt.NDArray[np.int64]:
        items = PackItems(pack, self._unit, self._exact)
        found = items.every() if self._rule is None else self._rule.choose(items)
        if self._rule is None and split is not None:
            found = found.at(np.isin(found.samples, super()._select(pack, split)))
        self._label_files = found.labels
        return found.samples

    def _labels_at(self, indices: npt.NDArray[np.int64]) -> Sequence[int | None] | None:
        """Return, for each item, the position of its label file in the field `label_keys`. None if items are images."""
        if not self._selects:
            return None
        self._chosen(self.sample_decoder())
        return None if self._label_files is None else self._label_files[indices].tolist()

    def key(self, index: int) -> str:
        """Return the key of the item at `index`: that of its sample, or of its label file with items="label"."""
        [sample] = self.pack_indices([index]).tolist()
        labels = self._labels_at(np.asarray([index]))
        return super().key(index) if labels is None else self._pack_items().name(sample, labels[0])

    def index_of(self, key: str) -> int:
        """Return the index of the item with this key. Raises UnknownKey."""
        found = self._find(key)
        if found is None and self._label_files is not None:
            raise UnknownKey(
                f"no label file of name {key!r}{f' in the split {self.split_name!r}' if self.split_name else ''}"
            )
        return super().index_of(key) if found is None else found

    def _find(self, key: str) -> int | None:
        samples = self._chosen(self.sample_decoder())
        if self._label_files is None:
            return super()._find(key)
        sample, labels = self._pack_items().find(key) or (-1, -1)
        at = np.flatnonzero((np.asarray(samples) == sample) & (self._label_files == labels))
        return int(at[0]) if len(at) else None

    def _pack_items(self) -> PackItems:
        return PackItems(self.sample_decoder().pack, self._unit, self._exact)

    @property
    def length(self) -> int:
        """Number of items, for the scripts of GR-ConvNet."""
        return len(self)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, on which rotations and zooms depend if the dataset has a seed. Running workers also use it."""
        self._epoch.fill_(epoch)

    # ---- items

    def sample_at(self, index: int, geometry: Geometry | None, random: Sequence[float]) -> Any:
        """Return the item `(x, maps, index, rot, zoom)`, or the result of `transform` for this item.

        `geometry` is a TurnAndZoom. `random` contains two numbers 0 <= r < 1, for rotation and zoom.
        """
        made = self.batch_decoder([index], geometry, random=[random], take=take_new)
        made.fill(0, 1)
        item = tuple(Batch(made.fields(), 1, NAMES)[0])
        return self.transform(item) if self.transform else item

    def batch_decoder(
        self,
        indices: Indices,
        geometry: Geometry | None,
        *,
        random: Sequence[Sequence[float]],
        take: Take,
        collate: CollateFields = dict,
    ) -> GraspBatchDecoder:
        """Return the decoder of a batch of the items at `indices`. `take` allocates the memory of the batch.

        `random` has two numbers 0 <= r < 1 for each item. `collate` makes the batch of the dict of batched fields.
        Raises InvalidRequest if `geometry` is not a TurnAndZoom.
        """
        if not isinstance(geometry, TurnAndZoom):
            raise InvalidRequest(f"geometry={geometry!r}: a GraspDataset takes packer.grasp.TurnAndZoom only")
        pack_indices = self.pack_indices(indices)
        positive = np.asarray(indices, np.int64) % max(len(self), 1)
        return GraspBatchDecoder(
            self._items(),
            pack_indices,
            positive,
            augmentations=[geometry.chosen(numbers) for numbers in random],
            form=self._form,
            take=take,
            labels=self._labels_at(positive),
            collate=collate,
        )

    def _random(self, indices: Sequence[int]) -> list[list[float]]:
        if self.seed is None:
            return super()._random(indices)
        positive = np.asarray(indices, np.int64) % max(len(self), 1)
        numbers: list[list[float]] = draw(self.seed, int(self._epoch), positive, TurnAndZoom.draws).tolist()
        return numbers

    def _items(self) -> ItemDecoder:
        sample_decoder = self.sample_decoder()
        if self._means is None:
            self._means = np.full((len(sample_decoder.pack), 4), np.nan)
        return ItemDecoder(sample_decoder, self.output_size, rule=self._label_rule, means=self._means)

    # ---- methods that evaluation scripts call

    def get_gtbb(self, idx: Number, rot: Number = 0, zoom: Number = 1.0) -> npt.NDArray[np.int64]:
        """Return the labeled grasps of the item `idx`, int64 (N, 4, 2): row and column of the corners in output px.

        `rot` is a rotation in radians, counter-clockwise. `zoom` is the visible share of both sides, 0 to 1.
        """
        found: npt.NDArray[np.int64] = self._with_item(idx, lambda _, item: _moved(item, float(rot), float(zoom)))
        return found

    def get_rgb(self, idx: Number, rot: Number = 0, zoom: Number = 1.0, normalise: bool = True) -> npt.NDArray[Any]:
        """Return the RGB image of the item `idx`: float32 (3, S, S), pixel values / 255 minus their mean.

        With normalise=False, return uint8 (S, S, 3). `rot` is a rotation in radians, `zoom` the visible share of a
        side.
        """
        pixels = np.empty((self.output_size, self.output_size, 3), np.uint8)
        self._with_item(idx, lambda items, item: items.rgb(item, float(rot), float(zoom), pixels))
        if not normalise:
            return pixels
        made = np.empty((3, self.output_size, self.output_size), np.float32)
        normalized(pixels, made)
        return made

    def get_depth(self, idx: Number, rot: Number = 0, zoom: Number = 1.0) -> npt.NDArray[np.float32]:
        """Return the depth of the item `idx` in m, minus its mean, clipped to -1 ... 1: float32 (S, S).

        `rot` is a rotation in radians, `zoom` the visible share of a side.
        """
        depth = np.empty((self.output_size, self.output_size), np.float32)
        self._with_item(idx, lambda items, item: items.depth(item, float(rot), float(zoom), depth))
        return depth

    def get_jname(self, idx: Number) -> str:
        """Return the key of the item `idx`: `<i>_<object>` for Jacquard, the number of a scene for Cornell."""
        return self.key(int(idx))

    def _with_item(self, idx: Number, use: Any) -> Any:
        index = int(self.pack_indices([int(idx)])[0])
        labels = self._labels_at(np.asarray([int(idx)]))
        items = self._items()
        with items.sample_decoder.pack.record(index, items.sample_decoder.stored) as record:
            return use(items, items.item(index, record, labels[0] if labels is not None else None))


_WITHOUT_DEPTH = ("grasp-anything", "ocid-grasp", "vmrd")


def _preset_of(manifest: manifests.Manifest) -> Style:
    """Return the preset of the pack's last conversion with a preset, or "ggcnn" if there is none."""
    recorded = [each.get("preset") for each in manifests.conversions(manifest.options)]
    return next((style for style in reversed(recorded) if style in STYLES), "ggcnn")


def _check_fork(kind: str, style: str, *, include_depth: bool) -> None:
    """Raise InvalidRequest for arguments of exact="fork" that andvg3/Grasp-Anything cannot use for this source."""
    if style != "grconvnet":
        raise InvalidRequest(f'exact="fork", style={style!r}: it is a fork of GR-ConvNet; give style="grconvnet"')
    if include_depth and kind in _WITHOUT_DEPTH:
        raise InvalidRequest(
            f'exact="fork", include_depth=True: its loader of {kind} has no depth; give include_depth=False'
        )


def _moved(item: GraspItem, rot: float, zoom: float) -> npt.NDArray[np.int64]:
    owner = np.zeros(len(item.points), np.int64)
    return targets.moved(item.points, owner, [item.frame], np.asarray([rot]), np.asarray([zoom]))


# ---- the constructors of the networks' own datasets


class GGCNNDataset(GraspDataset):
    """A GraspDataset whose constructor is that of the datasets in GG-CNN's repository, for Cornell or Jacquard."""

    def __init__(
        self,
        file_path: str | PathLike[str],
        start: float = 0.0,
        end: float = 1.0,
        ds_rotate: float = 0.0,
        *,
        output_size: int = 300,
        include_depth: bool | int = True,
        include_rgb: bool | int = False,
        random_rotate: bool = False,
        random_zoom: bool = False,
    ) -> None:
        """Open a pack. The other arguments are those of `GraspDataset`.

        Args:
            file_path: Folder or URL of the pack.
            start: Share of the samples before the first one of the dataset, 0 to 1.
            end: Share of the samples before the end of the dataset, 0 to 1.
            ds_rotate: Share of the samples that first move from the start to the end of the list, 0 to 1.
        """
        super().__init__(
            file_path,
            output_size,
            include_depth=include_depth,  # type: ignore[arg-type]  # GG-CNN gives 0 and 1
            include_rgb=include_rgb,  # type: ignore[arg-type]
            random_rotate=random_rotate,
            random_zoom=random_zoom,
            style="ggcnn",
            split=SliceSplit(start, end, rotate=ds_rotate),
        )


class GRConvNetDataset(GraspDataset):
    """A GraspDataset whose constructor is that of the datasets in GR-ConvNet's repository, for Cornell or Jacquard."""

    def __init__(
        self,
        file_path: str | PathLike[str],
        ds_rotate: float = 0.0,
        *,
        output_size: int = 224,
        include_depth: bool | int = True,
        include_rgb: bool | int = False,
        random_rotate: bool = False,
        random_zoom: bool = False,
    ) -> None:
        """Open a pack. The other arguments are those of `GraspDataset`.

        Args:
            file_path: Folder or URL of the pack.
            ds_rotate: Share of the samples that move from the start to the end of the list, 0 to 1.
        """
        super().__init__(
            file_path,
            output_size,
            include_depth=include_depth,  # type: ignore[arg-type]  # GG-CNN gives 0 and 1
            include_rgb=include_rgb,  # type: ignore[arg-type]
            random_rotate=random_rotate,
            random_zoom=random_zoom,
            style="grconvnet",
            split=SliceSplit(0.0, 1.0, rotate=ds_rotate),
        )
