"""Build part: writes one part of a plan as a file of the format, with its index entries and its record.

The bytes of a part depend on its spec and its number alone. So a part may be built again after a failure, or twice at
once in two folders. The work has two halves, so that one part is hashed and synced while the next one is written.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from packer.formats.base import Writer
from packer.pack.index import PartIndex
from packer.pack.manifest import Part
from packer.system.parallel import ordered_map, usable_cores

Progress = Callable[[int, int], None]  # samples and source bytes done since the last call
Noted = Callable[[Sequence[str]], None]  # key and reason of a sample that the manifest will list
_CHUNK_BYTES = 1 << 20
_CHUNK_SAMPLES = 32


@dataclass(frozen=True)
class FinishedPart:
    """A finished part and its samples, as a record stores them.

    Attributes:
        part: name, size, and checksum.
        bytes_in, bytes_out: read and written.
        skipped, incomplete: (key, reason) of each such sample.
        findings: number of samples by finding.
        etag: of the object, if the pack is behind a URL.
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
    """The input of a part; pickles.

    Attributes:
        plan: the plan.
        pack, pieces: existing folders for parts and for index entries; neither contains this part yet.
        threads: threads that encode samples; the caller writes them.
        only_reads: a sample of another part is bad, so samples are only read to name every bad one.
    """

    plan: Plan
    pack: Path
    pieces: Path
    threads: int = 1
    only_reads: bool = False


class BuiltPart(NamedTuple):
    """A built part. finished: None if nothing is packed. reasons: a line for each sample that cannot be packed."""

    finished: FinishedPart | None
    reasons: Sequence[str]


@dataclass
class WrittenPart:
    """A part whose file is complete but not yet hashed and synced. is_refused: nothing is packed."""

    name: str
    bytes_in: int
    piece: PartIndex
    is_refused: bool
    samples: int = 0
    skipped: list[list[str]] = field(default_factory=list)
    incomplete: list[list[str]] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)


def build_part(spec: PartSpec, number: int) -> BuiltPart:
    """Build a part; raises StorageError, and any error of a source other than BadInput."""
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
    """Write the file of a part, unsynced.

    Args:
        spec: the input.
        number: of the part.
        encoder: of the plan; None makes one.
        progress: receives the samples that are done.
        noted: receives each entry of the manifest; an error that it raises ends the conversion.
    """
    plan = spec.plan
    samples = plan.parts[number]
    sizes = plan.sizes[samples.start : samples.stop]
    payload = int(sizes.sum())
    name, make_writer = plan.part_name(number), formats.load(plan.options.to).Writer
    written = WrittenPart(name, payload, PartIndex(plan.schema), spec.only_reads)
    encode, chunks = encoder or encoder_of(plan), _chunks(samples, sizes.tolist())
    result_writer = _ResultWriter(plan, written, noted)

    def encoded(chunk: range) -> list[Encoded | Failure]:
        return [encode(index) for index in chunk]

    # a second thread reads while samples are written, unless the writer has a thread of its own
    apart = usable_cores() > 1 and not make_writer.has_thread
    with make_writer(spec.pack / name, plan.schema, payload_bytes=payload) as writer:
        for results in ordered_map(encoded, chunks, threads=spec.threads, background=apart):
            for result in results:
                result_writer.write(result, writer)
            if progress is not None:
                progress(len(results), sum(_size(result) for result in results))
        writer.finish()
    return written


def finish_part(spec: PartSpec, written: WrittenPart) -> FinishedPart:
    """Hash a part and sync it with its index entries, both at once. The caller syncs the names."""
    path, piece = spec.pack / written.name, spec.pieces / written.name
    work: list[Callable[[], str | None]] = [lambda: _sha256(path), lambda: _save(path, piece, written.piece)]
    digest, _ = ordered_map(_call, work, threads=2)
    size = part_bytes(path)
    part = Part(written.name, written.samples, size, str(digest))
    findings = dict(written.findings)
    return FinishedPart(part, written.bytes_in, size, written.skipped, written.incomplete, findings)


def encoder_of(plan: Plan) -> Encoder:
    """Return the encoder of a plan."""
    if not plan.source.is_encoded:
        return SampleEncoder(plan)
    from packer.conversion.pack_source import RecordEncoder  # readers of parts, which other sources do without

    return RecordEncoder(plan)


class _ResultWriter:
    """Writes encoded samples to a part, and collects the facts about them."""

    def __init__(self, plan: Plan, written: WrittenPart, noted: Noted | None) -> None:
        self._skips = plan.options.on_error == "skip"
        self._written = written
        self._noted = noted or (lambda item: None)

    def write(self, result: Encoded | Failure, writer: Writer) -> None:
        written = self._written
        if isinstance(result, Failure):
            written.reasons.append(result.reason)
            written.skipped.append([result.key, shortened(result.reason)])
            if self._skips:
                self._noted(written.skipped[-1])
            else:
                written.is_refused = True
        elif not written.is_refused:
            writer.write(result.record)
            written.piece.add(result.key, result.crc32s, result.record)
            written.samples += 1
            if result.findings:
                written.findings.update(result.findings)
            if result.incomplete:
                key = result.key.decode("utf-8", "surrogateescape")
                written.incomplete.append([key, shortened(result.incomplete)])
                self._noted(written.incomplete[-1])


def _chunks(samples: range, sizes: list[int]) -> Iterator[range]:
    """Yield runs of samples of about 1 MiB, the work that a thread gets at once."""
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


def _size(result: Encoded | Failure) -> int:
    return result.source_bytes if isinstance(result, Encoded) else 0


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
