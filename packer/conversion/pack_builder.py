"""Pack builder: builds the parts of one plan one after the other, then puts the pack together and publishes it."""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from packer import __version__, formats
from packer.conversion.build_part import FinishedPart, PartSpec, Progress, encoder_of
from packer.conversion.done_records import DoneRecords
from packer.conversion.encode import Encoded
from packer.conversion.engines.base import Engine
from packer.conversion.plan import Plan
from packer.conversion.work_folder_names import PACK
from packer.errors import BadInputs, InvalidRequest, PackerError, StorageError, StoreError, printable
from packer.files.storage_errors import free_bytes, free_files
from packer.files.work_folder import WorkFolder
from packer.pack import manifest as manifests
from packer.pack.extra_files import write_extras
from packer.pack.index import merge
from packer.pack.manifest import Manifest, Part
from packer.pack.unlisted_files import check_replaceable, check_whole
from packer.schema import PIXEL_KINDS
from packer.sources._parse.folder_listing import counted

if TYPE_CHECKING:  # the client of the stores, which folders do without
    from packer.conversion.stored_parts import StoredParts

_INDEX_FILES = 10  # at most, of index and extras, besides one per column
_INDEX_FILE_BYTES = 256  # in the manifest
_PARTS_AT_ONCE = 4  # on this machine's disk, of a pack behind a URL: one is written, others wait or are uploaded


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
        stored: "StoredParts | None" = None,
    ) -> None:
        """threads: that make records; the caller writes them. stored: where parts go, of a pack behind a URL.

        earlier: told of parts that an earlier run has finished, instead of progress. estimate: where it is known.
        """
        self.plan = plan
        self.target = target
        self.records = DoneRecords(work, stored)
        self._spec = PartSpec(plan, self.records.pack, self.records.pieces, threads)
        self.progress = progress
        self._earlier = earlier or progress
        self._known_estimate = estimate
        self.encoder = encoder_of(plan)
        self._writer = formats.load(plan.options.to).Writer
        self._reasons: dict[int, Sequence[str]] = {}  # number of a part -> of samples that cannot be packed
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
        begin = self.records.check if rehearses else self.records.begin
        plan, reason = self.plan, self.plan.source.resume_reason
        samples = {plan.part_name(number): len(part) for number, part in enumerate(plan.parts)}
        begin(plan.fingerprint, samples, restart=restart, options=plan.options.to_json(), no_resume=reason)

    def check_manifest(self) -> None:
        """Refuse before writing what could not be read afterwards: raises InvalidRequest where packer.json would be
        too large.

        What it will hold of samples that turn out to be bad or incomplete is counted as they come.
        """
        draft = self._draft()
        try:
            draft.check()
        except InvalidRequest:  # nothing was begun, or what was cannot go on
            if not self.records.finished or self.plan.source.resume_reason is not None:
                self.records.remove_all()
            raise
        files = len(draft.schema) + _INDEX_FILES
        self._noted_bytes = len(draft.to_bytes()) + files * _INDEX_FILE_BYTES
        self._noted_values = 3 * len(draft.skipped) + 12 * (len(draft.parts) + len(draft.schema) + files)
        self._noted_values += sum(len(field.classes or ()) for field in draft.schema)
        for done in self.records.finished.values():
            for item in (*done.skipped, *done.incomplete):
                self.note(item)

    def note(self, item: Sequence[str]) -> None:
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
            if not self.records.finished:
                self.records.remove_all()
            raise

    def _check_space(self) -> None:
        needed, free = self._needed_bytes(), free_bytes(self.records.work.path)
        if needed > free:
            raise StorageError(
                f"{self.target}: about {needed:,} bytes are needed while packing, {free:,} are free on its disk; "
                "free some, choose another folder, or make the pack smaller with --resize or --fields"
            )
        files = self._writer.files(self.plan.schema) * len(self.plan.source)
        left = free_files(self.records.work.path)
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
        except StoreError:  # room on this machine is not what it lacked
            raise
        except StorageError as error:
            needed, free = self._needed_bytes(), free_bytes(self.target.absolute().parent)
            raise StorageError(
                f"{error} (about {needed:,} bytes are still needed, {free:,} are free; "
                "finished parts are kept: the same command goes on after them)"
            ) from error

    def _needed_bytes(self) -> int:
        """About how much space it still takes to end: what is to be written, and once what is there only meanwhile."""
        parts = enumerate(self._estimate.parts)
        todo = [size for number, size in parts if self.plan.part_name(number) not in self.records.finished]
        if self.records.stored is not None:  # each is removed here as soon as it is there
            todo = sorted(todo)[-_PARTS_AT_ONCE:]
        extras = self._estimate.pack_bytes - sum(self._estimate.parts)
        return sum(todo) + extras + (self._estimate.scratch_bytes if todo else 0)

    @cached_property
    def _estimate(self) -> "Estimate":
        return self._known_estimate or estimate(self.plan)

    def build(self, engine: Engine) -> Manifest:
        """Build the parts that are missing, then the index and the manifest."""
        todo = (number for number in range(len(self.plan.parts)) if not self._is_done(number))
        try:
            engine.build(self, todo)
        except StorageError:
            with suppress(StorageError):
                self.records.sweep()  # gives back what the unfinished part takes
            raise
        except InvalidRequest:  # nothing was begun, or what was cannot go on
            if not self.records.finished or self.plan.source.resume_reason is not None:
                self.records.remove_all()
            raise
        except BadInputs:
            self.records.remove_all()  # no other run can go on from there
            raise
        except BaseException:
            if self.plan.source.resume_reason is not None:  # as above
                with suppress(StorageError):
                    self.records.remove_all()
            raise
        self._check_failures()
        return self._manifest()

    def _check_failures(self) -> None:
        """Raise BadInputs; no other run can go on from there, since its source or its options will differ."""
        root = self.plan.source.root
        if self._is_refused:
            self.records.remove_all()
            raise self.plan.refusal([reason for _, reasons in sorted(self._reasons.items()) for reason in reasons])
        if not any(done.part.samples for done in self.records.finished.values()):
            message = f"{root}: no sample can be packed:"
            reasons = [reason for done in self.records.finished.values() for _, reason in done.skipped]
        else:
            return
        self.records.remove_all()
        raise BadInputs(message, reasons=reasons)

    @property
    def _is_refused(self) -> bool:
        """Whether nothing will be packed, so that what is left is only read to name every bad file."""
        return self.plan.options.on_error == "raise" and bool(self._reasons or self.plan.unread)

    def _is_done(self, number: int) -> bool:
        done = self.records.finished.get(self.plan.part_name(number))
        if done is None:
            return False
        self._earlier(len(self.plan.parts[number]), done.bytes_in)
        return True

    # ---- what an engine asks for

    @property
    def spec(self) -> PartSpec:
        """Of the parts to come."""
        return replace(self._spec, only_reads=self._is_refused)

    def refuse(self, number: int, reasons: Sequence[str]) -> None:
        """These samples of a part cannot be packed."""
        if reasons:
            self._reasons[number] = reasons

    def add(self, done: FinishedPart) -> None:
        """A part is on disk; it goes where it belongs, and its done-record names it."""
        self.records.finish(done)

    def _manifest(self) -> Manifest:
        """Merge the index and put the manifest together; what an earlier try left of them was swept away."""
        names = [self.plan.part_name(number) for number in range(len(self.plan.parts))]
        finished = [self.records.finished[name] for name in names]
        skipped = [(key, reason) for done in finished for key, reason in done.skipped]
        skipped = [(key, _without(reason, self.plan.source.folder.root)) for key, reason in skipped]
        extras = self.plan.extras
        index = merge([self.records.pieces / name for name in names], self.records.pack, self.plan.schema)
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
            extras=write_extras(self.records.pack, extras.sizes, extras.contents(self.plan.source)),
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
        """Return a note for each finding, with the number of samples that have it."""
        total: Counter[str] = Counter()
        for done in self.records.finished.values():
            total.update(done.findings)
        return [f"{finding} ({counted(count, 'sample')})" for finding, count in sorted(total.items())]

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
        work = self.records.work
        with work.folder(PACK) as pack:
            pack.write_file(manifests.NAME, manifest.to_bytes())
        if overwrite and os.path.lexists(self.target):
            self._replace(work)
        else:
            work.publish(PACK, work.above, self.target.name)
        self.records.remove()

    def _replace(self, work: WorkFolder) -> None:
        """Swap with the pack that is there, and check only then what was replaced, since it may change until then."""
        check_replaceable(self.target)
        work.swap(PACK, work.above, self.target.name)
        try:
            check_whole(self.records.pack)
        except PackerError as error:
            work.swap(PACK, work.above, self.target.name)
            check_replaceable(self.target)  # under its own name again
            raise InvalidRequest(f"{self.target}: changed while it was replaced; run again") from error


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


def estimate(plan: Plan, *, probes: Sequence[int] | None = None) -> Estimate:
    """Kept bytes are known; what is encoded anew is judged from these samples, None for 16 spread over the source."""
    samples = len(plan.source)
    ratio = 1.0 if plan.keeps_bytes else _ratio(plan, plan.source.probes() if probes is None else probes)
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


def _ratio(plan: Plan, probes: Sequence[int]) -> float:
    encoder = encoder_of(plan)
    results = [encoder(index) for index in probes]
    encoded = [result for result in results if isinstance(result, Encoded)]
    read = sum(result.source_bytes for result in encoded)
    return sum(len(value) for result in encoded for value in result.record.values()) / read if read else 1.0
