"""Data sets that grow: packer against LitData, Mosaic, WebDataset and Hugging Face datasets, and reads of collections.

`--part tools` runs each task of benchmarks/harness/growing.py in each tool: lines of code, seconds without imports,
bytes of files that are new or changed. `--part collections` measures collections against packs.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import base
import numpy as np

import packer
from packer.geometry import RandomResizedCrop

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.harness.growing import GIVEN, TASKS, TOOLS, Tool  # noqa: E402

Files = dict[Path, tuple[int, int, int]]


# ---- against other tools


def interpreters(peers: Path, foreign: Path) -> dict[str, Path]:
    """Return the Python of each tool that is installed."""
    found = {
        "packer": Path(sys.executable),
        "litdata": peers / "litdata/bin/python",
        "streaming": peers / "streaming/bin/python",
        "webdataset": foreign / "webdataset/bin/python",
        "datasets": foreign / "datasets/bin/python",
        "datasets, saved": foreign / "datasets/bin/python",
    }
    for name, python in found.items():
        if not python.exists():
            print(f"{name}: {python} is missing; scripts/bench --peers or scripts/foreign makes it", file=sys.stderr)
    return {name: python for name, python in found.items() if python.exists()}


def make_photos(folder: Path, samples: int) -> dict[str, Path]:
    """Return folders of synthetic photos, made unless they exist. Photos of different folders have different names."""
    found = {name: folder / name for name in ("photos", "others", "new")}
    if all(path.is_dir() for path in found.values()):
        return found
    for seed, (name, count) in enumerate({"photos": samples, "others": samples // 4, "new": samples // 100}.items()):
        words = ["synth", "folder", str(found[name]), "--samples", str(count), "--seed", str(seed), "--threads", "2"]
        subprocess.run([*base.PACKER, *words], check=True, stdout=subprocess.DEVNULL)
        for path in sorted(found[name].glob("*/*")):
            path.rename(path.with_name(f"{name}_{path.name}"))
    return found


def listed(folder: Path) -> dict[str, int]:
    """Return key -> label of an image folder."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    return {f"{each.name}/{path.name}": at for at, each in enumerate(classes) for path in sorted(each.iterdir())}


