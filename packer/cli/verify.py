"""packer verify: finds any changed byte of a pack."""

import itertools
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packer.cli._shared_options import Group, PackOrURL, examples, print_json
from packer.errors import CorruptPack
from packer.files.terminal_output import echo

if TYPE_CHECKING:
    from packer.pack.verification import Level

_SHOWN = 20  # problems


PLACE = (Group.CHECK_AND_REPAIR, 0)


@click.command(
    short_help="Check a pack and list every problem.",
    epilog=examples("packer verify photos.pack", "packer verify photos.pack --level full --source photos/"),
)
@click.argument("pack", type=PackOrURL())
@click.option(
    "--level",
    type=click.Choice(["quick", "default", "full"]),
    default="default",
    show_default=True,
    help="quick: no parts; default: also the sha256 of parts; full: also every value.",
)
@click.option("--subset", metavar="N/M", help="Check only every M-th part and sample, starting at the N-th.")
@click.option("--expect", metavar="sha256:HEX", help="The digest that packer.json must have.")
@click.option(
    "--source",
    type=PackOrURL(file_okay=True),
    help="Also compare with the original data at PATH.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    pack: Path,
    *,
    level: "Level",
    subset: str | None,
    expect: str | None,
    source: Path | None,
    as_json: bool,
) -> None:
    """Check PACK without changing it and list every problem. The exit code is 3 if there are problems.

    PACK may be a URL, such as s3://bucket/photos.pack. The first 20 problems and the number of all are shown.
    """
    from packer.inspect.verify import verify  # keeps `packer --help` light

    count = itertools.count(1)

    def show(problem: str) -> None:
        if next(count) <= _SHOWN:
            echo(problem, err=True)

    found = verify(
        pack,
        level=level,
        subset=subset,
        expect=expect,
        source=source,
        on_problem=None if as_json else show,
    )
    if as_json:
        worst = {
            name: {**vars(worst), "psnr_db": None if math.isinf(worst.psnr_db) else worst.psnr_db}
            for name, worst in found.worst.items()
        }
        print_json(
            {
                "pack": str(pack),
                "ok": found.ok,
                "problems": found.problems,
                "worst": worst,
                "not_compared": dict(found.not_compared),
            }
        )
    else:
        for name, least in found.worst.items():
            psnr = "equal" if math.isinf(least.psnr_db) else f"{least.psnr_db:.1f} dB"
            echo(f"field {name}: worst PSNR {psnr} (sample {least.index}, key {least.key!r})")
        for reason in dict.fromkeys(found.not_compared.values()):
            names = [name for name, why in found.not_compared.items() if why == reason]
            echo(f"{'field' if len(names) == 1 else 'fields'} {', '.join(names)}: not compared: {reason}")
    if len(found.problems) > _SHOWN and not as_json:
        echo(f"... and {len(found.problems) - _SHOWN} more; --json lists all", err=True)
    if found.problems:
        raise CorruptPack(f"{pack}: problems found: {len(found.problems)}")
    if not as_json:
        echo(f"{pack}: ok" + (" (manifest, sizes and index only; no part was read)" if level == "quick" else ""))
