"""packer index: rebuilds the index of a pack from its parts."""

from pathlib import Path

import click

from packer.cli._shared_options import Group, NamedPath, examples, print_json
from packer.errors import CorruptPack
from packer.files.terminal_output import echo

PLACE = (Group.CHECK_AND_REPAIR, 1)


@click.command(
    short_help="Rebuild a damaged index from the parts.",
    epilog=examples("packer index photos.pack --check", "packer index photos.pack"),
)
@click.argument("pack", type=NamedPath(exists=True, file_okay=False))
@click.option("--check", is_flag=True, help="Only compare; exit code 3 if a file differs.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(pack: Path, *, check: bool, as_json: bool) -> None:
    """Write missing or damaged index files of PACK again.

    Every part is read, and its sha256 must be that of the manifest. A sound index does not change.
    """
    from packer.pack.index_rebuild import reindex  # keeps `packer --help` light

    stale = reindex(pack, check=check)
    if as_json:
        print_json({"pack": str(pack), "check": check, "files": stale})
    else:
        for name in stale:
            echo(f"{pack / name}: {'differs from the parts' if check else 'made again'}", err=check)
        if not stale:
            echo(f"{pack}: ok")
    if check and stale:
        raise CorruptPack(f"{pack}: index files that differ from the parts: {len(stale)}; run packer index")
