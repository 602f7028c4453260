"""Convert: packs a source into a new pack: checks what is asked, plans, builds every part, publishes by one rename.

What can be refused is refused before a million files are listed.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

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
    PresetName,
    SidecarFrame,
    Validate,
    preset_options,
)
from packer.conversion.pack_builder import Estimate, PackBuilder, estimate
from packer.conversion.plan import ORIENTATION, Plan, kept_files, make_plan
from packer.conversion.source_spec import SourceSpec, check_source, parameters
from packer.conversion.work_folder_names import NAMES
from packer.errors import InvalidRequest, PackerError, PackExists, WrongType
from packer.files.npy_arrays import map_file
from packer.files.progress_bar import ProgressBar
from packer.files.storage_errors import failing, free_bytes
from packer.files.terminal_output import shell_word
from packer.files.work_folder import beside, work_folder
from packer.formats.base import Order
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, Manifest
from packer.pack.unlisted_files import check_replaceable
from packer.schema import Field, Schema
from packer.sources._extend.source_wrapper import subset
from packer.sources._objects.object_class import is_a
from packer.sources._objects.object_rows import Indexable
from packer.sources._options import OPTIONS, SourceOptions
from packer.sources._parse.folder_listing import counted, listed, shown
from packer.sources.base import Source
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_types import check_arguments, check_switches
from packer.system.parallel import usable_cores
from packer.system.progress_callback import ProgressCallback, ProgressCounter

if TYPE_CHECKING:
    from packer.conversion.stored_parts import StoredParts


@dataclass(frozen=True)
class ConversionSummary:
    """What a conversion did. bytes_in were read, bytes_out are on disk.

    skipped: (key, reason) of samples that are not in the pack. incomplete: (key, what is missing) of samples that are.
    notes: what is worth knowing of the source, what became of the files that are of no sample, what may not be
    meant of masks and boxes, and how many pictures are not upright.
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
    source: str | PathLike[str] | Source | Indexable | Iterable[Any],
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
    mask_colours: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str] = (),
    unknown_colours: Literal["error", "void"] | None = None,
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
    """Pack an image folder, another tool's pack, a pack or a Python object into the new folder `pack`, complete or not
    at all.

    source: a folder, also behind a URL such as "s3://bucket/photos", a pack, a table such as train.csv, another tool's
    file such as data.tfrecord, or a Source object, which then has its options, sidecars and splits already. For a
    packer data set, or a torch Subset of one, the pack's records are copied. to: the
    format; None for what the name of the pack says
    (out.h5, out.pth, ...), else lmdb. kind: what the folder is, the name of a source or "pack". codecs: field -> codec,
    such as {"rgb": "jpeg:95"}. resize: px of the shorter side, or (height, width). sidecars: name -> "SUFFIX:KIND",
    such as {"depth": "_d.tiff:depth"}. splits: name -> a file that lists the samples, or a share of 0 to 1.
    mask_colours: a file, or field -> file, that says which value of a mask each colour is, such as CamVid's
    label_colors.txt; "voc" is Pascal VOC's palette.
    slots: what the records of another tool's format call a field, such as {"image": "rgb", "label": "object_id"}.
    order: "stored", as the source has the samples, or "shuffled", which the formats of sequential readers default to.
    threads: None for all usable cores; the
    pack does not depend on it. engine: what builds the parts, "local" or "ray", a cluster whose machines see source and
    pack under the same paths; address: of the cluster, None for what Ray finds; nodes_scratch: a folder on the disk of
    each machine, where parts are built before they are copied. scratch: of a pack at a URL, such as
    "s3://bucket/photos.pack", a folder of this machine, for the index and the parts that wait to be uploaded; with an
    engine of many machines these upload their parts themselves, from nodes_scratch. overwrite: replace a pack that is
    there.
    restart: throw unfinished work of an earlier run away. progress: called with a
    packer.system.progress_callback.Progress before the first sample and after each; its bytes are those read. on_note:
    called with lines that are worth knowing, those on the source before the first sample is read; the summary's notes
    are the same lines.
    progress=True shows a bar, in a notebook too. Of an object that gives samples (a torch or Hugging Face Dataset, a
    sequence, an iterable), fields: name -> kind ("image", "number", ...) or Field, in the order of a sample that is a
    tuple. key: the field that names a sample, a text for each, or a function of its number. length: how many samples an
    iterable has. fingerprint: a text that changes whenever the samples do, so that an interrupted conversion goes on.
    source_options: the options of sources, such as depth_from="pcd"; these and all other arguments are options of
    `packer convert`, in docs/commands.md.
    Raises InvalidRequest, PackExists, BadInputs (all bad samples), StorageError, Locked.
    """
    # the readers of the source check it
    check_arguments(locals(), {**convert.__annotations__, "source": object, "source_options": object})
    _check_options(source_options)
    target = path_or_url(pack)
    request = ConversionRequest(
        source=path_or_url(source) if isinstance(source, str | PathLike) else source,
        pack=target,
        to=to,
        kind=kind,
        preset=preset,
        fields=fields,
        key=key,
        length=length,
        fingerprint=fingerprint,
        codecs=codecs or {},
        resize=resize,
        exif=exif,
        validate=validate,
        on_error=on_error,
        sidecars=sidecars,
        sidecar_frame=sidecar_frame,
        mask_colours=mask_colours,
        unknown_colours=unknown_colours,
        slots=slots or {},
        order=order,
        order_seed=order_seed,
        splits=splits,
        split_seed=split_seed,
        split_by=split_by,
        source_options=source_options,
        part_bytes=part_bytes,
        extras_bytes=extras_bytes,
        max_pixels=max_pixels,
        overwrite=overwrite,
        restart=restart,
    )
    note = on_note or _unheard
    notes: list[str] = []

    def take(line: str) -> None:
        notes.append(line)
        note(line)

    started = time.monotonic()
    nodes = None if nodes_scratch is None else path_or_url(nodes_scratch)
    builds: Engine = engines.load(engine).Engine(
        EngineOptions(address, nodes, threads, to_store=isinstance(target, URLPath))
    )
    wanted = _Wanted(request, builds, threads, started, progress)
    if isinstance(target, URLPath):
        summary = _published(wanted, target, None if scratch is None else path_or_url(scratch), take)
    elif scratch is not None:
        raise InvalidRequest(f"{target}: --scratch is for a pack at a URL; a folder is built beside its place")
    else:
        summary = wanted.build(request.plan(take), target, overwrite=overwrite)
    for line in summary.notes:
        note(line)
    return replace(summary, notes=(*notes, *summary.notes))