def run_program(python: Path, tool: Tool, body: str, given: Mapping[str, Any], *, task: str = "") -> dict[str, Any]:
    """Run a program of a tool in its own process, and return its seconds and the labels of the result."""
    program = f"{GIVEN}{tool.imports}\nstarted = time.perf_counter()\n{body}\nseconds = time.perf_counter() - started\n"
    program += "labels_of = None\n"
    if task and task not in ("mix", "sample"):
        program += f"path = given[{tool.places.get(task, 'out')!r}]\n{tool.result}\n"
    program += 'pathlib.Path(given["answer"]).write_text(json.dumps([seconds, labels_of]))\nos._exit(0)\n'
    root = Path(given["root"])
    names = {"TMPDIR": "tmp", "HF_HOME": "hf", "DATA_OPTIMIZER_CACHE_FOLDER": "cache", "PYTHONPATH": ""}
    places = {name: str(root / place) if place else str(ROOT) for name, place in names.items()}
    (root / "tmp").mkdir(exist_ok=True)
    quiet = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore", "DISABLE_LITDATA_UPDATE_CHECK": "1"}
    done = subprocess.run(
        [python, "-c", program, json.dumps(given)],
        env=os.environ | places | quiet,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode:
        raise SystemExit(f"{task or 'make'} with {python} failed:\n{body}\n{done.stderr[-3000:]}")
    seconds, labels = json.loads(Path(given["answer"]).read_text())
    return {"seconds": seconds, "labels": labels}


def files(folder: Path) -> Files:
    """Return inode, size and time of change of each file that a program may write."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_relative_to(folder / "tmp"):
            status = path.stat()
            found[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return found


def expected(task: str, sets: Mapping[str, dict[str, int]], given: Mapping[str, Any]) -> dict[str, int]:
    """Return key -> label of the result of a task."""
    photos = sets["photos"]
    return {
        "append": lambda: photos | sets["new"],
        "filter": lambda: {key: label for key, label in photos.items() if label == given["number"]},
        "correct": lambda: photos | given["labels"],
        "drop": lambda: {key: label for key, label in photos.items() if key not in given["dropped"]},
        "join": lambda: photos | sets["others"],
        "write": lambda: photos,
    }[task]()


def compare_tools(args: Any, scratch: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Run the tasks. Return rows of a table and figures."""
    folders = make_photos(args.folder or scratch, args.samples)
    sets = {name: listed(folder) for name, folder in folders.items()}
    chosen = random.Random(0).sample(sorted(sets["photos"]), 12)
    values: dict[str, Any] = {name: str(folder) for name, folder in folders.items()}
    values |= {"number": 3, "name": sorted(path.name for path in folders["photos"].iterdir())[3]}
    values |= {"dropped": chosen[:7], "labels": {key: (sets["photos"][key] + 1) % 10 for key in chosen[7:]}}
    values["answer"] = str(scratch / "answer.json")
    rows, figures = {}, {}
    pythons = interpreters(args.peers or ROOT / ".peers/venvs", args.foreign or ROOT / ".foreign")
    wanted = args.tools.split(";") if args.tools else list(pythons)
    tasks = args.tasks.split(",") if args.tasks else list(TASKS)
    for name, python in pythons.items():
        if name not in wanted:
            continue
        tool, kept, root = TOOLS[name], scratch / "kept", scratch / "run"
        for folder in (kept, root):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for letter, entries in {"a": "photos", "b": "others"}.items():
            given = values | {"root": str(root), "out": str(kept / letter), "a": "", "b": ""}
            run_program(python, tool, f"entries = {entries!r}\n{tool.make}", given)
        for task in tasks:
            if task not in tool.tasks:
                continue
            times = []
            for _ in range(args.rounds):
                shutil.rmtree(root)
                shutil.copytree(kept, root)
                given = values | {each: str(root / each) for each in ("a", "b", "out")} | {"root": str(root)}
                before = files(root)
                answer = run_program(python, tool, tool.tasks[task], given, task=task)
                written = sum(status[1] for path, status in files(root).items() if before.get(path) != status)
                if answer["labels"] is not None and answer["labels"] != expected(task, sets, values):
                    raise SystemExit(f"{name}, {task}: the result has other samples or labels than expected")
                times.append(answer["seconds"])
            lines = sum(bool(line.strip()) for line in tool.tasks[task].splitlines())
            remark = "in code" if task in tool.in_code else "writes anew" if task in tool.anew else "kept"
            figures[f"{task}, {name}"] = {"lines": lines, "seconds": times, "bytes": written, "remark": remark}
            text = f"{lines:2} lines, {written / 1e6:9.3f} MB, {remark:<11}  {base.spread(times, 's', 3)}"
            rows[f"{TASKS[task]}: {name}"] = text
            print(f"{name}, {task}: {text}", file=sys.stderr, flush=True)
    order = [f"{TASKS[task]}: {name}" for task in TASKS for name in TOOLS]
    return {name: rows[name] for name in order if name in rows}, figures


# ---- collections


class SmallImages:
    """Raw images whose pixels are all one number, as a dataset that `packer.convert` packs."""

    def __init__(self, count: int, side: int) -> None:
        self._count = count
        self._side = side

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, at: int) -> dict[str, Any]:
        if at >= self._count:
            raise IndexError(at)
        return {"image": np.full((self._side, self._side, 3), at % 251, np.uint8), "label": at % 10}


