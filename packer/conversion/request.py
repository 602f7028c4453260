"""Request: a conversion as the user asks for it, from Python or from the command line, checked and carried out.

What can be refused is refused before a million files are listed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from packer import formats
from packer.conversion import presets
from packer.conversion.convert import ConversionSummary, check_target, format_of, named_format
from packer.conversion.convert import convert as convert_source
from packer.conversion.estimate import Estimate, estimate
from packer.conversion.journal import NAMES
from packer.conversion.options import (
    MOST_EXTRAS_BYTES,
    ConversionOptions,
    Exif,
    OnError,
    SidecarFrame,
    Validate,
)
from packer.conversion.pack_builder import PackBuilder
from packer.conversion.plan import Plan, enlarged, make_plan
from packer.conversion.presets import PresetName
from packer.conversion.source_spec import SourceSpec, check_folder
from packer.errors import InvalidRequest, PackerError, printable
from packer.files.file_io import free_bytes
from packer.files.safe_paths import folded
from packer.files.work_folder import work_folder
from packer.schema import Schema
from packer.sources._parse.listing import counted
from packer.sources.base import Source
from packer.system.progress import ProgressCallback, ProgressCounter

_SOURCE_OPTIONS = (
    "depth_from",
    "missing",
    "duplicates",
    "labels",
    "classes",
    "layout",
    "allow_empty",
    "decode_with",
    "pairs",
    "follow_links",
)


def convert(
    source: str | PathLike[str] | Source,
    pack: str | PathLike[str],
    *,
    to: str | None = None,
    kind: str = "auto",
    preset: PresetName | None = None,
    fields: Sequence[str] | None = None,
    codecs: Mapping[str, str] | None = None,
    resize: int | tuple[int, int] | None = None,
    exif: Exif = "ignore",
    validate: Validate = "full",
    on_error: OnError = "raise",
    sidecars: Mapping[str, str] | Sequence[str] = (),
    sidecar_frame: SidecarFrame | None = None,
    splits: Mapping[str, str | PathLike[str] | float] | Sequence[str] = (),
    split_seed: int | None = None,
    split_by: str | None = None,
    classes_from: str | PathLike[str] | None = None,
    depth_from: Literal["tiff", "pcd", "none"] | None = None,
    missing: Literal["keep", "skip", "error"] | None = None,
    duplicates: Literal["error", "first", "skip"] | None = None,
    labels: Literal["strict", "lenient"] | None = None,
    classes: Literal["auto", "folders", "none"] | None = None,
    layout: Literal["auto", "class", "split/class", "split"] | None = None,
    allow_empty: bool = False,
    decode_with: Literal["none", "pillow"] | None = None,
    pairs: Literal["refuse", "samples"] | None = None,
    follow_links: bool = False,
    part_bytes: int | None = None,
    extras_bytes: int = MOST_EXTRAS_BYTES,
    max_pixels: int | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    restart: bool = False,
    progress: ProgressCallback | None = None,
    on_note: Callable[[str], object] | None = None,
) -> ConversionSummary:
    """Pack an image folder, or another pack, into the new folder `pack`, which appears complete or not at all.

    source: a folder, a pack, or a Source object, which then has its options, sidecars and splits already. to: the
    format; None for what the name of the pack says (out.h5, out.pth, ...), else lmdb. kind: what the folder is, the
    name of a source or "pack". codecs: field -> codec, such as {"rgb": "jpeg:95"}. resize: px of the shorter side, or
    (height, width). sidecars: name -> "SUFFIX:KIND", such as {"depth": "_d.tiff:depth"}. splits: name -> a file that
    lists the samples, or for all of them a share of 0 to 1. threads: None for all usable cores; the pack does not
    depend on it. overwrite: replace a pack that is there. restart: throw unfinished work of an earlier run away.
    progress: called with a packer.system.progress.Progress before the first sample and after each; its bytes are those
    read. on_note: called with lines that are worth knowing, those on the source before the first sample is read; the
    summary's notes are the same lines.
    All other arguments are options of `packer convert`, in docs/commands.md.
    Raises InvalidRequest, PackExists, BadInputs (all bad samples), StorageError, Locked.
    """
    request = ConversionRequest(
        source=source if isinstance(source, Source) else Path(source),
        pack=Path(pack),
        to=to,
        kind=kind,
        preset=preset,
        fields=fields,
        codecs=codecs or {},
        resize=resize,
        exif=exif,
        validate=validate,
        on_error=on_error,
        sidecars=sidecars,
        sidecar_frame=sidecar_frame,
        splits=splits,
        split_seed=split_seed,
        split_by=split_by,
        classes_from=Path(classes_from) if classes_from is not None else None,
        depth_from=depth_from,
        missing=missing,
        duplicates=duplicates,
        labels=labels,
        classes=classes,
        layout=layout,
        allow_empty=allow_empty,
        decode_with=decode_with,
        pairs=pairs,
        follow_links=follow_links,
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

    opened, options = request.opened(take)
    counter = ProgressCounter(len(opened), progress)
    existing = "overwrite" if overwrite else "refuse"
    summary = convert_source(
        opened,
        request.pack,
        options,
        threads=threads,
        existing=f"{existing}+restart" if restart else existing,
        progress=counter.add,
        earlier=counter.add_resumed,
    )
    for line in summary.notes:
        note(line)
    return replace(summary, notes=(*notes, *summary.notes))


@dataclass(frozen=True)
class ConversionRequest:
    """What the user asks for; see `convert`, whose arguments these are."""

    source: Path | Source
    pack: Path
    to: str | None = None
    kind: str = "auto"
    preset: PresetName | None = None
    fields: Sequence[str] | None = None
    codecs: Mapping[str, str] = field(default_factory=dict)
    resize: int | tuple[int, int] | None = None
    exif: Exif = "ignore"
    validate: Validate = "full"
    on_error: OnError = "raise"
    sidecars: Mapping[str, str] | Sequence[str] = ()
    sidecar_frame: SidecarFrame | None = None
    splits: Mapping[str, str | PathLike[str] | float] | Sequence[str] = ()
    split_seed: int | None = None
    split_by: str | None = None
    classes_from: Path | None = None
    depth_from: str | None = None
    missing: str | None = None
    duplicates: str | None = None
    labels: str | None = None
    classes: str | None = None
    layout: str | None = None
    allow_empty: bool = False
    decode_with: str | None = None
    pairs: str | None = None
    follow_links: bool = False
    part_bytes: int | None = None
    extras_bytes: int = MOST_EXTRAS_BYTES
    max_pixels: int | None = None
    overwrite: bool = False
    restart: bool = False

    def opened(self, on_note: Callable[[str], object] | None) -> tuple[Source, ConversionOptions]:
        """The source and the options of its conversion; raises InvalidRequest, PackExists, BadInput."""
        asked = ConversionOptions(
            to=format_of(self.pack, self.to),
            fields=tuple(self.fields) if self.fields else None,
            codecs=tuple(self.codecs.items()),
            resize=_resize_text(self.resize),
            exif=self.exif,
            validate=self.validate,
            on_error=self.on_error,
            part_bytes=self.part_bytes,
            extras_bytes=self.extras_bytes,
            max_pixels=self.max_pixels,
            sidecar_frame=self.sidecar_frame,
        )
        root = self.source.root if isinstance(self.source, Source) else self.source
        check_folder(root)
        check_target(root, self.pack, overwrite=self.overwrite)
        note = on_note or _unheard
        if named_format(self.pack) is not None:
            note(f"{self.pack}: format {asked.to}; a pack is a folder, which this name will be of")
        spec = self._spec()
        if isinstance(self.source, Source):
            if spec != SourceSpec():
                raise InvalidRequest(
                    f"{root}: kind, sidecars, splits and options of a source are for a folder; "
                    "give them to the Source object that is passed"
                )
            opened, found = self.source, f"read as {self.source.kind}"
        else:
            spec = spec.preset(root) if self.preset else spec
            opened, found = spec.open(root)
        if self.preset:
            asked = _with_preset(self.preset, asked, opened.schema)
        asked = replace(asked, source=spec.to_json(opened))
        if on_note is not None:
            for line in (f"{root}: {found}", *opened.notes, *_warnings(opened, asked)):
                note(line)
        return opened, asked

    def _spec(self) -> SourceSpec:
        given = {name: getattr(self, name) for name in _SOURCE_OPTIONS}
        return SourceSpec(
            self.kind,
            {name: value for name, value in given.items() if value not in (None, False)},
            _texts(self.sidecars),
            _texts(self.splits),
            split_seed=self.split_seed,
            split_by=self.split_by,
            classes_from=self.classes_from,
        )

    def dry_run(self, on_note: Callable[[str], object] | None = None) -> "DryRun":
        """What `convert` would do, as far as that is known before samples are read; nothing is written."""
        opened, options = self.opened(on_note)
        plan = make_plan(opened, options)
        size, free = estimate(plan), free_bytes(self.pack.absolute().parent)
        refused: PackerError | None = None
        if (plan.links and options.on_error == "raise") or plan.unread:
            refused = plan.refusal(plan.links)
        try:  # the work folder is made as the real run makes it, and removed again
            with work_folder(self.pack.with_name(f".{self.pack.name}.partial"), NAMES) as work:
                PackBuilder(plan, self.pack, work, threads=1, progress=lambda samples, size: None).rehearse(
                    restart=self.restart
                )
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


def _unheard(line: str) -> None:
    """Where nobody listens."""


def _texts(given: Mapping[str, Any] | Sequence[str]) -> tuple[str, ...]:
    """NAME=VALUE each, as the user would type it."""
    if isinstance(given, Mapping):
        return tuple(f"{name}={value}" for name, value in given.items())
    return tuple(given)


def _resize_text(resize: int | tuple[int, int] | None) -> str | None:
    """As options and manifests have it: N, or WxH."""
    if resize is None or isinstance(resize, int):
        return None if resize is None else str(resize)
    height, width = resize
    return f"{width}x{height}"


def _with_preset(name: PresetName, asked: ConversionOptions, schema: Schema) -> ConversionOptions:
    """The options with those of the preset where the user did not say another."""
    preset = presets.options(name, schema, formats.load(asked.to).Writer.codecs)
    fields = asked.fields or preset["fields"]
    typed = dict(asked.codecs)
    codecs = {field: codec for field, codec in dict(preset.get("codecs", ())).items() if field in fields} | typed
    return replace(asked, fields=fields, codecs=tuple(codecs.items()), resize=asked.resize or preset.get("resize"))


def _warnings(source: Source, asked: ConversionOptions) -> list[str]:
    """What may surprise: pictures that grow, and texts whose coordinates no longer fit."""
    found = []
    if source.unread and asked.on_error == "raise":
        found.append(f"{source.unread_message}: nothing will be packed; the rest is read to name every bad file")
    larger, looked = enlarged(source, asked)
    if larger:
        found.append(
            f"--resize {asked.resize} enlarges: {larger} of {looked} pictures looked at are smaller; "
            "these take more room, and show no more"
        )
    moves = " and ".join(
        word
        for word, given in (("--resize", asked.resize is not None), ("--exif rotate", asked.exif == "rotate"))
        if given
    )
    texts = [name for name in source.sidecars if source.schema[name].kind in ("text", "json", "bytes")]
    if moves and texts:
        found.append(
            f"{', '.join(texts)}: kept as they are: coordinates in them are of the source's pixels, which {moves} "
            "moves; kind boxes moves along"
        )
    alike = _alike_names(source)
    if alike:
        first, second = map(printable, alike[0])
        found.append(
            f"{counted(len(alike), 'file')} named as another but for case or the spelling of accents, such as "
            f"{second!r} and {first!r}: packer extract, which writes what every file system can hold, will refuse "
            "them; rename one"
        )
    return found


def _alike_names(source: Source) -> list[tuple[str, str]]:
    """Pairs of files that some file system takes for one, so that they cannot be extracted; none of a pack."""
    if source.is_encoded:
        return []
    seen, twice = set[int](), set[int]()  # hashes: a million names are a third of what they are as text
    for name in _file_names(source):
        key = hash(folded(name))
        (twice if key in seen else seen).add(key)
    names: dict[str, str] = {}
    found = []
    for name in _file_names(source) if twice else ():
        text = folded(name)
        if hash(text) in twice and names.setdefault(text, name) != name:
            found.append((names[text], name))
    return found


def _file_names(source: Source) -> Iterator[str]:
    begin = len(str(source.root)) + 1
    return (str(path)[begin:] for row in range(len(source)) for path in source.files(row))
