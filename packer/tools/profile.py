"""Profile: the time per sample of a pack in each stage of loading, in one thread.

The stages run one after the other, with the code of the loaders. Steps that loaders combine are combined here, such as
decoding the visible part of a JPEG directly into the batch.

| stage     | content                                                                                  |
|-----------|------------------------------------------------------------------------------------------|
| read      | reading all bytes of the record from the pack                                            |
| crc       | comparing the crc32; loaders do so when they read a value for the first time             |
| decode    | decoding headers, pixels and labels; directly into the batch if there is no transform    |
| warp      | the geometry: resizing, cropping, rotating                                               |
| transform | the user's function                                                                      |
| collate   | building the batch from fields that are not decoded directly into the batch              |
| copy      | copying the batch to the device and waiting for the copy; only with a GPU                |
"""

import heapq
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from packer.codecs.base import StoredImage
from packer.datasets.batch import Collator, channels_first
from packer.datasets.pack_dataset import PackDataset, as_torch
from packer.errors import BadInput, CorruptRecord, InvalidRequest
from packer.files.page_cache import cold_sentence, drop
from packer.formats.base import Record
from packer.geometry import View
from packer.geometry.warp import warp
from packer.schema import PIXEL_KINDS, Field
from packer.tools.measured_workload import Subject, subjects
from packer.tools.report import ToolReport, table

STAGES = ("read", "crc", "decode", "warp", "transform", "collate", "copy")
LASTING = tuple(stage for stage in STAGES if stage != "crc")
_PAGE = 4096
_WORST = 5
Clock = Callable[[], float]


@dataclass
class Profile:
    """Times of loading some samples once.

    Attributes:
        seconds: (stage, field) -> seconds of all samples. The field is "" for stages of the complete sample.
        worst: (seconds, key) of the slowest samples, slowest first. The stages collate and copy are not included.
        device: Device of the stage copy. None if batches were not copied.
    """

    samples: int
    seconds: dict[tuple[str, str], float] = field(default_factory=dict)
    worst: list[tuple[float, str]] = field(default_factory=list)
    device: str | None = None

    def of(self, stage: str) -> float:
        """Return the milliseconds per sample of a stage, summed over all fields."""
        return sum(seconds for (name, _), seconds in self.seconds.items() if name == stage) / self.samples * 1e3

    @property
    def total(self) -> float:
        """Milliseconds per sample, summed over all stages except crc, which runs only in the first epoch."""
        return sum(map(self.of, LASTING))

    @property
    def limit(self) -> str:
        """Name of the slowest stage. The stage crc is ignored, because it runs only in the first epoch."""
        return max(LASTING, key=self.of)


class Stopwatch:
    """Timer that sums the seconds of each (stage, field)."""

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[tuple[str, str], float] = {}
        self._clock = clock
        self.last = clock()

    def lap(self, stage: str, of: str = "") -> None:
        """Add the time since the last call of `lap` or `skip` to (stage, of). `of` is a field, "" for all fields."""
        now = self._clock()
        self.seconds[stage, of] = self.seconds.get((stage, of), 0.0) + now - self.last
        self.last = now

    def skip(self) -> None:
        """Discard the time since the last call of `lap` or `skip`."""
        self.last = self._clock()


def profile(
    dataset: PackDataset,
    indices: Sequence[int],
    *,
    batch_size: int = 32,
    device: str | None = None,
    clock: Clock = time.perf_counter,
) -> Profile:
    """Load the samples at `indices` once, one stage after the other, and return the times.

    Args:
        dataset: A dataset with output="torch". Its geometry and transform are applied and measured.
        device: Device to copy batches to, such as "cuda". None skips the stage copy.

    Raises:
        InvalidRequest: `indices` is empty, or the dataset has another output.
        CorruptPack: A sample is damaged.
    """
    if not len(indices) or dataset.output != "torch":
        raise InvalidRequest(f"{dataset!r}: a profile needs at least one sample, and output='torch'")
    run = _ProfiledPass(dataset, Stopwatch(clock), device)
    for start in range(0, len(indices), batch_size):
        run.batch(indices[start : start + batch_size])
    worst = sorted(run.worst, reverse=True)
    return Profile(len(indices), run.watch.seconds, worst, device)


