"""Append: adds the samples of a source that are not in a pack to this pack.

The new pack is built in a work folder and swapped with the old pack, as by `convert` with `overwrite`. Its first parts
are hard links to the parts of the old pack, because parts never change. Further parts contain the new samples.

A sample whose key is in the pack is encoded, and the CRC-32 of each value is compared with the index. An image that the
pack stores unchanged is read for this comparison, but not decoded.
"""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from packer.conversion import engines
from packer.conversion.build_part import encoder_of
from packer.conversion.convert import ConversionSummary, request_of, run_conversion
from packer.conversion.encode import Failure
from packer.conversion.engines.base import EngineOptions
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import Plan, make_plan
from packer.conversion.publication import FolderPublication, copy_part, read_plan
from packer.conversion.work_folder_names import NAMES, PACK
from packer.errors import BadInputs, CorruptPack, InvalidRequest, PackerError
from packer.files.progress_bar import ProgressBar
from packer.files.work_folder import WorkFolder, beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import APPENDED, EXTRAS, INDEX, Manifest, conversions
from packer.pack.reader import Pack
from packer.pack.sample_index import file_dtypes, merge
from packer.schema import Field
from packer.sources import NamedSource
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource, subset
from packer.sources._message_texts import counted, listed
from packer.sources._options import SourceOptions
from packer.sources.base import Sample, Source
from packer.sources.objects._object_rows import Indexable
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_checks import check_arguments
from packer.system.parallel import ordered_map, usable_cores
from packer.system.progress_callback import ProgressCallback


@dataclass(frozen=True)
class AppendSummary(ConversionSummary):
    """The result of `append`. `samples` and `parts` count the complete pack; `bytes_out` is the size of new files.

    Attributes:
        appended: the number of samples that were added.
    """

    appended: int = 0


def append(
    pack: str | PathLike[str],
    source: str | PathLike[str] | NamedSource | Source | Indexable | Iterable[Any],
    *,
    kind: str = "auto",
    fields: Sequence[str] | Mapping[str, str | Field] | None = None,
    key: str | Sequence[str] | Callable[[int], str] | None = None,
    sidecars: Mapping[str, str] | Sequence[str] = (),
    mask_colors: str | PathLike[str] | Mapping[str, str | PathLike[str]] | Sequence[str] = (),
    unknown_colors: Literal["error", "void"] | None = None,
    splits: Mapping[str, str | PathLike[str] | float] | Sequence[str] = (),
    split_by: str | None = None,
    seed: int = 0,
    threads: int | None = None,
    restart: bool = False,
    progress: ProgressCallback | bool | None = None,
    on_note: Callable[[str], object] | None = None,
    **source_options: Unpack[SourceOptions],
) -> AppendSummary:
    """Add the samples of a source that are not in a pack to the pack.

    Existing parts are not written again. Open datasets keep the samples that they have. If the call is interrupted, the
    pack does not change, and the same call continues. Codecs, image sizes and other options are those of the pack.
    Classes are matched by name, and new classes get the next numbers. Extras of the source are not added.

    Args:
        pack: The folder of the pack.
        source: The source, as in `packer.convert`. A sample whose key is in the pack must have equal content.
        kind: The name of the source, as in `packer.convert`.
        fields: For a Python object: as in `packer.convert`.
        key: For a Python object: as in `packer.convert`.
        sidecars: Files next to the images, as in `packer.convert`.
        mask_colors: The mask value of each color, as in `packer.convert`.
        unknown_colors: "void" or "error", as in `packer.convert`.
        splits: For each split, a file that lists the samples, or the fraction of all samples of the source.
        split_by: The name of a field. Samples with an equal value of this field are in the same split.
        seed: The seed of splits by fractions.
        threads: The number of threads; None for all usable cores.
        restart: True discards the finished parts of an interrupted call.
        progress: A function, called after each sample, or True for a progress bar, as in `packer.convert`.
        on_note: A function, called with each note for the user immediately.
        source_options: Options of the source, such as depth_from="pcd".

    Raises:
        InvalidRequest: The arguments or the fields of the source do not fit the pack.
        BadInputs: Samples are bad, or differ from the pack; `reasons` lists all of them.
        CorruptPack: The pack is damaged.
        StorageError: A disk fails.
        Locked: Another process writes the pack.
    """
    given = dict(locals())
    check_arguments(given, {**append.__annotations__, "source": object, "source_options": object})
    target, started = path_or_url(pack), time.monotonic()
    if isinstance(target, URLPath):
        raise InvalidRequest(f"{pack}: only a pack in a folder can grow; packer stage copies a pack to a folder")
    target = target.absolute()
    notes: list[str] = []

    def note(line: str) -> None:
        notes.append(line)
        if on_note is not None:
            on_note(line)

    manifests.read_pack(target)  # before a folder is made next to it
    with (
        ProgressBar(quiet=progress is not True) as bar,
        work_folder(beside(target), NAMES) as work,
        closing(Pack(target)) as old,
    ):
        if not file_dtypes(old.schema).keys() <= {Path(file.name).stem for file in old.manifest.index}:
            raise InvalidRequest(
                f"{target}: an earlier version of packer wrote it; packer convert OLD NEW makes a new one"
            )
        _clear_replaced(work, old.manifest)
        options = options_of(old)
        request = request_of({**given, "pack": target, "labels_orientation": options.labels_orientation})
        found, options = replace(request, options=options, overwrite=True).open(note)
        plan = _plan_of_new(old, found, options, threads=threads or usable_cores(), note=note)
        if plan is None:
            summary = _summary(old.manifest, old.manifest, ConversionSummary(0, 0, 0, 0, 0.0, ""))
        else:
            publication = AppendPublication(plan, target, work, old.manifest)
            tell = bar if isinstance(progress, bool) else progress
            engine = engines.load("local").Engine(EngineOptions())
            made = run_conversion(publication, engine, threads=threads, restart=restart, tell=tell)
            for line in made.notes:
                note(line)
            summary = _summary(publication.published, old.manifest, made)
    return replace(summary, seconds=time.monotonic() - started, notes=notes)


