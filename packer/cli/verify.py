"""packer verify: find any changed byte of a pack."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from packer.cli.base import examples, print_json
from packer.errors import CorruptPack
from packer.files.terminal import echo


@click.command(
    short_help="Check a pack and list every problem.",
    epilog=examples("packer verify photos.pack", "packer verify photos.pack --data --source photos/"),
)
@click.argument("pack", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--quick", "depth", flag_value="quick", help="Only the manifest, names, sizes and the index.")
@click.option("--data", "depth", flag_value="data", help="Also compare and decode every value of every sample.")
@click.option("--subset", metavar="N/M", help="Only every M-th part and sample, from the N-th on; N from 1 to M.")
@click.option("--expect", metavar="sha256:HEX", help="The digest that packer.json must have, as sha256sum prints it.")
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Also compare with the original files in this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for machines.")
def command(pack: Path, *, depth: str | None, as_json: bool, **options: Any) -> None:
    """Check PACK without changing it and list every problem; exit code 3 where there are any.

    Without options: the manifest, names, sizes, the index, and the sha256 of every part.
    """
    found: list[str] = []
    losses: dict[str, Any] = {}
    for problem in _problems(pack, depth or "default", options, losses):
        found.append(problem)
        if not as_json:
            echo(problem, err=True)
    if as_json:
        print_json({"pack": str(pack), "ok": not found, "problems": found, "worst": losses})
    else:
        for name, worst in losses.items():
            level = "equal" if worst["psnr_db"] is None else f"{worst['psnr_db']:.1f} dB"
            echo(f"field {name}: worst PSNR {level} (sample {worst['index']}, key {worst['key']!r})")
    if found:
        raise CorruptPack(f"{pack}: problems found: {len(found)}")
    if not as_json:
        echo(f"{pack}: ok" + (" (manifest, sizes and index only; no part was read)" if depth == "quick" else ""))


def _problems(pack: Path, depth: str, options: dict[str, Any], losses: dict[str, Any]) -> Iterator[str]:
    """The problems of the pack, then, with --source, those beside its files; fills `losses` at the end."""
    from packer.pack.comparison import Comparison  # keeps `packer --help` light
    from packer.pack.verification import EVERYTHING, Subset, problems

    subset = Subset.parse(options["subset"]) if options["subset"] else EVERYTHING
    yield from problems(pack, depth=depth, subset=subset, expect=options["expect"])
    if options["source"] is None:
        return
    try:
        comparison = Comparison(pack, options["source"], subset=subset)
    except CorruptPack as error:
        yield str(error)
        return
    yield from comparison.problems()
    for name, worst in comparison.worst.items():
        losses[name] = {**vars(worst), "psnr_db": None if math.isinf(worst.psnr_db) else worst.psnr_db}
