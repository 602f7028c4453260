"""Set writer: rules for all sets, and functions that write a set into a folder.

A set is a function `write_<name>(folder, *, samples, seed=0, threads=1, ...) -> SetSummary` with these rules:

* Sample k depends only on (seed, k) and the options, not on `samples` or `threads`. On one machine, equal calls write
  equal bytes.
* Some layouts have files that describe all samples: annotations, tables, lists. The rows of sample k also depend only
  on (seed, k) and the options. Rows have the order of the samples. `samples` determines which splits exist. Rows stay
  in memory until the last sample is drawn; images do not.
* The folder appears complete or not at all. The function writes into `.<name>.synth` next to the folder, and first
  removes the files of a killed run from `.<name>.synth`.
* The function raises InvalidRequest for invalid options, PackExists if the folder is not empty, and StorageError if
  writing a file fails.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field as member
from pathlib import Path

import numpy as np

from packer.errors import InvalidRequest, PackExists
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, work_folder
from packer.system.parallel import ordered_map

_SET = "set"
_NAMES = {_SET: ANYTHING}  # in the work folder

Rows = dict[str, list[str]]


@dataclass(frozen=True)
class SetSummary:
    """Number of samples, number of files, and total size of all files of a set."""

    samples: int
    files: int
    size_bytes: int


@dataclass(frozen=True)
class DrawnSample:
    """A sample: file path (relative, POSIX) -> content, and table name -> lines for the tables of all samples."""

    files: Mapping[str, bytes]
    rows: Mapping[str, list[str]] = member(default_factory=dict)


def stream(seed: int, *numbers: int) -> np.random.Generator:
    """Return a new random generator that depends only on these integers."""
    return np.random.default_rng([seed, *numbers])


def joined(rows: Rows, *, header: str = "") -> dict[str, bytes]:
    """Return table name -> content of a file: the header, followed by the rows. The header of all tables is equal."""
    return {name: "".join([header, *lines]).encode() for name, lines in rows.items()}


def write_set(
    folder: Path,
    draw: Callable[[int], DrawnSample],
    *,
    samples: int,
    threads: int,
    shared: Callable[[Rows], Mapping[str, bytes]] = joined,
) -> SetSummary:
    """Draw the samples in threads and write their files into a new or empty folder. Return the counts.

    Args:
        draw: Function from the index of a sample to the drawn sample.
        shared: Function from the rows of all samples to the files that describe all samples (path -> content).

    Raises:
        PackExists: The folder is not empty.
        StorageError: A file cannot be written.
    """
    files = size_bytes = 0
    tables: Rows = {}
    with _publishing(folder) as partial_folder:
        for drawn in ordered_map(draw, range(samples), threads=threads):
            size_bytes += _write_files(partial_folder, drawn.files)
            files += len(drawn.files)
            for name, rows in drawn.rows.items():
                tables.setdefault(name, []).extend(rows)
        rest = shared(tables)
        size_bytes += _write_files(partial_folder, rest)
    return SetSummary(samples, files + len(rest), size_bytes)


def check_counts(*, samples: int, seed: int, most: int | None = None) -> None:
    """Raise InvalidRequest if the seed is negative, or if `samples` is below 1 or above `most`."""
    if samples < 1 or (most is not None and samples > most):
        limit = "at least 1" if most is None else f"1 to {most}"
        raise InvalidRequest(f"samples {samples}: expected {limit}; choose another number")
    if seed < 0:
        raise InvalidRequest(f"seed {seed}: expected a number from 0; choose another seed")


def check_size(size: tuple[int, int] | None, *, least: int, most: int) -> None:
    """Raise InvalidRequest if a side of `size`, (height, width) in px or None, is below `least` or above `most`."""
    if size is not None and not all(least <= length <= most for length in size):
        raise InvalidRequest(f"size {size[1]}x{size[0]}: expected {least} to {most} px a side; choose another size")


def _write_files(folder: Path, files: Mapping[str, bytes]) -> int:
    for name, data in files.items():
        path = folder / name
        with failing(path, "write"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return sum(map(len, files.values()))


@contextmanager
def _publishing(folder: Path) -> Iterator[Path]:
    """Yield an empty temporary folder. At the end, rename it to `folder`. After an exception, remove it."""
    folder = folder.absolute()
    _check_free(folder)
    with failing(folder.parent, "make the folder"):
        folder.parent.mkdir(parents=True, exist_ok=True)
    with work_folder(folder.with_name(f".{folder.name}.synth"), _NAMES) as work:
        try:
            work.clear()  # of a run that was killed
            work.make_folder(_SET).close()
            yield work.inside / _SET
            _check_free(folder)
            if folder.is_dir():
                work.above.remove_empty_folder(folder.name)
            work.publish(_SET, work.above, folder.name)
        finally:
            work.clear()


def _check_free(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise PackExists(f"{folder}: expected a new or empty folder, found a file or a link; choose another target")
    if folder.is_dir() and any(folder.iterdir()):
        raise PackExists(f"{folder}: the folder exists and is not empty; choose another target")