def _summary(manifest: Manifest, old: Manifest, made: ConversionSummary) -> AppendSummary:
    size = sum(part.bytes for part in manifest.parts[len(old.parts) :])
    size += sum(file.bytes for file in manifest.index if manifest != old)
    whole = {"samples": manifest.samples, "parts": len(manifest.parts), "pack_id": manifest.pack_id, "bytes_out": size}
    return AppendSummary(**{**vars(made), **whole}, appended=manifest.samples - old.samples)


def _clear_replaced(work: WorkFolder, manifest: Manifest) -> None:
    """Remove what an earlier call left that was killed after it had swapped the packs."""
    if read_plan(work) is not None:  # removed first
        try:
            found = manifests.read(work.inside / PACK)
        except PackerError:  # absent or incomplete: the parts of an unfinished call
            return
        if not set(found.parts) < set(manifest.parts):
            return
    work.clear()


def options_of(pack: Pack) -> ConversionOptions:
    """Return the options that made a pack, without extras. Malformed options in the manifest raise CorruptPack.

    If the pack was converted several times, later conversions have priority. Only the first one validated the images.
    """
    usual, history = ConversionOptions(to=pack.manifest.format).to_json(), conversions(pack.manifest.options)
    names = {field.name for field in dataclasses.fields(ConversionOptions)} - {"source"}
    found: dict[str, Any] = {}
    codecs: dict[str, str] = {}
    try:
        for each in history:
            found |= {name: each[name] for name in names & each.keys() if each[name] != usual.get(name)}
            codecs |= each.get("codecs", {})
        found["codecs"] = tuple((name, codec) for name, codec in codecs.items() if name in pack.schema)
        found["slots"] = tuple(found.get("slots", {}).items())
        found["fields"] = tuple(found["fields"]) if "fields" in found else None
        found |= {"to": pack.manifest.format, "extras_bytes": 0, "validate": history[0].get("validate", "full")}
        return ConversionOptions(**found)
    except (AttributeError, TypeError, ValueError) as error:
        raise CorruptPack(f"{pack.folder}: hostile or damaged options: {error!s:.200}; pack again") from error


# ---- what is new


