"""This checkout of packer beside another one: the ways into a batch, opening and commands, in turn, as ratios.

Every figure comes from a process of its own. A task of the library is measured several times by its process, which
gives the best; a command is measured as a whole. The two checkouts take turns. `--figure cpu` and `--figure peak` give
processor time and peak memory of commands; `--figure calls` counts calls of Python functions in tasks, which hardly
vary: a busy machine hides less there. `git worktree add ../other REVISION` makes the other checkout.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import base

_TASK = """
import inspect, itertools, json, sys, threading, time
from pathlib import Path
work, task, calls = Path(sys.argv[1]), sys.argv[2], itertools.count()
import torch
import packer
from packer import geometry
torch.set_num_threads(1)
SPELLINGS = {"num_workers": "workers", "RandomHorizontalFlip": "HorizontalFlip"}

def loader(dataset, batch, **options):
    known = inspect.signature(packer.Loader.__init__).parameters
    return packer.Loader(dataset, batch, **{k if k in known else SPELLINGS[k]: v for k, v in options.items()})

def passes(batches, count):
    best = 1e9
    for _ in range(count):
        begun = time.perf_counter()
        for _ in batches:
            pass
        best = min(best, time.perf_counter() - begun)
    return best

def opened(name, **options):
    return packer.open(work / name, **options)

def note_call(frame, event, argument):
    if event in ("call", "c_call"):
        next(calls)

crop = geometry.RandomResizedCrop(224)
if sys.argv[3] == "calls":
    threading.setprofile(note_call)
    sys.setprofile(note_call)
if task == "item":
    dataset, best = opened("encoded.pack"), 1e9
    for _ in range(3):
        begun = time.perf_counter()
        for i in range(len(dataset)):
            dataset[i]
        best = min(best, time.perf_counter() - begun)
elif task == "small item":
    dataset, best = opened("raw64.pack"), 1e9
    for _ in range(9):
        begun = time.perf_counter()
        for i in range(len(dataset)):
            dataset[i]
        best = min(best, time.perf_counter() - begun)
elif task.startswith("crops"):
    best = passes(loader(opened(task.split()[1] + ".pack", geometry=crop), 32, threads=1, shuffle=True), 4)
elif task == "small batches":
    best = passes(loader(opened("raw64.pack"), 32, threads=1), 12)
elif task == "small batches, bmp":
    best = passes(loader(opened("bmp64.pack"), 32, threads=1), 12)
elif task == "workers":
    best = passes(loader(opened("encoded.pack", geometry=crop), 32, num_workers=2), 4)
elif task == "DataLoader":
    from torch.utils.data import DataLoader
    best = passes(DataLoader(opened("encoded.pack", geometry=crop), 32, num_workers=2, persistent_workers=True), 4)
elif task == "open":
    best = 1e9
    for _ in range(30):
        begun = time.perf_counter()
        opened("encoded.pack")[0]
        best = min(best, time.perf_counter() - begun)
elif task == "grasp":
    best = passes(loader(packer.grasp.GraspDataset(work / "cornell.pack", include_rgb=True), 8, threads=1), 3)
