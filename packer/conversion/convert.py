"""Convert: checks a request, plans it, builds every part, and publishes the pack."""

import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack

import numpy as np

from packer import formats
from packer.conversion import engines
from packer.conversion.build_part import Progress
from packer.conversion.engines.base import Engine, EngineOptions
from packer.conversion.options import (
    MOST_EXTRAS_BYTES,
    ConversionOptions,
    Exif,
    OnError,
    Orientation,
    PresetName,
    Validate,
    preset_options,
)
from packer.conversion.pack_build import ConversionRun, Estimate, estimate
from packer.conversion.plan import Plan, make_plan
from packer.conversion.publication import FolderPublication, Publication, check_outside, check_target
from packer.conversion.source_spec import SourceSpec, check_source, parameters
from packer.conversion.stored_schema import ORIENTATION, kept_files
from packer.conversion.work_folder_layout import NAMES
from packer.errors import InvalidRequest, PackerError, WrongType
from packer.files.npy_arrays import map_file
from packer.files.progress_bar import ProgressBar
from packer.files.storage_errors import free_bytes
from packer.files.work_folder import beside, work_folder
from packer.formats.base import Order
from packer.pack.derived_pack import PackRecipe
from packer.pack.manifest import INDEX, Manifest
from packer.schema import Field, Schema
from packer.sources import NamedSource
from packer.sources._message_texts import counted, listed, shown
from packer.sources._option_table import OPTIONS, SourceOptions
from packer.sources.base import Source
from packer.sources.objects._isinstance_without_import import is_a
from packer.sources.objects._object_rows import Indexable
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_types import check_arguments, check_switches
from packer.system.parallel import usable_cores
from packer.system.progress_callback import ProgressCallback, ProgressCounter


@dataclass(frozen=True)
class ConversionSummary:
    """The result of a conversion.

    Attributes:
        samples: the number of samples in the pack.
        parts: the number of parts.
        bytes_in: the size of the source files in bytes.
        bytes_out: the size of the pack in bytes.
        seconds: the duration of this run.
        pack_id: the unique id of the pack, a digest of the content.
        resumed_samples: the number of samples that an earlier, interrupted run packed.
        skipped: `(key, reason)` for each sample of the source that is not in the pack.
        incomplete: `(key, reason)` for each sample of the pack in which a field has no value.
        notes: lines for the user.
    """

    samples: int
    parts: int
    bytes_in: int
    bytes_out: int
    seconds: float
    pack_id: str
    resumed_samples: int = 0
    skipped: Sequence[tuple[str, str]] = field(default=())
    incomplete: Sequence[tuple[str, str]] = field(default=())
    notes: Sequence[str] = field(default=())


Summary = TypeVar("Summary", bound=ConversionSummary)
Note = Callable[[str], object]


