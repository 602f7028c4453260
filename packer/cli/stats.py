"""packer stats: sizes, classes, channels, depths, labels and duplicates of a pack."""

import json
from pathlib import Path

import click

from packer.cli._shared_options import Count, Group, PackOrURL, examples, json_option, output_option, scratch_option
from packer.files.atomic_save import save
from packer.files.progress_bar import ProgressBar
from packer.files.terminal_output import echo
from packer.system.parallel import usable_cores

PLACE = (Group.LOOK_AT_A_PACK, 2)


@click.command(
    short_help="Measure images and labels of a pack.",
    epilog=examples("packer stats photos.pack --output figures.json"),
)
@click.argument("pack", type=PackOrURL())
@json_option
@output_option
@click.option("--subset", metavar="N/M", help="Only every M-th sample, starting at the N-th.")
@click.option("--threads", "-j", type=Count(), help="Threads.  [default: one per core]")
@scratch_option
def command(
    pack: Path,
    *,
    as_json: bool,
    outputs: tuple[Path, ...],
    subset: str | None,
    threads: int | None,
    scratch: Path | None,
) -> None:
    """Read every value of PACK once and show sizes, modes, classes, mean and std, depth, grasps and duplicates.

    PACK may be a URL, such as s3://bucket/photos.pack. Its parts are downloaded one after the other.
    """
    from packer.inspect.statistics_report import lines  # keeps `packer --help` light
    from packer.inspect.statistics_scan import StatisticsScan  # as above
    from packer.pack.verification import EVERYTHING, Subset  # as above

    chosen = Subset.parse(subset) if subset else EVERYTHING
    with ProgressBar() as bar:
        scan = StatisticsScan(pack, subset=chosen, scratch=scratch, threads=threads or usable_cores(), progress=bar)
    data = json.dumps(scan.result | {"subset": f"{chosen.number}/{chosen.of}"}, sort_keys=True)
    for path in outputs:
        save(path, data.encode() + b"\n")
    echo(*lines(scan.result), err=as_json)
    if as_json:
        echo(data)
