"""Writer: packs the samples that a program writes one after another.

The calling threads copy and check each sample. A thread in the background builds the parts, as `convert` does. A part
ends when the values of its samples exceed `part_bytes`. So the bytes of the pack depend only on the order of `write`.
"""

import hashlib
import itertools
import json
import os
import queue
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, Self

import numpy as np

from packer import __version__, codecs, formats
from packer.conversion import engines
from packer.conversion.build_part import WrittenPart, write_part
from packer.conversion.conversion_run import ConversionRun
from packer.conversion.convert import ConversionSummary, format_of, summary_of
from packer.conversion.encode import SKIP_ADVICE, Encoded, Failure, SampleEncoder
from packer.conversion.engines.base import EngineOptions
from packer.conversion.options import MOST_PART_BYTES, ConversionOptions, Validate
from packer.conversion.plan import Plan
from packer.conversion.publication import FolderPublication, check_target, read_plan
from packer.conversion.shards import pack_folder, shard_path
from packer.conversion.stored_schema import MATRIX, ORIENTATION, SOURCE_SIZE, make_stored_schema
from packer.conversion.work_folder_names import DONE, NAMES
from packer.errors import BadInput, InvalidRequest, StorageError
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.extra_files import ChosenExtras
from packer.pack.manifest import INDEX
from packer.pack.sample_index import keys_in
from packer.schema import Field, Schema
from packer.sources.objects._object_values import Axes
from packer.sources.objects._written_samples import WrittenSamples, kinds_and_codecs, written_fields
from packer.system.argument_checks import check_arguments
from packer.system.parallel import usable_cores

_CHUNK_BYTES = 1 << 20  # as in build_part: a thread encodes one chunk at a time
_CHUNK_SAMPLES = 32
_WAITING_CHUNKS = 4  # for each thread
_END_OF_PART = range(0)
_OWN = (ORIENTATION, MATRIX, SOURCE_SIZE)


class _Abandoned(Exception):
    """The Writer was left by an exception, so the part that is being written stays unfinished."""


@dataclass(frozen=True)
class _OpenPlan(Plan):
    """Plan whose parts are not known before the samples are written."""

    def has_part(self, name: str, samples: int) -> bool:
        number = re.match(r"part-([0-9]{5,12})", name)
        return number is not None and name == self.part_name(int(number[1]))


class _Chunks:
    """Bounded queue of ranges of samples, from the threads that write to the thread that builds parts."""

    def __init__(self, length: int) -> None:
        self._queue: queue.Queue[range | None] = queue.Queue(length)
        self._begun: range | None = None
        self._has_ended = False
        self.is_abandoned = False

    def put(self, chunk: range | None) -> None:
        """Add a range, `_END_OF_PART`, or None after the last part. Waits while the queue is full."""
        self._queue.put(chunk)

    def _next(self) -> range | None:
        chunk = self._queue.get()
        self._has_ended = chunk is None
        if self.is_abandoned:
            raise _Abandoned
        return chunk

    def numbers(self, first: int) -> Iterator[int]:
        """Yield the number of each part when its first samples arrive."""
        for number in itertools.count(first):
            self._begun = self._next()
            if self._begun is None:
                return
            yield number

    def part(self) -> Iterator[range]:
        """Yield the ranges of the part whose number `numbers` has yielded."""
        chunk = self._begun
        while chunk:
            yield chunk
            chunk = self._next()

    def drain(self) -> None:
        """Drop all that is put, so that no thread waits."""
        while not self._has_ended:
            self._has_ended = self._queue.get() is None


class _Encoder(SampleEncoder):
    """Encoder that removes encoded samples from memory, and raises the error of a sample that cannot be packed."""

    def __init__(self, plan: Plan, samples: WrittenSamples) -> None:
        super().__init__(plan)
        self._samples = samples

    def __call__(self, index: int) -> Encoded | Failure:
        result = super().__call__(index)
        size = self._samples.forget(index)
        if isinstance(result, Failure):
            raise BadInput(result.reason.removesuffix(SKIP_ADVICE))
        return result._replace(source_bytes=size)