def convert(
    source: str | PathLike[str] | NamedSource | Source | Indexable | Iterable[Any],
    pack: str | PathLike[str],
    *,
    to: str | None = None,
    kind: str = "auto",
    preset: PresetName | None = None,
    fields: Sequence[str] | Mapping[str, str | Field] | None = None,
    key: str | Sequence[str] | Callable[[int], str] | None = None,
    length: int | None = None,
    fingerprint: str | None = None,
    num_workers: int = 0,
    codecs: Mapping[str, str] | None = None,
    resize: int | tuple[int, int] | None = None,
    exif: Exif = "ignore",
    validate: Validate = "full",
    on_error: OnError = "error",
    sidecars: Mapping[str, str] | Sequence[str] = (),
    labels_orientation: Orientation | None = None,
    mask_colors: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str] = (),
    unknown_colors: Literal["error", "void"] | None = None,
    export_as: Mapping[str, str] | None = None,
    order: Order | None = None,
    splits: Mapping[str, str | PathLike[str] | float] | Sequence[str] = (),
    split_by: str | None = None,
    seed: int = 0,
    part_bytes: int | None = None,
    extras_bytes: int = MOST_EXTRAS_BYTES,
    max_pixels: int | None = None,
    threads: int | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    worker_scratch: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: ProgressCallback | bool | None = None,
    on_note: Callable[[str], object] | None = None,
    **source_options: Unpack[SourceOptions],
) -> ConversionSummary:
    """Convert a data set to a pack.

    An incomplete pack is never visible. If a conversion is interrupted, the same call continues the conversion. All
    arguments except `key`, `length`, `fingerprint`, `num_workers` and the callbacks are also options of `packer
    convert`. See docs/commands.md for details.

    Args:
        source: A folder, file, archive or pack, or a URL, but not that of a pack. Or a data set with options, such as
            `packer.sources.Coco("coco/", task="instances")`. Or a Python object with samples: a torch or Hugging Face
            data set, a sequence or an iterable.
        pack: The folder or URL of the new pack.
        to: The format. Default: the suffix of `pack` (out.h5, out.pth), or "lmdb" if no format has this suffix.
        kind: The name of the source, such as "coco", "pack" for a pack, or "auto" to detect the source.
        preset: "ggcnn" or "grconvnet": options for training these grasp networks.
        fields: The names of the fields to pack; None for all. For a Python object, also a mapping of names to kinds
            ("image", "number", ...) or to `Field`. If its samples are tuples, one name for each element, in order.
        key: For a Python object: the field that contains the key, a list of all keys, or a function from index to
            key.
        length: For an iterable: the number of samples.
        fingerprint: For a Python object: a text that you change whenever the samples change. A later call continues
            an interrupted conversion only if both fingerprints are equal.
        num_workers: For a torch data set or another object with indices: the number of processes that read samples.
            0 reads in this process. The content of the pack does not depend on it.
        codecs: The codec of each field, such as {"rgb": "jpeg:95"}. Default: copy the bytes of the files.
        resize: The length of the shorter side in px, or (height, width).
        exif: "rotate" rotates images and labels upright; "ignore" keeps the stored pixels.
        validate: "full" decodes every image once; "header" checks only the header and the end of the file.
        on_error: "error" writes no pack if a sample is bad; "skip" skips bad samples and lists them in the pack.
        sidecars: Files next to the images, as a mapping of new fields to SUFFIX:KIND: {"depth": "_d.tiff:depth"}.
        labels_orientation: The pixels that masks, boxes and other labels describe if EXIF rotates the image: "stored",
            or "upright" as viewers show the image. Default: the orientation that label files state.
        mask_colors: A file with the mask value of each color, or a mapping of fields to files; "voc" for the palette
            of Pascal VOC.
        unknown_colors: "void" stores 255 for colors that are not in `mask_colors`; "error" refuses such masks.
        export_as: For a format of another tool: the field for each name that its records use, such as
            {"image": "rgb", "label": "object_id"}.
        order: "stored" keeps the order of the source; "shuffled" shuffles. Default: the usual order of the format.
        splits: For each split, a file that lists the samples, or the fraction of all samples, from 0 to 1.
        split_by: The name of a field. Samples with an equal value of this field are in the same split.
        seed: The seed of the shuffled order and of splits by fractions.
        part_bytes: Source bytes per part; 0 for a single part. Default: a sixteenth of the source, but 32 to 256 MiB.
        extras_bytes: The most bytes of all extras. If the extras are larger, no extra is packed; 0 packs none.
        max_pixels: The most pixels of one image. Default: 100 million.
        threads: The number of threads; None for all usable cores. The content of the pack does not depend on threads.
        engine: "local" for this machine, or "ray" for a cluster. All machines need the same paths to source and pack.
        ray_address: For a Ray cluster: the address.
        worker_scratch: For a cluster: a folder for temporary files on the disk of each machine.
        scratch: For a pack behind a URL: a folder for temporary files on this machine.
        overwrite: True replaces an existing pack. False raises PackExists for it.
        restart: True discards the finished parts of an interrupted conversion. False uses them.
        progress: A function, called with a `packer.system.progress_callback.Progress` before the first sample and
            after each sample. True shows a progress bar.
        on_note: A function, called with each note for the user immediately.
        source_options: Options of the source, such as depth_from="pcd".

    Raises:
        InvalidRequest: The arguments do not fit the source or each other.
        PackExists: `pack` exists and `overwrite` is false.
        BadInputs: Samples are bad; `reasons` lists all of them.
        StorageError: A disk or a store fails.
        Locked: Another process converts to `pack`.
    """
    given = dict(locals())
    check_arguments(given, {**convert.__annotations__, "source": object, "source_options": object})
    request = request_of(given)
    nodes = None if worker_scratch is None else path_or_url(worker_scratch)
    to_store = isinstance(request.pack, URLPath)
    builder: Engine = engines.load(engine).Engine(EngineOptions(ray_address, nodes, threads, to_store=to_store))

    def converted(note: Note, tell: ProgressCallback | None) -> ConversionSummary:
        if isinstance(request.pack, URLPath):
            return _converted_to_store(request, request.pack, builder, threads, tell, note)
        if scratch is not None:
            raise InvalidRequest(f"{request.pack}: --scratch is for a pack at a URL; leave it out")
        plan = request.plan(note)
        with _folder_publication(plan, request.pack, overwrite=overwrite) as publication:
            return run_conversion(publication, builder, threads=threads, restart=restart, tell=tell)

    return reported(converted, progress=progress, on_note=on_note)


