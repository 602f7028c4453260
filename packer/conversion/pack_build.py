"""Pack build: builds the missing parts of one plan, then the index and the manifest."""

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from packer import __version__, formats
from packer.conversion.build_part import FinishedPart, PartSpec, Progress, WrittenPart, encoder_of, write_part
from packer.conversion.encode import Encoded
from packer.conversion.plan import Plan
from packer.conversion.publication import Publication
from packer.errors import BadInputs, InvalidRequest, StorageError, StoreError, printable
from packer.files.storage_errors import free_bytes, free_files
from packer.pack import manifest as manifests
from packer.pack.extra_files import write_extras
from packer.pack.manifest import Manifest, Part
from packer.pack.sample_index import merge
from packer.schema import PIXEL_KINDS
from packer.sources._message_texts import counted
from packer.sources.base import probe_indices

_INDEX_FILES = 10  # except files of columns
_FIELD_FILES = 2  # of columns, for each field
_INDEX_FILE_BYTES = 256  # in the manifest
_PARTS_AT_ONCE = 4  # on this disk, if the pack is behind a URL


class ConversionRun:
    """One run of a conversion. The engine calls `refuse`, `note` and `progress`, and passes parts to the publication.

    Attributes:
        publication: the collection of finished parts.
        encoder: the encoder for samples of the plan.
        progress: a function, called with `(samples, source bytes)`, which were packed since the previous call.
    """

    def __init__(
        self,
        publication: Publication,
        *,
        threads: int,
        progress: Progress,
        resumed: Progress | None = None,
        estimate: "Estimate | None" = None,
    ) -> None:
        """Prepare the run.

        Args:
            publication: the collection of finished parts.
            threads: the number of threads that encode samples. The calling thread writes the encoded samples.
            progress: the function for the attribute `progress`.
            resumed: a function, called like `progress` for each part of an earlier run; None to call `progress`.
            estimate: the estimated size of the pack; None to estimate it when needed.
        """
        self.plan = publication.plan
        self.publication = publication
        self.progress = progress
        self.encoder = encoder_of(self.plan)
        self._spec = PartSpec(self.plan, publication.pack, publication.pieces, threads)
        self._resumed = resumed or progress
        self._known_estimate = estimate
        self._writer = formats.load(self.plan.options.to).Writer
        self._reasons: dict[int, Sequence[str]] = {}  # by part, of samples that cannot be packed
        self._noted_bytes = self._noted_values = 0

    def begin(self, *, restart: bool) -> None:
        """Find the finished parts of an earlier run, or discard them (`restart`). Check manifest and disk space."""
        with self.naming_needed_space():
            self.publication.begin(restart=restart)
        self.check_manifest()
        self.check_space()

    # ---- checks before anything is written

    def check_manifest(self) -> None:
        """Raise InvalidRequest if packer.json would exceed the size limit, even without entries for bad samples."""
        draft = self._draft().sealed()
        try:
            draft.check()
        except InvalidRequest:
            self._remove_unless_resumable()
            raise
        files = _FIELD_FILES * len(draft.schema) + _INDEX_FILES
        self._noted_bytes = len(draft.to_bytes()) + files * _INDEX_FILE_BYTES
        self._noted_values = 3 * len(draft.skipped) + 12 * (len(draft.parts) + len(draft.schema) + files)
        self._noted_values += sum(len(field.classes or ()) for field in draft.schema)
        for done in self.publication.finished.values():
            for item in (*done.skipped, *done.incomplete):
                self.note(item)

    def note(self, item: Sequence[str]) -> None:
        """Count the entry `(key, reason)` of a skipped or incomplete sample.

        If packer.json with all counted entries exceeds the size limit, raise BadInputs.
        """
        self._noted_bytes += len(json.dumps(item)) + 1
        self._noted_values += 3
        if self._noted_bytes > manifests.MOST_BYTES or self._noted_values > manifests.MOST_VALUES:
            raise BadInputs(
                f"{self.plan.source.root}: more samples are bad or incomplete than {manifests.NAME} can list with "
                "their reasons; fix the source; --on-error error lists all of them; the last one:",
                reasons=[": ".join(item)],
            )

    def check_space(self) -> None:
        """Raise StorageError if the disk has too little free space for the pack.

        In this case, the files of the unfinished conversion are removed, unless a part is finished.
        """
        try:
            self._check_space()
        except StorageError:
            if not self.publication.finished:
                self.publication.remove()
            raise

    def rehearse(self) -> None:
        """Raise the errors that a run raises before the first sample is read, and write no file."""
        self._draft().sealed().check()
        self._check_space()

    def _check_space(self) -> None:
        needed, free = self._needed_bytes(), free_bytes(self.publication.work.path)
        if needed > free:
            raise StorageError(
                f"{self.publication.target}: about {needed:,} bytes are needed while packing, {free:,} are free on the "
                "disk; free some, choose another folder, or make the pack smaller with --resize or --fields"
            )
        files = self._writer.files(self.plan.schema) * len(self.plan.source)
        left = free_files(self.publication.work.path)
        if left is not None and files > left:
            raise StorageError(
                f"{self.publication.target}: the pack needs about {files:,} files, the disk has room for {left:,}; "
                "choose another folder, another --to, or fewer --fields"
            )

    @contextmanager
    def naming_needed_space(self) -> Iterator[None]:
        """Return a `with` block that adds the needed and the free space to the message of a StorageError."""
        try:
            yield
        except StoreError:  # space on this disk does not matter
            raise
        except StorageError as error:
            needed, free = self._needed_bytes(), free_bytes(self.publication.work.path.parent)
            still = f"about {needed:,} bytes are still needed, " if needed else ""
            raise StorageError(
                f"{error} ({still}{free:,} bytes are free; finished parts are kept: the same command continues after "
                "them)"
            ) from error

    def _needed_bytes(self) -> int:
        """Return the estimated bytes on disk that the missing parts need, including temporary files."""
        parts = enumerate(self._estimate.parts)
        todo = [size for number, size in parts if self.plan.part_name(number) not in self.publication.finished]
        if not self.publication.keeps_parts:
            todo = sorted(todo)[-_PARTS_AT_ONCE:]
        extras = self._estimate.pack_bytes - sum(self._estimate.parts)
        return sum(todo) + extras + (self._estimate.scratch_bytes if todo else 0)

    @cached_property
    def _estimate(self) -> "Estimate":
        return self._known_estimate or estimate(self.plan)

    # ---- building

    def build(self, build_parts: "Callable[[ConversionRun, Iterator[int]], None]") -> Manifest:
        """Build the missing parts, then the index, and return the manifest.

        `build_parts` is the method `Engine.build`. A bad sample raises BadInputs if `on_error` is "error".
        """
        missing = (number for number in range(len(self.plan.parts)) if not self._is_done(number))
        try:
            build_parts(self, missing)
        except StorageError:
            with suppress(StorageError):
                self.publication.sweep()  # frees the space of the unfinished part
            raise
        except InvalidRequest:
            self._remove_unless_resumable()
            raise
        except BadInputs:
            self.publication.remove()  # no other run can continue
            raise
        except BaseException:
            if self.plan.source.resume_reason is not None:
                with suppress(StorageError):
                    self.publication.remove()
            raise
        self._check_failures()
        return self.manifest()

    def _remove_unless_resumable(self) -> None:
        if not self.publication.finished or self.plan.source.resume_reason is not None:
            self.publication.remove()

    def _check_failures(self) -> None:
        """Remove all work and raise BadInputs if a bad sample ends the conversion or no sample is packed."""
        finished = self.publication.finished.values()
        if self._is_refused:
            self.publication.remove()
            raise self.plan.refusal([reason for _, reasons in sorted(self._reasons.items()) for reason in reasons])
        if finished and not any(done.part.samples for done in finished):
            reasons = [reason for done in finished for _, reason in done.skipped]
            self.publication.remove()
            raise BadInputs(f"{self.plan.source.root}: no sample can be packed:", reasons=reasons)

    @property
    def _is_refused(self) -> bool:
        """True if a bad sample ends the conversion. Other samples are then read only to list all bad files."""
        return self.plan.options.on_error == "error" and bool(self._reasons or self.plan.unread)

    def _is_done(self, number: int) -> bool:
        done = self.publication.finished.get(self.plan.part_name(number))
        if done is None:
            return False
        self._resumed(len(self.plan.parts[number]), done.bytes_in)
        return True

    @property
    def spec(self) -> PartSpec:
        """Input of `build_part` for the next part."""
        return replace(self._spec, only_reads=self._is_refused)

    def write_part(self, number: int) -> WrittenPart:
        """Write part `number` in this process, without hashing or syncing."""
        part = write_part(self.spec, number, encoder=self.encoder, progress=self.progress, noted=self.note)
        self.refuse(number, part.reasons)
        return part

    def refuse(self, number: int, reasons: Sequence[str]) -> None:
        """Record the reasons why samples of part `number` cannot be packed, one line for each sample."""
        if reasons:
            self._reasons[number] = reasons

    def findings(self) -> list[str]:
        """Return one note for each kind of suspicious value, with the number of samples that have such values."""
        total: Counter[str] = Counter()
        for done in self.publication.finished.values():
            total.update(done.findings)
        return [f"{finding} ({counted(count, 'sample')})" for finding, count in sorted(total.items())]

    # ---- the manifest

    def manifest(self) -> Manifest:
        """Write the index, and return the manifest of the finished parts."""
        names = [self.plan.part_name(number) for number in range(len(self.publication.finished))]
        finished: list[FinishedPart] = [self.publication.finished[name] for name in names]
        skipped = [(key, reason) for done in finished for key, reason in done.skipped]
        skipped = [(key, _relative(reason, self.plan.source.folder.root)) for key, reason in skipped]
        extras = self.plan.extras
        index = merge([self.publication.pieces / name for name in names], self.publication.pack, self.plan.schema)
        return replace(
            self._draft(),
            samples=sum(done.part.samples for done in finished),
            parts=tuple(done.part for done in finished),
            index=index,
            skipped=(*self.plan.left_out, *skipped),
            incomplete=tuple((key, reason) for done in finished for key, reason in done.incomplete),
            extras=write_extras(self.publication.pack, extras.sizes, extras.contents(self.plan.source)),
        ).sealed()

    def _draft(self) -> Manifest:
        parts = [Part(name, samples, 1 << 40, "0" * 64) for name, samples in self.plan.part_samples.items()]
        return Manifest(
            format=self.plan.options.to,
            samples=len(self.plan.source),
            schema=self.plan.schema,
            options=self.plan.options.to_json(),
            source=self._described_source(),
            parts=tuple(parts),
            index=(),
            written_by=f"packer {__version__}",
            skipped=tuple(self.plan.source.left_out),
        )

    def _described_source(self) -> dict[str, object]:
        source, left = self.plan.source, self.plan.extras.left
        described: dict[str, object] = {
            "kind": source.kind,
            "samples": len(source) + len(self.plan.left_out),
            "files": self.plan.file_count,
            "bytes": self.plan.source_bytes,
            "digest": self.plan.digest,
        }
        provenance = source.provenance()
        if provenance is not None:
            described = dict(provenance.origin)
        return described if left == (0, 0) else {**described, "left_behind": {"files": left[0], "bytes": left[1]}}


