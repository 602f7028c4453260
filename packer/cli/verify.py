"""packer verify: find any changed byte of a pack."""

from pathlib import Path

import click

from packer.cli.base import print_json
from packer.errors import CorruptPack


@click.command()
@click.argument("pack", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--quick", "depth", flag_value="quick", help="Only the manifest, names, sizes and the index.")
@click.option("--data", "depth", flag_value="data", help="Also compare and decode every value of every sample.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for machines.")
def command(pack: Path, *, depth: str | None, as_json: bool) -> None:
    """Check PACK without changing it and list every problem; exit code 3 where there are any.

    Without options: the manifest, names, sizes, the index, and the sha256 of every part.
    """
    from packer.pack.verification import problems  # noqa: PLC0415  keeps `packer --help` light

    found = []
    for problem in problems(pack, depth=depth or "default"):
        found.append(problem)
        if not as_json:
            click.echo(problem, err=True)
    if as_json:
        print_json({"pack": str(pack), "ok": not found, "problems": found})
    if found:
        raise CorruptPack(f"{pack}: problems found: {len(found)}")
    if not as_json:
        click.echo(f"{pack}: ok")
