"""Convert: checks a request, plans it, builds every part, and publishes the pack."""

import inspect
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np

from packer import formats
from packer.conversion import engines
from packer.conversion.build_part import Progress
from packer.conversion.conversion_run import ConversionRun, Estimate, estimate
from packer.conversion.engines.base import Engine, EngineOptions
from packer.conversion.options import (
    MOST_EXTRAS_BYTES,
    ConversionOptions,
    Exif,
    OnError,
    PresetName,
    SidecarFrame,
    Validate,
    preset_options,
)
from packer.conversion.plan import Plan, make_plan
from packer.conversion.publication import FolderPublication, Publication, check_outside, check_target
from packer.conversion.source_spec import SourceSpec, check_source, parameters
from packer.conversion.stored_schema import ORIENTATION, kept_files
from packer.conversion.work_folder_names import NAMES
from packer.errors import InvalidRequest, PackerError, WrongType
from packer.files.npy_arrays import map_file
from packer.files.progress_bar import ProgressBar
from packer.files.storage_errors import free_bytes
from packer.files.work_folder import beside, work_folder
from packer.formats.base import Order
from packer.pack.manifest import INDEX, Manifest
from packer.schema import Field, Schema
from packer.sources import NamedSource
from packer.sources._extend.source_wrapper import subset
from packer.sources._message_texts import counted, listed, shown
from packer.sources._options import OPTIONS, SourceOptions
from packer.sources.base import Source
from packer.sources.objects._class_names import is_a
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
        bytes_in: the size of the source.
        bytes_out: the size of the pack.
        seconds: the duration.
        pack_id: the id of the pack.
        resumed_samples: the number of samples that an earlier run had packed.
        skipped: (key, reason) of each sample that is not in the pack.
        incomplete: (key, reason) of each incomplete sample in the pack.
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
    codecs: Mapping[str, str] | None = None,
    resize: int | tuple[int, int] | None = None,
    exif: Exif = "ignore",
    validate: Validate = "full",
    on_error: OnError = "raise",
    sidecars: Mapping[str, str] | Sequence[str] = (),
    sidecar_frame: SidecarFrame | None = None,
    mask_colors: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str] = (),
    unknown_colors: Literal["error", "void"] | None = None,
    slots: Mapping[str, str] | None = None,
    order: Order | None = None,
    order_seed: int = 0,
    splits: Mapping[str, str | PathLike[str] | float] | Sequence[str] = (),
    split_seed: int | None = None,
    split_by: str | None = None,
    part_bytes: int | None = None,
    extras_bytes: int = MOST_EXTRAS_BYTES,
    max_pixels: int | None = None,
    threads: int | None = None,
    engine: str = "local",
    address: str | None = None,
    nodes_scratch: str | PathLike[str] | None = None,
    scratch: str | PathLike[str] | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: ProgressCallback | bool | None = None,
    on_note: Callable[[str], object] | None = None,
    **source_options: Unpack[SourceOptions],
) -> ConversionSummary:
    """Convert a data set to a pack.

    The pack appears complete or not at all. If a conversion is interrupted, the same call continues it. All arguments
    except `key`, `length`, `fingerprint` and the callbacks are also options of `packer convert`; docs/commands.md
    describes them in full.

    Args:
        source: A folder, file, archive or pack; the first three may also be behind a URL. Or a data set with the
            options of its source, such as packer.sources.Coco("coco/", task="instances"). Or a Python object with
            samples: a torch or Hugging Face data set, a sequence or an iterable.
        pack: The folder or URL of the new pack.
        to: The format. Default: the suffix of `pack` (out.h5, out.pth), else "lmdb".
        kind: The name of a source, "pack", or "auto" to detect it.
        preset: "ggcnn" or "grconvnet": options for training these grasp networks.
        fields: The fields to pack; None for all. For a Python object also a mapping of names to kinds ("image",
            "number", ...) or to `Field`; for tuples, in their order.
        key: For a Python object: the field with the key, a key for each sample, or a function of the index.
        length: For an iterable: the number of samples.
        fingerprint: For a Python object: a text that changes with its samples. An interrupted conversion continues
            only if it is equal.
        codecs: The codec of each field, such as {"rgb": "jpeg:95"}. Default: the bytes of the files.
        resize: Length of the shorter side in px, or (height, width).
        exif: "rotate" turns images and labels upright; "ignore" keeps the stored pixels.
        validate: "full" decodes every image once; "header" checks only its header and end.
        on_error: "raise" packs nothing if a sample is bad; "skip" skips bad samples and lists them.
        sidecars: Files next to the images, such as {"depth": "_d.tiff:depth"}.
        sidecar_frame: The pixels that sidecars refer to if EXIF rotates the image: "stored" or "upright".
        mask_colors: The file with the value of each color in masks, for all masks or by field; "voc" for the palette
            of Pascal VOC.
        unknown_colors: "void" stores 255 for colors that are not in `mask_colors`; "error" refuses them.
        slots: For the format of another tool: the field of each slot, such as {"image": "rgb", "label": "object_id"}.
        order: "stored" or "shuffled". Default: the usual order of the format.
        order_seed: The seed of the shuffled order.
        splits: Name of each split -> a file that lists its samples, or its share of the samples from 0 to 1.
        split_seed: The seed of splits by shares.
        split_by: The field whose equal values stay in one split.
        part_bytes: Source bytes per part; 0 for a single part. Default: a sixteenth of the source, but 32 to 256 MiB.
        extras_bytes: Other files of the source are also packed if they have at most this size together.
        max_pixels: The most pixels of an image. Default: 100 million.
        threads: The number of threads; None for all usable cores. The pack does not depend on it.
        engine: "local", or "ray" for a cluster whose machines read source and pack under the same paths.
        address: The address of the cluster.
        nodes_scratch: For a cluster: a folder on the disk of each machine.
        scratch: For a pack behind a URL: a folder on this machine.
        overwrite: Replace an existing pack.
        restart: Remove the unfinished work of an earlier run.
        progress: Called with a `packer.system.progress_callback.Progress` before the first sample and after each;
            True shows a bar.
        on_note: Called with each note for the user as soon as it is known.
        source_options: The options of sources, such as depth_from="pcd".

    Returns:
        The summary, with all notes.

    Raises:
        InvalidRequest: The arguments do not fit the source or each other.
        PackExists: The place of the pack is taken.
        BadInputs: Samples are bad; the error lists all of them.
        StorageError: A disk or a store fails.
        Locked: Another process converts to this place.
    """
    given = dict(locals())
    check_arguments(given, {**convert.__annotations__, "source": object, "source_options": object})
    if isinstance(source, NamedSource):
        if kind != "auto":
            raise InvalidRequest(f"kind={kind!r}: {source!r} names its source; leave it out")
        given |= {"source": source.root, "kind": source.kind, "source_options": {**source.options, **source_options}}
    request = _request(given)
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        if on_note is not None:
            on_note(line)

    started = time.monotonic()
    nodes = None if nodes_scratch is None else path_or_url(nodes_scratch)
    to_store = isinstance(request.pack, URLPath)
    builder: Engine = engines.load(engine).Engine(EngineOptions(address, nodes, threads, to_store=to_store))
    with ProgressBar(quiet=progress is not True) as bar:
        tell = bar if isinstance(progress, bool) else progress
        if isinstance(request.pack, URLPath):
            summary = _converted_to_store(request, request.pack, builder, threads, tell, note)
        elif scratch is not None:
            raise InvalidRequest(f"{request.pack}: --scratch is for a pack at a URL; leave it out")
        else:
            plan = request.plan(note)
            with _folder_publication(plan, request.pack, overwrite=overwrite) as publication:
                summary = _run(publication, builder, threads=threads, restart=restart, tell=tell)
    for line in summary.notes:
        note(line)
    return replace(summary, seconds=time.monotonic() - started, notes=notes)