def _check_options(given: Mapping[str, object]) -> None:
    """Raise WrongType for an option that no source has, and for a value of another type."""
    unknown = sorted(given.keys() - OPTIONS.keys())
    if unknown:
        raise WrongType(f"{unknown[0]}: convert has no such argument, and no source such an option")
    check_arguments(given, {name: OPTIONS[name].type for name in given})


def _published(
    wanted: "_Wanted", path: URLPath, scratch: Path | None, note: Callable[[str], object]
) -> ConversionSummary:
    """Build a pack whose parts go to the store, unless an earlier run has, and publish it."""
    from packer.conversion.store_target import StoreTarget, is_of  # the client of the stores, which folders do without

    target = StoreTarget.of(path, scratch=scratch, overwrite=wanted.request.overwrite)
    with target.opened() as publication:
        there = publication.check()
        # what an earlier run has put together there makes way where it is of another pack
        request = replace(wanted.request, pack=publication.folder, overwrite=publication.is_built)
        plan = request.plan(note)
        target.check_format(plan.options.to)
        if there is not None:
            publication.end(complete=is_of(there, plan))
            note(f"{target.url}: complete since an earlier run, whose work is removed")
            return _summary(there, plan, wanted.started)
        parts = publication.parts_of(plan)
        built = None if request.restart else publication.built()
        if built is not None and is_of(built, plan):
            note(f"{target.url}: built by an earlier run; only what is missing there is uploaded")
            summary = _summary(built, plan, wanted.started)
        else:
            publication.forget()
            summary = wanted.build(plan, publication.folder, overwrite=False, stored=parts)
        publication.publish(parts)
    return replace(summary, seconds=time.monotonic() - wanted.started)