def convert_tenths(samples: Any, scratch: Path, name: str, **options: Any) -> dict[str, Any]:
    """Pack the samples as one pack and as ten packs, which a collection joins. Return both datasets."""
    one = scratch / f"{name}-one.pack"
    packer.convert(samples, one, progress=False, **options)
    tenths = []
    for at in range(10):
        tenth = [samples[index] for index in range(at * len(samples) // 10, (at + 1) * len(samples) // 10)]
        packer.convert(tenth, scratch / f"{name}-{at}.pack", progress=False, **options)
        tenths.append(packer.open(scratch / f"{name}-{at}.pack"))
    ten = scratch / f"{name}-ten.pack"
    packer.concat(*tenths, prefixes=[f"{at}/" for at in range(10)]).save(ten)
    return {"one pack": packer.open(one), "collection of 10": packer.open(ten)}


def epoch(dataset: Any, geometry: Any) -> Callable[[], float]:
    """Return a function that reads all samples in random order, and returns the processor time of this process."""
    loader = packer.Loader(dataset, batch_size=64, shuffle=True, geometry=geometry)

    def run() -> float:
        started = time.process_time()
        for _ in loader:
            pass
        return time.process_time() - started

    return run


def open_many(scratch: Path, rows: int, packs: int, rounds: int) -> tuple[list[float], list[float]]:
    """Return milliseconds to open a collection of many rows over many packs, and to open it and read a sample."""
    first = scratch / "tiny-0.pack"
    packer.convert(SmallImages(rows // packs, 8), first, codecs={"image": "raw"}, progress=False)
    folders = [first, *(scratch / f"tiny-{at}.pack" for at in range(1, packs))]
    for folder in folders[1:]:
        shutil.copytree(first, folder)
    joined = scratch / "many.pack"
    datasets = [packer.open(folder) for folder in folders]
    packer.concat(*datasets, prefixes=[f"{at}/" for at in range(packs)]).save(joined)
    del datasets
    opened, read = [], []
    for at in range(rounds + 1):
        started = time.perf_counter()
        dataset = packer.open(joined)
        opened.append((time.perf_counter() - started) * 1e3)
        dataset[at * len(dataset) // (rounds + 1)]
        read.append((time.perf_counter() - started) * 1e3)
        if len(dataset) != rows:
            sys.exit(f"the collection has {len(dataset)} rows, expected {rows}")
        del dataset
    return opened[1:], read[1:]


def measure_collections(args: Any, scratch: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Measure bytes, reads and opening of collections. Return rows of a table and figures."""
    photos = base.photos(None, scratch, args.samples)
    keys = listed(photos)
    samples = [{"image": str(photos / key), "label": label} for key, label in keys.items()]
    fields = {"image": "image", "label": "number"}
    rounds = max(args.rounds, 9)
    runs: dict[str, Callable[[], float]] = {}
    photo_sets = convert_tenths(samples, scratch, "photos", fields=fields)
    raw_sets = convert_tenths(SmallImages(args.raw_samples, 64), scratch, "raw", codecs={"image": "raw"})
    for name, dataset in photo_sets.items():
        runs[f"JPEG crops, {name}"] = epoch(dataset, RandomResizedCrop(224))
    for name, dataset in raw_sets.items():
        runs[f"raw 64x64, {name}"] = epoch(dataset, None)
    found = base.interleaved(runs, rounds)
    rows = {name: base.spread(values, "s of processor time", 3) for name, values in found.items()}
    for kind in ("JPEG crops", "raw 64x64"):
        ratio = base.ratio(found, f"{kind}, one pack", f"{kind}, collection of 10")
        rows[f"{kind}, rate of the collection / one pack"] = f"{ratio:.3f}  (wanted: >= 0.97)"
    whole = tree_bytes(scratch / "photos-one.pack")
    dataset = photo_sets["one pack"]
    dataset.where("label == 3").save(scratch / "filtered.pack")
    dataset.with_column("label", {dataset.key(at): 1 for at in range(5)}).save(scratch / "relabeled.pack")
    figures: dict[str, Any] = {"seconds": found, "pack_bytes": whole}
    for name in ("filtered", "relabeled"):
        size = figures[f"{name}_bytes"] = tree_bytes(scratch / f"{name}.pack")
        rows[f"{name}: bytes / those of the pack"] = f"{size / whole:.3%}, {size} bytes  (wanted: < 1 %)"
    figures["open_ms"], figures["open_and_read_ms"] = open_many(scratch, args.rows, args.packs, rounds)
    rows[f"open {args.rows} rows over {args.packs} packs"] = (
        base.spread(figures["open_ms"], "ms", 1) + "  (wanted: < 100)"
    )
    rows["open and read one sample"] = base.spread(figures["open_and_read_ms"], "ms", 1)
    return rows, figures


def tree_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    args = base.arguments(
        __doc__ or "",
        scratch=None,
        folder=None,
        peers=None,
        foreign=None,
        part="tools,collections",
        tools="",
        tasks="",
        samples=2000,
        raw_samples=20_000,
        rows=1_000_000,
        packs=100,
        rounds=3,
    )
    with base.scratch(args.scratch) as scratch:
        if "tools" in args.part:
            rows, figures = compare_tools(args, scratch)
            base.report(f"changes of {args.samples} photos of 500x375", rows, figures, args)
        if "collections" in args.part:
            rows, figures = measure_collections(args, scratch)
            base.report(f"collections of {args.samples} photos of 500x375", rows, figures, args)


if __name__ == "__main__":
    main()
