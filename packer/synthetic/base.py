"""Synthetic set: the layout of one real data set, filled with rendered samples.

A set module has `write(folder, *, samples, seed, threads=1, ...) -> Summary`; further keyword-only parameters are the
set's options. What callers may rely on:

* Sample k depends on (seed, k) and the options alone: neither on `samples` nor on `threads`. On one machine the same
  call gives the same bytes.
* A layout may have files that say something of all samples: annotations, tables, lists. They have rows, and the rows of
  sample k depend on (seed, k) and the options alone, too; they follow each other in the order of the samples, so that
  the file of more samples goes on with further rows. Which splits there are follows from `samples`.
* The folder appears complete or not at all: work happens in `.<name>.synth` beside it, a work folder
  (files/work_folder.py); what a killed run left there is removed by the next.
* It raises InvalidRequest for options that cannot be met, PackExists for a target that is not an empty folder, and
  StorageError where the disk refuses. Memory does not grow with `samples`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from dataclasses import field as member
from pathlib import Path

import numpy as np

from packer.errors import InvalidRequest, PackExists, StorageError
from packer.files.storage_errors import failing
from packer.files.work_folder import ANYTHING, work_folder
from packer.synthetic._growing_files import SharedFile, growing_file
from packer.system.parallel import ordered_map

_SET = "set"
_NAMES = {_SET: ANYTHING}  # in the work folder


@dataclass(frozen=True)
class SetSummary:
    """What was written: the number of samples and of files, and the files' sizes together."""

    samples: int
    files: int
    size_bytes: int


def stream(seed: int, *numbers: int) -> np.random.Generator:
    """Random numbers that depend on these integers alone."""
    return np.random.default_rng([seed, *numbers])


@dataclass(frozen=True)
class DrawnSample:
    """files: bytes by relative POSIX path. rows: of a shared file, by its name, for each of its lists."""

    files: Mapping[str, bytes]
    rows: Mapping[str, Sequence[Sequence[bytes]]] = member(default_factory=dict)


def write_samples(
    draw: Callable[[int], DrawnSample],
    folder: Path,
    *,
    samples: int,
    threads: int,
    shared: Sequence[SharedFile] = (),
) -> SetSummary:
    """Write what `draw` makes for each sample, and the shared files; samples are drawn by threads.

    Raises StorageError.
    """
    files = size_bytes = 0
    with ExitStack() as stack:
        growing = {each.name: stack.enter_context(growing_file(folder, each)) for each in shared}
        for drawn in ordered_map(draw, range(samples), threads=threads):
            size_bytes += write_files(folder, drawn.files)
            files += len(drawn.files)
            for name, lists in drawn.rows.items():
                growing[name].add(lists)
        size_bytes += sum(each.finish() for each in growing.values())
    return SetSummary(samples, files + len(shared), size_bytes)


def write_files(folder: Path, files: Mapping[str, bytes]) -> int:
    """Write files by relative POSIX path and return their size in bytes; raises StorageError."""
    for name, data in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        except OSError as error:
            raise StorageError(f"{path}: cannot write: {error.strerror}; free some space or choose another") from error
    return sum(map(len, files.values()))


@contextmanager
def publishing(folder: Path) -> Iterator[Path]:
    """The empty folder to write into; it becomes `folder` at the end and is removed after an exception.

    Raises PackExists, UnsafePath, Locked, StorageError.
    """
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


def check_counts(*, samples: int, seed: int, most: int | None = None) -> None:
    """Raises InvalidRequest for a negative seed, or a number of samples below 1 or above `most`."""
    if samples < 1 or (most is not None and samples > most):
        limit = "at least 1" if most is None else f"1 to {most}"
        raise InvalidRequest(f"samples {samples}: expected {limit}; choose another number")
    if seed < 0:
        raise InvalidRequest(f"seed {seed}: expected a number from 0; choose another seed")


def _check_free(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise PackExists(f"{folder}: expected a new or empty folder, found a file or a link; choose another target")
    if folder.is_dir() and any(folder.iterdir()):
        raise PackExists(f"{folder}: the folder exists and is not empty; choose another target")
