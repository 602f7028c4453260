"""packer view: a contact sheet of samples, as one image or one page."""

from pathlib import Path

import click

from packer.cli._shared_options import Count, Group, PackOrURL, examples, scratch_option
from packer.files.atomic_save import check_savable, save
from packer.files.terminal_output import echo
from packer.system.parallel import usable_cores

_FORMS = (".png", ".html")


def _names(_: click.Context, __: click.Parameter, text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text is not None else None


def _target(_: click.Context, __: click.Parameter, path: Path) -> Path:
    if path.suffix.lower() not in _FORMS:
        raise click.BadParameter(f"{str(path)!r}: expected a name that ends in {' or '.join(_FORMS)}")
    return path


PLACE = (Group.LOOK_AT_IT, 1)


@click.command(
    short_help="Draw samples with their labels.",
    epilog=examples("packer view photos.pack -o photos.html", "packer view cornell.pack -n 4 --zoom -o cornell.png"),
)
@click.argument("pack", type=PackOrURL())
@click.option(
    "-o",
    "--output",
    callback=_target,
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The file to write, .png or .html.",
)
@click.option("-n", "--samples", type=Count(1, 1000), default=24, show_default=True, help="Number of samples.")
@click.option("--key", "keys", multiple=True, help="Draw the sample with this key; repeatable.")
@click.option(
    "--fields", callback=_names, metavar="A,B", help="Draw only these fields.  [default: all that can be drawn]"
)
@click.option("--seed", type=Count(0), help="Draw random samples.  [default: evenly spread samples]")
@click.option(
    "--grasps", type=Count(0), default=12, show_default=True, help="Draw at most N labels per field; 0 for all."
)
@click.option("--size", type=Count(64, 1024), default=240, show_default=True, help="Width of an image in pixels.")
@click.option("--zoom", is_flag=True, help="Draw only the region that contains grasps and boxes.")
@scratch_option
def command(
    pack: Path,
    *,
    output: Path,
    samples: int,
    keys: tuple[str, ...],
    fields: tuple[str, ...] | None,
    seed: int | None,
    grasps: int,
    size: int,
    zoom: bool,
    scratch: Path | None,
) -> None:
    """Draw samples of PACK with their labels into FILE, a .png or a .html.

    PACK may be a URL, such as s3://bucket/photos.pack: the command downloads the parts that contain these samples.
    """
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
