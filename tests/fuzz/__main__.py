"""The command `scripts/fuzz`."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click

from tests.fuzz import campaign
from tests.fuzz.minimising import minimised
from tests.fuzz.target import CORPUS, judge, load, name_of, names

_MOST_KEPT_BYTES = 2048  # of one input that goes into the repository
_DEFAULT = Path(__file__).parents[2] / ".fuzz"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("targets", nargs=-1, metavar="[TARGET]...")
@click.option("--all", "every", is_flag=True, help="All targets, one after the other.")
@click.option("--list", "listing", is_flag=True, help="The names of the targets, with what each is.")
@click.option(
    "--seconds", type=click.IntRange(1), default=60, show_default=True, help="Processor time for each target."
)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Targets at the same time.")
@click.option(
    "--corpus",
    type=click.Path(file_okay=False, path_type=Path),
    default=_DEFAULT,
    help="Folder of the inputs found so far and of findings, TARGET/corpus and TARGET/findings.  [default: .fuzz]",
)
@click.option("--engine", type=click.Choice(("auto", *campaign.ENGINES)), default="auto", show_default=True)
@click.option("--input", "inputs", multiple=True, type=click.Path(exists=True, path_type=Path), help="Try this file.")
@click.option(
    "--keep", is_flag=True, help="Put the small inputs that reach further into tests/fuzz/corpus; no fuzzing."
)
def command(
    targets: tuple[str, ...],
    every: bool,
    listing: bool,
    seconds: int,
    jobs: int,
    corpus: Path,
    engine: str,
    inputs: tuple[Path, ...],
    keep: bool,
) -> None:
    """Fuzz what parses: give mutated inputs to packer's parsers and look for what none of them may do."""
    known = names()
    wanted = known if every else list(targets)
    unknown = sorted(set(wanted) - set(known))
    if unknown or not (wanted or listing):
        raise click.UsageError(f"unknown target {', '.join(unknown)}" if unknown else "name a target, or say --all")
    if listing:
        _list(known)
    elif inputs:
        _try(wanted, inputs)
    elif keep:
        for name in wanted:
            _keep(name, corpus)
    else:
        _run(wanted, corpus, seconds=seconds, jobs=jobs, engine=campaign.chosen(engine))


def _list(known: list[str]) -> None:
    for name in known:
        text = (Path(__file__).parent / "targets" / f"{name}.py").read_text(encoding="utf-8")
        click.echo(f"{name:<12} {text.partition(chr(10))[0].strip(chr(34))}")


def _try(wanted: list[str], inputs: tuple[Path, ...]) -> None:
    """Each input, once; what it is guilty of."""
    guilty = False
    for name in wanted:
        target = load(name)
        for path in inputs:
            found = judge(target, path.read_bytes())
            guilty = guilty or found is not None
            click.echo(f"{name} {path}: " + ("as it should be" if found is None else f"{found.kind}\n{found.report}"))
    sys.exit(int(guilty))


def _keep(name: str, corpus: Path) -> None:
    target = load(name)
    candidates = {path.read_bytes() for path in (corpus / name / "corpus").glob("*")}
    candidates = {data for data in candidates if len(data) <= _MOST_KEPT_BYTES and judge(target, data) is None}
    folder = CORPUS / name
    there = {path.read_bytes() for path in target.kept}
    kept = [data for data in minimised(target, candidates | there) if data not in there]
    folder.mkdir(parents=True, exist_ok=True)
    for data in kept:
        (folder / name_of(data)).write_bytes(data)
    click.echo(f"{name}: {len(kept)} of {len(candidates)} inputs, {sum(map(len, kept))} bytes")


def _run(wanted: list[str], corpus: Path, *, seconds: int, jobs: int, engine: str) -> None:
    failures: list[str] = []

    def one(name: str) -> campaign.Result | None:
        try:
            result = campaign.fuzz(name, corpus, seconds=seconds, engine=engine)
        except campaign.WorkerFailed as error:
            failures.append(str(error))
            return None
        click.echo(_row(result), err=True)
        return result

    for name in wanted:
        load(name)  # threads that import at once meet modules half made
    with ThreadPoolExecutor(jobs) as pool:
        results = [result for result in pool.map(one, wanted) if result is not None]
    click.echo(f"{'target':<12} {'engine':<10} {'seconds':>8} {'executions':>11} {'corpus':>7} {'findings':>9}")
    for result in results:
        click.echo(_row(result))
        for path in result.findings:
            where = path.with_suffix(".txt").read_text(encoding="utf-8").split("\n")[2]
            click.echo(
                f"    {path.name}: {where}\n        scripts/fuzz {result.target} --input {os.path.relpath(path)}"
            )
    for failure in failures:
        click.echo(failure, err=True)
    sys.exit(int(bool(failures) or any(result.findings for result in results)))


def _row(result: campaign.Result) -> str:
    return (
        f"{result.target:<12} {result.engine:<10} {result.seconds:>8.0f} {result.executions:>11,} {result.corpus:>7} "
        f"{len(result.findings):>9}"
    )


if __name__ == "__main__":
    command(prog_name="scripts/fuzz")