def reported(
    convert: Callable[[Note, ProgressCallback | None], Summary],
    *,
    progress: ProgressCallback | bool | None,
    on_note: Note | None,
) -> Summary:
    """Call `convert(note, tell)`, and return its summary with the duration and all notes.

    `note` receives each note for the user, `tell` the progress. `progress` and `on_note` are those of `packer.convert`.
    """
    notes, started = [], time.monotonic()

    def note(line: str) -> None:
        notes.append(line)
        if on_note is not None:
            on_note(line)

    with ProgressBar(quiet=progress is not True) as bar:
        summary = convert(note, bar if isinstance(progress, bool) else progress)
    for line in summary.notes:
        note(line)
    return replace(summary, seconds=time.monotonic() - started, notes=notes)


def _converted_to_store(
    request: "ConversionRequest",
    target: URLPath,
    engine: Engine,
    threads: int | None,
    tell: ProgressCallback | None,
    note: Note,
) -> ConversionSummary:
    """Convert to a URL. If an earlier run has already published the same pack there, return its summary."""
    from packer.conversion import store_publication  # the client of the stores, which folders do without

    with store_publication.scratch_folder(target, request.scratch, overwrite=request.overwrite) as work:
        published = store_publication.published_pack(target, work)
        plan = request.plan(note)
        if published is None:
            publication = store_publication.StorePublication(plan, target, work)
            return run_conversion(publication, engine, threads=threads, restart=request.restart, tell=tell)
        is_same = published.options == plan.options.to_json() and published.source.get("digest") == plan.digest
        if not is_same or plan.source.resume_reason is not None:
            raise store_publication.already_there(target)
        note(f"{target}: an earlier run has completed it")
        return summary_of(published, plan, resumed=published.samples, notes=plan.extras.notes)


