"""Measured workload: the pack or original data set that a tool measures, and the loader setting."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from packer.conversion.source_spec import SourceSpec, check_folder
from packer.datasets.batch import Collator
from packer.datasets.pack_dataset import as_torch
from packer.datasets.pack_dataset import open as open_pack
from packer.errors import InvalidRequest, MissingPackage, MixedShapes, UnknownKey
from packer.geometry import Geometry, View, move_values, resized_crop
from packer.geometry.parsing import parse
from packer.geometry.warp import warp
from packer.images import DecodeOptions, decode, sniff
from packer.loading.loader import Loader
from packer.pack import manifest as manifests
from packer.registry import import_or_explain
from packer.schema import PIXEL_KINDS, USUAL_PIXELS, Field, Schema
from packer.sources.base import Source, file_paths
from packer.system.parallel import usable_cores


def load_function(name: str, wanted_by: str) -> Callable[..., Any]:
    """Import and return the function with the name `module:function`. The module may be in the current folder.

    `wanted_by` is the option that contains the name, for messages. Raises MissingPackage if the module does not exist,
    and InvalidRequest if the name is not valid or not that of a function.
    """
    module_name, _, path = name.partition(":")
    if not (path and all(part.isidentifier() for part in (*module_name.split("."), *path.split(".")))):
        raise InvalidRequest(f"{wanted_by} {name!r}: expected module:function, such as train:step")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)  # Python does not search the current folder in a console script
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"{wanted_by} {name!r}: no module {error.name!r} here; run the command in its folder"
        ) from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise InvalidRequest(f"{wanted_by} {name!r}: {module_name} has no {path!r}")
        found = getattr(found, part)
    if not callable(found):
        raise InvalidRequest(f"{wanted_by} {name!r}: expected a function, found {type(found).__name__}")
    function: Callable[..., Any] = found
    return function


# ---- subjects and loader settings

STOCK, OURS, OUR_WORKERS = "DataLoader", "Loader", "Loader-workers"
LOADERS = (STOCK, OURS, OUR_WORKERS)


@dataclass(frozen=True)
class Subject:
    """A pack or the folder of an original data set, with the options of loading.

    Attributes:
        fields: Names of the fields to load. None loads all fields that are not hidden.
        samples: Number of samples to load, evenly distributed over the data set. None loads all samples.
        transform: A user's function `module:function`, called with each sample.
        spec: Options that select an original data set.
        max_pixels: Largest number of pixels of an image in an original data set, None for the default limit.
    """

    path: Path
    fields: tuple[str, ...] | None = None
    geometry: Geometry | None = None
    samples: int | None = None
    transform: str | None = None
    max_pixels: int | None = None
    spec: SourceSpec = SourceSpec()

    @property
    def name(self) -> str:
        """The last component of the path."""
        return self.path.resolve().name

    @property
    def is_pack(self) -> bool:
        """True if the folder contains a manifest and is therefore a pack. False for an original data set."""
        return (self.path / manifests.NAME).is_file()

    def open(self) -> Dataset[Any]:
        """Return a map-style dataset of the samples. Raises InvalidRequest, BadInput, CorruptPack and UnknownKey."""
        transform = load_function(self.transform, "--transform") if self.transform else None
        dataset: Any
        if self.is_pack:
            dataset = open_pack(self.path, self.fields, geometry=self.geometry, transform=transform)
        else:
            limit = USUAL_PIXELS if self.max_pixels is None else self.max_pixels
            dataset = FolderDataset(self._source(), self.fields, self.geometry, transform, max_pixels=limit)
        if len(dataset) == 0:
            raise InvalidRequest(f"{self.path}: contains no sample; nothing can be measured")
        return dataset if self.samples is None else evenly(dataset, self.samples)

    def _source(self) -> Source:
        return replace(self.spec, checks_folders=False).open(self.path)[0]

    def count(self) -> int:
        """Return the number of samples that are loaded."""
        dataset: Any = self.open()
        return len(dataset)

    def notes(self) -> list[str]:
        """Return a note about images in formats that packer cannot read. The list is empty without these images."""
        if self.is_pack:
            return []
        source = self._source()
        return [f"{self.path}: not measured: {source.unread_message}"] if source.unread else []

    def files(self) -> list[Path]:
        """Return the files that loading may read: all files of the pack, or the files of an original data set."""
        if self.is_pack:
            return sorted(path for path in self.path.rglob("*") if path.is_file())
        source = self._source()
        return sorted({file for index in range(len(source)) for file in file_paths(source, index)})


def subjects(paths: Sequence[Path], geometry: str | None, like: Subject) -> list[Subject]:
    """Return a `Subject` for each path of a pack or folder.

    Args:
        geometry: Geometry of all subjects as text, None for no geometry.
        like: A subject from which all other options are copied.

    Raises:
        InvalidRequest: A path is not a folder, or two paths are the same folder.
    """
    view = parse(geometry) if geometry else None
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidRequest(f"{paths[-1]}: one source is named twice; name each once")
    for path in paths:
        check_folder(path)
    return [replace(like, path=path, geometry=view) for path in paths]


def evenly(dataset: Any, samples: int) -> Dataset[Any]:
    """Return a Subset with `samples` evenly distributed samples, or `dataset` if it has at most that many."""
    if samples >= len(dataset):
        return dataset  # type: ignore[no-any-return]
    places = np.linspace(0, len(dataset) - 1, samples).round().astype(np.int64).tolist()
    return Subset(dataset, places)


def unwrapped(dataset: Any) -> Any:
    """Return the innermost dataset inside a Subset or another wrapper."""
    return unwrapped(dataset.dataset) if isinstance(getattr(dataset, "dataset", None), Dataset) else dataset


@dataclass(frozen=True)
class LoaderSetting:
    """A loader and its number of workers.

    Attributes:
        loader: "DataLoader", "Loader" (packer.Loader with threads) or "Loader-workers" (packer.Loader with processes).
        workers: Number of threads or processes. Only DataLoader may have 0.
        persistent: True keeps the worker processes of DataLoader between epochs (persistent_workers).
    """

    loader: str
    workers: int
    batch_size: int = 32
    persistent: bool = True

    def make(self, dataset: Dataset[Any]) -> Any:
        """Return a new loader that shuffles the samples of the dataset."""
        if self.is_ours:
            threads, workers = (None, self.workers) if self.loader == OUR_WORKERS else (max(1, self.workers), 0)
            return Loader(dataset, self.batch_size, shuffle=True, threads=threads, num_workers=workers)
        return DataLoader(
            dataset,
            self.batch_size,
            shuffle=True,
            num_workers=self.workers,
            persistent_workers=self.persistent and self.workers > 0,
            worker_init_fn=quiet,
            collate_fn=_collate(dataset),
        )

    def check(self, dataset: Dataset[Any]) -> None:
        """Load a batch in this process: errors have no worker traceback. Raises MixedShapes if sample shapes differ."""
        try:
            next(iter(DataLoader(dataset, self.batch_size, collate_fn=_collate(dataset))))
        except MixedShapes as error:
            raise MixedShapes(f"{error}; on the command line: --geometry 'Resize((224, 224))'") from error

    @property
    def is_ours(self) -> bool:
        """True for packer's Loader, with threads or with processes."""
        return self.loader != STOCK

    @property
    def noun(self) -> str:
        """Plural noun for the workers: "threads" or "workers"."""
        return "threads" if self.loader == OURS else "workers"

    @property
    def short(self) -> str:
        """Name of the setting for messages, such as "DataLoader, 4 workers"."""
        noun = self.noun if self.workers != 1 else self.noun.removesuffix("s")
        return f"{OURS if self.is_ours else STOCK}, {self.workers} {noun}"

    @property
    def text(self) -> str:
        """Python expression that creates the loader."""
        if self.is_ours:
            option = "num_workers" if self.loader == OUR_WORKERS else "threads"
            return f"packer.Loader(dataset, {self.batch_size}, {option}={self.workers})"
        persistent = ", persistent_workers=True" if self.persistent and self.workers else ""
        return f"DataLoader(dataset, {self.batch_size}, num_workers={self.workers}{persistent})"