def _summary(manifest: Manifest, plan: Plan, started: float) -> ConversionSummary:
    """Of a pack that an earlier run has built."""
    return ConversionSummary(
        samples=manifest.samples,
        parts=len(manifest.parts),
        bytes_in=plan.source_bytes,
        bytes_out=_pack_bytes(manifest),
        seconds=time.monotonic() - started,
        pack_id=manifest.pack_id,
        resumed_samples=manifest.samples,
        skipped=manifest.skipped,
        incomplete=manifest.incomplete,
        notes=tuple(plan.extras.notes),
    )


@dataclass(frozen=True)
class _Wanted:
    """A conversion, and how it is run."""

    request: "ConversionRequest"
    engine: Engine
    threads: int | None
    started: float
    progress: ProgressCallback | bool | None

    def build(
        self, plan: Plan, target: Path, *, overwrite: bool, stored: "StoredParts | None" = None
    ) -> ConversionSummary:
        """Build the planned pack at `target`, telling `progress` of it; its parts go to a store, if one is given."""
        with ProgressBar(quiet=self.progress is not True) as bar:
            counter = ProgressCounter(len(plan.source), bar if isinstance(self.progress, bool) else self.progress)
            return _build(
                plan,
                target,
                started=self.started,
                threads=self.threads,
                engine=self.engine,
                overwrite=overwrite,
                restart=self.request.restart,
                progress=counter.add,
                earlier=counter.add_resumed,
                stored=stored,
            )


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
    """As `convert`, of a Source with its ConversionOptions. engine: None for the local one.

    progress: told of samples and source bytes that are done.
    """
    check_switches({"overwrite": overwrite, "restart": restart})
    started = time.monotonic()
    check_target(_place_of(source), target, overwrite=overwrite)
    return _build(
        make_plan(source, options),
        target,
        started=started,
        threads=threads,
        overwrite=overwrite,
        restart=restart,
        progress=progress,
        engine=engine or engines.load("local").Engine(EngineOptions()),
    )


def _build(
    plan: Plan,
    target: Path,
    *,
    started: float,
    threads: int | None,
    engine: Engine,
    overwrite: bool,
    restart: bool,
    progress: Progress | None,
    earlier: Progress | None = None,
    stored: "StoredParts | None" = None,
) -> ConversionSummary:
    """Build and publish a planned pack, whose target was checked.

    threads: None for as many as this process may use, or one where bytes are kept and only headers are looked at: then
    there is too little to do per file for more than the one beside the writer to be worth their switching.
    started: by time.monotonic. earlier: told, instead of progress, of samples that an earlier run did.
    """
    root = _place_of(plan.source)
    with work_folder(beside(target), NAMES) as work:
        _check_still_free(root, target, overwrite=overwrite)  # another run may have ended while this one planned
        wanted = threads or max(plan.source.folder.reads_at_once, 1 if plan.only_copies else usable_cores())
        job = PackBuilder(
            plan,
            target,
            work,
            threads=wanted,
            progress=progress or (lambda samples, size: None),
            earlier=earlier,
            stored=stored,
        )
        with job.saying_what_is_needed():
            job.begin(restart=restart)
        job.check_manifest()
        job.check_space()
        with job.saying_what_is_needed():
            resumed = sum(done.part.samples for done in job.records.finished.values())
            manifest = job.build(engine)
            found = job.findings()
            orientations = _about_orientations(job.records.pack / INDEX, manifest, plan)
            _check_still_free(root, target, overwrite=overwrite)  # a conversion takes hours
            job.publish(manifest, overwrite=overwrite)
    return ConversionSummary(
        samples=manifest.samples,
        parts=len(manifest.parts),
        bytes_in=plan.source_bytes,
        bytes_out=_pack_bytes(manifest),
        seconds=time.monotonic() - started,
        pack_id=manifest.pack_id,
        resumed_samples=resumed,
        skipped=manifest.skipped,
        incomplete=manifest.incomplete,
        notes=(*plan.extras.notes, *found, *orientations, *engine.notes),
    )


