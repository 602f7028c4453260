"""packer formats: the formats, codecs and sources that are installed, and the options of a source."""

import click

from packer.cli._shared_options import Group, RegistryName, examples, print_json
from packer.files.terminal_output import echo
from packer.sources import registry
from packer.sources._option_table import OPTIONS

PLACE = (Group.REFERENCE, 0)


@click.command(short_help="List formats, codecs and sources.", epilog=examples("packer formats", "packer formats coco"))
@click.argument("source", type=RegistryName(registry), required=False, metavar="[NAME]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(*, source: str | None, as_json: bool) -> None:
    """List the formats, codecs and sources that are installed, or the options of the source NAME."""
    from packer import codecs, formats, sources  # keeps `packer --help` light

    if source is not None:
        texts = {option.flag: option.help_for(source) for option in OPTIONS.values() if option.help_for(source)}
        if as_json:
            print_json(texts)
            return
        echo(f"{source}: {(sources.load(source).__doc__ or '').strip().partition(chr(10))[0]}")
        for flag, text in texts.items():
            echo(f"  {flag:<16} {text.replace('  ', ' ')}")
        return
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
