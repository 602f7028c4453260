"""Writer: packs the samples that a program writes one after another.

The calling threads copy and check each sample. Threads in the background encode it, and one of them writes the parts.
A part ends before its values exceed `part_bytes`. So the bytes of the pack depend only on the order of the calls of
`write`.
"""

import hashlib
import itertools
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from packer import __version__, codecs, formats
from packer.conversion.build_part import PartWriter, WrittenPart, finish_part
from packer.conversion.convert import ConversionSummary, completed_run, format_of
from packer.conversion.encode import SKIP_ADVICE, Encoded, Failure
from packer.conversion.options import MOST_PART_BYTES, ConversionOptions, Validate
from packer.conversion.pack_build import ConversionRun
from packer.conversion.plan import Plan
from packer.conversion.publication import FolderPublication, check_target, read_plan, read_records
from packer.conversion.stored_schema import ORIENTATION, SOURCE_SIZE, make_stored_schema
from packer.conversion.work_folder_layout import NAMES
from packer.errors import BadInput, InvalidRequest, StorageError
from packer.files.work_folder import beside, work_folder
from packer.pack import manifest as manifests
from packer.pack.manifest import INDEX, Manifest
from packer.pack.sample_index import keys_in
from packer.schema import MATRIX, Field, Schema
from packer.sources.base import Sample
from packer.sources.objects._object_values import Axes
from packer.sources.objects._written_samples import WrittenSamples, kinds_and_codecs, written_fields
from packer.stores.url import URLPath, path_or_url
from packer.system.argument_types import check_arguments
from packer.system.parallel import usable_cores

_WAITING = 4  # samples that wait, for each thread
_OWN = (ORIENTATION, MATRIX, SOURCE_SIZE)


class _OpenPack:
    """An unfinished pack. Threads encode the added samples, and one more thread writes the parts in order.

    Attributes:
        samples: The samples that are not encoded yet, and the keys of all samples.
        failure: The first error of these threads, or None. After an error, the pack cannot be completed.
    """

    def __init__(self, publication: FolderPublication, samples: WrittenSamples, *, threads: int, restart: bool) -> None:
        """Continue after the finished parts of an earlier run. Their keys are added to `samples`."""
        plan = publication.plan
        self.failure: BaseException | None = None
        self._run = ConversionRun(publication, threads=threads, progress=lambda samples, size: None)
        self._run.begin(restart=restart)
        names = itertools.takewhile(publication.finished.__contains__, map(plan.part_name, itertools.count()))
        publication.finished = {name: publication.finished[name] for name in names}
        publication.sweep()  # later parts are written again, because samples between them are missing
        for done in publication.finished.values():
            samples.resume(keys_in(publication.pieces / done.part.name, plan.schema), done.bytes_in)
        self.samples, self._resumed = samples, len(samples)
        self._numbers = itertools.count(len(publication.finished))
        self._limit, self._part_bytes = plan.options.part_limit(0), 0
        self._part: PartWriter | None = None
        self._encoders = ThreadPoolExecutor(threads, "packer-encode")
        self._builder = ThreadPoolExecutor(1, "packer-build")
        self._room = threading.Semaphore(_WAITING * threads)

    def add(self, key: str, values: Sample) -> None:
        """Add a sample. Blocks while the queue is full. Raises BadInput if an earlier sample has the key."""
        index, size = len(self.samples), self.samples.add(key, values)
        if self._limit and self._part_bytes and self._part_bytes + size > self._limit:
            self._builder.submit(self._do, self._end_part)
            self._part_bytes = 0
        self._part_bytes += size
        self._room.acquire()
        stored = self._builder.submit(self._do, self._store, self._encoders.submit(self._encoded, index))
        stored.add_done_callback(lambda _: self._room.release())

    def completed(self) -> ConversionSummary:
        """Write the remaining samples and publish the pack. Raises `failure` if it is not None."""
        self._builder.submit(self._do, self._end_part)
        self._stop()
        if self.failure is not None:
            raise self.failure
        summary = completed_run(self._run)
        return replace(summary, bytes_in=self.samples.bytes_in, resumed_samples=self._resumed)

    def abandon(self) -> None:
        """Stop the threads, and keep only the finished parts."""
        self.failure = self.failure or InvalidRequest("this Writer is closed")  # the steps that wait do nothing
        self._stop()

    def _stop(self) -> None:
        self._builder.submit(self._close_part)
        self._builder.shutdown()
        self._encoders.shutdown()
        if self.failure is not None:
            with suppress(StorageError):  # the next Writer does it
                self._run.publication.sweep()

    # ---- in the background

    def _do(self, step: Callable[..., None], *args: Any) -> None:
        if self.failure is None:
            self._try(step, *args)

    def _try(self, step: Callable[..., None], *args: Any) -> None:
        try:
            with self._run.naming_needed_space():
                step(*args)
        except BaseException as error:  # noqa: BLE001  the threads that write get any error
            self.failure = self.failure or error

    def _encoded(self, index: int) -> Encoded:
        result, size = self._run.encoder(index), self.samples.forget(index)
        if isinstance(result, Failure):
            raise BadInput(result.reason.removesuffix(SKIP_ADVICE))
        return result._replace(source_bytes=size)

    def _store(self, encoded: Future[Encoded]) -> None:
        if self._part is None:
            run, number = self._run, next(self._numbers)
            self._part = PartWriter(run.spec, number, payload_bytes=self._limit, noted=run.note)
        self._part.write([encoded.result()])

    def _end_part(self) -> None:
        if self._part is not None:
            written = self._part.finish()
            self._close_part()
            self._encoders.submit(self._try, self._finish, written)  # kept after the failure of a later part, too

    def _finish(self, part: WrittenPart) -> None:
        self._run.publication.finish(finish_part(self._run.spec, part))

    def _close_part(self) -> None:
        if self._part is not None:
            self._part.close()
        self._part = None