sys.setprofile(None)
print(json.dumps(next(calls) if sys.argv[3] == "calls" else best))
"""
_TASKS = (
    *("item", "small item", "crops encoded", "crops jpeg90", "crops raw", "crops ycc420"),
    *("small batches", "small batches, bmp", "workers", "DataLoader", "open", "grasp"),
)
# @name is a path of the prepared folder
_COMMANDS = {
    "convert": ("convert", "@photos", "@out"),
    "convert, header": ("convert", "@photos", "@out", "--validate", "header"),
    "convert, jpeg:90": ("convert", "@photos", "@out", "--resize", "256", "--codec", "image=jpeg:90"),
    "convert, ycc420": ("convert", "@photos", "@out", "--resize", "256", "--codec", "image=ycc420"),
    "convert zip": ("convert", "@photos.zip", "@out"),
    "convert table": ("convert", "@table", "@out", "--from", "table"),
    "convert coco": ("convert", "@coco", "@out", "--from", "coco"),
    "convert voc": ("convert", "@voc", "@out", "--from", "voc"),
    "convert cornell": ("convert", "@cornell", "@out", "--preset", "ggcnn"),
    "convert tfrecord": ("convert", "@photos.tfrecord", "@out", "--from", "tfrecord"),
    "convert webdataset": ("convert", "@photos.webdataset", "@out", "--from", "webdataset"),
    "write tfrecord": ("convert", "@photos", "@out", "--to", "tfrecord"),
    "write webdataset": ("convert", "@photos", "@out", "--to", "webdataset"),
    "write hdf5": ("convert", "@photos", "@out", "--to", "hdf5"),
    "write bmp": ("convert", "@photos", "@out", "--to", "bmp", "--resize", "256"),
    "verify": ("verify", "@encoded.pack"),
    "info": ("info", "@encoded.pack"),
}
_RUN = "from packer.cli import run; run()"
_UNITS = {"seconds": ("s", 4), "cpu": ("s", 4), "peak": ("MiB", 1), "calls": ("calls", 0)}


def main() -> None:
    args = base.arguments(__doc__ or "", other=None, scratch=None, samples=400, rounds=7, tasks="all", figure="seconds")
    if args.other is None:
        raise SystemExit("--other: the folder of another checkout of packer")
    if args.figure not in _UNITS:
        raise SystemExit(f"--figure {args.figure}: {', '.join(_UNITS)}")
    checkouts = {"this": Path(__file__).resolve().parent.parent, "other": args.other.resolve()}
    known = {"seconds": (*_TASKS, *_COMMANDS), "calls": _TASKS}.get(args.figure, tuple(_COMMANDS))
    wanted = known if args.tasks == "all" else tuple(args.tasks.split("/"))
    if not set(wanted) <= set(known):
        raise SystemExit(f"--tasks {args.tasks}: the tasks of --figure {args.figure} are {'/'.join(known)}")
    with base.scratch(args.scratch) as work:
        _prepare(checkouts["other"], work, args.samples)
        runs: dict[str, Callable[[], float]] = {
            f"{task}, {which}": partial(_measured, checkout, work, task, args.figure)
            for task in wanted
            for which, checkout in checkouts.items()
        }
        found = base.interleaved(runs, args.rounds)
    rows = {}
    for task in wanted:
        ours, others = (base.spread(found[f"{task}, {which}"], *_UNITS[args.figure]) for which in checkouts)
        best = min(found[f"{task}, this"]) / min(found[f"{task}, other"])
        rows[task] = (
            f"{args.figure}, this / other: {base.ratio(found, f'{task}, this', f'{task}, other'):.3f}, "
            f"of the best {best:.3f}   {ours}, other {others}"
        )
    base.report("revisions", rows, found, args)


def _prepare(checkout: Path, work: Path, samples: int) -> None:
    """The packs, written by one checkout: both read the same bytes."""
    _packer(checkout, "synth", "folder", work / "photos", "--samples", samples, "--seed", "0")
    _packer(checkout, "synth", "cornell", work / "cornell", "--samples", "40", "--seed", "0")
    for layout in ("table", "coco", "voc"):
        _packer(checkout, "synth", layout, work / layout, "--samples", samples, "--seed", "0")
    with zipfile.ZipFile(work / "photos.zip", "w") as archive:
        for path in sorted((work / "photos").rglob("*.jpg")):
            archive.write(path, path.relative_to(work / "photos"))
    for layout in ("tfrecord", "webdataset"):
        _packer(checkout, "convert", work / "photos", work / f"photos.{layout}", "--to", layout)
    for name, options in {
        "encoded": ("--to", "lmdb"),
        "jpeg90": ("--to", "lmdb", "--codec", "image=jpeg:90"),
        "raw": ("--to", "lmdb", "--codec", "image=raw"),
        "ycc420": ("--to", "lmdb", "--codec", "image=ycc420"),
        "raw64": ("--to", "lmdb", "--resize", "64x64", "--codec", "image=raw"),
        "bmp64": ("--to", "bmp", "--resize", "64x64"),
    }.items():
        _packer(checkout, "convert", work / "photos", work / f"{name}.pack", *options)
    _packer(checkout, "convert", work / "cornell", work / "cornell.pack", "--preset", "ggcnn", "--to", "lmdb")


def _packer(checkout: Path, *words: object) -> None:
    subprocess.run([sys.executable, "-c", _RUN, *map(str, words)], check=True, **_where(checkout))


def _where(checkout: Path) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # both are compiled in the first round
    return {"env": environment, "cwd": checkout, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}


def _measured(checkout: Path, work: Path, task: str, figure: str) -> float:
    if task in _COMMANDS:
        return _command_figures(checkout, work, task)[figure]
    done = subprocess.run(
        [sys.executable, "-c", _TASK, str(work), task, figure], check=True, text=True, **_where(checkout)
    )
    return float(json.loads(done.stdout))


def _command_figures(checkout: Path, work: Path, task: str) -> dict[str, float]:
    """Wall seconds, processor seconds and peak memory in MiB of one command, as the system counts them for a child."""
    words = [str(work / word[1:]) if word.startswith("@") else word for word in _COMMANDS[task]]
    started = time.perf_counter()
    child = subprocess.Popen([sys.executable, "-c", _RUN, *words], **_where(checkout) | {"stdout": subprocess.DEVNULL})
    _, status, used = os.wait4(child.pid, 0)
    found = time.perf_counter() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{checkout}: packer {' '.join(words)}: exit code {child.returncode}")
    if (work / "out").is_dir():
        shutil.rmtree(work / "out")
    else:
        (work / "out").unlink(missing_ok=True)
    return {"seconds": found, "cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 1024}


if __name__ == "__main__":
    main()