class _ProfiledPass:
    def __init__(self, dataset: PackDataset, watch: Stopwatch, device: str | None) -> None:
        self.watch = watch
        self.worst: list[tuple[float, str]] = []
        self._dataset = dataset
        self._sample_decoder = dataset.sample_decoder()
        self._device = device
        self._collator = Collator("list", schema=dataset.schema)
        self._slots: dict[str, np.ndarray[Any, Any]] = {}

    def batch(self, indices: Sequence[int]) -> None:
        places = self._dataset.pack_indices(indices).tolist()
        samples = []
        self.watch.lap("collate")
        for position, place in enumerate(places):
            began = self.watch.last
            samples.append(self._sample(place, position, len(places)))
            entry = (self.watch.last - began, self._sample_decoder.pack.index.key(place))
            (heapq.heappush if len(self.worst) < _WORST else heapq.heappushpop)(self.worst, entry)
            self.watch.skip()
        batch = self._collated(samples, len(places))
        self.watch.lap("collate")
        if self._device is not None:
            _copy(batch, self._device)
            self.watch.lap("copy")

    def _sample(self, index: int, position: int, count: int) -> Any:
        sample_decoder, watch, dataset = self._sample_decoder, self.watch, self._dataset
        sample: dict[str, Any] = {}
        with sample_decoder.pack.record(index, sample_decoder.stored, check=False) as read:
            touch(read)
            watch.lap("read")
            for name, value in read.items():
                sample_decoder.pack.compare(index, name, value)
            watch.lap("crc")
            record = sample_decoder.completed(index, read)
            stored = {name: self._read_header(index, name, record) for name in sample_decoder.images}
            random = torch.rand(dataset.geometry.draws).tolist() if dataset.geometry else ()
            main, others = sample_decoder.views(index, dataset.geometry, stored, random)
            watch.lap("warp")
            for each in sample_decoder.schema:
                if each.name in record:
                    view, out = others.get(each.name, main), None
                    if each.kind in PIXEL_KINDS and dataset.transform is None:
                        out = self._slot(each, stored[each.name], view, position=position, count=count)
                    value = self._decoded(index, each, record, out=out, stored=stored.get(each.name), view=view)
                else:
                    value = sample_decoder.indexed(index, each)
                sample[each.name] = as_torch(each, value)
                watch.lap("decode", each.name)
        if dataset.transform is None:
            return sample
        transformed = dataset.transform(sample)
        watch.lap("transform")
        return transformed

    def _read_header(self, index: int, name: str, record: Record) -> StoredImage:
        stored = self._sample_decoder.stored_image(index, name, record[name])
        self.watch.lap("decode", name)
        return stored

    def _slot(self, each: Field, stored: StoredImage, view: View | None, *, position: int, count: int) -> Any:
        """Return the slice of the batch array for the image at `position`, or None if the image has another shape."""
        shape = stored.shape if view is None else (*view.size, *stored.shape[2:])
        slots = self._slots.get(each.name)
        if slots is None or len(slots) < count:
            slots = self._slots[each.name] = np.zeros((count, *shape), each.pixel_dtype)
        return slots[position] if slots.shape[1:] == shape else None

    def _decoded(
        self, index: int, each: Field, record: Record, *, out: Any, stored: StoredImage | None, view: View | None
    ) -> Any:
        """Decode one value. Add the times of decoding and of warping to separate stages."""
        sample_decoder, watch, buffer = self._sample_decoder, self.watch, record[each.name]
        if each.kind not in PIXEL_KINDS or view is None:
            return sample_decoder.decode(index, each, buffer, out, stored=stored, view=view)
        if sample_decoder.in_place(each, buffer) is not None:  # warped straight from the stored pixels
            pixels = sample_decoder.decode(index, each, buffer, out, stored=stored, view=view)
            watch.lap("warp", each.name)
            return pixels
        decoder = sample_decoder.file_decoder(each)
        warps = []

        def decoded() -> None:
            watch.lap("decode", each.name)
            warps.append(True)

        if decoder is None or each.is_wide_mask or (each.kind == "depth" and each.dtype != "float32"):
            pixels = sample_decoder.decode(index, each, buffer, None, stored=stored)
            decoded()
            pixels = warp(pixels, view, each.kind, invalid=each.invalid, out=out)
        else:
            try:
                header = stored.header if stored is not None else None
                pixels = decoder(buffer, view, out, header=header, decoded=decoded)
            except (BadInput, CorruptRecord) as error:
                raise sample_decoder.undecodable(index, each.name, error) from error
        watch.lap("warp" if warps else "decode", each.name)
        return pixels

    def _collated(self, samples: list[Any], count: int) -> Any:
        if self._dataset.transform is not None or not samples:
            return self._collator.samples(samples)
        batched = {
            name: channels_first(self._sample_decoder.schema[name], torch.from_numpy(slots[:count]))
            for name, slots in self._slots.items()
            if all(tuple(sample[name].shape) == tuple(samples[0][name].shape) for sample in samples)
        }
        rest = [{name: value for name, value in sample.items() if name not in self._slots} for sample in samples]
        return {**batched, **(self._collator.samples(rest) if rest[0] else {})}


