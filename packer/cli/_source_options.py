"""Options of sources on the command line, generated from the table of `packer.sources._option_table`."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from packer import sources
from packer.cli._shared_options import NamedPath, RegistryName
from packer.sources._option_table import OPTIONS, Option

_Command = TypeVar("_Command", bound=Callable[..., Any])

from_option = click.option(
    "--from",
    "-f",
    "kind",
    type=RegistryName(sources.registry, "auto", "pack"),
    default="auto",
    is_eager=True,
    metavar="NAME",
    help="Type of SOURCE.  [default: detected]",
)
sidecar_option = click.option(
    "--sidecar",
    "sidecars",
    multiple=True,
    metavar="NAME=SUFFIX:KIND",
    help="Add files, such as mask=_mask.png:mask.",
)


def source_options(command: _Command) -> _Command:
    """Decorate a command with the options of all sources."""
    for option in reversed(tuple(OPTIONS.values())):
        command = _source_option(option)(command)
    return command


def _source_option(option: Option) -> Callable[[_Command], _Command]:
    words, metavar = (option.flag, option.name), option.typed.metavar or None
    if option.type is bool:
        return click.option(*words, is_flag=True, help=option.help)
    if option.typed.is_repeated:
        return click.option(*words, multiple=True, metavar=metavar, help=option.help)
    if 0 in option.choices:
        return click.option(*words, type=click.Choice(("1", "0")), callback=_number, help=option.help)
    choices = click.Choice(option.choices) if option.choices else None
    place = NamedPath() if option.is_path else None
    return click.option(*words, type=choices or place, metavar=metavar, help=option.help)


def _number(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    return None if value is None else int(value)


def source_words(given: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that set the options in `given`, a mapping of option names to values."""
    words = [] if given["kind"] == "auto" else ["--from", given["kind"]]
    words += [word for sidecar in given["sidecars"] for word in ("--sidecar", sidecar)]
    return words + [word for name, option in OPTIONS.items() for word in option.words(given[name])]


class SourceCommand(click.Command):
    """A command with options of sources. With --from, the help also shows the options of that source.

    Attributes:
        groups: For each heading of the help, the names of the options below it. Options without a heading come first.
    """

    groups: Mapping[str, tuple[str, ...]] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse --help last, so that the help shows the options of --from even if --from follows --help."""
        return super().parse_args(ctx, sorted(args, key=lambda word: word in ctx.help_option_names))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in groups."""
        kind = ctx.params.get("kind", "auto")
        rows: dict[str, list[tuple[str, str]]] = {"Options": [], **{heading: [] for heading in self.groups}}
        of_source: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            name = parameter.name or ""
            heading = next((heading for heading, names in self.groups.items() if name in names), "Options")
            if record is None:
                continue
            if (option := OPTIONS.get(name)) is None:
                rows[heading].append(record)
            elif help_of_source := option.help_for(kind):
                of_source.append((record[0], help_of_source[0].upper() + help_of_source[1:]))
            elif help_of_all := option.help_for(""):
                rows[heading].append((record[0], help_of_all))
        shown = {**rows, f"Options of the source {kind}": of_source}
        for heading, records in shown.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)
