"""Candidates: the ways to pack a source that are worth trying, and the command line of each.

| codec     | what is stored                                                                           |
|-----------|------------------------------------------------------------------------------------------|
| kept      | the bytes of the files; no other size                                                    |
| jpeg:95   | images as JPEG; depth and masks as `packer convert` does by default                      |
| png       | resized lossless images and masks as PNG; depth as by default                            |
| raw       | the numbers of all pixels                                                                |
| ycc420    | images as planes, half the bytes of raw, chroma at half the size; depth and masks as by  |
|           | default                                                                                  |
| a format  | of a format with codecs of its own (bmp): these                                          |
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
    """size: as --resize takes it, None for pictures as they are. codecs: (field, codec) that the user must ask for.

    loses: whether it makes pictures worse in a way that `packer convert` does only where it is asked to.
    max_pixels: the most of one picture, None for the usual limit.
    """

    format: str
    codec: str
    size: str | None = None
    codecs: tuple[tuple[str, str], ...] = ()
    loses: bool = False
    max_pixels: int | None = None

    @property
    def options(self) -> ConversionOptions:
        """Of a trial: bad samples are left out, files of no sample stay behind."""
        more = {"on_error": "skip", "extras_bytes": 0, "max_pixels": self.max_pixels}
        return ConversionOptions(to=self.format, codecs=self.codecs, resize=self.size, **more)  # type: ignore[arg-type]

    def line(self, source: Path, target: Path, *, follow_links: bool = False) -> str:
        """The command that packs so, for a POSIX shell."""
        words = ["packer", "convert", _operand(source), _operand(target), "--to", self.format]
        words += [word for name, codec in self.codecs for word in ("--codec", f"{name}={codec}")]
        words += ["--resize", self.size] if self.size else []
        words += ["--max-pixels", str(self.max_pixels)] if self.max_pixels is not None else []
        return " ".join(map(shell_word, [*words, *(["--follow-links"] if follow_links else [])]))


def candidates(
    source: Source, sizes: Sequence[str | None], good: Sequence[str | None], *, max_pixels: int | None = None
) -> list[list[Candidate]]:
    """Groups of one codec and size, each in all formats that hold it, those of `good` sizes that lose nothing first.

    max_pixels: as of `Candidate`.
    Raises what planning raises.
    """
    ours = [name for name in formats.names() if not formats.load(name).Writer.slots]  # others are for other tools
    own = [name for name in ours if formats.load(name).Writer.codecs]
    common = [name for name in ours if name not in own]
    common.sort(key=lambda name: name != ConversionOptions().to)  # the default first
    groups = []
    for size in sizes:
        plan = make_plan(source, ConversionOptions(to=common[0], resize=size, extras_bytes=0))
        if plan.links:
            raise plan.refusal(plan.links)
        pictures = [field for field in plan.schema if field.kind in PIXEL_KINDS]
        for codec, wanted, loses in _ways(pictures, is_resized=size is not None):
            asked = tuple(pair for pair in wanted if pair[1] != plan.schema[pair[0]].codec)
            groups.append([Candidate(name, codec, size, asked, loses, max_pixels) for name in common])
        groups += [[Candidate(name, name, size, max_pixels=max_pixels)] for name in own]
    return sorted(groups, key=lambda group: (group[0].loses, group[0].size not in good))


def _ways(pictures: Sequence[Field], *, is_resized: bool) -> Iterator[tuple[str, list[tuple[str, str]], bool]]:
    """Name, (field, codec) pairs, and whether it loses; pictures have the codecs of a conversion without --codec."""
    images = [field for field in pictures if field.kind == "image"]
    jpeg = [(field.name, _JPEG) for field in images]
    is_default = all(field.codec == _JPEG for field in images)
    if not is_resized:
        yield KEPT, [], False
    if images and (is_resized or not is_default):
        yield _JPEG, jpeg, not (is_resized and is_default)
    if is_resized and images and not is_default:
        yield "png", [(field.name, "png") for field in pictures if field.kind != "depth"], False
    if any(field.codec != "raw" for field in pictures) or is_resized:
        yield "raw", [(field.name, "raw") for field in pictures], False
    if images and any(field.codec != _PLANES for field in images):
        yield _PLANES, [(field.name, _PLANES) for field in images], True


def _operand(path: Path) -> str:
    """So that it is not taken for an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)
