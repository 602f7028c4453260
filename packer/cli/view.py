"""packer view: samples in a browser, or a contact sheet of them as one image or one page."""

from pathlib import Path

import click
from click.core import ParameterSource

from packer.cli._shared_options import Count, Group, PackOrURL, examples, parse_names, scratch_option
from packer.files.atomic_save import check_savable, save
from packer.files.terminal_output import echo
from packer.registry import import_or_explain
from packer.system.parallel import usable_cores

_FORMS = (".png", ".html")
_OF_SHEETS = ("samples", "keys", "fields", "seed", "grasps", "size", "zoom")
_OF_THE_PAGE = ("other", "host", "port", "no_browser")


def _target(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    if path is not None and path.suffix.lower() not in _FORMS:
        raise click.BadParameter(f"{str(path)!r}: expected a name that ends in {' or '.join(_FORMS)}")
    return path


def _check_options(ctx: click.Context, *, has_output: bool) -> None:
    """Raise UsageError for an option of the page if -o is given, or for an option of sheets if it is not."""
    unused = _OF_THE_PAGE if has_output else _OF_SHEETS
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in unused and ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            reason = "is for the page in the browser, without -o" if has_output else "is for a sheet, with -o FILE"
            raise click.UsageError(f"{parameter.get_error_hint(ctx)} {reason}")


PLACE = (Group.LOOK_AT_A_PACK, 1)


@click.command(
    short_help="Show samples with their labels.",
    epilog=examples(
        "packer view photos.pack",
        "packer view photos.pack new.pack --no-browser",
        "packer view photos.pack -o photos.html",
        "packer view cornell.pack -n 4 --zoom -o cornell.png",
    ),
)
@click.argument("pack", type=PackOrURL())
@click.argument("other", metavar="[PACK2]", required=False, type=PackOrURL())
@click.option(
    "-o",
    "--output",
    callback=_target,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Write a sheet of samples, .png or .html, instead.",
)
@click.option("--port", type=Count(1024, 65535), help="Port of the page.  [default: a free one]")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address of the page.")
@click.option("--no-browser", is_flag=True, help="Only print the URL of the page.")
@click.option("-n", "--samples", type=Count(1, 1000), default=24, show_default=True, help="Sheet: number of samples.")
@click.option("--key", "keys", multiple=True, help="Sheet: draw the sample with this key; repeatable.")
@click.option(
    "--fields", callback=parse_names, metavar="A,B", help="Sheet: only these fields.  [default: all that can be drawn]"
)
@click.option("--seed", type=Count(0), help="Sheet: random samples.  [default: evenly spread samples]")
@click.option(
    "--grasps", type=Count(0), default=12, show_default=True, help="Sheet: at most N labels per field; 0 for all."
)
@click.option("--size", type=Count(64, 1024), default=240, show_default=True, help="Sheet: width of an image in px.")
@click.option("--zoom", is_flag=True, help="Sheet: only the region that contains grasps and boxes.")
@scratch_option
@click.pass_context
def command(
    ctx: click.Context,
    pack: Path,
    *,
    other: Path | None,
    output: Path | None,
    port: int | None,
    host: str,
    no_browser: bool,
    samples: int,
    keys: tuple[str, ...],
    fields: tuple[str, ...] | None,
    seed: int | None,
    grasps: int,
    size: int,
    zoom: bool,
    scratch: Path | None,
) -> None:
    """Show the samples of PACK with their labels in a browser, or draw some of them into FILE.

    The page filters, sorts and shows samples. With PACK2, it compares the samples with equal keys. The server runs
    until Ctrl-C, reads only, and answers the browser that opened its URL. PACK may be a URL, such as
    s3://bucket/photos.pack: the command downloads the parts that contain the samples that are shown.
    """
    _check_options(ctx, has_output=output is not None)
    if output is None:
        for package in ("starlette", "uvicorn"):
            import_or_explain(package, "packer view in a browser")
        from packer.browse.view_server import serve  # keeps `packer --help` light

        packs = [pack] if other is None else [pack, other]
        serve(packs, host=host, port=port or 0, opens_browser=not no_browser, scratch=scratch)
        return
    from packer.inspect.contact_sheet import SheetRequest, make_sheet  # keeps `packer --help` light

    check_savable(output)
    request = SheetRequest(samples, keys, fields, seed, width=size, most=grasps, zoom=zoom)
    sheet = make_sheet(pack, request, scratch=scratch, threads=usable_cores())
    if output.suffix.lower() == ".png":
        from packer.inspect.png_sheet import draw_png  # as above

        data = draw_png(sheet)
    else:
        from packer.inspect.html_sheet import draw_html  # as above

        data = draw_html(sheet)
    save(output, data)
    echo(f"{output}: {sheet.title}")