def _about_orientations(index: Path, manifest: Manifest, plan: Plan) -> list[str]:
    """How many pictures lie otherwise than their EXIF orientation says; from the index, which has it of each."""
    name = f"number-{ORIENTATION.name}.npy"
    files = [file for file in manifest.index if file.name == name]
    if not files or plan.source.is_encoded:
        return []
    orientations, _ = map_file(index / name, files[0].bytes)
    turned = int(np.count_nonzero(orientations > 1))
    if not turned:
        return []
    pictures = f"{turned} of {counted(manifest.samples, 'picture')} not upright by EXIF orientation"
    if plan.options.exif == "rotate":
        return [f"{pictures}: turned"]
    return [f"{pictures}: left as they are; --exif rotate turns them"]


def _pack_bytes(manifest: Manifest) -> int:
    parts = sum(part.bytes for part in manifest.parts)
    return parts + sum(file.bytes for file in (*manifest.index, *manifest.extras)) + len(manifest.to_bytes())


# ---- what is asked


@dataclass(frozen=True)
class ConversionRequest:
    """What the user asks for; see `convert`, whose arguments these are."""

    source: Path | Source | Indexable | Iterable[Any]
    pack: Path
    to: str | None = None
    kind: str = "auto"
    preset: PresetName | None = None
    fields: Sequence[str] | Mapping[str, str | Field] | None = None
    key: str | Sequence[str] | Callable[[int], str] | None = None
    length: int | None = None
    fingerprint: str | None = None
    codecs: Mapping[str, str] = field(default_factory=dict)
    resize: int | tuple[int, int] | None = None
    exif: Exif = "ignore"
    validate: Validate = "full"
    on_error: OnError = "raise"
    sidecars: Mapping[str, str] | Sequence[str] = ()
    sidecar_frame: SidecarFrame | None = None
    mask_colours: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str] = ()
    unknown_colours: str | None = None
    slots: Mapping[str, str] = field(default_factory=dict)
    order: Order | None = None
    order_seed: int = 0
    splits: Mapping[str, str | PathLike[str] | float] | Sequence[str] = ()
    split_seed: int | None = None
    split_by: str | None = None
    source_options: Mapping[str, object] = field(default_factory=dict)
    part_bytes: int | None = None
    extras_bytes: int = MOST_EXTRAS_BYTES
    max_pixels: int | None = None
    overwrite: bool = False
    restart: bool = False
    rows: Sequence[int] | None = None  # of a pack, in this order; None for all

    def plan(self, on_note: Callable[[str], object] | None) -> Plan:
        """The plan of the conversion, once its target is checked; raises InvalidRequest, PackExists, BadInput."""
        if self._is_object and (packed := self._of_pack()) is not None:
            return packed.plan(on_note)
        said = named_format(self.pack)
        asked = ConversionOptions(
            to=format_of(self.pack, self.to, said=said),
            fields=tuple(self.fields) if self.fields and not self._is_object else None,
            codecs=tuple(self.codecs.items()),
            resize=_resize_text(self.resize),
            exif=self.exif,
            validate=self.validate,
            on_error=self.on_error,
            part_bytes=self.part_bytes,
            extras_bytes=self.extras_bytes,
            max_pixels=self.max_pixels,
            sidecar_frame=self.sidecar_frame,
            slots=tuple(self.slots.items()),
            order=self.order,
            order_seed=self.order_seed,
        )
        note = on_note or _unheard
        self._check_place()
        if said is not None:
            note(f"{self.pack}: format {asked.to}; a pack is a folder, which this name will be of")
        spec = self._spec()
        if isinstance(self.source, Path):
            spec = spec.preset(self.source) if self.preset else spec
            opened, found = spec.open(self.source)
            opened = opened if self.rows is None else subset(opened, self.rows)
        elif isinstance(self.source, Source):
            if spec != SourceSpec():
                raise InvalidRequest(
                    f"{self.source.root}: {', '.join(spec.flags) or 'kind'}: for a folder; give them to the Source "
                    "object, or give the folder"
                )
            opened, found = self.source, f"read as {self.source.kind}"
        else:
            opened, spec = self._open_object(self.source, spec)
            found = f"read as {opened.kind}"
        if self.preset:
            asked = _with_preset(self.preset, asked, opened.schema)
        asked = replace(asked, source=_asked_of(opened) if isinstance(self.source, Source) else spec.to_json(opened))
        place = self.source if isinstance(self.source, Path) else _place_of(opened)
        for line in (f"{place or opened.root}: {found}", *opened.notes):
            note(line)
        plan = make_plan(opened, asked)
        for line in _warnings(plan):
            note(line)
        return plan

    @property
    def _is_object(self) -> bool:
        """Whether samples come of a Python object that is neither a path nor a Source."""
        return not isinstance(self.source, Path | Source)

    def _check_place(self) -> None:
        """Raise InvalidRequest, PackExists for a source or a target that cannot be, or arguments of another source."""
        given = [name for name in ("key", "length", "fingerprint") if getattr(self, name) is not None]
        if not self._is_object and (given or isinstance(self.fields, Mapping)):
            raise InvalidRequest(
                f"{given[0] if given else 'a mapping for fields'} is for Python objects; what a path or a Source holds "
                "says its keys and fields itself"
            )
        place = self.source if isinstance(self.source, Path) else None
        if isinstance(self.source, Source):
            place = _place_of(self.source)
        if isinstance(place, URLPath):
            place = None  # what is there its listing tells, and no folder of this machine lies in it
        if place is not None:
            check_source(place)
        check_target(place, self.pack, overwrite=self.overwrite)

    def _of_pack(self) -> "ConversionRequest | None":
        """The same request of the pack that a packer data set, or a Subset of one, reads; None for other objects."""
        from packer.sources._objects.source_of_object import unwrapped  # folders do without

        data, indices = unwrapped(self.source)
        if not is_a(data, "packer.datasets.pack_dataset", "PackDataset"):
            return None
        rows, fields = data.stored_rows(indices), self.fields or data.fields
        return replace(self, source=path_or_url(str(data.path)), rows=rows, fields=fields)

    def _open_object(self, data: Indexable | Iterable[Any], spec: SourceSpec) -> tuple[Source, SourceSpec]:
        """The source that a Python object is, and what the manifest says of it; raises InvalidRequest."""
        from packer.sources._objects.source_of_object import ObjectOptions, source_of  # folders do without

        if isinstance(data, type):
            raise InvalidRequest(f"{data.__module__}.{data.__qualname__}: is a class; give an object of it")
        taken = {name: spec.options[name] for name in ("axes", "follow_links") if name in spec.options}
        other = replace(spec, options={name: value for name, value in spec.options.items() if name not in taken})
        if other != SourceSpec():
            raise InvalidRequest(
                f"<{type(data).__name__}>: {', '.join(other.flags) or 'kind'}: for the files of a folder; describe the "
                "samples of a Python object with fields= (a field split for the splits), key= and axes="
            )
        listed = source_of(
            data,
            ObjectOptions(fields=self.fields, key=self.key, length=self.length, fingerprint=self.fingerprint, **taken),
        )
        place = _place_of(listed.source)
        if place is not None:
            check_target(place, self.pack, overwrite=self.overwrite)
        return listed.source, SourceSpec(options=listed.options)

    def _spec(self) -> SourceSpec:
        return SourceSpec(
            self.kind,
            parameters(self.source_options),
            _texts(self.sidecars),
            _texts(self.splits),
            split_seed=self.split_seed,
            split_by=self.split_by,
            mask_colours=_places(self.mask_colours),
            unknown_colours=self.unknown_colours,
        )

    def dry_run(self, on_note: Callable[[str], object] | None = None) -> "DryRun":
        """What `convert` would do, as far as that is known before samples are read; nothing is written."""
        plan = self.plan(on_note)
        free = free_bytes(self.pack.absolute().parent)
        size = estimate(plan)
        refused: PackerError | None = None
        if (plan.links and plan.options.on_error == "raise") or plan.unread:
            refused = plan.refusal(plan.links)
        try:  # the work folder is made as the real run makes it, and removed again
            with work_folder(beside(self.pack), NAMES) as work:
                job = PackBuilder(plan, self.pack, work, threads=1, progress=lambda samples, size: None, estimate=size)
                job.rehearse(restart=self.restart)
        except PackerError as error:
            refused = refused or error
        return DryRun(plan, size, free, refused)


