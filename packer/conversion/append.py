"""Append: adds samples of a source to a pack. Samples whose keys are already in the pack are only compared.

The new pack is built in a work folder and then replaces the old pack, as in `convert` with `overwrite`. Its first parts
are hard links to the parts of the old pack, because parts never change. Further parts contain the new samples.

A sample whose key is in the pack is encoded, and the CRC-32 of each value is compared with the index. A difference is
an error. An image that the pack stores unchanged is read for this comparison, but not decoded.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from packer.conversion.build_part import encoder_of
from packer.conversion.convert import ConversionSummary, Note, reported, request_of, run_conversion
from packer.conversion.encode import Failure
from packer.conversion.joined_publication import JoinedPublication
from packer.conversion.options import ConversionOptions, recorded_options
from packer.conversion.plan import Plan, make_plan
from packer.conversion.publication import clear_replaced
from packer.conversion.work_folder_layout import NAMES
from packer.errors import BadInputs, InvalidRequest
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import Manifest, conversions
from packer.pack.reader import Pack
from packer.pack.sample_index import file_forms
from packer.schema import Field
from packer.sources import NamedSource
from packer.sources._extend.source_wrapper import AddedFields, DerivedSource, subset
from packer.sources._message_texts import counted, listed
from packer.sources._option_table import SourceOptions
from packer.sources.base import Sample, Source
from packer.sources.objects._object_rows import Indexable
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_types import check_arguments
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
    """Add those samples of a source to a pack whose keys are not in the pack.

    Existing parts are not written again. Open datasets keep the samples that they have. If the call is interrupted, the
    pack does not change, and repeating the call continues. Codecs, image sizes and other options are those of the pack.
    Classes are matched by name, and new classes get the next numbers. Extras of the source are not added.

    Args:
        pack: The folder of the pack.
        source: The source, as in `packer.convert`. A sample whose key is in the pack must have equal content.
        kind: The name of the source, as in `packer.convert`.
        fields: For a Python object: its fields and their kinds, as in `packer.convert`.
        key: For a Python object: the keys of its samples, as in `packer.convert`.
        sidecars: Files next to the images, as in `packer.convert`.
        mask_colors: The mask value of each color, as in `packer.convert`.
        unknown_colors: "void" or "error", as in `packer.convert`.
        splits: For each split, a file that lists the samples, or the fraction of all samples of the source.
        split_by: The name of a field. Samples with an equal value of this field are in the same split.
        seed: The seed of splits by fractions.
        threads: The number of threads; None for all usable cores.
        restart: True discards the finished parts of an interrupted call. False uses them.
        progress: A function, called after each sample, or True for a progress bar, as in `packer.convert`.
        on_note: A function, called with each note for the user immediately.
        source_options: Options of the source, such as depth_from="pcd".

    Raises:
        InvalidRequest: The arguments or the fields of the source do not fit the pack.
        BadInputs: Samples are bad, or differ from samples of the pack with equal keys; `reasons` lists all of them.
        CorruptPack: The pack is damaged.
        StorageError: A disk fails.
        Locked: Another process writes the pack.
    """
    given = dict(locals())
    check_arguments(given, {**append.__annotations__, "source": object, "source_options": object})
    target = path_or_url(pack)
    if isinstance(target, URLPath):
        raise InvalidRequest(f"{pack}: only a pack in a folder can grow; packer stage copies a pack to a folder")
    target = target.absolute()
    manifest = manifests.read_pack(target)  # before a folder is made next to it
    if not file_forms(manifest.schema).keys() <= manifest.index_names:
        raise InvalidRequest(f"{target}: an earlier version of packer wrote it; packer convert OLD NEW makes a new one")

    def appended(note: Note, tell: ProgressCallback | None) -> AppendSummary:
        with work_folder(beside(target), NAMES) as work, closing(Pack(target)) as old:
            if not restart:
                clear_replaced(work)
            options = recorded_options(old)
            request = request_of({**given, "pack": target, "labels_orientation": options.labels_orientation})
            found, options = replace(request, options=options, overwrite=True).open(note)
            plan = _plan_of_new(old, found, options, threads=threads or usable_cores(), note=note)
            if plan is None:
                return _summary(old.manifest, old.manifest, ConversionSummary(0, 0, 0, 0, 0.0, ""))
            publication = JoinedPublication(plan, target, work, {target: old.manifest}, overwrite=True)
            made = run_conversion(publication, threads=threads, restart=restart, tell=tell)
            return _summary(publication.published, old.manifest, made)

    return reported(appended, progress=progress, on_note=on_note)


def _summary(manifest: Manifest, old: Manifest, made: ConversionSummary) -> AppendSummary:
    files = {*manifest.listed.values()} - {*old.listed.values()}
    whole = {"samples": manifest.samples, "parts": len(manifest.parts), "pack_id": manifest.pack_id}
    return AppendSummary(
        **{**vars(made), **whole, "bytes_out": sum(file.bytes for file in files)},
        appended=manifest.samples - old.samples,
    )


# ---- what is new


def _plan_of_new(pack: Pack, source: Source, options: ConversionOptions, *, threads: int, note: Note) -> Plan | None:
    """Return the plan for the samples that are not in the pack, or None without such samples.

    Raises InvalidRequest if fields differ from the pack, and BadInputs if samples with equal keys differ.
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
                f"{source.root}: {counted(len(changed), 'sample')} with other content than in {pack.folder}: give them "
                "other keys, which are names of files or key=, or convert everything again:",
                reasons=changed,
            )
    is_unreadable = bool(source.unread) and options.on_error == "error"
    return _planned(pack, source, options, new) if new or is_unreadable else None