def touch(record: Record) -> None:
    """Access every memory page of a record's values, so that the system loads the pages."""
    for value in record.values():
        bytes(memoryview(value)[::_PAGE])


def _copy(batch: Any, device: str) -> None:
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else [batch]
    for value in values:
        if isinstance(value, torch.Tensor):
            value.to(device)
        elif isinstance(value, (dict, list, tuple)):
            _copy(value, device)
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


# ---- the command


def profile_pack(
    pack: Path,
    *,
    samples: int,
    batch_size: int,
    cold: bool,
    geometry: str | None = None,
    fields: tuple[str, ...] | None = None,
    transform: str | None = None,
) -> tuple[Profile, str]:
    """Profile random samples of a pack. A fixed seed selects the samples.

    Args:
        samples: Largest number of samples to load.
        cold: True drops the files of the pack from the page cache first. False loads the samples once without timing.
        geometry: Geometry as text, None for no geometry.
        fields: Names of the fields to load. None loads all fields that are not hidden.
        transform: A user's function `module:function`, called with each sample.

    Returns:
        (profile, note). If `cold` is true, the note states whether the files were in memory, otherwise it is "".

    Raises:
        InvalidRequest: The folder is not a pack.
    """
    (chosen,) = subjects((pack,), geometry, Subject(pack, fields, transform=transform))
    if not chosen.is_pack:
        raise InvalidRequest(f"{pack}: not a pack; packer convert makes one, packer bench measures folders too")
    note = cold_sentence(chosen.name, [drop(chosen.files()).share]) if cold else ""
    dataset: Any = chosen.open()
    indices = np.random.default_rng(0).permutation(len(dataset))[:samples].tolist()
    device = "cuda" if torch.cuda.is_available() else None
    if not cold:
        profile(dataset, indices, batch_size=batch_size, device=device)
    return profile(dataset, indices, batch_size=batch_size, device=device), note


# ---- the report

_NAMES = {"copy": "copy to device"}
_HELPS = {
    "read": "keep the pack in memory (packer stage), or store less: --resize, --fields",
    "decode": "store less to decode: packer convert --resize, or --codec FIELD=raw",
    "warp": "store the images closer to the size that training needs: packer convert --resize",
    "transform": "move it to the GPU, or into a geometry (packer.geometry), which is fused with decoding",
    "collate": "give all samples one shape, and leave out fields that training does not use (fields=)",
    "copy": "copy uint8 and make floats on the GPU; leave out fields that training does not use (fields=)",
}
_KEYS = 3


