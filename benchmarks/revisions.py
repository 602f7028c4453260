"""This checkout of packer beside another one: the ways into a batch, converting and opening, in turn, as ratios.

Every figure is of a process of its own, which measures one task of one checkout several times and gives the best; the
two checkouts take turns. `--figure calls` counts the calls of Python functions instead, which hardly vary: what a busy
machine hides shows there. `git worktree add ../other REVISION` makes the other checkout.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
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
    *("item", "small item", "crops encoded", "crops jpeg90", "crops raw", "small batches", "small batches, bmp"),
    *("workers", "DataLoader", "open", "grasp"),
)
_CONVERSIONS = ("convert", "convert cpu")
_RUN = "from packer.cli import run; run()"


def main() -> None:
    args = base.arguments(__doc__ or "", other=None, scratch=None, samples=400, rounds=7, tasks="all", figure="seconds")
    if args.other is None:
        raise SystemExit("--other: the folder of another checkout of packer")
    if args.figure not in ("seconds", "calls"):
        raise SystemExit(
            f"--figure {args.figure}: seconds, or calls (of Python functions, in all threads of a process)"
        )
    checkouts = {"this": Path(__file__).resolve().parent.parent, "other": args.other.resolve()}
    known = _TASKS if args.figure == "calls" else (*_TASKS, *_CONVERSIONS)
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
    unit, digits = ("s", 4) if args.figure == "seconds" else ("calls", 0)
    for task in wanted:
        ours, others = (base.spread(found[f"{task}, {which}"], unit, digits) for which in checkouts)
        times = f"{ours}, other {others}"
        rows[task] = (
            f"{args.figure}, this / other: {base.ratio(found, f'{task}, this', f'{task}, other'):.3f}   {times}"
        )
    base.report("revisions", rows, found, args)


def _prepare(checkout: Path, work: Path, samples: int) -> None:
    """The packs, written by one checkout: both read the same bytes."""
    _packer(checkout, "synth", "folder", work / "photos", "--samples", samples, "--seed", "0")
    _packer(checkout, "synth", "cornell", work / "cornell", "--samples", "40", "--seed", "0")
    for name, options in {
        "encoded": ("--to", "lmdb"),
        "jpeg90": ("--to", "lmdb", "--codec", "image=jpeg:90"),
        "raw": ("--to", "lmdb", "--codec", "image=raw"),
        "raw64": ("--to", "lmdb", "--resize", "64x64", "--codec", "image=raw"),
        "bmp64": ("--to", "bmp", "--resize", "64x64"),
    }.items():
        _packer(checkout, "convert", work / "photos", work / f"{name}.pack", *options)
    _packer(checkout, "convert", work / "cornell", work / "cornell.pack", "--preset", "ggcnn", "--to", "lmdb")


def _packer(checkout: Path, *words: object) -> None:
    subprocess.run([sys.executable, "-c", _RUN, *map(str, words)], check=True, **_where(checkout))


def _where(checkout: Path) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    return {"env": environment, "cwd": checkout, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}


def _measured(checkout: Path, work: Path, task: str, figure: str) -> float:
    if task in _CONVERSIONS:
        target = work / "out.pack"
        before = _processor_seconds()
        found = base.seconds(
            ["env", f"PYTHONPATH={checkout}", sys.executable, "-c", _RUN, "convert", work / "photos", target]
        )
        shutil.rmtree(target)
        return found if task == "convert" else _processor_seconds() - before
    done = subprocess.run(
        [sys.executable, "-c", _TASK, str(work), task, figure], check=True, text=True, **_where(checkout)
    )
    return float(json.loads(done.stdout))


def _processor_seconds() -> float:
    """What all ended child processes used: it varies less than the clock, which waits for the disk too."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