def _converted_to_store(
    request: "ConversionRequest",
    target: URLPath,
    engine: Engine,
    threads: int | None,
    tell: ProgressCallback | None,
    note: Callable[[str], object],
) -> ConversionSummary:
    """Convert to a URL, or complete what an earlier run has published there."""
    from packer.conversion import store_publication  # the client of the stores, which folders do without

    with store_publication.scratch_folder(target, request.scratch, overwrite=request.overwrite) as work:
        published = store_publication.published_pack(target, work)
        plan = request.plan(note)
        if published is None:
            publication = store_publication.StorePublication(plan, target, work)
            return _run(publication, engine, threads=threads, restart=request.restart, tell=tell)
        is_same = published.options == plan.options.to_json() and published.source.get("digest") == plan.digest
        if not is_same or plan.source.resume_reason is not None:
            raise store_publication.already_there(target)
        note(f"{target}: an earlier run has completed it")
        return _summary(published, plan, resumed=published.samples, notes=plan.extras.notes)


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
    """Convert a Source with its options, as `convert` does.

    Args:
        source, target, options, threads, overwrite, restart: see `convert`.
        progress: receives the numbers of samples and source bytes done since its last call.
        engine: None for the local one.
    """
    check_switches({"overwrite": overwrite, "restart": restart})
    started = time.monotonic()
    check_target(_place_of(source), target, overwrite=overwrite)
    engine = engine or engines.load("local").Engine(EngineOptions())
    with _folder_publication(make_plan(source, options), target, overwrite=overwrite) as publication:
        summary = _run(publication, engine, threads=threads, restart=restart, progress=progress)
    return replace(summary, seconds=time.monotonic() - started)


