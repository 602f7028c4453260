"""Plan: the fields of a pack and the samples of each part. A plan depends only on the source and the options."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from packer import __version__, codecs, formats
from packer.conversion.options import ConversionOptions
from packer.conversion.stored_schema import make_stored_schema
from packer.errors import BadInput, BadInputs, InvalidRequest, PackerError
from packer.geometry import Resize
from packer.geometry.random_numbers import shuffled
from packer.pack.extra_files import ChosenExtras, choose_extras
from packer.pack.label_orientation import HOW_TO_FRAME
from packer.pack.manifest import VERSION
from packer.schema import MOST_PIXELS, PIXEL_KINDS, Schema
from packer.sources._extend.source_wrapper import subset
from packer.sources._trees.file_tree import most_file_bytes
from packer.sources.base import Source, probe_indices

_MEASURED_AT_ONCE = 1024  # samples whose names and sizes are hashed by one call


@dataclass(frozen=True)
class Plan:
    """Plan of a conversion.

    Attributes:
        source: the source, in the order of the pack.
        options: the options.
        schema: the fields of the pack.
        parts: for each part, the range of sample indices. Empty if the samples are not known in advance.
        sizes: int64 (N,): source bytes of each sample.
        file_count: the number of files of the source.
        digest: the SHA-256 of the names and sizes of all files.
        fingerprint: the SHA-256 of `digest`, file times, options and the version of packer. An interrupted conversion
            continues only if its plan had the same fingerprint.
        defaulted: with `resize`, the names of image fields whose codec the user did not choose. Lossless images of
            these fields stay lossless.
        extras: the files to pack that belong to no sample.
        links: one error message for each symbolic link that cannot be followed.
        probed_sizes: with `resize`, `(height, width)` of the main image of a few samples; otherwise empty.
        first_part: the number in the name of the first part; above 0 if the parts are added to a pack.
    """

    source: Source
    options: ConversionOptions
    schema: Schema
    parts: tuple[range, ...] = ()
    sizes: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    file_count: int = 0
    digest: str = ""
    fingerprint: str = ""
    defaulted: frozenset[str] = frozenset()
    extras: ChosenExtras = field(default_factory=ChosenExtras)
    links: tuple[str, ...] = ()
    probed_sizes: tuple[tuple[int, int], ...] = ()
    first_part: int = 0

    @property
    def unread(self) -> Sequence[tuple[str, str]]:
        """`(key, reason)` for each unreadable image that ends the conversion. Empty if `on_error` is "skip"."""
        return self.source.unread if self.options.on_error == "error" else ()

    def refusal(self, reasons: Sequence[str]) -> BadInput:
        """Return the error for all bad samples: those of `reasons` (one line each) and those of `unread`."""
        root, unread = self.source.root, len(self.unread)
        advice = f"{self.source.unread_message}; or --on-error skip, which leaves them out and lists them"
        if not reasons:
            return BadInput(f"{root}: {advice}")
        turned = [reason for reason in reasons if HOW_TO_FRAME in reason]
        lines = [*([advice] if unread else []), *reasons]
        if len(turned) > 1:
            lines = [*(line.replace(HOW_TO_FRAME, "") for line in lines), f"of all that are turned{HOW_TO_FRAME}"]
        count = f"{len(reasons) + unread} of {len(self.source) + unread} samples cannot be packed:"
        return BadInputs(f"{root}: {count}", reasons=lines)

    @cached_property
    def resize(self) -> Resize | None:
        """Geometry of the option `resize`, or None if images keep their size."""
        return Resize.parse(self.options.resize) if self.options.resize else None

    @property
    def enlarged(self) -> tuple[int, int]:
        """`(number of images in probed_sizes that resize enlarges, number of images in probed_sizes)`."""
        resize = self.resize
        if resize is None:
            return 0, 0
        views = ((resize.view(height, width).size, height, width) for height, width in self.probed_sizes)
        larger = sum(new[0] > height or new[1] > width for new, height, width in views)
        return larger, len(self.probed_sizes)

    @property
    def left_out(self) -> tuple[tuple[str, str], ...]:
        """`(key, reason)` for each sample that the source skips or cannot read, known before encoding."""
        return (*self.source.left_out, *self.source.unread)

    @property
    def moves_pixels(self) -> bool:
        """True if images are resized or rotated."""
        return self.options.resize is not None or self.options.exif == "rotate"

    @property
    def keeps_bytes(self) -> bool:
        """True if images are stored without encoding them again: as file bytes, or as bytes of the source pack."""
        if self.source.decodes:
            return False
        images = [field for field in self.schema if field.kind in PIXEL_KINDS]
        if self.source.is_encoded:
            before = self.source.schema
            return not self.moves_pixels and all(field.codec == before[field.name].codec for field in images)
        return not self.moves_pixels and all(codecs.codec_class(field).keeps_files for field in images)

    @property
    def only_copies(self) -> bool:
        """True if images are neither encoded again nor decoded for validation."""
        return self.keeps_bytes and (self.options.validate == "header" or self.source.is_encoded)

    @property
    def source_bytes(self) -> int:
        """Source bytes of all samples."""
        return int(self.sizes.sum())

    def size(self, index: int) -> int:
        """Return the source bytes of a sample; 0 if the samples are not known in advance."""
        return int(self.sizes[index]) if self.parts else 0

    def part_name(self, number: int) -> str:
        """Return the file name of part `number`: `part-00000` and the suffix of the format."""
        return f"part-{self.first_part + number:05d}{formats.load(self.options.to).SUFFIX}"

    def has_part(self, name: str, samples: int) -> bool:
        """Return True if the plan has part `name` with this number of samples, or if `parts` is empty."""
        return not self.parts or self.part_samples.get(name) == samples

    @cached_property
    def part_samples(self) -> Mapping[str, int]:
        """Number of planned samples of each part, by file name."""
        return {self.part_name(number): len(part) for number, part in enumerate(self.parts)}


def make_plan(source: Source, options: ConversionOptions) -> Plan:
    """Return the plan of a conversion. With `resize`, a few images are read.

    Raises:
        InvalidRequest: the options do not fit the source.
        BadInput: a file of the source was removed, or the source has no samples.
    """
    source.folder.most_bytes = most_file_bytes(options.pixel_limit)
    if not len(source):
        if source.unread and options.on_error == "error":
            raise BadInput(
                f"{source.root}: {source.unread_message}; or --on-error skip, which leaves them out and lists them"
            )
        more = f" and {len(source.left_out) - 1} more" if len(source.left_out) > 1 else ""
        reason = "".join(f": skipped: {key}: {reason}{more}" for key, reason in source.left_out[:1])
        raise BadInput(f"{source.root}: no samples to pack{reason}; packer convert --dry-run shows what was found")
    if options.resize and not any(field.kind in PIXEL_KINDS for field in source.schema):
        there = ", ".join(f"{field.name} ({field.kind})" for field in source.schema if not field.hidden)
        raise InvalidRequest(f"{source.root}: --resize {options.resize}: no field is an image: {there}; leave it out")
    formats.load(options.to)
    if options.effective_order == "shuffled":
        if source.folder.unpacks_again:
            raise InvalidRequest(
                f"{source.root}: is compressed as one: each sample in a shuffled order would unpack it again; gunzip "
                "it first, or keep its order with --order stored"
            )
        source = subset(source, shuffled(options.order_seed, 0, len(source)).tolist())
    probe = _probed(source) if options.resize else _Probe()
    schema, defaulted = make_stored_schema(source, options, lossy=probe.lossy)
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
    """Result of reading a few samples: `(height, width)` of main images, names of fields with mostly lossy images."""

    sizes: tuple[tuple[int, int], ...] = ()
    lossy: frozenset[str] = frozenset()


def _probed(source: Source) -> _Probe:
    from packer.images import sniff  # only needed for a resize

    main = next((field.name for field in source.schema if field.kind in PIXEL_KINDS), None)
    votes: dict[str, int] = {}
    sizes: list[tuple[int, int]] = []
    for index in probe_indices(len(source), is_sequential=source.is_sequential):
        with suppress(PackerError):  # encoding reports all bad files
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


def _measure(
    source: Source, options: ConversionOptions, extras: ChosenExtras
) -> tuple[npt.NDArray[np.int64], int, str, str, tuple[str, ...]]:
    """Return `(sizes, file_count, digest, fingerprint, links)` of the `Plan`."""
    identity = hashlib.sha256(json.dumps([__version__, VERSION, options.to_json()], sort_keys=True).encode())
    origin = source.provenance()
    if origin is not None:
        identity.update(origin.identity)
        return origin.sizes, origin.files, origin.digest, identity.hexdigest(), ()
    sizes = np.zeros(len(source), np.int64)
    content = hashlib.sha256()
    count = 0
    for name in source.tables:
        content.update(os.fsencode(name) + b"\0" + hashlib.sha256(source.read_file(name, is_table=True)).digest())
    links = _Links(source)
    large: dict[str, None] = {}  # files of many records, in order
    for first in range(0, len(sizes), _MEASURED_AT_ONCE):
        contents, times, found = bytearray(), bytearray(), []
        for index in range(first, min(first + _MEASURED_AT_ONCE, len(sizes))):
            key, names, _, extent, _ = source.entry(index)
            contents += os.fsencode(key) + b"\0"
            if extent is not None:
                contents += b"%s\0%d\0%d\n" % (os.fsencode(extent.name), extent.offset, extent.size)
                found.append(extent.size)
                large[extent.name] = None
                continue
            total = 0
            for name in names:
                size, time_ns = links.state(name)
                contents += b"%s\0%d\n" % (os.fsencode(name), size)
                times += b"%d\n" % time_ns
                total += size
                count += 1
            found.append(total)
        sizes[first : first + len(found)] = found
        content.update(contents)
        identity.update(times)
    large |= dict.fromkeys(source.more_files)
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
    """Reader of file sizes and times. `reasons` has one line for each link that cannot be followed."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folder = source.folder
        self.reasons: list[str] = []

    def state(self, name: str) -> tuple[int, int]:
        """Return `(size in bytes, modification time in ns)`. For a link that cannot be followed, the size is 0."""
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
