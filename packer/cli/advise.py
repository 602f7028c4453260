"""packer advise: the best way to pack a data set for this machine."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from packer.cli._shared_options import (
    Count,
    Group,
    NamedPath,
    batch_option,
    deliver,
    examples,
    json_option,
    max_pixels_option,
    output_option,
    parse_names,
)
from packer.cli._source_options import SourceCommand, from_option, sidecar_option, source_options, source_words
from packer.files.terminal_output import echo
from packer.sources._option_table import OPTIONS

PLACE = (Group.MAKE_A_PACK, 1)


@click.command(
    cls=SourceCommand,
    short_help="Recommend a format, codec and size for SOURCE.",
    epilog=examples(
        "packer advise photos/ --seconds 60",
        "packer advise photos/ --geometry 'RandomResizedCrop(224), RandomHorizontalFlip()'",
        "packer advise imagenet/ --folders split/class",
    ),
)
@click.argument("source", metavar="SOURCE", type=NamedPath())
@from_option
@batch_option
@click.option(
    "--geometry",
    metavar="TEXT",
    help="Geometry of training.  [default: random crops of 224, flipped]",
)
@click.option(
    "--size",
    "sizes",
    callback=parse_names,
    metavar="N,WxH",
    help="Sizes to try, as in convert --resize.  [default: 8/7 of the output size]",
)
@click.option("--seconds", type=Count(is_whole=False), default=30, show_default=True, help="Approximate duration.")
@max_pixels_option
@sidecar_option
@source_options
@json_option
@output_option
def command(source: Path, **options: Any) -> None:
    """Pack a few samples of SOURCE with each format, codec and size, and recommend a command.

    SOURCE is a folder of images or a pack. Each row shows samples/s with packer.Loader and all cores, size,
    packing time, and whether the pack fits in memory.
    """
    from packer.conversion.source_spec import SourceSpec, check_folder, parameters

    check_folder(source)  # before torch is imported, which takes seconds
    from packer.tools.packing_advice import Question, advise, report  # keeps `packer --help` light

    question = Question(
        source,
        geometry=options["geometry"],
        sizes=options["sizes"],
        batch_size=options["batch"],
        seconds=options["seconds"],
        max_pixels=options["max_pixels"],
        spec=SourceSpec(
            options["kind"], parameters({name: options[name] for name in OPTIONS}), tuple(options["sidecars"])
        ),
        source_words=source_words(options),
    )
    deliver(report(advise(question, say=partial(echo, err=True))), options)
