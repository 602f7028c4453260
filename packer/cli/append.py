"""packer append: adds the new samples of a data set to a pack."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from packer.cli._shared_options import Count, Group, NamedPath, PathOrURL, examples, left_out, print_json
from packer.cli._source_options import SourceCommand, from_option, sidecar_option, source_options
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo
from packer.system.byte_sizes import size_text

PLACE = (Group.MAKE_A_PACK, 4)


@click.command(
    cls=SourceCommand,
    short_help="Add new samples to a pack.",
    epilog=examples("packer append photos.pack monday/", "packer append photos.pack photos/"),
)
@click.argument("pack", type=NamedPath(exists=True, file_okay=False))
@click.argument("source", type=PathOrURL())
@from_option
@click.option("--split", "splits", multiple=True, metavar="NAME=FILE|SHARE", help="Split of the samples of SOURCE.")
@click.option("--split-by", metavar="FIELD", help="Keep equal values of FIELD in one random split.")
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of random splits.")
@sidecar_option
@click.option("--mask-colors", multiple=True, metavar="[NAME=]FILE", help="Table with the color of each class, or voc.")
@click.option("--unknown-colors", type=click.Choice(("error", "void")), help="Other colors: error or void (255).")
@source_options
@click.option("--threads", "-j", type=Count(), help="Threads.  [default: one per core]")
@click.option("--restart", is_flag=True, help="Discard the work of an interrupted run.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one line of JSON.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors.")
def command(pack: Path, source: Path, *, as_json: bool, quiet: bool, **options: Any) -> None:
    """Add the samples of SOURCE that are not in PACK to PACK.

    Images are stored with the options of PACK. Samples with keys of PACK must have the same content as in PACK.
    """
    from packer.conversion.append import append  # keeps `packer --help` light

    is_silent = as_json or quiet
    with ProgressBar(quiet=is_silent) as progress:
        on_note = None if is_silent else partial(echo, err=True)
        summary = append(pack, source, **options, progress=progress, on_note=on_note)
    if as_json:
        print_json({**vars(summary), "pack": str(pack), "notes": list(summary.notes)})
    elif not quiet:
        for noun, entries in (("skipped", summary.skipped), ("incomplete", summary.incomplete)):
            for key, reason in entries:
                echo(left_out(noun, key, reason), err=True)
        done = f"{summary.appended} samples appended" if summary.appended else "nothing to append"
        echo(
            f"{pack}: {done}, {summary.samples} samples in {summary.parts} part(s), "
            f"{size_text(summary.bytes_out)} written, {summary.seconds:.1f} s"
        )
