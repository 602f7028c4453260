"""How every benchmark here measures: in turn, several times, medians, with the machine written beside the figures."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKER = [sys.executable, "-c", "from packer.cli import run; run()"]


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    packages = ("torch", "numpy", "lmdb", "opencv-python", "simplejpeg", "PyTurboJPEG")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def arguments(text: str, **defaults: Any) -> argparse.Namespace:
    """A parser with one option per keyword; a default of None makes a path option."""
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    for name, default in defaults.items():
        kind = Path if default is None else type(default)
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=default, help=f"default: {default}")
    return parser.parse_args()


def interleaved(runs: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each function once per round, in turn, after one round that does not count; what they return is collected."""
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            value = run()
            if number:
                found[name].append(value)
    return found


def ratio(found: dict[str, list[float]], one: str, other: str) -> float:
    """Median over the rounds of one / other."""
    return statistics.median(a / b for a, b in zip(found[one], found[other], strict=True))


def seconds(command: Sequence[str | Path]) -> float:
    """Wall time of a whole process; raises where it fails."""
    started = time.perf_counter()
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


def report(title: str, rows: dict[str, str], figures: dict[str, Any], json_file: Path | None) -> None:
    """Print a table, and write the figures with the machine where asked."""
    info = machine()
    print(f"{title}\n  {info['cpu']}, {info['cores']} cores, Python {info['python']}")
    width = max(map(len, rows))
    for name, text in rows.items():
        print(f"  {name:<{width}}  {text}")
    if json_file:
        json_file.write_text(json.dumps({"title": title, "machine": info, "figures": figures}, indent=2) + "\n")


def spread(values: Sequence[float], unit: str, digits: int = 2) -> str:
    """median (min - max)."""
    return f"{statistics.median(values):.{digits}f} {unit}  ({min(values):.{digits}f} - {max(values):.{digits}f})"
