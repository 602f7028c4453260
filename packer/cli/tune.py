"""packer tune: how many workers or threads to use."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from packer.cli._shared_options import (
    Count,
    Group,
    NamedPath,
    batch_option,
    check_folders,
    deliver,
    examples,
    fields_option,
    follow_links_option,
    geometry_option,
    json_option,
    loader_option,
    max_pixels_option,
    output_option,
    parse_counts,
)
from packer.files.terminal_output import echo

PLACE = (Group.LOAD_FASTER, 1)


@click.command(
    short_help="Find out how many workers to use.",
    epilog=examples("packer tune photos.pack --workers 0-4 --step-ms 20"),
)
@click.argument("source", metavar="SOURCE", type=NamedPath())
@batch_option
@click.option(
    "--workers",
    callback=parse_counts,
    metavar="0-8",
    help="Worker processes, or threads of Loader.  [default: up to twice the cores]",
)
@loader_option
@click.option("--step-ms", type=Count(0, is_whole=False), help="Simulate a training step of MS milliseconds.")
@click.option("--step", metavar="MODULE:FUNCTION", help="Call your function with each batch.")
@click.option("--steps", type=Count(), help="Steps per epoch.  [default: all, at most 100]")
@click.option("--epochs", type=Count(), default=3, show_default=True, help="Epochs per run.")
@click.option("--rounds", type=Count(), default=3, show_default=True, help="Runs per setting.")
@click.option("--persistent", is_flag=True, help="DataLoader with persistent_workers=True.")
@geometry_option
@click.option("--transform", metavar="MODULE:FUNCTION", help="Your function of a sample.")
@fields_option
@follow_links_option
@max_pixels_option
@click.option("--cold", is_flag=True, help="Drop SOURCE from the page cache before each run.")
@json_option
@output_option
def command(source: Path, **options: Any) -> None:
    """Find the best number of workers of DataLoader and of threads of packer.Loader for SOURCE.

    SOURCE is a pack or a folder of images. The command runs a training loop with each number of workers and recommends
    the smallest number within 5 % of the best.
    """
    check_folders((source,))
    from packer.conversion.source_spec import SourceSpec, parameters  # keeps `packer --help` light
    from packer.system.parallel import usable_cores
    from packer.tools import tune
    from packer.tools.measured_workload import Subject, settings, subjects

    say = partial(echo, err=True)
    like = Subject(
        source,
        options["fields"],
        transform=options["transform"],
        max_pixels=options["max_pixels"],
        spec=SourceSpec(options=parameters({"follow_links": options["follow_links"]})),
    )
    (subject,) = subjects((source,), options["geometry"], like)
    plan = tune.planned(
        subject,
        options["batch"],
        steps=options["steps"],
        epochs=options["epochs"],
        step_ms=options["step_ms"],
        step=options["step"],
    )
    workers = options["workers"] or range(min(16, 2 * usable_cores()) + 1)
    chosen = settings(options["loaders"], workers, options["batch"], persistent=options["persistent"])
    say(*subject.notes(), f"{usable_cores()} usable cores, batches of {options['batch']}, epochs of {plan.steps} steps")
    rows = tune.tune(subject, chosen, plan, rounds=options["rounds"], cold=options["cold"], say=say)
    asked = {name: options[name] for name in ("batch", "rounds", "persistent", "geometry", "fields", "cold")}
    deliver(tune.report(rows, plan, asked, cores=usable_cores()), options)
