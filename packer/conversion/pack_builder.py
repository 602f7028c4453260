"""Pack builder: builds the parts of one plan one after the other, then puts the pack together and publishes it."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packer import __version__, formats
from packer.conversion import suspect_values
from packer.conversion.encode import Encoded, Encoder, Failure, SampleEncoder
from packer.conversion.journal import PACK, FinishedPart, Journal
from packer.conversion.plan import Plan
from packer.errors import BadInputs, InvalidRequest, PackerError, StorageError, printable
from packer.files.digest import part_bytes, part_sha256
from packer.files.fsync import sync_part
from packer.files.storage_errors import failing, free_bytes, free_files
from packer.files.work_folder import WorkFolder
from packer.formats.base import Writer
from packer.pack import manifest as manifests
from packer.pack.extra_files import write_extras
from packer.pack.index import PartIndex, merge
from packer.pack.manifest import Manifest, Part
from packer.pack.unlisted_files import check_replaceable, check_whole
from packer.schema import PIXEL_KINDS
from packer.system.parallel import ordered_map, usable_cores

Progress = Callable[[int, int], None]  # samples and source bytes done since the last call
_CHUNK_BYTES = 1 << 20
_CHUNK_SAMPLES = 32
_INDEX_FILES = 10  # at most, of index and extras, besides one per column
_INDEX_FILE_BYTES = 256  # in the manifest


class PackBuilder:
    """One conversion under its lock."""

    def __init__(
        self,
        plan: Plan,
        target: Path,
        work: WorkFolder,
        *,
        threads: int,
        progress: Progress,
        earlier: Progress | None = None,
        estimate: "Estimate | None" = None,
    ) -> None:
        """threads: that make records; the caller writes them.

        earlier: told of parts that an earlier run has finished, instead of progress. estimate: where it is known.
        """
        self.plan = plan
        self.target = target
        self.journal = Journal(work)
        self._threads = threads
        self._progress = progress
        self._earlier = earlier or progress
        self._known_estimate = estimate
        self._encoder = encoder_of(plan)
        self._module = formats.load(plan.options.to)
        # one thread reads on while its samples are written, unless the writer has a thread for that
        self._writes_apart = usable_cores() > 1 and not self._module.Writer.has_thread
        self._failures: list[Failure] = []
        self._noted_bytes = self._noted_values = 0

    def rehearse(self, *, restart: bool) -> None:
        """Raise what a run would raise before it reads a sample; nothing is written or removed."""
        self.begin(restart=restart, rehearses=True)
        self._draft().check()
        self._check_space()

    def begin(self, *, restart: bool, rehearses: bool = False) -> None:
        """Take up the work of an earlier run, or start anew; raises InvalidRequest where that run's was another.

        rehearses: nothing is changed.
        """
        begin = self.journal.check if rehearses else self.journal.begin
        reason = self.plan.source.resume_reason
        begin(self.plan.fingerprint, restart=restart, options=self.plan.options.to_json(), no_resume=reason)

    def check_manifest(self) -> None:
        """Refuse before writing what could not be read afterwards: raises InvalidRequest where packer.json would be
        too large.

        What it will hold of samples that turn out to be bad or incomplete is counted as they come.
        """
        draft = self._draft()
        try:
            draft.check()
        except InvalidRequest:
            if not self.journal.finished:
                self.journal.remove()
            raise
        files = len(draft.schema) + _INDEX_FILES
        self._noted_bytes = len(draft.to_bytes()) + files * _INDEX_FILE_BYTES
        self._noted_values = 3 * len(draft.skipped) + 12 * (len(draft.parts) + len(draft.schema) + files)
        self._noted_values += sum(len(field.classes or ()) for field in draft.schema)
        for done in self.journal.finished.values():
            for item in (*done.skipped, *done.incomplete):
                self._note(item)

    def _note(self, item: Sequence[str]) -> None:
        """Count what packer.json holds of a sample; raises BadInputs where that becomes too much to be read."""
        self._noted_bytes += len(json.dumps(item)) + 1
        self._noted_values += 3
        if self._noted_bytes > manifests.MOST_BYTES or self._noted_values > manifests.MOST_VALUES:
            raise BadInputs(
                f"{self.plan.source.root}: more samples are bad or incomplete than {manifests.NAME} can list with "
                "their reasons; mend the source, or take them out; --on-error raise lists all of them; the last one:",
                reasons=[": ".join(item)],
            )

    def check_space(self) -> None:
        """Refuse before writing when the pack will not fit; nothing new is left behind then."""
        try:
            self._check_space()
        except StorageError:
            if not self.journal.finished:
                self.journal.remove()
            raise

    def _check_space(self) -> None:
        needed, free = self._needed_bytes(), free_bytes(self.journal.work.path)
        if needed > free:
            raise StorageError(
                f"{self.target}: about {needed:,} bytes are needed while packing, {free:,} are free on its disk; "
                "free some, choose another folder, or make the pack smaller with --resize or --fields"
            )
        files = self._module.Writer.files(self.plan.schema) * len(self.plan.source)
        left = free_files(self.journal.work.path)
        if left is not None and files > left:
            raise StorageError(
                f"{self.target}: the pack needs about {files:,} files, its disk takes {left:,} more; choose another "
                "folder, another --to, or fewer --fields"
            )

    @contextmanager
    def saying_what_is_needed(self) -> Iterator[None]:
        """Where storage fails in the block, say how much is needed and how much there is."""
        try:
            yield
        except StorageError as error:
            needed, free = self._needed_bytes(), free_bytes(self.target.absolute().parent)
            raise StorageError(
                f"{error} (about {needed:,} bytes are still needed, {free:,} are free; "
                "finished parts are kept: the same command goes on after them)"
            ) from error

    def _needed_bytes(self) -> int:
        """About how much space it still takes to end: what is to be written, and once what is there only meanwhile."""
        parts = enumerate(self._estimate.parts)
        todo = [size for number, size in parts if self.plan.part_name(number) not in self.journal.finished]
        extras = self._estimate.pack_bytes - sum(self._estimate.parts)
        return sum(todo) + extras + (self._estimate.scratch_bytes if todo else 0)

    @cached_property
    def _estimate(self) -> "Estimate":
        return self._known_estimate or estimate(self.plan)

    def build(self) -> Manifest:
        """Build the parts that are missing, then the index and the manifest."""
        todo = (number for number in range(len(self.plan.parts)) if not self._is_done(number))
        try:
            for _ in ordered_map(self._finish, self._written(todo), threads=2, window=2):
                pass
        except StorageError:
            with suppress(StorageError):
                self.journal.sweep()  # gives back what the unfinished part takes
            raise
        except BadInputs:
            self.journal.remove()  # no other run can go on from there
            raise
        except BaseException:
            if self.plan.source.resume_reason is not None:  # as above
                with suppress(StorageError):
                    self.journal.remove()
            raise
        self._check_failures()
        return self._manifest()

    def _check_failures(self) -> None:
        """Raise BadInputs; no other run can go on from there, since its source or its options will differ."""
        root = self.plan.source.root
        if self._is_refused:
            self.journal.remove()
            raise self.plan.refusal([failure.reason for failure in self._failures])
        if not any(done.part.samples for done in self.journal.finished.values()):
            message = f"{root}: no sample can be packed:"
            reasons = [reason for done in self.journal.finished.values() for _, reason in done.skipped]
        else:
            return
        self.journal.remove()
        raise BadInputs(message, reasons=reasons)

    @property
    def _is_refused(self) -> bool:
        """Whether nothing will be packed, so that what is left is only read to name every bad file."""
        return self.plan.options.on_error == "raise" and bool(self._failures or self.plan.unread)

    def _is_done(self, number: int) -> bool:
        done = self.journal.finished.get(self.plan.part_name(number))
        if done is None:
            return False
        self._earlier(len(self.plan.parts[number]), done.bytes_in)
        return True

    def _written(self, numbers: Iterator[int]) -> "Iterator[_Written]":
        """Write parts one after the other; each is finished (hashed, synced) while the next one is written."""
        for number in numbers:
            yield self._write(number)

    def _write(self, number: int) -> "_Written":
        samples = self.plan.parts[number]
        name = self.plan.part_name(number)
        sizes = self.plan.sizes[samples.start : samples.stop]
        payload = int(sizes.sum())
        written = _Written(name, payload, PartIndex(self.plan.schema))
        path = self.journal.pack / name
        chunks = _chunks(samples, sizes.tolist())
        with self._module.Writer(path, self.plan.schema, payload_bytes=payload) as writer:
            for results in ordered_map(self._encode_chunk, chunks, threads=self._threads, apart=self._writes_apart):
                for result in results:
                    self._take(result, written, writer)
                self._progress(len(results), sum(_size(result) for result in results))
            writer.finish()
        return written

    def _encode_chunk(self, chunk: range) -> list[Encoded | Failure]:
        return [self._encoder(index) for index in chunk]

    def _take(self, result: Encoded | Failure, written: "_Written", writer: Writer) -> None:
        if isinstance(result, Failure):
            self._failures.append(result)
            written.skipped.append([result.key, manifests.shortened_reason(result.reason)])
            if self.plan.options.on_error == "skip":
                self._note(written.skipped[-1])
        elif not self._is_refused:
            writer.write(result.record)
            written.piece.add(result.key, result.crc32s, result.record)
            written.samples += 1
            if result.findings:
                written.findings.update(result.findings)
            if result.incomplete:
                said = manifests.shortened_reason(result.incomplete)
                written.incomplete.append([result.key.decode("utf-8", "surrogateescape"), said])
                self._note(written.incomplete[-1])

    def _finish(self, written: "_Written") -> None:
        """Hash a part and bring it to disk with its index piece, both at once; then the journal names it."""
        if self._is_refused:
            return
        path = self.journal.pack / written.name
        piece = self.journal.pieces / written.name
        work: list[Callable[[], str | None]] = [lambda: _sha256(path), lambda: _save(path, piece, written.piece)]
        digest, _ = ordered_map(_call, work, threads=2)
        size = part_bytes(path)
        part = Part(written.name, written.samples, size, str(digest))
        self.journal.add(
            FinishedPart(part, written.bytes_in, size, written.skipped, written.incomplete, dict(written.findings))
        )

    def _manifest(self) -> Manifest:
        """Merge the index and put the manifest together; what an earlier try left of them was swept away."""
        names = [self.plan.part_name(number) for number in range(len(self.plan.parts))]
        finished = [self.journal.finished[name] for name in names]
        skipped = [(key, reason) for done in finished for key, reason in done.skipped]
        skipped = [(key, _without(reason, self.plan.source.folder.root)) for key, reason in skipped]
        extras = self.plan.extras
        index = merge([self.journal.pieces / name for name in names], self.journal.pack, self.plan.schema)
        return Manifest(
            format=self.plan.options.to,
            samples=sum(done.part.samples for done in finished),
            schema=self.plan.schema,
            options=self.plan.options.to_json(),
            source=self._describe_source(),
            parts=tuple(done.part for done in finished),
            index=index,
            written_by=f"packer {__version__}",
            skipped=(*self.plan.left_out, *skipped),
            incomplete=tuple((key, reason) for done in finished for key, reason in done.incomplete),
            extras=write_extras(self.journal.pack, extras.sizes, extras.contents(self.plan.source)),
        ).sealed()

    def _draft(self) -> Manifest:
        """The manifest as far as it is known before anything is packed."""
        names = [self.plan.part_name(number) for number in range(len(self.plan.parts))]
        parts = [
            Part(name, len(samples), 1 << 40, "0" * 64) for name, samples in zip(names, self.plan.parts, strict=True)
        ]
        return Manifest(
            format=self.plan.options.to,
            samples=len(self.plan.source),
            schema=self.plan.schema,
            options=self.plan.options.to_json(),
            source=self._describe_source(),
            parts=tuple(parts),
            index=(),
            written_by=f"packer {__version__}",
            skipped=tuple(self.plan.source.left_out),
        ).sealed()

    def findings(self) -> list[str]:
        """What is to be said of all samples once they are packed."""
        total: Counter[str] = Counter()
        for done in self.journal.finished.values():
            total.update(done.findings)
        return suspect_values.notes(total, self.plan.source.invalid_option)

    def _describe_source(self) -> dict[str, object]:
        source, left = self.plan.source, self.plan.extras.left
        described: dict[str, object] = {
            "kind": source.kind,
            "samples": len(source) + len(self.plan.left_out),
            "files": self.plan.file_count,
            "bytes": self.plan.source_bytes,
            "digest": self.plan.digest,
        }
        known = source.provenance()
        if known is not None:
            described = dict(known.origin)
        return described if left == (0, 0) else {**described, "left_behind": {"files": left[0], "bytes": left[1]}}

    def publish(self, manifest: Manifest, *, overwrite: bool) -> None:
        """Manifest last, everything synced, one rename; then the work folder goes."""
        manifest.check()
        work = self.journal.work
        with work.folder(PACK) as pack:
            pack.write_file(manifests.NAME, manifest.to_bytes())
        if overwrite and os.path.lexists(self.target):
            self._replace(work)
        else:
            work.publish(PACK, work.above, self.target.name)
        self.journal.remove()

    def _replace(self, work: WorkFolder) -> None:
        """Swap with the pack that is there, and check only then what was replaced, since it may change until then."""
        check_replaceable(self.target)
        work.swap(PACK, work.above, self.target.name)
        try:
            check_whole(self.journal.pack)
        except PackerError as error:
            work.swap(PACK, work.above, self.target.name)
            check_replaceable(self.target)  # under its own name again
            raise InvalidRequest(f"{self.target}: changed while it was replaced; run again") from error


def encoder_of(plan: Plan) -> Encoder:
    """What makes the records of a plan."""
    if not plan.source.is_encoded:
        return SampleEncoder(plan)
    from packer.conversion.pack_source import RecordEncoder  # readers of parts, which other sources do without

    return RecordEncoder(plan)


@dataclass
class _Written:
    """A part whose file is complete but not yet hashed and synced."""

    name: str
    bytes_in: int
    piece: PartIndex
    samples: int = 0
    skipped: list[list[str]] = field(default_factory=list)
    incomplete: list[list[str]] = field(default_factory=list)
    findings: Counter[str] = field(default_factory=Counter)


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


def _without(reason: str, root: Path) -> str:
    """A reason without the absolute folder: the manifest holds nothing of the machine."""
    folder = f"{root}{os.sep}"
    return reason.replace(folder, "").replace(printable(folder), "")  # sources name files in both ways


# ---- how large the pack will be

_RECORD_OVERHEAD = 80  # index entry, key and numbers of one sample, roughly
_FILE_OVERHEAD = 2048  # half a block, which a file of its own leaves empty on average


@dataclass(frozen=True)
class Estimate:
    """pack_bytes: about what the pack will take; samples and source_bytes as planned.

    scratch_bytes: about what the largest part takes besides, only while it is written. parts: bytes of each.
    """

    samples: int
    source_bytes: int
    pack_bytes: int
    scratch_bytes: int
    parts: tuple[int, ...]


def estimate(plan: Plan) -> Estimate:
    """Kept bytes are known; what is encoded anew is judged from at most 16 samples spread over the source."""
    samples = len(plan.source)
    ratio = 1.0 if plan.keeps_bytes else _ratio(plan)
    writer = formats.load(plan.options.to).Writer
    payloads = [int(plan.sizes[part.start : part.stop].sum() * ratio) for part in plan.parts]
    pictures = sum(field.kind in PIXEL_KINDS for field in plan.schema)  # the values that are large
    per_sample = _RECORD_OVERHEAD + writer.files(plan.schema) * _FILE_OVERHEAD
    parts = tuple(
        writer.part_bytes(payload, len(part) * max(1, pictures)) + len(part) * per_sample
        for payload, part in zip(payloads, plan.parts, strict=True)
    )
    pack_bytes = sum(parts) + sum(plan.extras.sizes.values())
    return Estimate(samples, plan.source_bytes, pack_bytes, writer.scratch_bytes(max(payloads)), parts)


def _ratio(plan: Plan) -> float:
    encoder = encoder_of(plan)
    results = [encoder(index) for index in plan.source.probes()]
    encoded = [result for result in results if isinstance(result, Encoded)]
    read = sum(result.source_bytes for result in encoded)
    return sum(len(value) for result in encoded for value in result.record.values()) / read if read else 1.0