def _plan_of_new(
    pack: Pack, source: Source, options: ConversionOptions, *, threads: int, note: Callable[[str], object]
) -> Plan | None:
    """Return the plan for the samples that are not in the pack, or None without such samples.

    Raises InvalidRequest for fields that differ from those of the pack, and BadInputs for samples that differ.
    """
    origin = source.provenance()
    if source.is_encoded and origin is not None:
        if _image_checks(origin.asked["options"]) != _image_checks(pack.manifest.options):
            raise InvalidRequest(f"{source.root}: was made with other options --exif or --validate than {pack.folder}")
        options = replace(options, exif="ignore")
    source = _numbered_as(pack, source, note)
    found = [pack.index.find(source.key(row)) for row in range(len(source))]
    new = [row for row, place in enumerate(found) if place is None]
    known = {row: place for row, place in enumerate(found) if place is not None}
    if known:
        note(f"{counted(len(known), 'sample')} with keys of the pack, whose content is compared")
        light = replace(options, validate="header", order="stored")
        changed = _changed(pack, _planned(pack, source, light, list(known)), list(known.values()), threads)
        if changed:
            raise BadInputs(
                f"{source.root}: {counted(len(changed), 'sample')} with other content than in {pack.folder}: give the "
                "files other names, remove the samples from the pack first, or convert everything again:",
                reasons=changed,
            )
    is_unreadable = bool(source.unread) and options.on_error == "error"
    return _planned(pack, source, options, new) if new or is_unreadable else None


def _image_checks(options: dict[str, Any]) -> tuple[bool, object]:
    """Return whether the images of a pack were rotated, and how they were validated. options: of the manifest."""
    history = conversions(options)
    return any(each.get("exif") == "rotate" for each in history), history[0].get("validate")


def _planned(pack: Pack, source: Source, options: ConversionOptions, rows: Sequence[int]) -> Plan:
    plan = make_plan(subset(source, rows), options)
    _check_fields(pack, plan)
    return replace(
        plan,
        schema=plan.schema.select(pack.schema.names),
        fingerprint=_sha256(f"{pack.manifest.pack_id} {plan.fingerprint}"),
        first_part=len(pack.manifest.parts),
    )


def _check_fields(pack: Pack, plan: Plan) -> None:
    """Raise InvalidRequest for the first field that differs. The plan may have further classes."""
    for name in dict.fromkeys((*pack.schema.names, *plan.schema.names)):
        ours, theirs = ({**schema[name].to_json()} if name in schema else {} for schema in (pack.schema, plan.schema))
        classes = ours.get("classes", [])
        if classes and theirs.get("kind") == "number" and theirs.get("classes", [])[: len(classes)] == classes:
            theirs["classes"] = classes
        for attribute in {**ours, **theirs}:
            value, expected = theirs.get(attribute), ours.get(attribute)
            if value != expected:
                what = f"{attribute} {value!r:.200}, the pack has {expected!r:.200}"
                if attribute == "name":
                    what = "the source has it, the pack does not" if theirs else "the pack has it, the source does not"
                raise InvalidRequest(
                    f"{plan.source.root}: field {name!r}: {what}; append a source with the fields and options of the "
                    f"pack, which packer info {pack.folder} shows, or convert everything again"
                )


def _changed(pack: Pack, plan: Plan, places: Sequence[int], threads: int) -> list[str]:
    """Return a line for each sample of the plan whose encoded values are not those of the pack at `places`."""
    encode = encoder_of(plan)
    count = max(plan.source.folder.reads_at_once, 1 if plan.only_copies else threads)

    def problem(number: int) -> str | None:
        result = encode(number)
        if isinstance(result, Failure):
            return None if plan.options.on_error == "skip" else result.reason
        values = zip(plan.schema.names, result.crc32s, strict=True)
        differing = [name for name, crc32 in values if crc32 != pack.index.crc32(places[number], name)]
        return f"{plan.source.key(number)}: another {listed(differing)}" if differing else None

    found = ordered_map(problem, range(len(places)), threads=count)
    return [line for line in found if line is not None]


