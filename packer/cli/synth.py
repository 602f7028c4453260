"""packer synth: writes a synthetic data set in the layout of a real one."""

import re
from inspect import signature
from pathlib import Path
from typing import Any

import click

from packer import synthetic
from packer.cli._shared_options import Count, Group, NamedPath, examples
from packer.files.terminal_output import echo
from packer.system.parallel import usable_cores


def _size(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None | str:
    """Return (height, width) for the text WxH, None for "varied", and "" without a text."""
    if text is None or text == "varied":
        return None if text else ""
    found = re.fullmatch(r"([0-9]{1,5})[xX]([0-9]{1,5})", text)
    if not found:
        raise click.BadParameter(f"{text!r}: expected WxH, such as 500x375, or varied")
    return int(found[2]), int(found[1])


PLACE = (Group.MAKE_A_PACK, 2)


@click.command(
    "synth", short_help="Write a synthetic data set.", epilog=examples("packer synth cornell cornell/ --samples 200")
)
@click.argument("name", metavar="SET", type=click.Choice(synthetic.names()))
@click.argument("folder", metavar="DIR", type=NamedPath())
@click.option("--samples", type=Count(), default=100, show_default=True, help="Number of samples.")
@click.option("--seed", type=Count(0), default=0, show_default=True, help="Seed of the drawings.")
@click.option("--threads", "-j", type=Count(), help="Threads.  [default: one per core]")
@click.option(
    "--size",
    metavar="WxH|varied",
    callback=_size,
    help="Not cornell, jacquard: size of images.  [default: 320x240, folder 500x375]",
)
@click.option("--classes", type=Count(), help="Not cornell, jacquard: number of classes.  [default: 10]")
def command(name: str, folder: Path, *, samples: int, seed: int, threads: int | None, **options: Any) -> None:
    """Write a synthetic data set into DIR, a new or empty folder.

    SET is the layout:

    \b
    cornell, jacquard  grasps: up to 885 RGB-D scenes, or RGB-D views
    folder             classes: JPEG photos in one folder per class
    coco, yolo         objects on a table: boxes and polygons
    voc                objects on a table: boxes and masks
    pairs              objects on a table: class masks, as in CamVid
    table              one object per image: mask, box and label in metadata.csv

    The same seed draws the same files. More samples continue the same set.
    """
    given = {option: value for option, value in options.items() if value != ("" if option == "size" else None)}
    write = synthetic.load(name)
    unfit = sorted(given.keys() - signature(write).parameters.keys())
    if unfit:
        raise click.UsageError(f"{name} has no option --{unfit[0].replace('_', '-')}; leave it out")
    done = write(folder, samples=samples, seed=seed, threads=threads or usable_cores(), **given)
    echo(f"{folder}: {done.samples} samples in {done.files} files, {done.size_bytes / 1e6:.3g} MB")
