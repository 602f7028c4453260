"""packer ls: the keys of chosen samples, with numbers, classes and texts."""

from pathlib import Path

import click

from packer.cli._shared_options import Count, Group, PackOrURL, examples, pack_head, parse_names, print_json
from packer.errors import DOCS, InvalidRequest
from packer.files.terminal_output import echo

PLACE = (Group.LOOK_AT_A_PACK, 4)


@click.command(
    short_help="List the samples that a condition selects.",
    epilog=examples(
        "packer ls photos.pack --where \"width < 256 and 'beach' in key\"",
        "packer ls photos.pack --split val --sort width --desc -n 20 --columns label,width,height",
    )
    + f"\n\nConditions and columns: {DOCS}/check/select.md.",
)
@click.argument("pack", type=PackOrURL())
@click.option("--where", metavar="CONDITION", help="Only samples that meet it, such as \"label == 'cup'\".")
@click.option("--split", metavar="NAME", help="Only samples of this split.")
@click.option("--sort", metavar="COLUMN", help="Sort by this column.  [default: the order of the pack]")
@click.option("--desc", is_flag=True, help="Reverse the order.")
@click.option("-n", "--samples", type=Count(0), default=20, show_default=True, help="Number of samples; 0 for all.")
@click.option("--columns", callback=parse_names, metavar="A,B", help="Columns.  [default: those of --where and --sort]")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def command(
    pack: Path,
    *,
    where: str | None,
    split: str | None,
    sort: str | None,
    desc: bool,
    samples: int,
    columns: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Print the key and columns of samples of PACK, a folder or a URL, one sample per line.

    No image is read.
    """
    import numpy as np

    from packer.pack import manifest as manifests
    from packer.pack.filter_columns import PackColumns
    from packer.pack.row_filter import literal, parse
    from packer.pack.sample_index import Index  # keeps `packer --help` light

    filters = [parse(text) for text in (where, split and f"split == {literal(split)}") if text]
    with pack_head(pack) as folder:
        manifest = manifests.read(folder)
        values = PackColumns(manifest.schema, Index.open(folder, manifest), dict(manifest.incomplete))
        kept = np.ones(manifest.samples, np.bool_)
        for each in filters:
            kept &= each.rows(values)
        names = [*(name for each in filters for name in each.names), *([sort] if sort else [])]
        shown = list(dict.fromkeys(["key", *(names if columns is None else columns)]))
        for name in (*shown, *names):
            if name not in values.kinds:
                raise InvalidRequest(f"{pack}: no column {name!r}; there are: {', '.join(values.kinds)}")
        rows = np.flatnonzero(kept)
        if sort:
            rows = values.ordered(rows, sort, descending=desc)
        elif desc:
            rows = rows[::-1]
        chosen = rows[: samples or None]
        found = {name: values.values(name, chosen) for name in shown}
    if as_json:
        lines = [dict(zip(found, line, strict=True)) for line in zip(*found.values(), strict=True)]
        print_json({"pack": str(pack), "matching": len(rows), "samples": lines})
        return
    for key, *others in zip(*found.values(), strict=True):
        echo("  ".join((str(key), *(f"{name}={value}" for name, value in zip(shown[1:], others, strict=True)))))
    echo(f"{len(chosen)} of {len(rows)} samples", err=True)
