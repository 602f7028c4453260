"""packer append: adds the new samples of a data set to a pack."""

from pathlib import Path
from typing import Any

import click

from packer.cli import convert
from packer.cli._shared_options import Group, NamedPath, PathOrURL, examples, print_json
from packer.cli._source_options import SourceCommand
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo
from packer.sources._option_table import OPTIONS
from packer.system.byte_sizes import size_text

PLACE = (Group.MAKE_A_PACK, 4)
_OF_CONVERT = (
    *("kind", "splits", "split_by", "seed", "sidecars", "mask_colors", "unknown_colors", *OPTIONS),
    *("threads", "restart", "as_json", "quiet"),
)


@click.command(
    cls=SourceCommand,
    params=[option for option in convert.command.params if option.name in _OF_CONVERT],
    short_help="Add new samples to a pack.",
    epilog=examples("packer append photos.pack monday/", "packer append photos.pack photos/"),
)
@click.argument("pack", type=NamedPath(exists=True, file_okay=False))
@click.argument("source", type=PathOrURL())
def command(pack: Path, source: Path, *, as_json: bool, quiet: bool, **options: Any) -> None:
    """Add the samples of SOURCE that are not in PACK to PACK.

    Images are stored with the options of PACK. A sample whose key is in PACK must have the same content as
    in PACK.
    """
    from packer.conversion.append import append  # keeps `packer --help` light

    is_silent = as_json or quiet
    with ProgressBar(quiet=is_silent) as progress:
        summary = append(pack, source, **options, progress=progress, on_note=None if is_silent else convert.tell_note)
    if as_json:
        print_json({**vars(summary), "pack": str(pack), "notes": list(summary.notes)})
    elif not quiet:
        convert.tell_samples(summary)
        done = f"{summary.appended} samples appended" if summary.appended else "nothing to append"
        echo(
            f"{pack}: {done}, {summary.samples} samples in {summary.parts} part(s), "
            f"{size_text(summary.bytes_out)} written, {summary.seconds:.1f} s"
        )
