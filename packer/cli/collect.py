"""packer collect: writes chosen samples of packs as a collection, without copying images."""

from collections.abc import Sequence
from pathlib import Path

import click

from packer.cli._shared_options import Group, NamedPath, examples
from packer.errors import InvalidRequest
from packer.files.safe_paths import open_file
from packer.files.terminal_output import echo

PLACE = (Group.MAKE_A_PACK, 3)
_KEYS = NamedPath(exists=True)


@click.command(
    short_help="Choose samples of packs, without copying images.",
    epilog=examples(
        'packer collect big.pack photos.pack --where "width >= 256"',
        "packer collect all.pack day1.pack day2.pack --column label=corrected.csv",
    ),
)
@click.argument("out", type=NamedPath())
@click.argument("packs", metavar="PACK...", nargs=-1, required=True, type=NamedPath(exists=True))
@click.option("--where", metavar="CONDITION", help="Only samples that meet it, such as \"label == 'cup'\".")
@click.option("--keys", metavar="FILE", type=_KEYS, help="Only samples whose keys are lines of this file.")
@click.option("--drop", metavar="FILE", type=_KEYS, help="No samples whose keys are lines of this file.")
@click.option("--sample", metavar="N", help="Random samples: a number, or a share such as 0.1.")
@click.option("--seed", default=0, show_default=True, help="Of --sample.")
@click.option(
    "--column",
    "columns",
    metavar="NAME=FILE",
    multiple=True,
    help="Values of a field, from a CSV file with the columns key and NAME. Repeatable.",
)
@click.option(
    "--new-class",
    "new_classes",
    metavar="NAME=CLASS",
    multiple=True,
    help="Another class of a field of --column, after its classes. Repeatable.",
)
@click.option("--rename", metavar="OLD=NEW", multiple=True, help="Another name of a field. Repeatable.")
@click.option("--prefix", metavar="TEXT", multiple=True, help="Text before the keys of each PACK, in order.")
def command(
    out: Path,
    packs: Sequence[Path],
    *,
    where: str | None,
    keys: Path | None,
    drop: Path | None,
    sample: str | None,
    seed: int,
    columns: Sequence[str],
    new_classes: Sequence[str],
    rename: Sequence[str],
    prefix: Sequence[str],
) -> None:
    """Write the collection OUT: samples of one or more packs. It opens, verifies and converts like a pack.

    OUT contains an index and the relative paths of the packs, and no images: the packs must stay where they are.
    `packer convert OUT NEW` makes a pack of it.
    """
    import packer  # keeps `packer --help` light

    opened = [packer.open(pack) for pack in packs]
    dataset = packer.concat(*opened, prefixes=prefix or None) if len(opened) > 1 or prefix else opened[0]
    total = len(dataset)
    if keys is not None:
        dataset = dataset.select(dataset.columns().positions(_lines(keys)))
    if drop is not None:
        dataset = dataset.drop(_lines(drop))
    if where is not None:
        dataset = dataset.where(where)
    further = [_pair(text, "--new-class", "NAME=CLASS") for text in new_classes]
    for text in columns:
        name, file = _pair(text, "--column", "NAME=FILE")
        old = (dataset.schema[name].classes if name in dataset.schema else None) or ()
        new = [each for field, each in further if field == name]
        dataset = dataset.with_column(name, Path(file), classes=[*old, *new] if new else None)
    if further and (unused := {name for name, _ in further} - {text.partition("=")[0] for text in columns}):
        raise InvalidRequest(f"--new-class {sorted(unused)[0]}=: give --column {sorted(unused)[0]}=FILE, too")
    if rename:
        dataset = dataset.rename(**dict(_pair(text, "--rename", "OLD=NEW") for text in rename))
    if sample is not None:
        dataset = dataset.sample(_number(sample), seed=seed)
    if not len(dataset):
        raise InvalidRequest(f"{out}: none of the {total} samples is chosen; packer ls shows what a condition finds")
    dataset.save(out)
    echo(f"{out}: a collection of {len(dataset)} of {total} samples, packs: {len(packs)}")


def _lines(path: Path) -> list[str]:
    with open_file(path) as file:
        lines = file.read().decode("utf-8", "surrogateescape").split("\n")
    return [line.strip() for line in lines if line.strip()]


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not (name and sign and value):
        raise InvalidRequest(f"{option} {text!r}: expected {form}")
    return name, value


def _number(text: str) -> int | float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError as error:
        raise InvalidRequest(f"--sample {text!r}: expected a number of samples, or a share such as 0.1") from error