class Writer:
    """Writer of a pack, for programs that make samples. Thread-safe; used in a `with` statement.

    The pack becomes visible when the `with` block ends. If the program is killed, or an exception leaves the block, the
    finished parts stay in a hidden folder. A Writer with the same arguments continues after them. Its `written` and
    `key in writer` show which samples are stored, so that the program skips them. The pack has the same bytes as
    without the interruption.

    Image files (`bytes` or paths) are stored unchanged, unless the field has a codec. Other images are encoded.

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
                ("jpeg:95"), or `Field`. The first sample sets the dtypes and shapes of the pack.
            classes: The class names of the field `label`, or a mapping from names of "number" fields to class names.
            to: The format. Default: the suffix of `pack`, or "lmdb", as in `packer.convert`.
            part_bytes: The bytes of written values per part; 0 for a single part. A killed program loses at most the
                last two parts. Default: 256 MiB.
            validate: "full" decodes every image file once; "header" checks only the header and the end of the file.
            max_pixels: The most pixels of one image. Default: 100 million.
            axes: The order of the axes of images that are arrays, as in `packer.convert`.
            threads: The number of threads that encode; None for all usable cores.
            overwrite: True replaces an existing pack when the Writer is closed. False: an existing pack is an error.
            restart: True discards the finished parts of an earlier run. False continues after them.
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
        self._pack: _OpenPack | None = None  # until the first sample
        self._complete: Manifest | None = None  # the shard, if an earlier run completed it
        self._is_closed = False
        self._keys: Mapping[str, object] = {}
        with ExitStack() as stack:
            self._work = stack.enter_context(work_folder(beside(self._target), NAMES))
            if shard is not None and not (overwrite or restart) and (self._target / manifests.NAME).is_file():
                self._complete = self._complete_shard()
                self._keys = dict.fromkeys(keys_in(self._target / INDEX, self._complete.schema))
            else:
                check_target(None, self._target, overwrite=overwrite)
                earlier = None if restart else read_plan(self._work)
                if earlier is not None and read_records(self._work):
                    self._begin(codecs.described(Schema.from_json(earlier.get("schema", ()))), restart=False)
            self._exit = stack.pop_all()

    def write(self, sample: Mapping[str, Any], *, key: str | None = None) -> None:
        """Add a sample. Returns when the values are copied and checked; they are encoded in the background.

        Args:
            sample: The value of each field. Images are arrays, PIL images, or the bytes or path of a file. Labels are
                numbers or names of classes.
            key: The unique text id of the sample. Default: the number of the shard, if any, and of the sample.

        Raises:
            BadInput: A value does not fit its field, or an earlier sample has the key: this sample is not added. Or an
                earlier sample cannot be encoded: the message names it, and the Writer accepts no more samples.
            InvalidRequest: The Writer is closed, or is used in another process.
            StorageError: A disk fails.
        """
        with self._lock, self._work.named():
            self._check()
            pack = self._pack or self._begun(sample, key)
            samples = pack.samples
        where = f"{samples.root}[{len(samples)}]" + (f" ({key})" if key is not None else "")
        values = samples.values_of(sample, where)
        with self._lock, self._work.named():
            self._check()
            pack.add(f"{self._prefix}{len(samples):08d}" if key is None else key, values)

    def __contains__(self, key: object) -> bool:
        """Return True if this Writer or an earlier run has written a sample with this key."""
        return key in self._keys

    @property
    def written(self) -> list[str]:
        """Keys of all samples in order, those of an earlier run first."""
        return list(self._keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the Writer as `close` does. After an exception in the block, call `abandon` instead."""
        if kind is not None:
            self.abandon()
        elif not self._is_closed:
            self.close()

    def close(self) -> ConversionSummary:
        """Write the remaining samples, and publish the pack.

        Raises:
            BadInput: A sample cannot be encoded. The message names it. Finished parts are kept.
            InvalidRequest: No sample was written, or the Writer is closed.
            PackExists: Another program made `pack` while the Writer was open.
            StorageError: A disk fails.
        """
        with self._lock:
            self._check_open()
            self._is_closed = True
        with self._exit:
            if self._complete is not None:
                count, parts = self._complete.samples, len(self._complete.parts)
                return ConversionSummary(count, parts, 0, 0, 0.0, self._complete.pack_id, resumed_samples=count)
            if self._pack is None:
                raise InvalidRequest(
                    f"{self._target}: expected at least one sample, found none; write samples before close"
                )
            return replace(self._pack.completed(), seconds=time.monotonic() - self._started)

    def abandon(self) -> None:
        """Close the Writer without a pack. Finished parts are kept for a Writer with the same arguments."""
        if not self._is_closed and os.getpid() == self._process:
            with self._lock, self._exit:
                self._is_closed = True
                if self._pack is not None:
                    self._pack.abandon()

    def _check_open(self) -> None:
        if os.getpid() != self._process:
            raise InvalidRequest(
                f"{self._target}: a Writer works in the process that opened it; open one in each, with shard= and "
                "shards="
            )
        if self._is_closed:
            raise InvalidRequest(f"{self._target}: this Writer is closed; open another one")

    def _check(self) -> None:
        self._check_open()
        if self._pack is not None and self._pack.failure is not None:
            raise self._pack.failure
        if self._complete is not None:
            raise InvalidRequest(f"{self._target}: an earlier run has completed this shard; overwrite=True replaces it")

    # ---- the beginning

    def _begun(self, sample: Mapping[str, Any], key: str | None) -> _OpenPack:
        """Begin a new pack with the schema of its first sample, `sample`. The sample itself is not added."""
        probe = WrittenSamples(written_fields(sample, self._kinds, self._classes, self._axes), self._axes)
        probe.add("" if key is None else key, probe.values_of(sample, f"{probe.root}[0] ({key})"))
        schema, _ = make_stored_schema(probe, self._options, lossy=frozenset())
        return self._begin(schema, restart=True)

    def _begin(self, schema: Schema, *, restart: bool) -> _OpenPack:
        samples = WrittenSamples((field for field in schema if field not in _OWN), self._axes)
        content = [__version__, self._options.to_json(), schema.to_json()]
        fingerprint = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        plan = Plan(samples, self._options, schema, fingerprint=fingerprint)
        publication = FolderPublication(plan, self._target, self._work, overwrite=self._overwrite)
        self._pack = _OpenPack(publication, samples, threads=self._threads, restart=restart)
        self._keys = samples.keys
        return self._pack

    def _complete_shard(self) -> Manifest:
        manifest = manifests.read(self._target)
        if manifest.options != self._options.to_json():
            raise InvalidRequest(f"{self._target}: complete, with other arguments; overwrite=True replaces it")
        return manifest


def pack_folder(pack: str | PathLike[str]) -> Path:
    """Return the absolute path of the folder `pack`. A URL raises InvalidRequest."""
    target = path_or_url(pack)
    if isinstance(target, URLPath):
        raise InvalidRequest(f"{pack}: a Writer writes to a folder; packer convert copies the pack to a URL")
    return target.absolute()


def shard_path(target: Path, shard: int | None, shards: int | None) -> Path:
    """Return the path of shard number `shard` of the pack `target`. Invalid numbers raise InvalidRequest."""
    if shard is None or shards is None or not 0 <= shard < shards <= 99_999:
        raise InvalidRequest(f"shard={shard}, shards={shards}: expected both, and 0 <= shard < shards <= 99999")
    return target.with_name(f"{target.name}.shard-{shard:05d}-of-{shards:05d}")