@contextmanager
def _folder_publication(plan: Plan, target: Path, *, overwrite: bool) -> Iterator[FolderPublication]:
    """Lock the work folder of a pack on disk."""
    with work_folder(beside(target), NAMES) as work:
        publication = FolderPublication(plan, target, work, overwrite=overwrite)
        publication.check_free()  # another run may have ended while this one planned
        yield publication


def _run(
    publication: Publication,
    engine: Engine,
    *,
    threads: int | None,
    restart: bool,
    progress: Progress | None = None,
    tell: ProgressCallback | None = None,
) -> ConversionSummary:
    """Build and publish a planned pack.

    Args:
        publication: collects the parts.
        engine: builds the parts.
        threads: None for all usable cores. If files are only copied, it is one thread, since more do not help.
        restart: remove the work of an earlier run.
        progress: see `convert_source`.
        tell: see `convert`.
    """
    plan = publication.plan
    counter = ProgressCounter(len(plan.source), tell)
    count = threads or max(plan.source.folder.reads_at_once, 1 if plan.only_copies else usable_cores())
    run = ConversionRun(
        publication,
        threads=count,
        progress=progress or counter.add,
        resumed=progress or counter.add_resumed,
    )
    with run.naming_needed_space():
        publication.begin(restart=restart)
    run.check_manifest()
    run.check_space()
    with run.naming_needed_space():
        resumed = sum(done.part.samples for done in publication.finished.values())
        manifest = run.build(engine.build)
        notes = [*plan.extras.notes, *run.findings(), *_about_orientations(publication.pack / INDEX, manifest, plan)]
        manifest.check()
        publication.publish(manifest)
    return _summary(manifest, plan, resumed=resumed, notes=(*notes, *engine.notes))


