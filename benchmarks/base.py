"""How every benchmark here measures: in turn, several times, medians, with the machine written beside the figures."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from packer.files.atomic_save import save
from packer.tools.report import machine

PACKER = [sys.executable, "-c", "from packer.cli import run; run()"]
Figure = TypeVar("Figure")


def arguments(text: str, **defaults: Any) -> argparse.Namespace:
    """A parser with one option per keyword; a default of None makes a path option."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON; the report goes to stderr")
    parser.add_argument("--output", "-o", type=Path, metavar="FILE.json", help="also write the figures to this file")
    for name, default in defaults.items():
        kind = Path if default is None else type(default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=f"default: {default}")
    return parser.parse_args()


def seconds(command: Sequence[str | Path]) -> float:
    """Wall time of a whole process; raises where it fails.

    It may keep what Python compiles: pip compiles what it installs, and a checkout is compiled in the first round.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    words = [str(word) for word in command]
    started = time.perf_counter()
    subprocess.run(words, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def interleaved(runs: Mapping[str, Callable[[], Figure]], rounds: int) -> dict[str, list[Figure]]:
    """Call each function once per round, in turn, after one round that does not count, and collect the results."""
    found: dict[str, list[Figure]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if number:
                found[name].append(value)
    return found


def ratio(found: dict[str, list[float]], one: str, other: str) -> float:
    """Return the median over the rounds of one / other."""
    return statistics.median(a / b for a, b in zip(found[one], found[other], strict=True))


def spread(values: Sequence[float], unit: str, digits: int = 2) -> str:
    """Return median (min - max)."""
    return f"{statistics.median(values):.{digits}f} {unit}  ({min(values):.{digits}f} - {max(values):.{digits}f})"


@contextmanager
def scratch(folder: Path | None = None) -> Iterator[Path]:
    """A folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="packer-bench-", dir=folder) as name:
        yield Path(name)


def photos(folder: Path | None, scratch_folder: Path, samples: int) -> Path:
    """The given image folder, or a synthetic one of 500x375 JPEGs."""
    if folder is not None:
        return folder
    made = scratch_folder / "photos"
    subprocess.run([*PACKER, "synth", "folder", str(made), "--samples", str(samples), "--seed", "0"], check=True)
    return made


def report(title: str, rows: dict[str, str], figures: dict[str, Any], args: argparse.Namespace) -> None:
    """Print a table; figures with the machine where --json and --output ask for them."""
    info = machine()
    stream = sys.stderr if args.json else sys.stdout
    print(f"{title}\n  {info['cpu']}, {info['cores']} cores, Python {info['python']}", file=stream)
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"  {name:<{width}}  {text}", file=stream)
    hand_over({"title": title, "machine": info, "figures": figures}, args)


def hand_over(document: dict[str, Any], args: argparse.Namespace) -> None:
    """As one line of JSON to standard output with --json, as a file with --output."""
    if args.json:
        print(json.dumps(document, sort_keys=True))
    if args.output:
        save(args.output, (json.dumps(document, indent=2) + "\n").encode())
