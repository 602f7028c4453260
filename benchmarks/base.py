"""How every benchmark here measures: in turn, several times, medians, with the machine written beside the figures."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from packer.files.atomic_save import save
from packer.system.machine_description import machine
from packer.tools.repeated_runs import interleaved as interleaved
from packer.tools.repeated_runs import ratio as ratio
from packer.tools.repeated_runs import spread as spread

PACKER = [sys.executable, "-c", "from packer.cli import run; run()"]


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
