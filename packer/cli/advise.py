"""packer advise: the best way to pack a data set for this machine."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from packer.cli._shared_options import (
    Count,
    Group,
    NamedPath,
    deliver,
    examples,
    follow_links_option,
    json_option,
    max_pixels_option,
    output_option,
    parse_names,
)
from packer.files.terminal_output import echo

PLACE = (Group.MAKE_A_PACK, 1)


@click.command(
    short_help="Recommend a format, codec and size for SOURCE.",
    epilog=examples(
        "packer advise photos/ --seconds 60",
        "packer advise photos/ --geometry 'RandomResizedCrop(224), RandomHorizontalFlip()'",
    ),
)
@click.argument("source", metavar="SOURCE", type=NamedPath())
@click.option("--batch-size", "-b", "batch", type=Count(), default=32, show_default=True, help="Batch size.")
@click.option(
    "--geometry",
    metavar="TEXT",
    help="Geometry of training.  [default: by the labels of SOURCE]",
)
@click.option(
    "--size",
    "sizes",
    callback=parse_names,
    metavar="N,WxH",
    help="Sizes to try, as in convert --resize.  [default: twice the output size]",
)
@click.option("--seconds", type=Count(is_whole=False), default=30, show_default=True, help="Approximate duration.")
@follow_links_option
@max_pixels_option
@json_option
@output_option
def command(source: Path, **options: Any) -> None:
    """Pack a few samples of SOURCE with each format, codec and size, and recommend a command.

    SOURCE is a folder of images or a pack. For each row: samples/s with packer.Loader and all cores, size, packing
    time, and whether the pack fits in memory.
    """
    from packer.conversion.source_spec import check_folder

    check_folder(source)  # before torch is imported, which takes seconds
    from packer.tools.advice import Question, advise, report  # keeps `packer --help` light

    how = (options[name] for name in ("geometry", "sizes", "batch", "seconds", "follow_links", "max_pixels"))
    deliver(report(advise(Question(source, *how), say=partial(echo, err=True))), options)
