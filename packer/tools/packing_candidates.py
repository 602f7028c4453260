"""Packing candidates: combinations of format, codec and image size for a pack, and a prediction for each.

| codec     | stored values                                                                            |
|-----------|------------------------------------------------------------------------------------------|
| kept      | the bytes of the original files, without resizing                                        |
| jpeg:95   | images as JPEG; depth and masks as `packer convert` stores them by default               |
| png       | resized lossless images and masks as PNG; depth with the default codec                   |
| raw       | uncompressed pixel values                                                                |
| ycc420    | images as YCbCr 4:2:0, half the bytes of raw; masks and depth with their default codecs  |
| a format  | values in the only codec of a format, such as bmp                                        |

A trial packs and loads a few samples. A prediction scales its result to the complete source. If the pack fits in
memory, the predicted rate is the rate of the trial. Otherwise each epoch reads a part of the pack from the disk and
decodes other samples meanwhile. The slower of reading and decoding then determines the rate. Packing also reads,
encodes and writes at the same time.
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
    """A combination of format, codec and image size for a pack.

    Attributes:
        codec: Name of the codec in the report.
        size: Image size in the syntax of `packer convert --resize`. None keeps the original sizes.
        codecs: (field, codec) pairs for `--codec`. Fields that use the default codec are absent.
        loses: True if the codec degrades images more than the default codec of `packer convert`.
        max_pixels: Largest number of pixels of an image, None for the default limit.
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
        """Options of the conversion in a trial. It skips unreadable samples and stores no extra files."""
        more = {"on_error": "skip", "extras_bytes": 0, "max_pixels": self.max_pixels}
        return ConversionOptions(to=self.format, codecs=self.codecs, resize=self.size, **more)  # type: ignore[arg-type]

    def line(self, source: Path, target: Path, *, source_words: Sequence[str] = ()) -> str:
        """Return the `packer convert` command for this candidate, quoted for a POSIX shell.

        `source_words` are the options that select the source.
        """
        paths = [f"./{path}" if str(path).startswith("-") else str(path) for path in (source, target)]  # not options
        words = ["packer", "convert", *paths, *source_words, "--to", self.format]
        words += [word for name, codec in self.codecs for word in ("--codec", f"{name}={codec}")]
        words += ["--resize", self.size] if self.size else []
        words += ["--max-pixels", str(self.max_pixels)] if self.max_pixels is not None else []
        return " ".join(map(shell_word, words))


def candidates(source: Source, sizes: Sequence[str | None], *, max_pixels: int | None = None) -> list[list[Candidate]]:
    """Return groups of candidates. The candidates of a group differ only in the format. Groups with `loses` come last.

    Raises the errors of `make_plan`, such as BadInput if the source cannot be packed.
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
    """Yield (name, (field, codec) pairs, `loses`) of each codec to try. `pixel_fields` have the default codecs."""
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

_EQUAL = 0.9  # share of the best rate from which rates count as equal
_LIKE = 1.1  # times the smallest size up to which sizes count as equal


@dataclass(frozen=True)
class Trial:
    """Result of packing and loading a few samples as one candidate.

    Attributes:
        rate: Samples per second with all cores, when the pack is in memory.
        growth: Size of the pack divided by the size of the source files.
        encode_seconds: Wall time per encoded sample with all cores.
        samples: Number of samples in the pack.
        skipped: "key: reason" of each sample that cannot be packed.
    """

    candidate: Candidate
    rate: float
    growth: float
    encode_seconds: float
    samples: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class WholeSet:
    """Complete source: number of samples, bytes of their files, and bytes of the extra files that packs store."""

    samples: int
    bytes: int
    extras_bytes: int = 0


@dataclass(frozen=True)
class Speeds:
    """Speeds of this machine in bytes per second, and free space in bytes.

    Attributes:
        write: Speed of writing to the disk of the pack.
        read: Speed of reading blocks of 256 KiB at random positions. None if the page cache could not be dropped.
        free_bytes: Free space on the disk.
        memory_bytes: Memory that the page cache may use.
        source: Speed of reading source files that are not in memory. None if unknown.
    """

    write: float
    read: float | None
    free_bytes: int
    memory_bytes: int
    source: float | None = None


@dataclass(frozen=True)
class Prediction:
    """Predicted results of packing and loading the complete source as one candidate. `rate` is in samples/s."""

    trial: Trial
    rate: float
    pack_bytes: int
    convert_seconds: float
    fits_memory: bool
    fits_disk: bool

    @property
    def candidate(self) -> Candidate:
        """The candidate of the trial."""
        return self.trial.candidate


def predict(trial: Trial, whole: WholeSet, speeds: Speeds) -> Prediction:
    """Scale the result of a trial to the complete source on a machine with these speeds."""
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
    """Return the recommended prediction, or None if no pack fits on the disk. Candidates with `loses` are ignored.

    Predictions with at least 90 % of the best rate count as equally fast. The result is the first of these whose pack
    has at most 110 % of the size of their smallest pack.
    """
    good = [one for one in predictions if one.fits_disk and not one.candidate.loses]
    if not good:
        return None
    most = max(one.rate for one in good)
    fast = [one for one in good if one.rate >= _EQUAL * most]
    least = min(one.pack_bytes for one in fast)
    return next(one for one in fast if one.pack_bytes <= _LIKE * least)
