"""Build part: one part of a plan becomes a file of the format, its index entries, and what a done-record says of it.

`build_part` is a function of its spec and the part's number alone: where it runs, when, how often, and what runs beside
it change no byte of what it writes. So a part may be built anew after a failure, or twice at once in two folders.
It has two halves, so that one part may be hashed and synced while the next one is written.
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
    """A finished part, and what became of its samples. findings: how many of them have each, see suspect_values.py.

    etag: of the object that it is, where the pack lies behind a URL.
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
    """All that parts are built of, and where; it pickles, and holds nothing open but what the plan's source does.

    pack, pieces: folders that are there, of parts and of their index entries; neither holds anything of the part.
    threads: that make records; the caller writes them. only_reads: nothing will be packed, since a sample of another
    part is bad: samples are read to name every bad one.
    """

    plan: Plan
    pack: Path
    pieces: Path
    threads: int = 1
    only_reads: bool = False


class BuiltPart(NamedTuple):
    """finished: None where nothing will be packed. reasons: of samples that cannot be packed, a line each."""

    finished: FinishedPart | None
    reasons: Sequence[str]


@dataclass
class WrittenPart:
    """A part whose file is complete but not yet hashed and synced. is_refused: nothing will be packed."""

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
    """Build a part; raises StorageError, and what a source raises beside BadInput."""
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
    """Write a part's file, unsynced.

    encoder: of the spec's plan; one for all parts spares making it for each. progress: told of samples that are done.
    noted: told of what the manifest will list; may raise, which ends it.
    """
    plan = spec.plan
    samples = plan.parts[number]
    sizes = plan.sizes[samples.start : samples.stop]
    payload = int(sizes.sum())
    name, make_writer = plan.part_name(number), formats.load(plan.options.to).Writer
    written = WrittenPart(name, payload, PartIndex(plan.schema), spec.only_reads)
    encode, chunks = encoder or encoder_of(plan), _chunks(samples, sizes.tolist())
    taker = _Taker(plan, written, noted or _unheard)

    def encoded(chunk: range) -> list[Encoded | Failure]:
        return [encode(index) for index in chunk]

    # one thread reads on while its samples are written, unless the writer has a thread for that
    apart = usable_cores() > 1 and not make_writer.has_thread
    with make_writer(spec.pack / name, plan.schema, payload_bytes=payload) as writer:
        for results in ordered_map(encoded, chunks, threads=spec.threads, apart=apart):
            for result in results:
                taker.take(result, writer)
            if progress is not None:
                progress(len(results), sum(_size(result) for result in results))
        writer.finish()
    return written


def finish_part(spec: PartSpec, written: WrittenPart) -> FinishedPart:
    """Hash a part and bring it to disk with its index entries, both at once; the names are for the caller to sync."""
    path, piece = spec.pack / written.name, spec.pieces / written.name
    work: list[Callable[[], str | None]] = [lambda: _sha256(path), lambda: _save(path, piece, written.piece)]
    digest, _ = ordered_map(_call, work, threads=2)
    size = part_bytes(path)
    part = Part(written.name, written.samples, size, str(digest))
    findings = dict(written.findings)
    return FinishedPart(part, written.bytes_in, size, written.skipped, written.incomplete, findings)


def encoder_of(plan: Plan) -> Encoder:
    """What makes the records of a plan."""
    if not plan.source.is_encoded:
        return SampleEncoder(plan)
    from packer.conversion.pack_source import RecordEncoder  # readers of parts, which other sources do without

    return RecordEncoder(plan)


class _Taker:
    """Writes what was encoded, and notes what it says of the samples."""

    def __init__(self, plan: Plan, written: WrittenPart, noted: Noted) -> None:
        self._skips = plan.options.on_error == "skip"
        self._written = written
        self._noted = noted

    def take(self, result: Encoded | Failure, writer: Writer) -> None:
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
                said = shortened(result.incomplete)
                written.incomplete.append([result.key.decode("utf-8", "surrogateescape"), said])
                self._noted(written.incomplete[-1])


def _unheard(item: Sequence[str]) -> None:
    """Where nobody listens."""


def _chunks(samples: range, sizes: list[int]) -> Iterator[range]:
    """Runs of samples of about 1 MiB: large enough to make a thread's work cheap to hand out, small for memory."""
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