class _Run(ConversionRun):
    def __init__(
        self, publication: FolderPublication, samples: WrittenSamples, chunks: _Chunks, *, threads: int
    ) -> None:
        super().__init__(publication, threads=threads, progress=lambda samples, size: None)
        self.encoder = _Encoder(self.plan, samples)
        self._chunks = chunks

    def _needed(self) -> str:
        return ""  # the number of further samples is unknown

    def write_part(self, number: int) -> WrittenPart:
        return write_part(self.spec, number, encoder=self.encoder, noted=self.note, arriving=self._chunks.part())


class Writer:
    """Writer of a pack, for programs that make samples. Thread-safe; used in a `with` statement.

    The pack becomes visible when the `with` block ends. If the program is killed, or an exception leaves the block, the
    finished parts stay in a hidden folder. The same Writer then continues after them. `written` and `key in writer`
    return the samples that are stored, and the program skips these. The continued pack has the same bytes.

    Images are stored as the codec says, `bytes` and paths of image files as they are unless a codec is given.

    Example:
        >>> with packer.Writer("own.pack", fields={"image": "jpeg:95", "label": "number"}) as writer:
        ...     for number in range(1000):
        ...         if f"{number}" not in writer:
        ...             writer.write({"image": render(number), "label": number % 10}, key=f"{number}")
    """

    def __init__(
        self,
        pack: str | PathLike[str],
        *,
        fields: Mapping[str, str | Field],
        classes: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
        to: str | None = None,
        part_bytes: int | None = None,
        validate: Validate = "full",
        max_pixels: int | None = None,
        axes: Literal["auto", "hwc", "chw"] = "auto",
        threads: int | None = None,
        overwrite: bool = False,
        restart: bool = False,
        shard: int | None = None,
        shards: int | None = None,
    ) -> None:
        """Open the pack for writing, and find the finished parts of an earlier run.

        Args:
            pack: The folder of the new pack.
            fields: The fields of each sample: name -> kind ("image", "mask", "number", "text", ...), codec of an image
                ("jpeg:95"), or `Field`. The first sample states the dtypes and shapes of the pack.
            classes: The class names of the field `label`, or a mapping of fields of kind "number" to names.
            to: The format. Default: the suffix of `pack`, or "lmdb", as in `packer.convert`.
            part_bytes: The bytes of written values per part; 0 for a single part. A killed program loses at most the
                last two parts. Default: 256 MiB.
            validate: "full" decodes every image file once; "header" checks only the header and the end of the file.
            max_pixels: The most pixels of one image. Default: 100 million.
            axes: The order of the axes of images that are arrays, as in `packer.convert`.
            threads: The number of threads that encode; None for all usable cores.
            overwrite: True replaces an existing pack when the Writer is closed.
            restart: True discards the finished parts of an earlier run.
            shard: The number of this process, from 0, if several processes write one pack; see `packer.finish`.
            shards: The number of these processes.

        Raises:
            InvalidRequest: The arguments are wrong, or differ from those of the earlier run.
            PackExists: `pack` exists and `overwrite` is false.
            Locked: Another process writes to `pack`.
            StorageError: A disk fails.
        """
        given = {name: value for name, value in locals().items() if name != "self"}
        check_arguments(given, Writer.__init__.__annotations__)
        target = pack_folder(pack)
        format = format_of(target, to)
        self._kinds, chosen = kinds_and_codecs(fields)
        names = {} if classes is None else classes if isinstance(classes, Mapping) else {"label": classes}
        self._classes = {name: list(each) for name, each in names.items()}
        self._axes: Axes = axes
        kinds = {name: each.to_json() if isinstance(each, Field) else each for name, each in fields.items()}
        is_whole = part_bytes is None and formats.load(format).Writer.one_part
        self._options = ConversionOptions(
            to=format,
            codecs=tuple(chosen.items()),
            validate=validate,
            part_bytes=0 if is_whole else MOST_PART_BYTES if part_bytes is None else part_bytes,
            max_pixels=max_pixels,
            order="stored",
            source={
                "kind": WrittenSamples.kind,
                "options": {"fields": kinds, "classes": self._classes, "axes": axes},
                "sidecars": [],
                "splits": {},
            },
        )
        self._target = target if shard is None and shards is None else shard_path(target, shard, shards)
        self._prefix = "" if shard is None else f"{shard:05d}-"
        self._threads = threads or usable_cores()
        self._overwrite = overwrite
        self._process = os.getpid()
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._chunks = _Chunks(_WAITING_CHUNKS * self._threads)
        self._samples: WrittenSamples | None = None
        self._run: _Run | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._is_closed = self._is_complete = False
        self._first = self._chunk_bytes = self._part_bytes = self._resumed = 0
        with ExitStack() as stack:
            self._work = stack.enter_context(work_folder(beside(self._target), NAMES))
            if shard is not None and not (overwrite or restart) and (self._target / manifests.NAME).is_file():
                self._open_complete()
            else:
                check_target(None, self._target, overwrite=overwrite)
                self._continue(restart=restart)
            self._exit = stack.pop_all()

    # ---- samples

    def write(self, sample: Mapping[str, Any], *, key: str | None = None) -> None:
        """Add a sample. Returns when the values are copied and checked; they are encoded in the background.

        Args:
            sample: The value of each field. Images are arrays, PIL images, or the bytes or path of a file. Labels are
                numbers or names of classes.
            key: The unique text id of the sample. Default: its number, with the number of the shard.

        Raises:
            BadInput: A value does not fit its field, or an earlier sample has the key: this sample is not added. Or an
                earlier sample cannot be encoded: the message names it, and the Writer accepts no more samples.
            InvalidRequest: The Writer is closed, or is used in another process.
            StorageError: A disk fails.
        """
        with self._lock:
            self._check()
            if self._samples is None:
                self._samples = self._begun(sample, key)
            samples = self._samples
        values = samples.values_of(sample, f"{samples.root}[{len(samples)}]" + (f" ({key})" if key is not None else ""))
        with self._lock:
            self._check()
            index = len(samples)
            size = samples.add(f"{self._prefix}{index:08d}" if key is None else key, values)
            limit = self._options.part_bytes
            if limit and self._part_bytes and self._part_bytes + size > limit:
                self._end_part(index)
            self._part_bytes += size
            self._chunk_bytes += size
            if self._chunk_bytes >= _CHUNK_BYTES or index + 1 - self._first >= _CHUNK_SAMPLES:
                self._hand_over(index + 1)

    def __contains__(self, key: object) -> bool:
        """Return True if the pack has a sample with this key: of this Writer, or of an earlier run."""
        return self._samples is not None and key in self._samples.keys

    @property
    def written(self) -> list[str]:
        """Keys of all samples in order, those of an earlier run first."""
        return [] if self._samples is None else list(self._samples.keys)

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise InvalidRequest(
                f"{self._target}: a Writer works in the process that opened it; open one in each, with shard= and "
                "shards="
            )
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise InvalidRequest(f"{self._target}: this Writer is closed; open another one")
        if self._is_complete:
            raise InvalidRequest(f"{self._target}: an earlier run has completed this shard; overwrite=True replaces it")

    def _end_part(self, end: int) -> None:
        self._hand_over(end)
        self._chunks.put(_END_OF_PART)
        self._part_bytes = 0

    def _hand_over(self, end: int) -> None:
        if end > self._first:
            self._chunks.put(range(self._first, end))
        self._first, self._chunk_bytes = end, 0

    # ---- the beginning

    def _begun(self, sample: Mapping[str, Any], key: str | None) -> WrittenSamples:
        """Begin an empty pack, whose schema is that of its first sample."""
        probe = WrittenSamples(written_fields(sample, self._kinds, self._classes, self._axes), self._axes)
        probe.add("" if key is None else key, probe.values_of(sample, f"{probe.root}[0] ({key})"))
        schema, _ = make_stored_schema(probe, self._options, lossy=frozenset())
        return self._begin(schema, restart=True)

    def _continue(self, *, restart: bool) -> None:
        """Find the finished parts of an earlier run."""
        earlier = None if restart else read_plan(self._work)
        if earlier is None or self._work.status(DONE) is None:
            return
        with self._work.folder(DONE) as folder:
            is_begun = bool(folder.names())
        if is_begun:
            schema = codecs.described(Schema.from_json(earlier.get("schema", ())))
            self._samples = self._begin(schema, restart=False)

    def _begin(self, schema: Schema, *, restart: bool) -> WrittenSamples:
        samples = WrittenSamples((field for field in schema if field not in _OWN), self._axes)
        content = [__version__, self._options.to_json(), schema.to_json()]
        plan = _OpenPlan(
            source=samples,
            options=self._options,
            schema=schema,
            parts=(),
            sizes=np.broadcast_to(np.int64(0), 1 << 40),  # unknown; `_Encoder` returns the size of a sample
            file_count=0,
            digest="",
            fingerprint=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
            defaulted=frozenset(),
            extras=ChosenExtras(),
        )
        publication = FolderPublication(plan, self._target, self._work, overwrite=self._overwrite)
        self._run = _Run(publication, samples, self._chunks, threads=self._threads)
        with self._run.naming_needed_space():
            publication.begin(restart=restart)
        finished = {}
        for number in itertools.count():
            done = publication.finished.get(plan.part_name(number))
            if done is None:  # later parts are written again, because samples between them are missing
                break
            finished[done.part.name] = done
            samples.resume(keys_in(publication.pieces / done.part.name, schema), done.bytes_in)
        if len(finished) < len(publication.finished):
            publication.finished = finished
            publication.sweep()
        self._first = self._resumed = len(samples)
        self._thread = threading.Thread(target=self._build, args=(self._run, len(finished)), daemon=True)
        self._thread.start()
        return samples

    def _open_complete(self) -> None:
        manifest = manifests.read(self._target)
        if manifest.options != self._options.to_json():
            raise InvalidRequest(f"{self._target}: complete, with other arguments; overwrite=True replaces it")
        self._samples = WrittenSamples(manifest.schema, self._axes)
        self._samples.resume(keys_in(self._target / INDEX, manifest.schema), 0)
        self._is_complete = True

    def _build(self, run: _Run, first: int) -> None:
        try:
            with run.naming_needed_space():
                engines.load("local").Engine(EngineOptions()).build(run, self._chunks.numbers(first))
        except BaseException as error:  # noqa: BLE001  the threads that write get any error
            self._failure = error
        if self._failure is not None:
            self._chunks.drain()

    # ---- the end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the Writer. After an exception in the block, only the finished parts are kept."""
        if kind is not None:
            self.abandon()
        elif not self._is_closed:
            self.close()

    def close(self) -> ConversionSummary:
        """Write the rest, and make the pack visible.

        Raises:
            BadInput: A sample cannot be encoded. The message names it. Finished parts are kept.
            InvalidRequest: No sample was written, or the Writer is closed.
            PackExists: `pack` was made by another program.
            StorageError: A disk fails.
        """
        is_complete, self._is_complete = self._is_complete, False
        self._end(is_abandoned=False)
        with self._exit:
            if is_complete:
                manifest = manifests.read(self._target)
                count = manifest.samples
                return ConversionSummary(count, len(manifest.parts), 0, 0, 0.0, manifest.pack_id, resumed_samples=count)
            if self._failure is not None:
                self._sweep()
                raise self._failure
            run, samples = self._run, self._samples
            if run is None or samples is None:
                raise InvalidRequest(
                    f"{self._target}: expected at least one sample, found none; write samples before close"
                )
            publication = run.publication
            done = [publication.finished[run.plan.part_name(number)] for number in range(len(publication.finished))]
            parts = tuple(range(each.part.samples) for each in done)
            run.plan = replace(run.plan, parts=parts, sizes=np.asarray([samples.bytes_in]))
            with run.naming_needed_space():
                manifest = run.manifest()
                manifest.check()
                publication.publish(manifest)
            summary = summary_of(manifest, run.plan, resumed=self._resumed, notes=run.findings())
            return replace(summary, seconds=time.monotonic() - self._started)

    def abandon(self) -> None:
        """Close the Writer without a pack. Finished parts are kept for a Writer with the same arguments."""
        if not self._is_closed and os.getpid() == self._process:
            self._end(is_abandoned=True)
            with self._exit:
                self._sweep()

    def _sweep(self) -> None:
        """Remove the files of the unfinished part."""
        if self._run is not None:
            with suppress(StorageError):  # the next Writer does it
                self._run.publication.sweep()

    def _end(self, *, is_abandoned: bool) -> None:
        """Let the thread in the background end, and wait for it."""
        with self._lock:
            if self._failure is None:
                self._check()
            self._is_closed = True
            self._chunks.is_abandoned = is_abandoned
            if self._thread is not None:
                if self._samples is not None and self._part_bytes:
                    self._end_part(len(self._samples))
                self._chunks.put(None)
        if self._thread is not None:
            self._thread.join()
