"""packer convert: packs a data set (a folder of images, records or arrays of another tool, a pack)."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer import formats
from packer.cli._shared_options import (
    Count,
    Group,
    NamedPath,
    PathOrURL,
    RegistryName,
    left_out,
    max_pixels_option,
    parse_names,
    parse_size,
    print_json,
)
from packer.cli._source_options import SourceCommand, from_option, sidecar_option, source_options, source_words
from packer.conversion import engines
from packer.errors import DOCS
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo, shell_word
from packer.schema import PIXEL_KINDS
from packer.sources._option_table import OPTIONS
from packer.stores.url import URLPath
from packer.system.byte_sizes import size_text

if TYPE_CHECKING:
    from packer.conversion.convert import ConversionSummary, DryRun

_SHOWN = 20


def _pairs(_: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    pairs = [value.partition("=")[::2] for value in values]
    wrong = [value for value, pair in zip(values, pairs, strict=True) if not all(pair)]
    if wrong:
        raise click.BadParameter(f"{wrong[0]!r}: expected {parameter.metavar}")
    return dict(pairs)


def _size(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else parse_size(value)


class _Convert(SourceCommand):
    groups = {
        "Order and splits": ("order", "splits", "split_by", "seed"),
        "Image checks": ("exif", "validate", "max_pixels"),
        "Masks and other files": (
            *("sidecars", "labels_orientation", "missing", "mask_colors", "unknown_colors"),
            "follow_links",
        ),
        "Output": ("part_bytes", "extras_bytes", "export_as", "restart"),
        "Object stores and clusters": ("scratch", "engine", "ray_address", "worker_scratch"),
    }


PLACE = (Group.MAKE_A_PACK, 0)


@click.command(
    cls=_Convert,
    short_help="Pack an image folder, another tool's pack, or a pack.",
    epilog="\b\nExample:\n  packer convert photos/ photos.pack --resize 256\n\n"
    "--from NAME --help adds the options of the source NAME, such as --folders of the source folder; packer formats "
    "lists names. "
    f"Details: {DOCS}/commands.md.",
)
@click.argument("source", type=PathOrURL())
@click.argument("pack", type=PathOrURL())
@from_option
@click.option(
    "--to", type=RegistryName(formats.registry), metavar="NAME", help="Format.  [default: by the end of PACK, or lmdb]"
)
@click.option("--fields", callback=parse_names, metavar="A,B", help="Pack only these fields.")
@click.option("--resize", metavar="N|WxH", help="Scale images: shorter side N, or exactly WxH.")
@click.option(
    "--codec",
    "codecs",
    multiple=True,
    callback=_pairs,
    metavar="FIELD=CODEC",
    help="Store FIELD as jpeg:95, png, raw, ycc420, ...",
)
@click.option("--preset", type=click.Choice(("ggcnn", "grconvnet")), help="Store what this grasp network needs.")
@click.option(
    "--on-error",
    type=click.Choice(("error", "skip")),
    default="error",
    help="Bad files: list all and stop, or skip them.",
)
@click.option("--threads", "-j", type=Count(), help="Threads.  [default: one per core]")
@click.option("--overwrite", is_flag=True, help="Replace PACK when the new pack is complete.")
@click.option("--dry-run", is_flag=True, help="Show what would be packed, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
@click.option("--order", type=click.Choice(("stored", "shuffled")), help="Order of samples.  [default: stored]")
@click.option(
    "--split", "splits", multiple=True, metavar="NAME=FILE|SHARE", help="Split: a list of files, or a random share."
)
@click.option("--split-by", metavar="FIELD", help="Keep equal values of FIELD in one random split.")
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of the shuffled order and random splits.")
@click.option(
    "--exif",
    type=click.Choice(("ignore", "rotate")),
    default="ignore",
    help="EXIF rotation of images and labels.",
)
@click.option(
    "--validate",
    type=click.Choice(("full", "header")),
    default="full",
    help="Decode every image, or only read headers.",
)
@max_pixels_option
@sidecar_option
@click.option(
    "--labels-orientation",
    type=click.Choice(("stored", "upright")),
    metavar="PIXELS",
    help="Pixels of labels under EXIF: stored, upright.",
)
@click.option("--mask-colors", multiple=True, metavar="[NAME=]FILE", help="Table with the color of each class, or voc.")
@click.option(
    "--unknown-colors",
    type=click.Choice(("error", "void")),
    metavar="POLICY",
    help="Other colors: error or void (255).",
)
@click.option(
    "--export-as",
    multiple=True,
    callback=_pairs,
    metavar="NAME=FIELD",
    help="Name of FIELD in other formats: image or label.",
)
@source_options
@click.option(
    "--part-size", "part_bytes", callback=_size, metavar="SIZE", help="Source bytes per part.  [default: 32M to 256M]"
)
@click.option(
    "--extras",
    "extras_bytes",
    callback=_size,
    default="256M",
    metavar="SIZE",
    help="Also pack other files, up to SIZE in total.",
)
@click.option("--restart", is_flag=True, help="Discard the work of an interrupted run.")
@click.option("--scratch", type=NamedPath(), metavar="DIR", help="Local folder for parts of a PACK at a URL.")
@click.option(
    "--engine",
    type=RegistryName(engines.registry),
    default="local",
    metavar="NAME",
    help="local: this process; ray: a cluster.",
)
@click.option("--ray-address", help="Address of the Ray cluster.")
@click.option("--worker-scratch", type=NamedPath(), metavar="DIR", help="Local folder of each machine of the cluster.")
def command(source: Path, pack: Path, **options: Any) -> None:
    """Pack SOURCE into PACK, which contains the original bytes unless you use --resize, --codec or --exif."""
    from packer.conversion.convert import convert, dry_run  # keeps `packer --help` light
    from packer.geometry import Resize  # as above

    as_json, is_quiet, is_dry = (options.pop(name) for name in ("as_json", "quiet", "dry_run"))
    where = {name: options.pop(name) for name in ("threads", "engine", "ray_address", "worker_scratch", "scratch")}
    if options["resize"] is not None:
        options["resize"] = Resize.parse(options["resize"]).size
    notes: list[str] = []
    on_note = notes.append if as_json or is_quiet else tell_note
    if is_dry:
        of_source = {name: options.pop(name) for name in OPTIONS}
        _tell_dry_run(dry_run(source, pack, {**options, "source_options": of_source}, on_note), notes, as_json=as_json)
        return
    with ProgressBar(quiet=as_json or is_quiet) as progress:
        summary = convert(source, pack, **options, **where, progress=progress, on_note=on_note)
    if as_json:
        print_json({**vars(summary), "pack": str(pack), "notes": list(summary.notes)})
    elif not is_quiet:
        _tell(summary, pack, preset=options["preset"], of_advise=[str(source), *source_words(options)])


def tell_note(line: str) -> None:
    """Print a note for the user."""
    echo(line, err=True)


def tell_samples(summary: "ConversionSummary") -> None:
    """Print the skipped and incomplete samples, or the first of many."""
    for noun, entries in (("skipped", summary.skipped), ("incomplete", summary.incomplete)):
        for key, reason in entries[:_SHOWN]:
            echo(left_out(noun, key, reason), err=True)
        if len(entries) > _SHOWN:
            echo(f"... and {len(entries) - _SHOWN} more {noun}; packer info lists them", err=True)


def _tell(summary: "ConversionSummary", pack: Path, *, preset: str | None, of_advise: list[str]) -> None:
    tell_samples(summary)
    resumed = f", {summary.resumed_samples} of them by an earlier run" if summary.resumed_samples else ""
    rate = (summary.samples - summary.resumed_samples) / max(summary.seconds, 1e-9)
    echo(
        f"{pack}: {summary.samples} samples packed{resumed}, {len(summary.skipped)} skipped, "
        f"{size_text(summary.bytes_in)} in, {size_text(summary.bytes_out)} out, {summary.parts} part(s), "
        f"{summary.seconds:.1f} s ({rate:.0f} samples/s)",
        *_hints(pack, preset, of_advise),
    )


def _hints(pack: Path, preset: str | None, of_advise: list[str]) -> Iterator[str]:
    """Yield the Python code that opens the pack. If it contains image files, also yield an option that makes it faster.

    `of_advise` contains arguments for `packer advise`: the source and its options.
    """
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
        yield f"faster:   {faster}, if the images are larger than the input of your network"
        if Path(of_advise[0]).is_dir():
            yield f"          packer advise {' '.join(map(shell_word, of_advise))} measures sizes and codecs"


def _tell_dry_run(found: "DryRun", notes: list[str], *, as_json: bool) -> None:
    """Print the fields and sizes of a dry run. Raise the error that a real run would raise. JSON includes `notes`."""
    plan, size = found.plan, found.size
    verdict = "would fail" if found.refused is not None else "no problem found"
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
            f"{size_text(size.pack_bytes)} in all; {len(plan.left_out)} skipped; {size_text(found.free_bytes)} free; "
            "nothing was written",
            f"verdict: {verdict}; the real run also checks each image",
        )
    if found.refused is not None:
        raise found.refused