def _summary(manifest: Manifest, plan: Plan, *, resumed: int, notes: Sequence[str]) -> ConversionSummary:
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
    """Return a note with the number of images that EXIF rotates, counted in the index."""
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
        source, pack, preset, scratch, overwrite, restart: see `convert`.
        options: the options that decide the bytes of the pack, without those of the source.
        spec: the options of the source.
        fields, key, length, fingerprint: the options of a Python object.
        rows: the rows of a pack to copy, in this order; None for all.
    """

    source: Path | Source | Indexable | Iterable[Any]
    pack: Path
    options: ConversionOptions
    spec: SourceSpec
    preset: PresetName | None
    fields: Sequence[str] | Mapping[str, str | Field] | None
    key: str | Sequence[str] | Callable[[int], str] | None
    length: int | None
    fingerprint: str | None
    scratch: Path | None
    overwrite: bool
    restart: bool
    rows: Sequence[int] | None = None

    def plan(self, note: Callable[[str], object]) -> Plan:
        """Check the target, open the source, and plan; raises InvalidRequest, PackExists, BadInput."""
        packed = self._of_pack()
        if packed is not None:
            return packed.plan(note)
        self._check_arguments()
        self._check_places(self._place)
        options = self.options
        if not isinstance(self.pack, URLPath) and named_format(self.pack) is not None:
            note(f"{self.pack}: format {options.to}; a pack is a folder, which gets this name")
        opened, found, asked = self._open()
        if self.preset:
            options = _with_preset(self.preset, options, opened.schema)
        place = self.source if isinstance(self.source, Path) else _place_of(opened)
        for line in (f"{place or opened.root}: {found}", *opened.notes):
            note(line)
        plan = make_plan(opened, replace(options, source=asked))
        for line in _notes(plan):
            note(line)
        return plan

    @property
    def _place(self) -> Path | None:
        """The folder or file of the source on this machine."""
        if isinstance(self.source, Source):
            return _place_of(self.source)
        return self.source if isinstance(self.source, Path) and not isinstance(self.source, URLPath) else None

    def _check_arguments(self) -> None:
        """Raise InvalidRequest for arguments of Python objects with another source."""
        if not isinstance(self.source, Path | Source):
            return
        given = [name for name in ("key", "length", "fingerprint") if getattr(self, name) is not None]
        if given or isinstance(self.fields, Mapping):
            raise InvalidRequest(
                f"{given[0] if given else 'a mapping for fields'} is for Python objects; a path or a Source has "
                "its own keys and fields"
            )

    def _check_places(self, place: Path | None) -> None:
        """Raise InvalidRequest, PackExists for a source or a target that cannot be."""
        if place is not None:
            check_source(place)
        if not isinstance(self.pack, URLPath):
            check_target(place, self.pack, overwrite=self.overwrite)
        elif place is not None and self.scratch is not None:
            check_outside(place, self.scratch)

    def _of_pack(self) -> "ConversionRequest | None":
        """Return this request for the pack of a packer dataset, or of a Subset of one; None for other sources."""
        if isinstance(self.source, Path | Source):
            return None
        from packer.sources.objects._open_object import without_subsets  # folders do without

        data, indices = without_subsets(self.source)
        if not is_a(data, "packer.datasets.pack_dataset", "PackDataset"):
            return None
        rows, fields = data.stored_rows(indices), self.fields or data.fields
        options = replace(self.options, fields=tuple(fields) if fields else None)
        return replace(self, source=path_or_url(str(data.path)), rows=rows, fields=fields, options=options)

    def _open(self) -> tuple[Source, str, Mapping[str, Any]]:
        """Return the source, a line on what was recognized, and what the manifest keeps of its options."""
        if isinstance(self.source, Path):
            spec = self.spec.preset(self.source) if self.preset else self.spec
            opened, found = spec.open(self.source)
            opened = opened if self.rows is None else subset(opened, self.rows)
            return opened, found, spec.to_json(opened)
        if isinstance(self.source, Source):
            if self.spec != SourceSpec():
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
        """Return the source of a Python object, and its options; raises InvalidRequest."""
        from packer.sources.objects._open_object import ObjectOptions, open_object  # folders do without

        if isinstance(data, type):
            raise InvalidRequest(f"{data.__module__}.{data.__qualname__}: is a class; give an object of it")
        own = {name: value for name, value in self.spec.options.items() if name in ("axes", "follow_links")}
        others = {name: value for name, value in self.spec.options.items() if name not in own}
        other = replace(self.spec, options=others)
        if other != SourceSpec():
            raise InvalidRequest(
                f"<{type(data).__name__}>: {', '.join(other.flags) or 'kind'}: for the files of a folder; describe the "
                "samples of a Python object with fields= (a field split for the splits), key= and axes="
            )
        source, options = open_object(
            data,
            ObjectOptions(fields=self.fields, key=self.key, length=self.length, fingerprint=self.fingerprint, **own),
        )
        self._check_places(_place_of(source))
        return source, SourceSpec(options=options)


def _request(given: Mapping[str, Any]) -> ConversionRequest:
    """Make the request from all arguments of `convert`; raises InvalidRequest, WrongType."""
    _check_options(given["source_options"])
    source, pack, fields = given["source"], path_or_url(given["pack"]), given["fields"]
    source = path_or_url(source) if isinstance(source, str | PathLike) else source
    is_object = not isinstance(source, Path | Source)
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
        sidecar_frame=given["sidecar_frame"],
        slots=tuple((given["slots"] or {}).items()),
        order=given["order"],
        order_seed=given["order_seed"],
    )
    spec = SourceSpec(
        given["kind"],
        parameters(given["source_options"]),
        _texts(given["sidecars"]),
        _texts(given["splits"]),
        split_seed=given["split_seed"],
        split_by=given["split_by"],
        mask_colors=_places(given["mask_colors"]),
        unknown_colors=given["unknown_colors"],
    )
    return ConversionRequest(
        source=source,
        pack=pack,
        options=options,
        spec=spec,
        preset=given["preset"],
        fields=fields,
        key=given["key"],
        length=given["length"],
        fingerprint=given["fingerprint"],
        scratch=None if given["scratch"] is None else path_or_url(given["scratch"]),
        overwrite=given["overwrite"],
        restart=given["restart"],
    )


def _check_options(given: Mapping[str, object]) -> None:
    """Raise WrongType for an option that no source has, and for a value of another type."""
    unknown = sorted(given.keys() - OPTIONS.keys())
    if unknown:
        raise WrongType(f"{unknown[0]}: convert has no such argument, and no source such an option")
    check_arguments(given, {name: OPTIONS[name].type for name in given})


def _place_of(source: Source) -> Path | None:
    """Return the folder or file of a source on this machine; None if it has none."""
    return source.root if source.folder.is_local else None


@dataclass(frozen=True)
class DryRun:
    """The expected result of a conversion. free_bytes: on the disk of the pack. refused: the error it would raise."""

    plan: Plan
    size: Estimate
    free_bytes: int
    refused: PackerError | None


def dry_run(
    source: object, pack: str | PathLike[str], given: Mapping[str, object], on_note: Callable[[str], object]
) -> DryRun:
    """Return the plan and the size of a conversion without reading its samples; write nothing.

    Raises the errors of planning.
    """
    defaults = {name: each.default for name, each in inspect.signature(convert).parameters.items()}
    request = _request({**defaults, "source_options": {}, **given, "source": source, "pack": pack})
    if isinstance(request.pack, URLPath):
        raise InvalidRequest(f"{pack}: --dry-run is for a pack in a folder; give one")
    plan = request.plan(on_note)
    size, free = estimate(plan), free_bytes(request.pack.absolute().parent)
    refused: PackerError | None = None
    if (plan.links and plan.options.on_error == "raise") or plan.unread:
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
    """Return NAME=VALUE texts as the user would type them."""
    if isinstance(given, Mapping):
        return tuple(f"{name}={value}" for name, value in given.items())
    return tuple(given)


def _places(given: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str]) -> tuple[str, ...]:
    """Return a lone file, or NAME=FILE texts, as the user would type them."""
    if isinstance(given, str | PathLike):
        return (os.fspath(given),)
    if isinstance(given, Mapping):
        return tuple(f"{name}={os.fspath(place)}" for name, place in given.items())
    return tuple(given)


def _resize_text(resize: int | tuple[int, int] | None) -> str | None:
    """Return N or WxH, the form of options and manifests."""
    if resize is None or isinstance(resize, int):
        return None if resize is None else str(resize)
    height, width = resize
    return f"{width}x{height}"


def _with_preset(name: PresetName, options: ConversionOptions, schema: Schema) -> ConversionOptions:
    """Return the options with those of the preset that the user did not set."""
    preset = preset_options(name, schema, formats.load(options.to).Writer.codecs)
    fields = options.fields or preset["fields"]
    typed = dict(options.codecs)
    codecs = {field: codec for field, codec in dict(preset.get("codecs", ())).items() if field in fields} | typed
    return replace(options, fields=fields, codecs=tuple(codecs.items()), resize=options.resize or preset.get("resize"))


def _notes(plan: Plan) -> list[str]:
    """Return notes on images that grow, fields that do not move, and what another tool reads."""
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
            f"--resize {options.resize} enlarges: {larger} of {looked} images looked at are smaller; "
            "these take more room, and show no more"
        )
    if moves := _moving(options):
        packed = [field for field in source.schema if options.fields is None or field.name in options.fields]
        found += _about_moves(source, [field for field in packed if not field.hidden], moves)
        if kept := kept_files(packed):
            found.append(f"{_names(kept)}: left out, since {moves} moves the pixels that these files describe")
    return found


def _moving(options: ConversionOptions) -> str:
    """Return the options that move pixels, as the user types them; empty for none."""
    return " and ".join(["--resize"] * (options.resize is not None) + ["--exif rotate"] * (options.exif == "rotate"))


def _about_moves(source: Source, fields: Sequence[Field], moves: str) -> Iterator[str]:
    """Yield what moved pixels mean for the other fields and for missing depth."""
    unmoved = [field for field in fields if _may_describe_pixels(source, field)]
    if unmoved and not source.holds_records:  # a source of records lists them itself
        yield f"{_names(unmoved)}: stored as they are: {moves} moves images, masks, depth, boxes and points only"
    depths = [field for field in fields if field.kind == "depth" and field.invalid is None]
    if depths and "--resize" in moves:
        yield (
            f"{_names(depths)}: no value for missing pixels is set, so --resize mixes all values; if one means "
            "missing, such as 0, name it: depth:0"
        )


def _may_describe_pixels(source: Source, field: Field) -> bool:
    """Return whether a field may contain positions that packer does not move: arrays, JSON, or text of a sidecar."""
    is_array = field.kind == "number" and len(field.shape or ()) > 1
    return is_array or field.kind == "json" or (field.kind in ("text", "bytes") and field.name in source.companions)


def _names(fields: Iterable[Field]) -> str:
    return listed(shown(field.name) for field in fields)


# ---- the format

_FILES = (".zip", ".tar", ".tgz", ".gz", ".7z", ".npz", ".npy", ".pkl", ".db")
_NO_FORMAT = ("", "pack")  # skips the search in installed packages
_FURTHER = {"h5": "hdf5", "pt": "pth"}  # other suffixes of formats


def named_format(target: Path) -> str | None:
    """Return the format of the target's suffix; None if the suffix names none."""
    suffix = target.suffix.lower().removeprefix(".")
    name = _FURTHER.get(suffix, suffix)
    return name if suffix not in _NO_FORMAT and name in formats.registry else None


def format_of(target: Path, to: str | None) -> str:
    """Return the format of a pack: `to`, else that of the target's suffix (out.h5, out.pth), else lmdb.

    Raises InvalidRequest if the two differ, and without `to` for the suffix of an archive.
    """
    named = None if isinstance(target, URLPath) else named_format(target)
    if named is None:
        if to is None and target.suffix.lower() in _FILES and not isinstance(target, URLPath):
            raise InvalidRequest(
                f"{target}: a pack is a folder, not a {target.suffix} file; give another name, such as "
                f"{target.stem}.pack, or say --to"
            )
        return to or "lmdb"
    if to is not None and to != named:
        raise InvalidRequest(
            f"{target}: its name says {named}, --to says {to}; leave --to out, or give another name, such as "
            f"{target.stem}.pack"
        )
    return named