@dataclass(frozen=True)
class DryRun:
    """What a conversion would do. free_bytes: on the disk of the pack. refused: what the conversion would raise."""

    plan: Plan
    size: Estimate
    free_bytes: int
    refused: PackerError | None


def _asked_of(source: Source) -> Mapping[str, Any]:
    """What the manifest says of a source that the user has made: what it was made with."""
    known = source.provenance()
    return source.asked() if known is None else known.asked


def _place_of(source: Source) -> Path | None:
    """The folder or file of a source; None for a Python object, which lies nowhere."""
    return source.named if source.is_on_disk and source.folder.is_local else None


def _unheard(line: str) -> None:
    """Where nobody listens."""


def _texts(given: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    """NAME=VALUE each, as the user would type it."""
    if isinstance(given, Mapping):
        return tuple(f"{name}={value}" for name, value in given.items())
    return tuple(given)


def _places(given: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str]) -> tuple[str, ...]:
    """A file alone, or NAME=FILE each, as the user would type it."""
    if isinstance(given, str | PathLike):
        return (os.fspath(given),)
    if isinstance(given, Mapping):
        return tuple(f"{name}={os.fspath(place)}" for name, place in given.items())
    return tuple(given)


def _resize_text(resize: int | tuple[int, int] | None) -> str | None:
    """As options and manifests have it: N, or WxH."""
    if resize is None or isinstance(resize, int):
        return None if resize is None else str(resize)
    height, width = resize
    return f"{width}x{height}"