def report(found: Profile, options: Mapping[str, object], *, note: str, cores: int) -> ToolReport:
    """Return the report of a profile.

    Args:
        options: The options of the command, for the JSON.
        note: Last line of the text, "" for no line.
        cores: Number of cores, from which the report estimates the rate of a loader.
    """
    return ToolReport([*text(found, cores=cores), *([note] if note else [])], document(found, options))


def text(found: Profile, *, cores: int) -> list[str]:
    """Return the lines of the report: the table, the slowest stage, and notes."""
    fields = sorted({of for _, of in found.seconds if of})
    used = [name for name in fields if any(_shown(found, stage, name) for stage in STAGES)]
    head = ("stage", "ms/sample", "share", *used)
    rows = []
    for stage in STAGES:
        if (stage == "copy" and found.device is None) or (stage == "transform" and not found.of(stage)):
            continue
        share = f"{found.of(stage) / found.total:.0%}" if stage in LASTING else "1st epoch"
        cells = (_shown(found, stage, name) for name in used)
        rows.append((_NAMES.get(stage, stage), f"{found.of(stage):.3f}", share, *cells))
    rows.append(("total", f"{found.total:.3f}", "", *("" for _ in used)))
    return [*table(head, rows), "", verdict(found, cores), *_notes(found)]


def _shown(found: Profile, stage: str, name: str) -> str:
    """Return the milliseconds per sample of the field `name` in a stage as text, or "" for a negligible time."""
    milliseconds = found.seconds.get((stage, name), 0.0) / found.samples * 1e3
    return f"{milliseconds:.3f}" if milliseconds >= 0.0005 * max(1.0, found.total) else ""


def verdict(found: Profile, cores: int) -> str:
    """Return text with the slowest stage, the possible samples per second, and advice to make the stage faster."""
    rate = 1e3 / max(found.total, 1e-9)
    stage = found.limit
    of = f"{found.of(stage):.2f} of {found.total:.2f} ms per sample, {found.of(stage) / max(found.total, 1e-9):.0%}"
    allows = f"{rate:.0f} samples/s in one thread, at most {rate * cores:.0f} on {cores} cores"
    return f"{_NAMES.get(stage, stage).capitalize()} limits: {of}; {allows}. To go faster: {_help(found, stage)}."


def _help(found: Profile, stage: str) -> str:
    """Return advice to make a stage faster. It names the field that is slowest in this stage."""
    fields = {of: seconds for (name, of), seconds in found.seconds.items() if name == stage and of}
    return _HELPS[stage].replace("FIELD", max(fields, key=fields.__getitem__, default="FIELD"))


def _notes(found: Profile) -> Iterator[str]:
    if found.device is None:
        yield "Copy to device: not measured, torch finds no GPU."
    worst = ", ".join(f"{key!r} {seconds * 1e3:.1f} ms" for seconds, key in found.worst[:_KEYS])
    yield f"Slowest samples: {worst}."


def document(found: Profile, options: Mapping[str, object]) -> dict[str, Any]:
    """Return the JSON document of the report, with times in milliseconds per sample."""
    fields: dict[str, dict[str, float]] = {}
    for (stage, name), seconds in found.seconds.items():
        if name:
            fields.setdefault(stage, {})[name] = seconds / found.samples * 1e3
    return {
        "title": "packer profile",
        "options": dict(options),
        "samples": found.samples,
        "device": found.device,
        "ms_per_sample": {stage: found.of(stage) for stage in STAGES},
        "ms_per_sample_by_field": fields,
        "limit": found.limit,
        "slowest": [{"key": key, "ms": seconds * 1e3} for seconds, key in found.worst],
    }
