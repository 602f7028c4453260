"""packer profile: the time that each stage of loading takes per sample."""

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
    fields_option,
    geometry_option,
    json_option,
    output_option,
)

PLACE = (Group.LOAD_FASTER, 2)


@click.command(
    short_help="Show which stage of loading takes the time.",
    epilog=examples("packer profile photos.pack --geometry 'RandomResizedCrop(224)'"),
)
@click.argument("pack", type=NamedPath(exists=True, file_okay=False))
@click.option("--transform", metavar="MODULE:FUNCTION", help="Your function of a sample.")
@geometry_option
@fields_option
@click.option("--samples", type=Count(), default=512, show_default=True, help="At most N random samples.")
@batch_option
@click.option("--cold", is_flag=True, help="Drop PACK from the page cache first.")
@json_option
@output_option
def command(pack: Path, **options: Any) -> None:
    """Show how many milliseconds a sample of PACK takes to read, check, decode, warp, transform, collate and copy.

    One thread loads samples, stage by stage, with the code of the loaders. The last sentence names the slowest stage
    and what makes it faster. Samples come from the page cache, except with --cold.
    """
    from packer.system.parallel import usable_cores
    from packer.tools import profile  # keeps `packer --help` light

    found, note = profile.profile_pack(
        pack,
        samples=options["samples"],
        batch_size=options["batch"],
        cold=options["cold"],
        geometry=options["geometry"],
        fields=options["fields"],
        transform=options["transform"],
    )
    asked = {name: options[name] for name in ("transform", "geometry", "fields", "samples", "batch", "cold")}
    deliver(profile.report(found, asked, note=note, cores=usable_cores()), options)
