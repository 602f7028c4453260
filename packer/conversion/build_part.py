"""Build part: writes one part of a plan in the format of the pack, with the index entries of the samples.

The bytes of a part depend only on the `PartSpec` and the number of the part. So a part may be built again after a
failure. `write_part` and `finish_part` are separate, so that an engine can hash a part while it writes the next part.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from packer import formats
from packer.conversion.encode import Encoded, Encoder, Failure, SampleEncoder
from packer.conversion.plan import Plan
from packer.errors import shortened
from packer.files.digest import part_bytes, part_sha256
from packer.files.fsync import sync_part
from packer.files.storage_errors import failing
from packer.pack.manifest import Part
from packer.pack.sample_index import PartIndex
from packer.system.parallel import ordered_map, usable_cores

Progress = Callable[[int, int], None]  # receives samples and source bytes since the previous call
Noted = Callable[[Sequence[str]], None]  # receives (key, reason) of a skipped or incomplete sample
_CHUNK_BYTES = 1 << 20
_CHUNK_SAMPLES = 32


@dataclass(frozen=True)
class FinishedPart:
    """Description of a finished part, stored as JSON in the record file of the part.

    Attributes:
        part: name, size, and checksum.
        bytes_in: source bytes of the packed samples.
        bytes_out: bytes of the part.
        skipped: `[key, reason]` for each sample that is not in the part.
        incomplete: `[key, reason]` for each sample of the part in which a field has no value.
        findings: notes on suspicious values, with the number of samples for each note.
        etag: the ETag of the uploaded part, or "" if the pack is in a folder.
    """

    part: Part
    bytes_in: int
    bytes_out: int
    skipped: list[list[str]] = field(default_factory=list)
    incomplete: list[list[str]] = field(default_factory=list)
    findings: Mapping[str, int] = field(default_factory=dict)
    etag: str = ""


@dataclass(frozen=True)
class PartSpec:
    """Input of `build_part`. Picklable.

    Attributes:
        plan: the plan of the conversion.
        pack: an existing folder for parts.
        pieces: an existing folder for index entries.
        threads: the number of threads that encode samples. The calling thread writes the encoded samples.
        only_reads: True to list bad samples without building a part, after another part had a bad sample.
    """

    plan: Plan
    pack: Path
    pieces: Path
    threads: int = 1
    only_reads: bool = False


class BuiltPart(NamedTuple):
    """Result of `build_part`.

    Attributes:
        finished: the part, or None if no sample is packed because a sample is bad.
        reasons: one line for each sample that cannot be packed.
    """

    finished: FinishedPart | None
    reasons: Sequence[str]


@dataclass
class WrittenPart:
    """Part that is written but not yet hashed and synced. Other attributes are as in `FinishedPart`.

    Attributes:
        piece: the index entries.
        is_refused: True if the part must not be used, because a sample is bad.
        reasons: one line for each sample that cannot be packed.
    """

    name: str
    piece: PartIndex
    is_refused: bool
    samples: int = 0
    bytes_in: int = 0
    skipped: list[list[str]] = field(default_factory=list)
    incomplete: list[list[str]] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)


def build_part(spec: PartSpec, number: int) -> BuiltPart:
    """Write, hash and sync part `number`. Bad samples are returned in `reasons` and do not raise an error."""
    written = write_part(spec, number)
    return BuiltPart(None if written.is_refused else finish_part(spec, written), written.reasons)


def write_part(
    spec: PartSpec,
    number: int,
    *,
    encoder: Encoder | None = None,
    progress: Progress | None = None,
    noted: Noted | None = None,
) -> WrittenPart:
    """Write part `number` without hashing or syncing.

    Args:
        encoder: an encoder for `spec.plan`; None to create an encoder.
        progress: a function, called with `(samples, source bytes)` that were written since the previous call.
        noted: a function, called with `(key, reason)` of each skipped or incomplete sample.
    """
    plan, samples = spec.plan, spec.plan.parts[number]
    sizes = plan.sizes[samples.start : samples.stop]
    encode = encoder or encoder_of(plan)

    def encoded(chunk: range) -> list[Encoded | Failure]:
        return [encode(index) for index in chunk]

    with closing(PartWriter(spec, number, payload_bytes=int(sizes.sum()), noted=noted)) as part:
        chunks = _chunks(samples, sizes.tolist())
        for results in ordered_map(encoded, chunks, threads=spec.threads, background=usable_cores() > 1):
            size = part.write(results)
            if progress is not None:
                progress(len(results), size)
        return part.finish()


class PartWriter:
    """Writer of one part from encoded samples. Used by one thread."""

    def __init__(self, spec: PartSpec, number: int, *, payload_bytes: int, noted: Noted | None = None) -> None:
        """Begin the part. `payload_bytes` is the expected size of its samples in the source."""
        plan, name = spec.plan, spec.plan.part_name(number)
        make_writer = formats.load(plan.options.to).Writer
        self._writer = make_writer(spec.pack / name, plan.schema, payload_bytes=payload_bytes)
        self._skips = plan.options.on_error == "skip"
        self._written = WrittenPart(name, PartIndex(plan.schema), spec.only_reads)
        self._noted = noted or (lambda item: None)

    def write(self, results: Iterable[Encoded | Failure]) -> int:
        """Add samples, and return their size in the source in bytes. Failures are listed in the result of `finish`."""
        size = 0
        for result in results:
            self._add(result)
            size += result.source_bytes if isinstance(result, Encoded) else 0
        self._written.bytes_in += size
        return size

    def finish(self) -> WrittenPart:
        """Complete the part, without hashing or syncing."""
        self._writer.finish()
        return self._written

    def close(self) -> None:
        """Release files, memory and threads."""
        self._writer.close()

    def _add(self, result: Encoded | Failure) -> None:
        written = self._written
        if isinstance(result, Failure):
            written.reasons.append(result.reason)
            written.skipped.append([result.key, shortened(result.reason)])
            if self._skips:
                self._noted(written.skipped[-1])
            else:
                written.is_refused = True
        elif not written.is_refused:
            self._writer.write(result.record)
            written.piece.add(result.crc32s, result.entries)
            written.samples += 1
            if result.findings:
                written.findings.update(result.findings)
            if result.incomplete:
                key = result.key.decode("utf-8", "surrogateescape")
                written.incomplete.append([key, shortened(result.incomplete)])
                self._noted(written.incomplete[-1])


def finish_part(spec: PartSpec, written: WrittenPart) -> FinishedPart:
    """Hash a part, and sync the part and the index entries to disk. The folders that contain them are not synced."""
    path, piece = spec.pack / written.name, spec.pieces / written.name
    work: list[Callable[[], str | None]] = [lambda: _sha256(path), lambda: _save(path, piece, written.piece)]
    digest, _ = ordered_map(_call, work, threads=2)
    size = part_bytes(path)
    part = Part(written.name, written.samples, size, str(digest))
    findings = dict(written.findings)
    return FinishedPart(part, written.bytes_in, size, written.skipped, written.incomplete, findings)


def encoder_of(plan: Plan) -> Encoder:
    """Return a new encoder: a `RecordEncoder` if the source is a pack, otherwise a `SampleEncoder`."""
    if not plan.source.is_encoded:
        return SampleEncoder(plan)
    from packer.conversion.pack_source import RecordEncoder  # readers of parts, which other sources do without

    return RecordEncoder(plan)


def _chunks(samples: range, sizes: list[int]) -> Iterator[range]:
    """Yield ranges of consecutive samples of about 1 MiB. A thread encodes one range at a time."""
    first, filled = samples.start, 0
    for index, size in zip(samples, sizes, strict=True):
        if index > first and (filled + size > _CHUNK_BYTES or index - first >= _CHUNK_SAMPLES):
            yield range(first, index)
            first, filled = index, 0
        filled += size
    yield range(first, samples.stop)


def _call(work: Callable[[], str | None]) -> str | None:
    return work()


def _save(path: Path, piece_path: Path, piece: PartIndex) -> None:
    sync_part(path)
    piece.save(piece_path)


def _sha256(path: Path) -> str:
    if path.is_dir():
        return part_sha256(path)
    digest = hashlib.sha256()
    with failing(path, "read"), path.open("rb", buffering=0) as file:
        block = bytearray(4 << 20)
        view = memoryview(block)
        while count := file.readinto(view):
            digest.update(view[:count])
    return digest.hexdigest()