def worker_counts() -> tuple[int, ...]:
    """Return 0, the powers of 2 up to the number of usable cores, and the number of usable cores."""
    cores = usable_cores()
    powers = (1 << at for at in range(cores.bit_length()))
    return (0, *sorted({*powers, cores}))


def settings(
    loaders: Sequence[str], workers: Sequence[int], batch_size: int, *, persistent: bool = True
) -> list[LoaderSetting]:
    """Return all combinations of a loader and a number of workers. Only DataLoader is combined with 0 workers.

    Raises InvalidRequest if no combination remains.
    """
    found = [
        LoaderSetting(loader, count, batch_size, persistent)
        for loader in loaders
        for count in workers
        if loader == STOCK or count
    ]
    if not found:
        raise InvalidRequest("--workers 0: a Loader has at least one thread; give --workers 1")
    return found


def quiet(_: int) -> None:
    """Disable OpenCV's threads in a worker process (`worker_init_fn`), because they slow down other workers."""
    import_or_explain("cv2", "a data loader worker").setNumThreads(0)


def _collate(dataset: Any) -> Any:
    """Return the `collate_fn` of a DataLoader, or None for packs without a transform: their datasets return batches.

    For other samples, packer's function collates different numbers of grasps.
    """
    inner = unwrapped(dataset)
    if isinstance(inner, FolderDataset) or getattr(inner, "transform", None) is not None:
        return Collator("list", schema=getattr(inner, "schema", None)).samples
    return None


