"""Plan: which samples go into which part and how each field is stored, settled before anything is written.

A plan depends on the source and the options alone, never on threads, time or machine.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer import __version__, codecs, formats
from packer.conversion.foreign_record_slots import with_slots
from packer.conversion.one_shape import with_one_shape
from packer.conversion.options import ConversionOptions
from packer.errors import BadInput, BadInputs, InvalidRequest, PackerError
from packer.geometry import Resize
from packer.geometry.random import shuffled
from packer.pack.extra_files import ChosenExtras, choose_extras
from packer.pack.label_orientation import HOW_TO_FRAME
from packer.schema import MOST_PIXELS, PIXEL_KINDS, Field, Schema, Shape
from packer.sources._extend.source_wrapper import subset
from packer.sources._trees.file_tree import most_file_bytes
from packer.sources.base import Source, relative_name

ORIENTATION = Field("orientation", "number", "number", "uint8", (), hidden=True)
MATRIX = Field("matrix", "number", "number", "float64", (2, 3), hidden=True)
SOURCE_SIZE = Field("source_size", "number", "number", "int64", (2,), hidden=True)
_MEASURED_AT_ONCE = 1024  # samples whose names and sizes are hashed by one call


@dataclass(frozen=True)
class Plan:
    """parts: first and last + 1 sample of each. sizes: source bytes of each sample. defaulted: fields whose codec was
    chosen here, so that a lossless file is not made lossy without being asked. extras: files of no sample. links: what
    is wrong with links that lead nowhere or out of the source, which reading them says again."""

    source: Source
    options: ConversionOptions
    schema: Schema
    parts: tuple[range, ...]
    sizes: npt.NDArray[np.int64]
    file_count: int
    digest: str
    fingerprint: str
    defaulted: frozenset[str]
    extras: ChosenExtras
    links: tuple[str, ...] = ()
    probed_sizes: tuple[tuple[int, int], ...] = ()

    @property
    def unread(self) -> Sequence[tuple[str, str]]:
        """Pictures in formats that nobody reads, for which nothing is packed: none where bad samples are left out."""
        return self.source.unread if self.options.on_error == "raise" else ()

    def refusal(self, reasons: Sequence[str]) -> BadInput:
        """What is raised for bad samples. reasons: of those that cannot be read, a line each; unread ones are added."""
        root, unread = self.source.root, len(self.unread)
        asked = f"{self.source.unread_message}; or --on-error skip, which leaves them out and lists them"
        if not reasons:
            return BadInput(f"{root}: {asked}")
        turned = [reason for reason in reasons if HOW_TO_FRAME in reason]
        lines = [*([asked] if unread else []), *reasons]
        if len(turned) > 1:
            lines = [*(line.replace(HOW_TO_FRAME, "") for line in lines), f"of all that are turned{HOW_TO_FRAME}"]
        count = f"{len(reasons) + unread} of {len(self.source) + unread} samples cannot be packed:"
        return BadInputs(f"{root}: {count}", reasons=lines)

    @cached_property
    def resize(self) -> Resize | None:
        """The geometry of --resize."""
        return Resize.parse(self.options.resize) if self.options.resize else None

    @property
    def enlarged(self) -> tuple[int, int]:
        """How many of a few samples --resize would store larger than they are, and how many were looked at."""
        resize = self.resize
        if resize is None:
            return 0, 0
        views = ((resize.view(height, width).size, height, width) for height, width in self.probed_sizes)
        larger = sum(new[0] > height or new[1] > width for new, height, width in views)
        return larger, len(self.probed_sizes)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """(key, reason) of all samples that are left out before anything is read."""
        return (*self.source.left_out, *self.source.unread)

    @property
    def moves_pixels(self) -> bool:
        """Whether stored pixels may lie elsewhere than in the source."""
        return self.options.resize is not None or self.options.exif == "rotate"

    @property
    def keeps_bytes(self) -> bool:
        """Whether every picture is stored as the bytes of its file, or as those of the pack that it comes from."""
        if self.source.decodes:
            return False
        pictures = [field for field in self.schema if field.kind in PIXEL_KINDS]
        if self.source.is_encoded:
            before = self.source.schema
            return not self.moves_pixels and all(field.codec == before[field.name].codec for field in pictures)
        return not self.moves_pixels and all(codecs.codec_class(field).keeps_files for field in pictures)

    @property
    def only_copies(self) -> bool:
        """Whether no picture is decoded at all."""
        return self.keeps_bytes and (self.options.validate == "header" or self.source.is_encoded)

    @property
    def source_bytes(self) -> int:
        """Bytes of all files that will be read."""
        return int(self.sizes.sum())

    def part_name(self, number: int) -> str:
        """Return the file name of a part."""
        return f"part-{number:05d}{formats.load(self.options.to).SUFFIX}"

    @cached_property
    def part_samples(self) -> Mapping[str, int]:
        """The number of samples of each part by its file name."""
        return {self.part_name(number): len(part) for number, part in enumerate(self.parts)}


def make_plan(source: Source, options: ConversionOptions) -> Plan:
    """Settle everything.

    Raises InvalidRequest for options that do not fit the source, BadInput for a file that vanished and where there is
    no sample.
    """
    source.folder.most_bytes = most_file_bytes(options.pixel_limit)
    if not len(source):
        if source.unread and options.on_error == "raise":
            raise BadInput(
                f"{source.root}: {source.unread_message}; or --on-error skip, which leaves them out and lists them"
            )
        more = f" and {len(source.left_out) - 1} more" if len(source.left_out) > 1 else ""
        reason = "".join(f": left out: {key}: {reason}{more}" for key, reason in source.left_out[:1])
        raise BadInput(f"{source.root}: no samples to pack{reason}; packer convert --dry-run shows what was found")
    if options.resize and not any(field.kind in PIXEL_KINDS for field in source.schema):
        there = ", ".join(f"{field.name} ({field.kind})" for field in source.schema if not field.hidden)
        raise InvalidRequest(f"{source.root}: --resize {options.resize}: no field is a picture: {there}; leave it away")
    formats.load(options.to)
    if options.settled_order == "shuffled":
        if source.folder.unpacks_again:
            raise InvalidRequest(
                f"{source.named}: is compressed as one: each sample in a shuffled order would unpack it again; gunzip "
                "it first, or keep its order with --order stored"
            )
        source = subset(source, shuffled(options.order_seed, 0, len(source)).tolist())
    probe = _probed(source) if options.resize else _Probe()
    schema, defaulted = _stored_schema(source, options, lossy=probe.lossy)
    extras = choose_extras(source, most_bytes=options.extras_bytes)
    sizes, files, digest, fingerprint, links = _measure(source, options, extras)
    is_whole = options.part_bytes is None and formats.load(options.to).Writer.one_part
    return Plan(
        source=source,
        options=options,
        schema=schema,
        parts=tuple(_cut(sizes, 0 if is_whole else options.part_limit(int(sizes.sum())))),
        sizes=sizes,
        file_count=files,
        digest=digest,
        fingerprint=fingerprint,
        defaulted=defaulted,
        extras=extras,
        links=links,
        probed_sizes=probe.sizes,
    )


class _Probe(NamedTuple):
    """What a few samples say before --resize: sizes of the first picture, image fields whose files are mostly lossy."""

    sizes: tuple[tuple[int, int], ...] = ()
    lossy: frozenset[str] = frozenset()


def _probed(source: Source) -> _Probe:
    """Look at a few samples, those that can be read; each picture is read once."""
    from packer.images import sniff  # only a resize needs it

    main = next((field.name for field in source.schema if field.kind in PIXEL_KINDS), None)
    votes: dict[str, int] = {}
    sizes: list[tuple[int, int]] = []
    for index in source.probes():
        with suppress(PackerError):  # the conversion itself reports bad files, all of them
            for field in source.schema:
                if field.kind != "image" and field.name != main:
                    continue
                value = source.value(index, field.name)
                if isinstance(value, bytes):
                    header = sniff(value, MOST_PIXELS)
                    size = header.height, header.width
                    if field.kind == "image":
                        votes[field.name] = votes.get(field.name, 0) + (1 if header.lossy else -1)
                else:
                    size = value.shape[0], value.shape[1]
                if field.name == main:
                    sizes.append(size)
    return _Probe(tuple(sizes), frozenset(name for name, vote in votes.items() if vote > 0))


def _stored_schema(
    source: Source, options: ConversionOptions, *, lossy: frozenset[str]
) -> tuple[Schema, frozenset[str]]:
    """The schema of the pack, and the fields whose codec nobody named. lossy: image fields whose files mostly are."""
    moves = options.resize is not None or options.exif == "rotate"
    chosen = dict(options.codecs)
    if source.is_encoded:
        _check_repacking(source, options)
    noted = (ORIENTATION, MATRIX, SOURCE_SIZE)  # a pack has them already: they are settled anew below
    wanted = [field for field in _wanted(source.schema, options.fields) if field not in noted]
    if unknown := sorted(set(chosen) - {field.name for field in wanted}):
        names = ", ".join(field.name for field in wanted)
        raise InvalidRequest(f"--codec for field {unknown[0]!r}, which is not packed; fields: {names}")
    writer = formats.load(options.to).Writer
    left_out = kept_files(wanted) if moves else []
    stored: list[Field] = []
    defaulted = set()
    in_slots = with_slots(Schema(tuple(wanted)), writer.slots, options.slots, to=options.to)
    of_tool = writer.pictures_of_tool(codecs.described(in_slots))
    in_file_slots = {slot.name for slot in writer.slots if slot.is_file}
    # A pack's raw pixels are what --resize made; those of a source are as its fields ask for, but for the picture.
    as_files = [name for name in of_tool if source.is_encoded or in_slots[name].slot in in_file_slots]
    preferred = [field.name for field in wanted if writer.codec_of(field) is not None and field.name not in chosen]
    for field in wanted:
        if field in left_out:
            continue
        if field.name not in chosen and options.resize and field.kind in PIXEL_KINDS:
            defaulted.add(field.name)
        wished = chosen.get(field.name) or writer.codec_of(field)  # by the user, else by the format
        if wished is None:
            wished = _default_codec(field, options, lossy)
            is_for_others = options.resize is not None or field.name in as_files
            if is_for_others and wished.partition(":")[0] == "raw":
                wished = writer.instead_of_raw.get(field.kind, wished)
        stored.append(_with_codec(field, wished, options))
    if writer.one_shape:
        stored = with_one_shape(source, options, stored, settled=preferred, rows=source.probes())
    if any(field.kind == "image" for field in stored):
        stored.append(ORIENTATION)
    if (moves or MATRIX in source.schema.fields) and any(field.kind in PIXEL_KINDS for field in stored):
        stored += [MATRIX, SOURCE_SIZE]
    settled = with_slots(Schema(tuple(stored)), writer.slots, options.slots, to=options.to)
    settled = codecs.described(settled)
    if (reason := writer.refusal(settled)) is not None:
        raise InvalidRequest(reason)
    return settled, frozenset(defaulted)


def kept_files(fields: Iterable[Field]) -> list[Field]:
    """Return the hidden fields of files kept verbatim, which contradict pixels that a conversion moves."""
    return [field for field in fields if field.hidden and field.kind == "bytes"]


def _check_repacking(source: Source, options: ConversionOptions) -> None:
    """Raise InvalidRequest for what can only be done with the original files."""
    if options.exif == "rotate":
        raise InvalidRequest(
            f"{source.root}: --exif rotate is for original files; pack the original folder again with it"
        )
    for name, codec in options.codecs:
        if name not in source.schema:
            continue
        field = source.schema[name]
        if codecs.codec_class(replace(field, codec=codec)).keeps_files and not codecs.codec_class(field).keeps_files:
            raise InvalidRequest(
                f"{source.root}: --codec {name}={codec}: the pack holds {field.codec}, not the file's bytes; pack the "
                "original folder again"
            )


def _wanted(schema: Schema, names: tuple[str, ...] | None) -> list[Field]:
    if names is None:
        return list(schema)
    missing = [name for name in names if name not in schema]
    if missing:
        raise InvalidRequest(f"--fields: the source has no field {missing[0]!r}; there are: {', '.join(schema.names)}")
    return [field for field in schema if field.name in names or field.name == "key"]


def _default_codec(field: Field, options: ConversionOptions, lossy: frozenset[str]) -> str:
    if options.resize is None or field.kind not in PIXEL_KINDS:
        return field.codec
    return "jpeg:95" if field.kind == "image" and field.name in lossy else "raw"


def _with_codec(field: Field, codec: str, options: ConversionOptions) -> Field:
    changed = replace(field, codec=codec, slot=None)  # of the pack that it comes from
    if field.kind in PIXEL_KINDS:  # of pictures as they are; smaller ones need no limit of their own
        limit = field.max_pixels if options.max_pixels is None else options.max_pixels
        changed = replace(changed, max_pixels=None if options.resize else limit)
    outgrown = options.resize is not None and None not in (field.shape or (None,))  # of a pack resized once before
    if (codec != field.codec or outgrown) and field.kind in PIXEL_KINDS:
        resize = Resize.parse(options.resize) if options.resize else None
        size: Shape = resize.fixed if resize and resize.fixed else (None, None)
        shape = (*size, 3) if field.kind == "image" else size
        untyped = "float32" if codec == "raw" else None  # other codecs hold a dtype per value
        dtype = field.dtype or untyped if field.kind == "depth" else "uint16" if field.is_wide_mask else "uint8"
        changed = replace(changed, dtype=dtype, shape=shape)
    completed = codecs.codec_class(changed).complete(changed)
    codecs.make(completed)  # refuses a kind or an argument that it cannot hold
    return completed


def _measure(
    source: Source, options: ConversionOptions, extras: ChosenExtras
) -> tuple[npt.NDArray[np.int64], int, str, str, tuple[str, ...]]:
    """Source bytes per sample, number of files, digest over names and sizes, fingerprint with times and options, links
    that cannot be followed."""
    identity = hashlib.sha256(json.dumps([__version__, options.to_json()], sort_keys=True).encode())
    known = source.provenance()
    if known is not None:
        identity.update(known.identity)
        return known.sizes, known.files, known.digest, identity.hexdigest(), ()
    sizes = np.zeros(len(source), np.int64)
    content = hashlib.sha256()
    count = 0
    root = str(source.folder.root)
    for path in source.tables():
        name = relative_name(path, root)
        content.update(os.fsencode(name) + b"\0" + hashlib.sha256(source.read(name, is_table=True)).digest())
    links = _Links(source)
    large: dict[str, None] = {}  # files of many records, in order
    for first in range(0, len(sizes), _MEASURED_AT_ONCE):
        contents, times, found = bytearray(), bytearray(), []
        for index in range(first, min(first + _MEASURED_AT_ONCE, len(sizes))):
            contents += os.fsencode(source.key(index)) + b"\0"
            extent = source.extent(index)
            if extent is not None:
                contents += b"%s\0%d\0%d\n" % (os.fsencode(extent.name), extent.offset, extent.size)
                found.append(extent.size)
                large[extent.name] = None
                continue
            total = 0
            for name in source.file_names(index):
                size, time_ns = links.state(name)
                contents += b"%s\0%d\n" % (os.fsencode(name), size)
                times += b"%d\n" % time_ns
                total += size
                count += 1
            found.append(total)
        sizes[first : first + len(found)] = found
        content.update(contents)
        identity.update(times)
    large |= dict.fromkeys(source.more_files())
    for name in large:
        identity.update(b"%d\0%d\n" % links.state(name))
    count += len(large)
    for path_text, size_bytes in extras.sizes.items():
        content.update(b"%s\0%d\n" % (os.fsencode(path_text), size_bytes))
    identity.update(b"".join(b"%d\n" % time_ns for time_ns in extras.identity))
    identity.update(content.digest())
    identity.update(json.dumps(source.schema.to_json(), sort_keys=True).encode())
    return sizes, count, content.hexdigest(), identity.hexdigest(), tuple(links.reasons)


class _Links:
    """Sizes of the samples' files, and which of these are links that cannot be followed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folder = source.folder
        self.reasons: list[str] = []

    def state(self, name: str) -> tuple[int, int]:
        """Size and time of a file of a sample; 0 and the link's own time for a link that leads nowhere or out."""
        try:
            folder, inside = self._source.place(name) if self._source.outside else (self._folder, name)
            state = folder.state(inside)
        except BadInput as error:
            path = self._folder.root / name
            if not path.is_symlink():
                raise BadInput(f"{path}: cannot read, it was there before; the folder changed, run again") from error
            self.reasons.append(str(error))
            return 0, path.lstat().st_mtime_ns
        return state.size_bytes, state.time_ns


def _cut(sizes: npt.NDArray[np.int64], part_bytes: int) -> Iterator[range]:
    first, filled = 0, 0
    for index, size in enumerate(sizes.tolist()):
        if part_bytes and index > first and filled + size > part_bytes:
            yield range(first, index)
            first, filled = index, 0
        filled += size
    yield range(first, len(sizes))