class _ClassNumbers(AddedFields):
    """Fields with the class numbers of a pack."""

    fields = ()

    def __init__(self, changed: Mapping[str, Field], numbers: Mapping[str, npt.NDArray[np.int64]]) -> None:
        """Store the changed fields and, for each class number of the source, the number in the pack."""
        self.changed = tuple(changed.values())
        self.needs = tuple(changed)
        self._numbers = numbers

    def values(self, sample: Sample, source: Source, row: int, names: Iterable[str]) -> Sample:
        found = {}
        for name in names:
            values, numbers = np.asarray(sample[name]), self._numbers[name]
            is_class = (values >= 0) & (values < len(numbers))  # other values mean no class
            found[name] = np.where(is_class, numbers[np.where(is_class, values, 0)], values)[()]
        return found


def _numbered_as(pack: Pack, source: Source, note: Callable[[str], object]) -> Source:
    """Return the source with the class numbers of the pack, matched by name. New classes get the next numbers.

    Packs and Python objects keep their numbers, and `_check_fields` refuses classes that differ.
    """
    changed: dict[str, Field] = {}
    numbers: dict[str, npt.NDArray[np.int64]] = {}
    for field in source.schema if source.provenance() is None else ():
        known = pack.schema[field.name].classes if field.name in pack.schema else None
        if field.kind == "number" and field.classes and known:
            if new := [name for name in field.classes if name not in known]:
                note(f"{field.name}: {counted(len(new), 'class')} that the pack does not have yet: {listed(new)}")
            places = {name: number for number, name in enumerate((*known, *new))}
            is_unique = len(places) == len(known) + len(new) and len(set(field.classes)) == len(field.classes)
            if is_unique and tuple(places) != field.classes:
                changed[field.name] = replace(field, classes=tuple(places))
                numbers[field.name] = np.asarray([places[name] for name in field.classes], np.int64)
    if not changed:
        return source
    addition, rows = _ClassNumbers(changed, numbers), range(len(source))
    return DerivedSource(source, addition, rows=rows, left_out=(), note="classes of the pack")


# ---- the new pack


class AppendPublication(FolderPublication):
    """Publication of the parts of a pack together with new parts.

    Attributes:
        published: the manifest of the pack, which `publish` replaces.
    """

    def __init__(self, plan: Plan, target: Path, work: WorkFolder, old: Manifest) -> None:
        super().__init__(plan, target, work, overwrite=True)
        self.published = old

    def publish(self, manifest: Manifest) -> None:
        """Link the old parts, write the index of all samples, and swap the packs. manifest: of the new samples."""
        old = self.published
        with self.work.folder(PACK) as pack:
            pack.remove(INDEX)  # of the new samples
        for name in (*(part.name for part in old.parts), *([EXTRAS] if old.extras else [])):
            copy_part(self.target / name, self.pack / name, links=True)
        pieces = [self.target / INDEX, *(self.pieces / name for name in self.plan.part_samples)]
        index = merge(pieces, self.pack, self.plan.schema)
        self.published = replace(self._joined(old, manifest), index=index).sealed()
        self.published.check()
        if manifests.read(self.target) != old:
            raise InvalidRequest(f"{self.target}: changed while samples were appended; run again")
        super().publish(self.published)

    def _joined(self, old: Manifest, new: Manifest) -> Manifest:
        source = self.plan.source
        tried = {*(source.key(row) for row in range(len(source))), *(key for key, _ in new.skipped)}
        sums = {name: old.source.get(name, 0) + new.source.get(name, 0) for name in ("samples", "files", "bytes")}
        digests = f"{old.source.get('digest')} {new.source.get('digest')}"
        entry = {"after": old.pack_id, "source": new.options["source"]}
        return replace(
            old,
            samples=old.samples + new.samples,
            schema=new.schema,
            options=_with_entry(old.options, entry),
            source={**_with_entry(old.source, new.source), **sums, "digest": _sha256(digests)},
            parts=(*old.parts, *new.parts),
            written_by=new.written_by,
            skipped=(*(item for item in old.skipped if item[0] not in tried), *new.skipped),
            incomplete=(*old.incomplete, *new.incomplete),
        )


def _with_entry(data: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, APPENDED: [*data.get(APPENDED, ()), entry]}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
