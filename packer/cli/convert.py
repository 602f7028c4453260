"""packer convert: packs a data set (a folder of images, records or arrays of another tool, a pack)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from packer import formats, sources
from packer.cli._shared_options import (
    Group,
    NamedPath,
    PathOrURL,
    RegistryName,
    examples,
    left_out,
    max_pixels_option,
    parse_names,
    parse_size,
    print_json,
)
from packer.conversion import engines
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo, shell_word
from packer.schema import PIXEL_KINDS
from packer.sources._options import OPTIONS, Option
from packer.stores.url import URLPath
from packer.system.byte_sizes import size_text

if TYPE_CHECKING:
    from packer.conversion.convert import ConversionSummary, DryRun

_Command = TypeVar("_Command", bound=Callable[..., Any])
_SHOWN = 20


def _pairs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=")[::2] for value in values]
    wrong = [value for value, pair in zip(values, pairs, strict=True) if not all(pair)]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r}: expected {parameter.metavar}")
    return dict(pairs)


def _size(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else parse_size(value)


def _split_fields(_: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    if not value:
        return ()
    from packer.sources.records._record_fields import split_fields  # which brings NumPy

    return tuple(split_fields(value))


def _source_options(command: _Command) -> _Command:
    """Add the options of all sources."""
    for option in reversed(tuple(OPTIONS.values())):
        command = _source_option(option)(command)
    return command


def _source_option(option: Option) -> Callable[[_Command], _Command]:
    words, metavar = (option.flag, option.name), option.typed.metavar or None
    if option.type is bool:
        return click.option(*words, is_flag=True, help=option.help)
    if option.typed.is_repeated:
        return click.option(*words, multiple=True, metavar=metavar, help=option.help)
    if option.is_list:
        return click.option(*words, callback=_split_fields, metavar=metavar, help=option.help)
    choices = click.Choice(option.choices) if option.choices else None
    place = NamedPath() if option.is_path else None
    return click.option(*words, type=choices or place, metavar=metavar, help=option.help)


PLACE = (Group.MAKE_A_PACK, 0)


@click.command(
    short_help="Pack an image folder, another tool's pack, or a pack.",
    epilog=examples(
        "packer convert photos/ photos.pack --resize 256",
        "packer convert cornell/ cornell.pack --preset ggcnn",
        "packer convert photos/ photos.h5 --dry-run",
    ),
)
@click.argument("source", type=PathOrURL())
@click.argument("pack", type=PathOrURL())
@click.option(
    "--to",
    type=RegistryName(formats.registry),
    help="Format of the pack, in letters of any case.  [default: as PACK ends (.lmdb, .h5, .pth, .bmp), else lmdb]",
)
@click.option(
    "--from",
    "kind",
    type=RegistryName(sources.registry, "auto", "pack"),
    default="auto",
    show_default=True,
    help="What SOURCE is.",
)
@click.option(
    "--preset",
    type=click.Choice(("ggcnn", "grconvnet")),
    help="For GraspDataset, losing nothing that training shows: Jacquard at 600x600, since random zoom shows at "
    "least half of a side at 300 px; Cornell as large as it is, since windows are cut 1:1 and turned; pixels "
    "lossless and ready (raw). Other options win: --codec rgb=jpeg:95 --codec depth=raw:float16 is small.",
)
@click.option("--fields", callback=parse_names, metavar="A,B", help="Pack only these fields (the key always).")
@click.option(
    "--codec",
    "codecs",
    multiple=True,
    callback=_pairs,
    metavar="FIELD=CODEC",
    help="Store a field so: encoded (the file's bytes), jpeg:95, jpeg:95:444 (chroma at full size), png, raw, "
    "raw:float16. Lossy only if asked.",
)
@click.option(
    "--resize",
    metavar="N|WxH",
    help="Store images smaller: shorter side N, or exactly WxH px; labels are scaled along. Keep what "
    "training still needs: random zoom down to 0.5 for an output of 300 wants 600.",
)
@click.option(
    "--exif",
    type=click.Choice(("ignore", "rotate")),
    default="ignore",
    show_default=True,
    help="Ignore the EXIF orientation (it is recorded), or turn images and labels upright.",
)
@click.option(
    "--validate",
    type=click.Choice(("full", "header")),
    default="full",
    show_default=True,
    help="Decode every image strictly once, or look at headers and ends only.",
)
@click.option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    show_default=True,
    help="What a bad file does: end the run with a list of all, or be left out and listed in the pack.",
)
@click.option(
    "--sidecar",
    "sidecars",
    multiple=True,
    metavar="NAME=SUFFIX:KIND",
    help="Add files next to the images as a field, such as depth=_d.tiff:depth or mask=_mask.png:mask. "
    "depth=_d.png:depth:0 if 0 means no measurement; ids=_ids.png:mask:uint16 for 16 bits.",
)
@click.option(
    "--sidecar-frame",
    type=click.Choice(("stored", "upright")),
    help="Where an image is not upright by its EXIF orientation: over which pixels its masks, depth and boxes lie (of "
    "--sidecar, or in its record), those stored in its file, or as viewers show it (with --exif rotate).  [default: "
    "such images are errors]",
)
@click.option(
    "--mask-colors",
    multiple=True,
    metavar="[NAME=]FILE",
    help="Masks are drawn in colors: a table says which class each is, with lines R G B NAME as CamVid's "
    "label_colors.txt, NAME R G B, or CVAT's labelmap.txt; voc is Pascal VOC's palette. Classes are numbered by their "
    "lines from 0, or by a column id. NAME= is for one of several masks.",
)
@click.option(
    "--unknown-colors",
    type=click.Choice(("error", "void")),
    help="A color that --mask-colors does not have is an error that names the pixel, or void, 255.  [default: error]",
)
@click.option(
    "--slot",
    "slots",
    multiple=True,
    callback=_pairs,
    metavar="SLOT=FIELD",
    help="For the formats of other tools: which field their records call image and label, such as image=rgb.  "
    "[default: the one image, the one class label]",
)
@click.option(
    "--order",
    type=click.Choice(("stored", "shuffled")),
    help="Pack samples in the order of SOURCE, or shuffled.  [default: shuffled in formats that other tools read from "
    "front to back, else stored]",
)
@click.option("--order-seed", type=int, default=0, metavar="N", help="Another draw of the shuffled order.")
@click.option(
    "--split",
    "splits",
    multiple=True,
    metavar="NAME=FILE|SHARE",
    help="Pack only the samples that FILE lists (keys, paths or names that one sample has, one a line), as split "
    "NAME; or random splits by their shares: --split train=0.9 --split val=0.1.",
)
@click.option("--split-seed", type=int, metavar="N", help="Another draw of random splits.  [default: 0]")
@click.option(
    "--split-by", metavar="FIELD", help="Random splits keep together what has one value of FIELD (object_id)."
)
@_source_options
@click.option(
    "--part-size",
    "part_bytes",
    callback=_size,
    metavar="SIZE",
    help="Source bytes per part; 0 for one part.  [default: a sixteenth of SOURCE, but 32M to 256M; bmp: one part]",
)
@click.option(
    "--extras",
    "extras_bytes",
    callback=_size,
    default="256M",
    show_default=True,
    metavar="SIZE",
    help="Files of no sample (tables, backgrounds) go along, if all together have at most SIZE; 0 for none.",
)
@max_pixels_option
@click.option("--threads", type=click.IntRange(min=1), help="Threads; the pack is the same.  [default: usable cores]")
@click.option(
    "--engine",
    type=RegistryName(engines.registry),
    default="local",
    show_default=True,
    help="What builds the parts: this process, or a cluster whose machines all see SOURCE and PACK, by paths or URLs.",
)
@click.option("--address", help="Of --engine ray: the cluster.  [default: what Ray finds]")
@click.option(
    "--nodes-scratch",
    type=NamedPath(),
    metavar="DIR",
    help="Of --engine ray: a folder on each machine's own disk, from where finished parts are copied or uploaded.",
)
@click.option(
    "--scratch",
    type=NamedPath(),
    metavar="DIR",
    help="Of a PACK at a URL: a folder of this machine for its index and the parts that wait to be uploaded.",
)
@click.option("--overwrite", is_flag=True, help="Replace PACK, which must be a pack, by one atomic swap at the end.")
@click.option("--restart", is_flag=True, help="Throw away the unfinished work of an earlier run.")
@click.option("--dry-run", is_flag=True, help="Only say what would be packed, how large, and what is free.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for machines, and no progress.")
def command(source: Path, pack: Path, **options: Any) -> None:
    """Pack the image folder SOURCE, another tool's pack (TFRecord files), or a pack into the new folder PACK.

    The pack contains the original bytes, unless you use --resize, --codec or --exif. Every skipped sample is listed.
    The same command continues an interrupted run. PACK appears complete or not at all.
    """
    from packer.conversion.convert import convert, dry_run  # keeps `packer --help` light
    from packer.geometry import Resize  # as above

    quiet, is_dry = (options.pop(name) for name in ("as_json", "dry_run"))
    where = {name: options.pop(name) for name in ("threads", "engine", "address", "nodes_scratch", "scratch")}
    if options["resize"] is not None:
        options["resize"] = Resize.parse(options["resize"]).size
    notes: list[str] = []
    on_note = notes.append if quiet else _note
    if is_dry:
        of_source = {name: options.pop(name) for name in OPTIONS}
        _tell_dry_run(dry_run(source, pack, {**options, "source_options": of_source}, on_note), notes, as_json=quiet)
        return
    with ProgressBar(quiet=quiet) as progress:
        summary = convert(source, pack, **options, **where, progress=progress, on_note=on_note)
    if quiet:
        print_json({**vars(summary), "pack": str(pack), "notes": list(summary.notes)})
    else:
        _tell(summary, pack, preset=options["preset"], source=source)


def _note(line: str) -> None:
    echo(line, err=True)


def _tell(summary: "ConversionSummary", pack: Path, *, preset: str | None, source: Path) -> None:
    for noun, entries in (("skipped", summary.skipped), ("incomplete", summary.incomplete)):
        for key, reason in entries[:_SHOWN]:
            echo(left_out(noun, key, reason), err=True)
        if len(entries) > _SHOWN:
            echo(f"... and {len(entries) - _SHOWN} more {noun}; packer info lists them", err=True)
    resumed = f", {summary.resumed_samples} of them by an earlier run" if summary.resumed_samples else ""
    rate = (summary.samples - summary.resumed_samples) / max(summary.seconds, 1e-9)
    echo(
        f"{pack}: {summary.samples} samples packed{resumed}, {len(summary.skipped)} skipped, "
        f"{size_text(summary.bytes_in)} in, {size_text(summary.bytes_out)} out, {summary.parts} part(s), "
        f"{summary.seconds:.1f} s ({rate:.0f} samples/s)",
        *_hints(pack, preset, source),
    )


def _hints(pack: Path, preset: str | None, source: Path) -> Iterator[str]:
    """Yield the Python that opens the pack, and, if it keeps files, the option that makes reading fast."""
    from packer.pack import manifest as manifests  # keeps `packer --help` light

    name = repr(str(pack))
    if isinstance(pack, URLPath):
        yield f'open it:  import packer; dataset = packer.open({name}, cache="DIR", cache_limit="100GB")'
        return
    made = manifests.read(pack)
    if preset is not None:
        yield f"open it:  from packer.grasp import GraspDataset; dataset = GraspDataset({name}, style={preset!r})"
    else:
        yield f"open it:  import packer; dataset = packer.open({name})"
    images = [field for field in made.schema if field.kind in PIXEL_KINDS and not field.hidden]
    if any(field.codec == "encoded" for field in images) and made.options.get("resize") is None:
        faster = "--preset ggcnn or grconvnet" if "grasps" in made.schema else "--resize N"
        kept = "files' bytes are kept, exact, and" if made.options.get("exif") != "rotate" else "images are"
        measured = f", packer advise {shell_word(str(source))} measures how" if source.is_dir() else ""
        yield f"faster:   {kept} decoded whole in every epoch; {faster} makes training fast{measured}"


def _tell_dry_run(found: "DryRun", notes: list[str], *, as_json: bool) -> None:
    """Print what would be packed, then raise what the real run would. notes: on the source, for JSON."""
    plan, size = found.plan, found.size
    verdict = "would be refused" if found.refused is not None else "can be packed, as far as was looked"
    if as_json:
        fields = plan.schema.to_json()
        data = {**vars(size), "parts": len(plan.parts), "fields": fields, "free_bytes": found.free_bytes}
        data |= {"ok": found.refused is None, "verdict": verdict, "images_checked": False}
        print_json({**data, "left_out": [list(item) for item in plan.left_out], "notes": [*notes, *plan.extras.notes]})
    else:
        for note in plan.extras.notes:
            echo(f"  {note}")
        for field in plan.schema:
            echo(f"  {field.name:<20} {field.kind:<7} {field.codec}{'  (bookkeeping)' if field.hidden else ''}")
        echo(
            f"would pack {size.samples} samples, {size_text(size.source_bytes)}, into {len(plan.parts)} part(s), about "
            f"{size_text(size.pack_bytes)} in all; {len(plan.left_out)} left out; {size_text(found.free_bytes)} free; "
            "nothing was written",
            f"verdict: {verdict}; images not checked: the real run looks at each, and names every bad one",
        )
    if found.refused is not None:
        raise found.refused