def _with_preset(name: PresetName, asked: ConversionOptions, schema: Schema) -> ConversionOptions:
    """The options with those of the preset where the user did not say another."""
    preset = preset_options(name, schema, formats.load(asked.to).Writer.codecs)
    fields = asked.fields or preset["fields"]
    typed = dict(asked.codecs)
    codecs = {field: codec for field, codec in dict(preset.get("codecs", ())).items() if field in fields} | typed
    return replace(asked, fields=fields, codecs=tuple(codecs.items()), resize=asked.resize or preset.get("resize"))


def _warnings(plan: Plan) -> list[str]:
    """Return notes on images that grow, fields that do not move, and what another tool reads."""
    source, asked = plan.source, plan.options
    found = list(formats.load(asked.to).Writer.notes(plan.schema))
    if asked.order is None and asked.settled_order == "shuffled":
        found.append(
            f"samples are packed in a shuffled order, since {asked.to} is read in that of the file; "
            "--order stored keeps the source's"
        )
    if plan.unread:
        found.append(f"{source.unread_message}: nothing will be packed; the rest is read to name every bad file")
    larger, looked = plan.enlarged
    if larger:
        found.append(
            f"--resize {asked.resize} enlarges: {larger} of {looked} pictures looked at are smaller; "
            "these take more room, and show no more"
        )
    if moves := _moving(asked):
        wanted = [field for field in source.schema if asked.fields is None or field.name in asked.fields]
        found += _about_moves(source, [field for field in wanted if not field.hidden], moves)
        if kept := kept_files(wanted):
            found.append(f"{_names(kept)}: left out, since {moves} moves the pixels that these files describe")
    return found