def convert_source(
    source: Source,
    target: Path,
    options: ConversionOptions,
    *,
    threads: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> ConversionSummary:
    """Convert an open `Source` to a pack in the folder `target`; see `convert` for the other arguments.

    Args:
        progress: a function, called with `(samples, source bytes)` that were packed since the previous call.
        engine: the engine that builds the parts; None for the local engine.
    """
    check_switches({"overwrite": overwrite, "restart": restart})
    started = time.monotonic()
    check_target(_place_of(source), target, overwrite=overwrite)
    with _folder_publication(make_plan(source, options), target, overwrite=overwrite) as publication:
        summary = run_conversion(publication, engine, threads=threads, restart=restart, progress=progress)
    return replace(summary, seconds=time.monotonic() - started)


@contextmanager
def _folder_publication(plan: Plan, target: Path, *, overwrite: bool) -> Iterator[FolderPublication]:
    with work_folder(beside(target), NAMES) as work:
        publication = FolderPublication(plan, target, work, overwrite=overwrite)
        publication.check_free()  # another run may have ended during planning
        yield publication


def run_conversion(
    publication: Publication,
    engine: Engine | None = None,
    *,
    threads: int | None = None,
    restart: bool = False,
    progress: Progress | None = None,
    tell: ProgressCallback | None = None,
) -> ConversionSummary:
    """Build and publish a planned pack. `progress` is that of `convert_source`, `tell` is `progress` of `convert`."""
    plan = publication.plan
    counter = ProgressCounter(len(plan.source), tell)
    count = threads or max(plan.source.folder.reads_at_once, 1 if plan.only_copies else usable_cores())
    run = ConversionRun(
        publication,
        threads=count,
        progress=progress or counter.add,
        resumed=progress or counter.add_resumed,
    )
    run.begin(restart=restart)
    return completed_run(run, engine)


def completed_run(run: ConversionRun, engine: Engine | None = None) -> ConversionSummary:
    """Build the missing parts with `engine`, or the local engine if it is None, and publish the pack."""
    publication, plan = run.publication, run.plan
    engine = engine or engines.load("local").Engine(EngineOptions())
    with run.naming_needed_space():
        resumed = sum(done.part.samples for done in publication.finished.values())
        manifest = run.build(engine.build)
        notes = [*plan.extras.notes, *run.findings(), *_about_orientations(publication.pack / INDEX, manifest, plan)]
        manifest.check()
        publication.publish(manifest)
    return summary_of(manifest, plan, resumed=resumed, notes=(*notes, *engine.notes))


def summary_of(manifest: Manifest, plan: Plan, *, resumed: int, notes: Sequence[str]) -> ConversionSummary:
    """Return the summary of a finished pack; `seconds` is 0."""
    size = sum(part.bytes for part in manifest.parts)
    size += sum(file.bytes for file in (*manifest.index, *manifest.extras))
    return ConversionSummary(
        samples=manifest.samples,
        parts=len(manifest.parts),
        bytes_in=plan.source_bytes,
        bytes_out=size + len(manifest.to_bytes()),
        seconds=0.0,
        pack_id=manifest.pack_id,
        resumed_samples=resumed,
        skipped=manifest.skipped,
        incomplete=manifest.incomplete,
        notes=tuple(notes),
    )


def _about_orientations(index: Path, manifest: Manifest, plan: Plan) -> list[str]:
    name = f"number-{ORIENTATION.name}.npy"
    files = [file for file in manifest.index if file.name == name]
    if not files or plan.source.is_encoded:
        return []
    orientations, _ = map_file(index / name, files[0].bytes)
    turned = int(np.count_nonzero(orientations > 1))
    if not turned:
        return []
    images = f"{turned} of {counted(manifest.samples, 'image')} not upright by EXIF orientation"
    if plan.options.exif == "rotate":
        return [f"{images}: turned"]
    return [f"{images}: left as they are; --exif rotate turns them"]


# ---- the request


@dataclass(frozen=True)
class ConversionRequest:
    """The arguments of `convert`.

    Attributes:
        options: the options that determine the bytes of the pack, except options of the source.
        spec: the options of the source.

    Other attributes are the arguments of `convert` with the same names.
    """

    source: Path | Source | PackRecipe | Indexable | Iterable[Any]
    pack: Path
    options: ConversionOptions
    spec: SourceSpec
    preset: PresetName | None
    fields: Sequence[str] | Mapping[str, str | Field] | None
    key: str | Sequence[str] | Callable[[int], str] | None
    length: int | None
    fingerprint: str | None
    num_workers: int
    scratch: Path | None
    overwrite: bool
    restart: bool

    def plan(self, note: Note) -> Plan:
        """Return the plan. Raises the errors of `open`, and BadInput if the source is empty."""
        if not isinstance(self.pack, URLPath) and named_format(self.pack) is not None:
            note(f"{self.pack}: format {self.options.to}; a pack is a folder, which gets this name")
        plan = make_plan(*self.open(note))
        for line in _notes(plan):
            note(line)
        return plan

    def open(self, note: Note) -> tuple[Source, ConversionOptions]:
        """Check `pack`, and return the source and the options. Call `note` with each note for the user.

        Raises:
            InvalidRequest: the request does not fit the source.
            PackExists: `pack` exists and `overwrite` is false.
            BadInput: a file of the source is damaged.
        """
        self._check_arguments()
        self._check_places(self._place)
        options = self.options
        opened, found, asked = self._open()
        if self.preset:
            options = _with_preset(self.preset, options, opened.schema)
        place = self.source if isinstance(self.source, Path) else _place_of(opened)
        for line in (f"{place or opened.root}: {found}", *opened.notes):
            note(line)
        return opened, replace(options, source=asked)

    @property
    def _place(self) -> Path | None:
        """Path of the source on this machine, or None if the source is a URL or has no files."""
        if isinstance(self.source, Source):
            return _place_of(self.source)
        return self.source if isinstance(self.source, Path) and not isinstance(self.source, URLPath) else None

    def _check_arguments(self) -> None:
        if not isinstance(self.source, Path | Source | PackRecipe):
            return
        given = [name for name in ("key", "length", "fingerprint") if getattr(self, name) is not None]
        given += ["num_workers"] * bool(self.num_workers)
        if given or isinstance(self.fields, Mapping):
            raise InvalidRequest(
                f"{given[0] if given else 'a mapping for fields'} is for Python objects; a path or a Source has "
                "its own keys and fields"
            )

    def _check_places(self, place: Path | None) -> None:
        """Raise an error unless the source at `place` exists and the pack can be written. `place` is None for a URL."""
        if place is not None:
            check_source(place)
        if not isinstance(self.pack, URLPath):
            check_target(place, self.pack, overwrite=self.overwrite)
        elif place is not None and self.scratch is not None:
            check_outside(place, self.scratch)

    def _open(self) -> tuple[Source, str, Mapping[str, Any]]:
        """Return the source, a note on the detected kind, and the options of the source for the manifest."""
        if isinstance(self.source, Path):
            spec = self.spec.preset(self.source) if self.preset else self.spec
            opened, found = spec.open(self.source)
            return opened, found, spec.to_json(opened)
        if isinstance(self.source, PackRecipe):
            packed, found = self.spec.open_pack(self.source)
            for member in packed.pack.members:
                self._check_places(member.folder)
            return packed, found, self.spec.to_json(packed)
        if isinstance(self.source, Source):
            if replace(self.spec, labels_orientation=None) != SourceSpec():
                raise InvalidRequest(
                    f"{self.source.root}: {', '.join(self.spec.flags) or 'kind'}: for a folder; give them to the "
                    "Source object, or give the folder"
                )
            provenance = self.source.provenance()
            asked = self.source.asked() if provenance is None else provenance.asked
            return self.source, f"read as {self.source.kind}", asked
        opened, spec = self._open_object(self.source)
        return opened, f"read as {opened.kind}", spec.to_json(opened)

    def _open_object(self, data: Indexable | Iterable[Any]) -> tuple[Source, SourceSpec]:
        from packer.sources.objects._object_recognition import ObjectOptions, open_object  # folders do without

        if isinstance(data, type):
            raise InvalidRequest(f"{data.__module__}.{data.__qualname__}: is a class; give an object of it")
        own = {name: value for name, value in self.spec.options.items() if name in ("axes", "follow_links")}
        others = {name: value for name, value in self.spec.options.items() if name not in own}
        other = replace(self.spec, options=others, labels_orientation=None)
        if other != SourceSpec():
            raise InvalidRequest(
                f"<{type(data).__name__}>: {', '.join(other.flags) or 'kind'}: for the files of a folder; describe the "
                "samples of a Python object with fields= (a field split for the splits), key= and axes="
            )
        source, options = open_object(
            data,
            ObjectOptions(self.fields, self.key, self.length, self.fingerprint, self.num_workers, **own),
        )
        self._check_places(_place_of(source))
        return source, SourceSpec(options=options)


def request_of(given: Mapping[str, Any]) -> ConversionRequest:
    """Return the request for the arguments of `convert` in `given`, by name. Other arguments have their defaults."""
    defaults = {name: each.default for name, each in inspect.signature(convert).parameters.items()}
    given = {**defaults, "source_options": {}, **given}
    source = given["source"]
    if isinstance(source, NamedSource):
        if given["kind"] != "auto":
            raise InvalidRequest(f"kind={given['kind']!r}: {source!r} names its source; leave it out")
        given |= {"kind": source.kind, "source_options": {**source.options, **given["source_options"]}}
        source = source.root
    _check_options(given["source_options"])
    pack = path_or_url(given["pack"])
    source = path_or_url(source) if isinstance(source, str | PathLike) else source
    if not isinstance(source, Path | Source):
        source, given = _of_dataset(source, given)
    fields, is_object = given["fields"], not isinstance(source, Path | Source | PackRecipe)
    options = ConversionOptions(
        to=format_of(pack, given["to"]),
        fields=tuple(fields) if fields and not is_object else None,
        codecs=tuple((given["codecs"] or {}).items()),
        resize=_resize_text(given["resize"]),
        exif=given["exif"],
        validate=given["validate"],
        on_error=given["on_error"],
        part_bytes=given["part_bytes"],
        extras_bytes=given["extras_bytes"],
        max_pixels=given["max_pixels"],
        labels_orientation=given["labels_orientation"],
        slots=tuple((given["export_as"] or {}).items()),
        order=given["order"],
    )
    spec = SourceSpec(
        given["kind"],
        parameters(given["source_options"]),
        _texts(given["sidecars"]),
        _texts(given["splits"]),
        split_by=given["split_by"],
        mask_colors=_places(given["mask_colors"]),
        unknown_colors=given["unknown_colors"],
        labels_orientation=given["labels_orientation"],
    )
    is_shuffled = options.effective_order == "shuffled"
    if given["seed"] and not (is_shuffled or spec.are_splits_random):
        raise InvalidRequest("--seed is for --order shuffled and for random splits; leave it out")
    return ConversionRequest(
        source=source,
        pack=pack,
        options=replace(options, order_seed=given["seed"]) if is_shuffled else options,
        spec=replace(spec, split_seed=given["seed"]) if spec.are_splits_random else spec,
        preset=given["preset"],
        fields=fields,
        key=given["key"],
        length=given["length"],
        fingerprint=given["fingerprint"],
        num_workers=given["num_workers"],
        scratch=None if given["scratch"] is None else path_or_url(given["scratch"]),
        overwrite=given["overwrite"],
        restart=given["restart"],
    )


def _check_options(given: Mapping[str, object]) -> None:
    """Raise WrongType if `given` contains an option that no source has, or a value of the wrong type."""
    unknown = sorted(given.keys() - OPTIONS.keys())
    if unknown:
        raise WrongType(f"{unknown[0]}: neither convert nor a source has this option")
    check_arguments(given, {name: OPTIONS[name].type for name in given})


def _of_dataset(source: Any, given: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Replace a dataset of packer, or a torch Subset of it, by its recipe and fields. Keep other arguments."""
    from packer.sources.objects._object_recognition import without_subsets  # folders do without

    data, indices = without_subsets(source)
    if not is_a(data, "packer.datasets.pack_dataset", "PackDataset"):
        return source, given
    chosen = data if indices is None else data.select(indices)
    return chosen.stored_samples(), {**given, "fields": given["fields"] or data.fields}


def _place_of(source: Source) -> Path | None:
    """Return the path of a source on this machine, or None if the source is behind a URL or has no files."""
    return source.root if source.folder.is_local else None


@dataclass(frozen=True)
class DryRun:
    """Expected result of a conversion.

    Attributes:
        free_bytes: free space on the disk of the pack, in bytes.
        refused: the error that the conversion would raise, or None.
    """

    plan: Plan
    size: Estimate
    free_bytes: int
    refused: PackerError | None


def dry_run(source: object, pack: str | PathLike[str], given: Mapping[str, object], on_note: Note) -> DryRun:
    """Plan a conversion and estimate the size of the pack, without writing the pack.

    Args:
        source: the source, as in `convert`.
        pack: the folder of the pack.
        given: other arguments of `convert`, by name.
        on_note: a function, called with each note for the user.
    """
    request = request_of({**given, "source": source, "pack": pack})
    if isinstance(request.pack, URLPath):
        raise InvalidRequest(f"{pack}: --dry-run is for a pack in a folder; give one")
    plan = request.plan(on_note)
    size, free = estimate(plan), free_bytes(request.pack.absolute().parent)
    refused: PackerError | None = None
    if (plan.links and plan.options.on_error == "error") or plan.unread:
        refused = plan.refusal(plan.links)
    try:  # the work folder is made as for a conversion, and removed again
        with work_folder(beside(request.pack), NAMES) as work:
            publication = FolderPublication(plan, request.pack, work)
            publication.check(restart=request.restart)
            ConversionRun(publication, threads=1, progress=lambda samples, size: None, estimate=size).rehearse()
    except PackerError as error:
        refused = refused or error
    return DryRun(plan, size, free, refused)


def _texts(given: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, Mapping):
        return tuple(f"{name}={value}" for name, value in given.items())
    return tuple(given)


def _places(given: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str | PathLike):
        return (os.fspath(given),)
    if isinstance(given, Mapping):
        return tuple(f"{name}={os.fspath(place)}" for name, place in given.items())
    return tuple(given)


def _resize_text(resize: int | tuple[int, int] | None) -> str | None:
    """Return `N` for a side, `WxH` for (height, width), or None."""
    if resize is None or isinstance(resize, int):
        return None if resize is None else str(resize)
    height, width = resize
    return f"{width}x{height}"


def _with_preset(name: PresetName, options: ConversionOptions, schema: Schema) -> ConversionOptions:
    preset = preset_options(name, schema, formats.load(options.to).Writer.codecs)
    fields = options.fields or preset["fields"]
    typed = dict(options.codecs)
    codecs = {field: codec for field, codec in dict(preset.get("codecs", ())).items() if field in fields} | typed
    resize = options.resize or preset.get("resize")
    return replace(options, fields=fields, codecs=tuple(codecs.items()), resize=resize, preset=name)


def _notes(plan: Plan) -> list[str]:
    source, options = plan.source, plan.options
    found = list(formats.load(options.to).Writer.notes(plan.schema))
    if options.order is None and options.effective_order == "shuffled":
        found.append(
            f"samples are packed in a shuffled order, since {options.to} is read in that of the file; "
            "--order stored keeps the source's"
        )
    if plan.unread:
        found.append(f"{source.unread_message}: nothing will be packed; the rest is read to name every bad file")
    larger, looked = plan.enlarged
    if larger:
        found.append(
            f"--resize {options.resize}: {larger} of a sample of {looked} images are smaller and are enlarged, which "
            "needs more space without gain"
        )
    if moves := _moving(options):
        packed = [field for field in source.schema if options.fields is None or field.name in options.fields]
        found += _about_moves(source, [field for field in packed if not field.hidden], moves)
        if kept := kept_files(packed):
            found.append(f"{_names(kept)}: skipped, because {moves} moves the pixels that these files describe")
    return found


def _moving(options: ConversionOptions) -> str:
    """Return the options of the user that resize or rotate images, such as `--resize and --exif rotate`, or ""."""
    return " and ".join(["--resize"] * (options.resize is not None) + ["--exif rotate"] * (options.exif == "rotate"))


def _about_moves(source: Source, fields: Sequence[Field], moves: str) -> Iterator[str]:
    """Yield notes on fields of pixel positions that `moves` does not adapt, and on resized depth without `invalid`."""
    unmoved = [field for field in fields if _may_describe_pixels(source, field)]
    if unmoved and not source.holds_records:  # a source of records lists such fields
        yield f"{_names(unmoved)}: stored as they are: {moves} moves images, masks, depth, boxes and points only"
    depths = [field for field in fields if field.kind == "depth" and field.invalid is None]
    if depths and "--resize" in moves:
        yield (
            f"{_names(depths)}: no value for missing pixels is set, so --resize mixes all values; if one means "
            "missing, such as 0, name it: depth:0"
        )


def _may_describe_pixels(source: Source, field: Field) -> bool:
    """Return True if a field may contain pixel positions that packer cannot adapt: an array, JSON, or a sidecar."""
    is_array = field.kind == "number" and len(field.shape or ()) > 1
    return is_array or field.kind == "json" or (field.kind in ("text", "bytes") and field.name in source.companions)


def _names(fields: Iterable[Field]) -> str:
    return listed(shown(field.name) for field in fields)


# ---- the format

_FILES = (".zip", ".tar", ".tgz", ".gz", ".7z", ".npz", ".npy", ".pkl", ".db")
_NO_FORMAT = ("", "pack")  # suffixes that are never a format
_FURTHER = {"h5": "hdf5", "pt": "pth"}  # other suffixes of formats


def named_format(target: Path) -> str | None:
    """Return the format that the suffix of `target` names, or None: "hdf5" for `out.h5`."""
    suffix = target.suffix.lower().removeprefix(".")
    name = _FURTHER.get(suffix, suffix)
    return name if suffix not in _NO_FORMAT and name in formats.registry else None


def format_of(target: Path, to: str | None) -> str:
    """Return the format of a pack: `to`. If it is None, the format that the suffix of `target` names, else "lmdb".

    If `to` and the suffix name different formats, raise InvalidRequest. If `to` is None and `target` has the suffix of
    an archive, raise InvalidRequest.
    """
    named = None if isinstance(target, URLPath) else named_format(target)
    if named is None:
        if to is None and target.suffix.lower() in _FILES and not isinstance(target, URLPath):
            raise InvalidRequest(
                f"{target}: a pack is a folder, not a {target.suffix} file; give another name, such as "
                f"{target.stem}.pack, or use --to"
            )
        return to or "lmdb"
    if to is not None and to != named:
        raise InvalidRequest(
            f"{target}: its suffix selects {named}, --to selects {to}; omit --to, or use another name, such as "
            f"{target.stem}.pack"
        )
    return named
