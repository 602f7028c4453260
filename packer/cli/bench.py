"""packer bench: how fast folders and packs load."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from packer.cli._shared_options import (
    Count,
    Group,
    NamedPath,
    batch_option,
    check_folders,
    deliver,
    examples,
    fields_option,
    follow_links_option,
    geometry_option,
    json_option,
    loader_option,
    max_pixels_option,
    output_option,
    parse_counts,
)
from packer.errors import MixedShapes
from packer.files.terminal_output import echo

if TYPE_CHECKING:
    from packer.tools.bench import BenchRow


PLACE = (Group.LOAD_FASTER, 3)


@click.command(
    short_help="Measure how fast folders and packs load.",
    epilog=examples("packer bench photos/ photos.pack --workers 0,2", "packer bench photos.pack --cold --json"),
)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=NamedPath())
@click.option(
    "--workers",
    callback=parse_counts,
    metavar="0,1,2,4",
    help="Worker processes, or threads of Loader; 0-4 is a range.  [default: up to the cores]",
)
@batch_option
@click.option("--epochs", type=Count(), default=3, show_default=True, help="Epochs that count.")
@loader_option
@geometry_option
@fields_option
@follow_links_option
@max_pixels_option
@click.option("--samples", type=Count(), help="Only N samples, spread evenly.")
@click.option("--cold", is_flag=True, help="Drop SOURCE from the page cache before each epoch.")
@json_option
@output_option
def command(sources: tuple[Path, ...], **options: Any) -> None:
    """Measure SOURCE, a pack or a folder of images, with DataLoader and with packer.Loader.

    Files of a folder are opened, decoded by OpenCV and warped. Without --geometry, images of several sizes are cropped
    at random to 224 px. Epochs of all settings alternate; the table shows medians with lowest and highest.
    """
    check_folders(sources)
    from packer.conversion.source_spec import SourceSpec, parameters  # keeps `packer --help` light
    from packer.system.parallel import usable_cores
    from packer.tools import bench
    from packer.tools.measured_workload import Subject, settings, subjects, worker_counts
    from packer.tools.packing_trial import PHOTOS

    say = partial(echo, err=True)
    chosen = settings(options["loaders"], options["workers"] or worker_counts(), options["batch"])

    like = Subject(
        Path(),
        options["fields"],
        samples=options["samples"],
        max_pixels=options["max_pixels"],
        spec=SourceSpec(options=parameters({"follow_links": options["follow_links"]})),
    )

    def measured(geometry: str | None) -> "list[BenchRow]":
        found = subjects(sources, geometry, like)
        say(
            *(note for subject in found for note in subject.notes()),
            f"{usable_cores()} usable cores, batches of {options['batch']}",
        )
        return bench.run(found, chosen, rounds=options["epochs"], cold=options["cold"], say=say)

    try:
        rows = measured(options["geometry"])
    except MixedShapes:
        if options["geometry"]:
            raise
        options["geometry"] = PHOTOS
        say(f"images of several shapes make no batch: measured with --geometry '{PHOTOS}', as packer advise does")
        rows = measured(PHOTOS)
    asked = {name: options[name] for name in ("batch", "epochs", "geometry", "fields", "samples", "cold")}
    deliver(bench.report(rows, asked), options)