def _moving(asked: ConversionOptions) -> str:
    """Return the options that move pixels, as the user types them; empty for none."""
    return " and ".join(["--resize"] * (asked.resize is not None) + ["--exif rotate"] * (asked.exif == "rotate"))


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
    """Whether a field that no geometry moves holds arrays, JSON, or a sidecar's text."""
    is_array = field.kind == "number" and len(field.shape or ()) > 1
    return is_array or field.kind == "json" or (field.kind in ("text", "bytes") and field.name in source.sidecars)


def _names(fields: Iterable[Field]) -> str:
    return listed(shown(field.name) for field in fields)


# ---- the target

_FILES = (".zip", ".tar", ".tgz", ".gz", ".7z", ".npz", ".npy", ".pkl", ".db")  # of one file each
_NO_FORMAT = ("", "pack")  # suffixes of most packs: no need to ask the packages that bring formats
_FURTHER = {"h5": "hdf5", "pt": "pth"}  # suffixes that are not a format's name


def named_format(target: Path) -> str | None:
    """The format that the target's suffix says; None where it says none."""
    suffix = target.suffix.lower().removeprefix(".")
    said = _FURTHER.get(suffix, suffix)
    return said if suffix not in _NO_FORMAT and said in formats.registry else None


def format_of(target: Path, asked: str | None, *, said: str | None) -> str:
    """The format of a pack: as asked, else as the target's suffix says (out.h5, out.pth), else lmdb.

    said: what `named_format` gives. Raises InvalidRequest where the two contradict each other, and for the suffix of a
    file of another kind without --to.
    """
    if said is None:
        if asked is None and target.suffix.lower() in _FILES:
            raise InvalidRequest(
                f"{target}: a pack is a folder, not a {target.suffix} file; give another name, such as "
                f"{target.stem}.pack, or say --to"
            )
        return asked or "lmdb"
    if asked is not None and asked != said:
        raise InvalidRequest(
            f"{target}: its name says {said}, --to says {asked}; leave --to out, or give another name, such as "
            f"{target.stem}.pack"
        )
    return said


def check_target(root: Path | None, target: Path, *, overwrite: bool) -> None:
    """Raise InvalidRequest where the pack cannot be put there, PackExists where something is there already.

    root: the folder of the source; None where it lies nowhere.
    """
    if root is not None:
        with failing(target, "ask for the folder"):  # links that change while they are followed
            source, place = root.resolve(), target.resolve()
        if place == source:
            raise InvalidRequest(f"{target}: is the source itself; give the pack another name")
        if source in place.parents:
            raise InvalidRequest(f"{target}: lies inside the source {root}; choose a folder beside it")
    if not os.path.lexists(target):
        if not target.parent.is_dir():
            raise InvalidRequest(f"{target}: its parent folder does not exist; make it first")
        return
    if target.is_symlink():
        raise InvalidRequest(f"{target}: is a link; give the folder itself, or another name")
    with failing(target, "list the folder"):
        is_empty = target.is_dir() and not any(target.iterdir())
    if is_empty and not overwrite:
        raise PackExists(f"{target}: an empty folder is there; remove it: rmdir {shell_word(str(target))}")
    if not overwrite:
        hint = "--overwrite replaces it, or" if _is_pack(target) else "it is no pack, so it is never replaced;"
        raise PackExists(f"{target}: already there; {hint} choose another name")
    check_replaceable(target)


def _is_pack(target: Path) -> bool:
    try:
        manifests.read(target)
    except PackerError:
        return os.path.lexists(target / manifests.NAME)  # a damaged one is told by --overwrite
    return True


def _check_still_free(root: Path | None, target: Path, *, overwrite: bool) -> None:
    """Raise PackExists where something has come there since; what --overwrite replaces is checked as it is replaced."""
    if not overwrite and os.path.lexists(target):
        check_target(root, target, overwrite=False)
