"""packer bench: how fast folders and packs load."""

from pathlib import Path
from typing import Any

import click

from packer.cli.base import parse_counts, parse_names


@click.command(short_help="Measure how fast folders and packs load.")
@click.argument("sources", metavar="SRC...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--workers",
    callback=parse_counts,
    metavar="0,1,2,4",
    help="Worker processes of DataLoader, threads of Loader; 0-4 is a range.  [default: 0,1,2,4, ... up to the cores]",
)
@click.option("--batch", type=click.IntRange(min=1), default=32, show_default=True, help="Samples of a batch.")
@click.option("--epochs", type=click.IntRange(min=1), default=3, show_default=True, help="Rounds that count.")
@click.option(
    "--loader",
    type=click.Choice(("both", "DataLoader", "Loader"), case_sensitive=False),
    default="both",
    show_default=True,
    help="torch's DataLoader, packer.Loader, or both.",
)
@click.option("--geometry", metavar="TEXT", help="Such as 'RandomResizedCrop(224), HorizontalFlip()'.")
@click.option("--fields", callback=parse_names, metavar="A,B", help="Load only these fields.")
@click.option("--samples", type=click.IntRange(min=1), metavar="N", help="Only N samples, spread evenly.")
@click.option("--cold", is_flag=True, help="Drop SRC from the page cache before every turn; say where that failed.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures; -: stdout."
)
@click.option("--csv", "csv_file", type=click.Path(path_type=Path), metavar="FILE", help="A row per run; -: stdout.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png", help="Draw them; needs matplotlib.")
def command(sources: tuple[Path, ...], **options: Any) -> None:
    """Load every SRC, a pack or the folder of an original data set, through DataLoader and through packer.Loader.

    Folders are read as people do without packer: each file opened, decoded whole by OpenCV and warped. Runs take turns;
    medians are shown with lowest and highest. Memory is the peak beyond a Python that has only imported torch.
    """
    from packer.measure import bench, bench_report, writing  # noqa: PLC0415  keeps `packer --help` light
    from packer.measure.machine import cores_text, worker_counts  # noqa: PLC0415
    from packer.measure.setting import settings as settings_of  # noqa: PLC0415
    from packer.measure.setting import subjects  # noqa: PLC0415

    if options["plot"]:
        from packer.measure import bench_plot, drawing  # noqa: PLC0415

        drawing.check(options["plot"])
    loaders = ("DataLoader", "Loader") if options["loader"] == "both" else (options["loader"],)
    settings = settings_of(loaders, options["workers"] or worker_counts(), options["batch"])
    chosen = subjects(sources, options["geometry"], fields=options["fields"], samples=options["samples"])
    click.echo(f"{cores_text()}, batches of {options['batch']}", err=True)
    lines = bench.run(
        chosen, settings, rounds=options["epochs"], cold=options["cold"], say=lambda text: click.echo(text, err=True)
    )
    to_stdout = "-" in map(str, (options["json_file"], options["csv_file"]))
    click.echo("\n".join(bench_report.text(lines)), err=to_stdout)
    if options["json_file"]:
        asked = {name: options[name] for name in ("batch", "epochs", "geometry", "fields", "samples", "cold")}
        writing.write_json(options["json_file"], bench_report.document(lines, **asked))
    if options["csv_file"]:
        writing.write_csv(options["csv_file"], bench_report.CSV_HEAD, bench_report.csv_rows(lines))
    if options["plot"]:
        bench_plot.draw(lines, options["plot"])
