"""Packing candidates: the ways to pack a source that are worth a trial, and a prediction for each.

| codec     | stored values                                                                            |
|-----------|------------------------------------------------------------------------------------------|
| kept      | the bytes of the files, in their size                                                    |
| jpeg:95   | images as JPEG; depth and masks as `packer convert` stores them by default               |
| png       | resized lossless images and masks as PNG; depth as by default                            |
| raw       | the numbers of all pixels                                                                |
| ycc420    | images as planes, half the bytes of raw, chroma at half the size; others as by default   |
| a format  | the codecs of a format that has its own (bmp)                                            |

A prediction scales a trial with a few samples to the complete set. If the pack fits in memory, the rate is that of the
trial. Otherwise each epoch reads the share that does not fit from the disk while it decodes other samples, and the
slower of the two decides. Packing also reads, encodes and writes at the same time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packer import formats
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.files.terminal_output import shell_word
from packer.schema import PIXEL_KINDS, Field
from packer.sources.base import Source

KEPT = "kept"
_JPEG = "jpeg:95"
_PLANES = "ycc420"


@dataclass(frozen=True)
class Candidate:
    """One way to pack.

    Attributes:
        size: Size as --resize takes it, None to keep the sizes.
        codecs: (field, codec) pairs that differ from the defaults.
        loses: True if it makes images worse in a way that `packer convert` does only on request.
        max_pixels: Most pixels of one image, None for the default limit.
    """

    format: str
    codec: str
    size: str | None = None
    codecs: tuple[tuple[str, str], ...] = ()
    loses: bool = False
    max_pixels: int | None = None

    def __str__(self) -> str:
        return f"{self.format}, {self.codec}, size {self.size or 'as it is'}"

    @property
    def options(self) -> ConversionOptions:
        """Options of a trial, which skips bad samples and copies no further files."""
        more = {"on_error": "skip", "extras_bytes": 0, "max_pixels": self.max_pixels}
        return ConversionOptions(to=self.format, codecs=self.codecs, resize=self.size, **more)  # type: ignore[arg-type]

    def line(self, source: Path, target: Path, *, follow_links: bool = False) -> str:
        """Return the command that packs this way, for a POSIX shell."""
        paths = [f"./{path}" if str(path).startswith("-") else str(path) for path in (source, target)]  # not options
        words = ["packer", "convert", *paths, "--to", self.format]
        words += [word for name, codec in self.codecs for word in ("--codec", f"{name}={codec}")]
        words += ["--resize", self.size] if self.size else []
        words += ["--max-pixels", str(self.max_pixels)] if self.max_pixels is not None else []
        return " ".join(map(shell_word, [*words, *(["--follow-links"] if follow_links else [])]))


def candidates(source: Source, sizes: Sequence[str | None], *, max_pixels: int | None = None) -> list[list[Candidate]]:
    """Return groups of one codec and size in several formats, lossless ones first.

    Raises the errors of `make_plan`.
    """
    ours = [name for name in formats.names() if not formats.load(name).Writer.slots]  # without formats for other tools
    own = [name for name in ours if formats.load(name).Writer.codecs]
    common = [name for name in ours if name not in own]
    common.sort(key=lambda name: name != ConversionOptions().to)  # the default first
    groups = []
    for size in sizes:
        plan = make_plan(source, ConversionOptions(to=common[0], resize=size, extras_bytes=0))
        if plan.links:
            raise plan.refusal(plan.links)
        pixel_fields = [field for field in plan.schema if field.kind in PIXEL_KINDS]
        for codec, wanted, loses in _ways(pixel_fields, is_resized=size is not None):
            changed = tuple(pair for pair in wanted if pair[1] != plan.schema[pair[0]].codec)
            groups.append([Candidate(name, codec, size, changed, loses, max_pixels) for name in common])
        groups += [[Candidate(name, name, size, max_pixels=max_pixels)] for name in own]
    return sorted(groups, key=lambda group: group[0].loses)


def _ways(pixel_fields: Sequence[Field], *, is_resized: bool) -> Iterator[tuple[str, list[tuple[str, str]], bool]]:
    """Yield name, (field, codec) pairs and `loses`. pixel_fields: with the codecs of a conversion without --codec."""
    images = [field for field in pixel_fields if field.kind == "image"]
    is_default = all(field.codec == _JPEG for field in images)
    if not is_resized:
        yield KEPT, [], False
    if images and (is_resized or not is_default):
        yield _JPEG, [(field.name, _JPEG) for field in images], not (is_resized and is_default)
    if is_resized and images and not is_default:
        yield "png", [(field.name, "png") for field in pixel_fields if field.kind != "depth"], False
    if any(field.codec != "raw" for field in pixel_fields) or is_resized:
        yield "raw", [(field.name, "raw") for field in pixel_fields], False
    if images and any(field.codec != _PLANES for field in images):
        yield _PLANES, [(field.name, _PLANES) for field in images], True


# ---- predictions

_EQUAL = 0.9  # of the best rate
_LIKE = 1.1  # of the smallest size


@dataclass(frozen=True)
class Trial:
    """Result of packing and loading a few samples in one way.

    Attributes:
        rate: Samples per second with all cores, the pack in memory.
        growth: Bytes of the pack per byte of the files.
        encode_seconds: Wall time per sample with all cores.
        samples: Number of samples.
        skipped: Key and reason of the samples that cannot be packed.
    """

    candidate: Candidate
    rate: float
    growth: float
    encode_seconds: float
    samples: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class WholeSet:
    """Size of the complete set: samples, bytes of their files, and bytes of the extra files that packs store."""

    samples: int
    bytes: int
    extras_bytes: int = 0


@dataclass(frozen=True)
class Speeds:
    """Speeds of this machine in bytes per second, and its room for a pack in bytes.

    Attributes:
        write: Writing to the disk of the pack.
        read: Reading blocks of 256 KiB at random positions of that disk, None if its cache could not be dropped.
        free_bytes: Free space on that disk.
        memory_bytes: Room in the page cache.
        source: Reading files of the source that are not in memory, None if not known.
    """

    write: float
    read: float | None
    free_bytes: int
    memory_bytes: int
    source: float | None = None


@dataclass(frozen=True)
class Prediction:
    """Prediction for the complete set. rate: in samples per second."""

    trial: Trial
    rate: float
    pack_bytes: int
    convert_seconds: float
    fits_memory: bool
    fits_disk: bool

    @property
    def candidate(self) -> Candidate:
        """The way to pack."""
        return self.trial.candidate


def predict(trial: Trial, whole: WholeSet, speeds: Speeds) -> Prediction:
    """Predict packing and loading the complete set in the way of a trial."""
    source_bytes = whole.bytes / whole.samples
    pack_bytes = round(trial.growth * whole.bytes) + whole.extras_bytes
    missing = max(0.0, 1 - speeds.memory_bytes / max(1, pack_bytes))
    reading = trial.growth * source_bytes / speeds.read if speeds.read else 0.0
    arriving = source_bytes / speeds.source if speeds.source else 0.0
    leaving = trial.growth * source_bytes / speeds.write
    return Prediction(
        trial=trial,
        rate=1 / max(1 / trial.rate, missing * reading),
        pack_bytes=pack_bytes,
        convert_seconds=whole.samples * max(trial.encode_seconds, arriving, leaving),
        fits_memory=missing == 0,
        fits_disk=pack_bytes <= speeds.free_bytes,
    )


def recommended(predictions: Sequence[Prediction]) -> Prediction | None:
    """Return the best lossless prediction whose pack fits on the disk; None if no pack fits.

    Rates from 90 % of the best rate are equal. Among equal rates, the smallest pack wins. Packs up to 110 % of the
    smallest size are equal, and the first of them wins.
    """
    good = [one for one in predictions if one.fits_disk and not one.candidate.loses]
    if not good:
        return None
    most = max(one.rate for one in good)
    fast = [one for one in good if one.rate >= _EQUAL * most]
    least = min(one.pack_bytes for one in fast)
    return next(one for one in fast if one.pack_bytes <= _LIKE * least)