# ---- the data set without packer

_DECODING = DecodeOptions(decoder="opencv", strict=False)


class FolderDataset(Dataset[dict[str, Any]]):
    """Map-style dataset of an original data set. OpenCV decodes the images. Values have the types of PackDataset."""

    def __init__(
        self,
        source: Source,
        fields: Sequence[str] | None,
        geometry: Geometry | None,
        transform: Callable[[Any], Any] | None,
        *,
        max_pixels: int,
    ) -> None:
        """Read the fields `fields` of `source`, or all fields that are not hidden for None. Raises UnknownKey.

        `transform` is called with each sample. `max_pixels` is the largest number of pixels of an image.
        """
        if missing := sorted(set(fields or ()) - set(source.schema.names)):
            names = ", ".join(source.schema.names)
            raise UnknownKey(f"{source.root}: no field {missing[0]!r}; there are: {names}")
        self.source = source
        chosen = fields if fields is not None else [field.name for field in source.schema if not field.hidden]
        self.schema: Schema = source.schema.select(chosen)
        self.geometry = geometry
        self.transform = transform
        self._max_pixels = max_pixels

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        given = self.source[index]
        images = {
            field.name: _pixels(field, given[field.name], self._max_pixels)
            for field in self.source.schema
            if field.kind in PIXEL_KINDS and field.name in self.schema.names
        }
        views = self._views({name: pixels.shape[:2] for name, pixels in images.items()})
        main = next(iter(views.values()), None)
        sample: dict[str, Any] = {}
        for field in self.schema:
            value = given[field.name]
            if field.name in images:
                value = _shown(field, images[field.name], views.get(field.name))
            elif field.moves and main is not None:
                value = move_values(field, value, main.array)
            sample[field.name] = as_torch(field, value)
        return self.transform(sample) if self.transform else sample

    def _views(self, sizes: dict[str, tuple[int, ...]]) -> dict[str, View]:
        """Return the view of each image field in `sizes`. If sizes differ, all views show the same part."""
        if self.geometry is None or not sizes:
            return {}
        height, width = next(iter(sizes.values()))
        main = self.geometry.view(height, width, torch.rand(self.geometry.draws, dtype=torch.float64).tolist())
        return {
            name: main if size == (height, width) else resized_crop(0, 0, *size, size=(height, width)).then(main)
            for name, size in sizes.items()
        }


def _pixels(field: Field, value: Any, max_pixels: int) -> Any:
    if isinstance(value, np.ndarray):
        return value
    return decode(value, field.kind, options=_DECODING, header=sniff(value, max_pixels))


def _shown(field: Field, pixels: Any, view: View | None) -> Any:
    if view is not None:
        pixels = warp(pixels, view, field.kind, invalid=field.invalid)
    return pixels.astype(np.float32) if field.kind == "depth" else pixels