def _image_checks(options: dict[str, Any]) -> tuple[bool, object]:
    """Return whether images were rotated, and how they were validated, from the options in a manifest."""
    history = conversions(options)
    return any(each.get("exif") == "rotate" for each in history), history[0].get("validate")


def _planned(pack: Pack, source: Source, options: ConversionOptions, rows: Sequence[int]) -> Plan:
    plan = make_plan(subset(source, rows), options)
    _check_fields(pack, plan)
    return replace(
        plan,
        schema=plan.schema.select(pack.schema.names),
        fingerprint=hashlib.sha256(f"{pack.manifest.pack_id} {plan.fingerprint}".encode()).hexdigest(),
        first_part=len(pack.manifest.parts),
    )


def _check_fields(pack: Pack, plan: Plan) -> None:
    """Raise InvalidRequest if a field of the plan differs from the pack. The plan may add classes at the end."""
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
                    f"pack, which packer info {pack.folder} shows, or join packs by packer collect"
                )


def _changed(pack: Pack, plan: Plan, places: Sequence[int], threads: int) -> list[str]:
    """Return a line for each sample i of the plan that differs from row `places[i]` of the pack, or is bad."""
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
    """Fields of a source, with class numbers changed to those of a pack."""

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


def _numbered_as(pack: Pack, source: Source, note: Note) -> Source:
    """Return the source with the class numbers of the pack, matched by name. New classes get the next numbers.

    A source that is a pack or a Python object keeps its numbers. `_check_fields` refuses classes that differ.
    """
    changed: dict[str, Field] = {}
    numbers: dict[str, npt.NDArray[np.int64]] = {}
    for field in source.schema if source.provenance() is None else ():
        known = pack.schema[field.name].classes if field.name in pack.schema else None
        if field.kind == "number" and field.classes and known:
            names = (*known, *(name for name in field.classes if name not in known))
            if new := names[len(known) :]:
                note(f"{field.name}: {counted(len(new), 'class')} that the pack does not have yet: {listed(new)}")
            if field.classes[: len(known)] != known:
                changed[field.name] = replace(field, classes=names)
                numbers[field.name] = np.asarray([names.index(name) for name in field.classes])
    if not changed:
        return source
    addition, rows = _ClassNumbers(changed, numbers), range(len(source))
    return DerivedSource(source, addition, rows=rows, left_out=(), note="classes of the pack")