def _relative(reason: str, root: Path) -> str:
    """Return a reason with file names relative to `root`, because the manifest must not depend on the machine."""
    folder = f"{root}{os.sep}"
    return reason.replace(folder, "").replace(printable(folder), "")  # sources name files in both ways


# ---- the size of the pack

_RECORD_OVERHEAD = 80  # index entry, key and numbers of one sample, roughly
_FILE_OVERHEAD = 2048  # average unused space in the last block of a file


@dataclass(frozen=True)
class Estimate:
    """Estimated size of a pack.

    Attributes:
        samples: the number of samples.
        source_bytes: the bytes of the source files.
        pack_bytes: the bytes of the pack.
        scratch_bytes: the bytes of temporary files while the largest part is written.
        parts: the bytes of each part.
    """

    samples: int
    source_bytes: int
    pack_bytes: int
    scratch_bytes: int
    parts: tuple[int, ...]


def estimate(plan: Plan, *, probes: Sequence[int] | None = None) -> Estimate:
    """Estimate the size of a pack.

    If images are encoded again, the samples `probes` (indices) are encoded, to measure how much smaller they become. If
    `probes` is None, these are 16 samples spread over the source.
    """
    samples = len(plan.source)
    if probes is None:
        probes = probe_indices(samples, is_sequential=plan.source.is_sequential)
    ratio = 1.0 if plan.keeps_bytes or not plan.parts else _ratio(plan, probes)
    writer = formats.load(plan.options.to).Writer
    payloads = [int(plan.sizes[part.start : part.stop].sum() * ratio) for part in plan.parts]
    images = sum(field.kind in PIXEL_KINDS for field in plan.schema)  # the values that are large
    per_sample = _RECORD_OVERHEAD + writer.files(plan.schema) * _FILE_OVERHEAD
    parts = tuple(
        writer.part_bytes(payload, len(part) * max(1, images)) + len(part) * per_sample
        for payload, part in zip(payloads, plan.parts, strict=True)
    )
    pack_bytes = sum(parts) + sum(plan.extras.sizes.values())
    return Estimate(samples, plan.source_bytes, pack_bytes, writer.scratch_bytes(max(payloads, default=0)), parts)


def _ratio(plan: Plan, probes: Sequence[int]) -> float:
    encoder = encoder_of(plan)
    results = [encoder(index) for index in probes]
    encoded = [result for result in results if isinstance(result, Encoded)]
    read = sum(result.source_bytes for result in encoded)
    return sum(len(value) for result in encoded for value in result.record.values()) / read if read else 1.0
