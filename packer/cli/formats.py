"""packer formats: what packer can read and write here."""

import click

from packer.cli._shared_options import Group, examples, print_json
from packer.files.terminal_output import echo

PLACE = (Group.WHAT_THERE_IS, 0)


@click.command(short_help="List formats, codecs and sources.", epilog=examples("packer formats"))
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON for machines.")
def command(*, as_json: bool) -> None:
    """List the formats, codecs and sources that are installed."""
    from packer import codecs, formats, sources  # keeps `packer --help` light

    rooms = {"format": formats, "codec": codecs, "source": sources}
    found = {
        noun: {name: (room.load(name).__doc__ or "").strip().partition("\n")[0] for name in room.names()}
        for noun, room in rooms.items()
    }
    if as_json:
        print_json(found)
        return
    for noun, entries in found.items():
        echo(f"{noun}s")
        for name, line in entries.items():
            echo(f"  {name:<10} {line}")
