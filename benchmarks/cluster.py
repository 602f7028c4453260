"""Conversions on a Ray cluster of three machines: the same bytes, whatever is killed when, and what a part costs more.

The machines are raylets of their own on this one, with one CPU each; the head has none. `scripts/foreign --make ray`
makes the environment that this runs in. Killed with SIGKILL are, each at moments spread over a conversion: a machine
(its raylet with the workers), a worker, the command itself, which is then run again.
"""

import argparse
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import base

import packer
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.source_spec import SourceSpec

_PYTHON = Path(__file__).resolve().parent.parent / ".foreign/ray/bin/python"
_MACHINES = 3
_STORE = {"object_store_memory": 80 << 20}
_FORMATS = ("lmdb", "hdf5", "pth")
_PART_SECONDS = 0.1  # about what one takes
_Options = Mapping[str, Any]


def main() -> None:
    args = base.arguments(
        __doc__ or "", photos=None, cornell=None, scratch=None, samples=240, moments=20, parts=60, rounds=5, tasks="all"
    )
    wanted = ("same", *_VICTIMS, "overhead", "plan") if args.tasks == "all" else tuple(args.tasks.split("/"))
    with base.scratch(args.scratch) as work:
        photos = base.photos(args.photos, work, args.samples)
        cornell = args.cornell or work / "cornell"
        if args.cornell is None:
            _packer("synth", "cornell", cornell, "--samples", 40, "--seed", 0)
        machines = _Machines()
        try:
            rows, figures = _measured(args, wanted, work, photos, cornell, machines)
        finally:
            machines.close()
    base.report("cluster", rows, figures, args)


def _measured(
    args: argparse.Namespace, wanted: tuple[str, ...], work: Path, photos: Path, cornell: Path, machines: "_Machines"
) -> tuple[dict[str, str], dict[str, Any]]:
    rows: dict[str, str] = {}
    figures: dict[str, Any] = {}
    if "same" in wanted:
        figures["same"] = found = _sameness({"photos": photos, "Cornell": cornell}, work, machines)
        same = sum(each["same"] for each in found.values())
        parts = sum(each["parts"] for each in found.values())
        rows["packs like one machine's"] = f"{same} of {len(found)}, {parts} parts"
    kills = _Kills(photos, work, machines)
    for name in _VICTIMS:
        if name in wanted:
            figures[name] = runs = [kills.run(name, (at + 0.5) / args.moments) for at in range(args.moments)]
            _say(f"{name}: {runs}")
            rows[f"{name} killed"] = (
                f"{sum(run['killed'] for run in runs)} of {len(runs)}; complete with the same bytes: "
                f"{sum(run['same'] for run in runs)}; parts finished before: {sum(run['finished'] for run in runs)}, "
                f"of these built again: {sum(run['twice'] for run in runs)}"
            )
    if "overhead" in wanted:
        figures["overhead"] = found = _overhead(args, work, photos, machines)
        for title, each in found.items():
            rows[title] = each.pop("text")
    if "plan" in wanted:
        figures["plan"] = found = _plan(photos)
        rows["plan, sent to each process once"] = f"{found['bytes']:.0f} bytes per sample"
    return rows, figures


# ---- the machines


class _Machines:
    """A cluster that this process is connected to; machines that are killed are replaced."""

    def __init__(self) -> None:
        import ray
        from ray.cluster_utils import Cluster

        self._cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **_STORE}
        )
        self._nodes = [self._cluster.add_node(num_cpus=1, **_STORE) for _ in range(_MACHINES)]
        self.address: str = self._cluster.address
        ray.init(address=self.address, log_to_driver=False, logging_level="error")

    def kill(self) -> None:
        """The oldest of them, its raylet and its workers."""
        self._cluster.remove_node(self._nodes.pop(0), allow_graceful=False)

    def replace(self) -> None:
        """As many as there were."""
        while len(self._nodes) < _MACHINES:
            self._nodes.append(self._cluster.add_node(num_cpus=1, **_STORE))

    def close(self) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()


# ---- the same bytes


def _sameness(sets: Mapping[str, Path], work: Path, machines: _Machines) -> dict[str, dict[str, Any]]:
    found = {}
    for name, root in sets.items():
        for format in _FORMATS:
            for way, resize in (("kept bytes", None), ("resized", 200)):
                options = {"to": format, "resize": resize, "part_bytes": 1_500_000, "order": "stored"}
                one, many = work / "one", work / "many"
                summary = packer.convert(root, one, **options)
                packer.convert(root, many, engine="ray", address=machines.address, **options)
                same = _digest(one) == _digest(many)
                found[f"{name}, {format}, {way}"] = {"same": same, "parts": summary.parts, "sha256": _digest(one)}
                _say(f"{name}, {format}, {way}: {found[f'{name}, {format}, {way}']}")
                shutil.rmtree(one)
                shutil.rmtree(many)
    return found


def _digest(folder: Path) -> str:
    """sha256 over names and bytes of all files."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


# ---- what is killed


class _Kills:
    """One conversion, which is run again and again; its length is that of an undisturbed run."""

    options: _Options = {"to": "lmdb", "resize": 224, "part_bytes": 400_000}
    words = ("--to", "lmdb", "--resize", "224", "--part-size", "400000", "--engine", "ray")

    def __init__(self, photos: Path, work: Path, machines: _Machines) -> None:
        self._photos, self._target, self._machines = photos, work / "killed", machines
        self.partial = work / ".killed.partial"
        self._clean: str | None = None
        self._parts = 0
        self._moment = 0.0

    def run(self, victim: str, moment: float) -> dict[str, int]:
        """Kill a victim when that share of the parts is finished, and some ms more; the counts of what came of it."""
        if self._clean is None:
            packer.convert(self._photos, self._target, **self.options)
            self._clean = _digest(self._target)
            self._remove()
            self._convert()  # starts the workers
            self._parts = len(list(self._target.glob("part-*")))
            self._remove()
        self._moment = moment
        found = _VICTIMS[victim](self)
        found["same"] = int(_digest(self._target) == self._clean)
        self._remove()
        self._machines.replace()
        return found

    def _comes(self) -> bool:
        """Wait for the moment; False where the conversion ended first."""
        at = self._moment * self._parts
        while not self._target.exists():
            if len(self._finished()) >= int(at) and any(self.partial.glob("attempts/*")):
                time.sleep(at % 1 * _PART_SECONDS)
                return not self._target.exists()
            time.sleep(0.002)
        return False

    def _convert(self) -> None:
        packer.convert(self._photos, self._target, engine="ray", address=self._machines.address, **self.options)

    def _remove(self) -> None:
        shutil.rmtree(self._target)

    def machine(self) -> dict[str, int]:
        """The conversion goes on by itself."""
        return self._disturbed(self._machines.kill)

    def worker(self) -> dict[str, int]:
        """One that builds a part just then, or the next one that does."""

        def kill() -> None:
            until = time.monotonic() + 10
            while time.monotonic() < until:
                for path in self.partial.glob("attempts/*/node"):
                    text = _read(path)
                    if text and not (path.parent / "record.json").exists():
                        os.kill(int(text.rpartition(" ")[2]), 9)
                        return
                if self._target.exists():
                    break
                time.sleep(0.001)
            raise ProcessLookupError

        return self._disturbed(kill)

    def _disturbed(self, kill: Callable[[], None]) -> dict[str, int]:
        inodes: dict[str, int] = {}
        killed: list[int] = []

        def later() -> None:
            if not self._comes():
                return
            inodes.update(self._finished())
            try:
                kill()
            except ProcessLookupError:  # the conversion, or its part, ended first
                return
            killed.append(1)

        thread = threading.Thread(target=later)
        thread.start()
        self._convert()
        thread.join()
        return {"killed": len(killed), "finished": len(inodes), "twice": self._twice(inodes)}

    def driver(self) -> dict[str, int]:
        """The command, which is then run again, here."""
        words = [sys.executable, "-m", "packer", "convert", self._photos, self._target, *self.words]
        command = subprocess.Popen(
            [*map(str, words), "--address", self._machines.address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        killed = self._comes()
        command.kill()
        command.wait()
        inodes = self._finished()
        if not self._target.exists():
            self._convert()
        return {"killed": int(killed), "finished": len(inodes), "twice": self._twice(inodes)}

    def _finished(self) -> dict[str, int]:
        """Inode of each part that is on disk with its record, moved to its place or not yet."""
        found = {}
        for record in (*self.partial.glob("done/*.json"), *self.partial.glob("attempts/*/record.json")):
            said = _read(record)
            if not said:
                continue
            name = json.loads(said)["part"]["name"]
            above = self.partial if record.parent.name == "done" else record.parent
            for place in (above / "pack" / name, self.partial / "pack" / name):
                try:
                    found[name] = place.stat().st_ino
                except OSError:  # moved in this very moment
                    continue
                break
        return found

    def _twice(self, inodes: Mapping[str, int]) -> int:
        """How many of these parts are other files in the pack: a part is moved, never copied."""
        return sum((self._target / name).stat().st_ino != inode for name, inode in inodes.items())


# another one to kill is one more line
_VICTIMS: Mapping[str, Callable[[_Kills], dict[str, int]]] = {
    "machine": _Kills.machine,
    "worker": _Kills.worker,
    "driver": _Kills.driver,
}


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # moved or removed meanwhile
        return ""


# ---- what a part costs more


def _overhead(args: argparse.Namespace, work: Path, photos: Path, machines: _Machines) -> dict[str, dict[str, Any]]:
    small = work / "small"
    _packer("synth", "folder", small, "--samples", args.parts, "--size", "32x32", "--seed", 0)
    found = {}
    for title, root, options in (
        (f"{args.parts} parts of one small picture", small, {"part_bytes": 1}),
        ("parts of resized photos", photos, {"part_bytes": 1_000_000, "resize": 224}),
    ):
        parts = len(make_plan(SourceSpec().open(root)[0], ConversionOptions(part_bytes=options["part_bytes"])).parts)
        runs: dict[str, Callable[[], float]] = {
            f"{engine}, {shape}": partial(
                _converted,
                root,
                work / "timed",
                {**options, **({"part_bytes": 1 << 40} if shape == "whole" else {})},
                where,
            )
            for shape in ("parts", "whole")
            for engine, where in (("local", {}), ("ray", {"engine": "ray", "address": machines.address}))
        }
        times = base.interleaved(runs, args.rounds)
        more = [ray - local for ray, local in zip(times["ray, parts"], times["local, parts"], strict=True)]
        fixed = [ray - local for ray, local in zip(times["ray, whole"], times["local, whole"], strict=True)]
        each = [1000 * seconds / parts for seconds in more]
        text = (
            f"{parts} parts: local {base.spread(times['local, parts'], 's')}, "
            f"ray {base.spread(times['ray, parts'], 's')}; ray - local {base.spread(each, 'ms per part', 1)}; "
            f"in one part {base.spread(fixed, 's')}"
        )
        found[title] = {"parts": parts, "times": times, "text": text}
    return found


def _converted(root: Path, target: Path, options: _Options, where: _Options) -> float:
    started = time.perf_counter()
    packer.convert(root, target, **options, **where)
    seconds = time.perf_counter() - started
    shutil.rmtree(target)
    return seconds


def _plan(photos: Path) -> dict[str, float]:
    plan = make_plan(SourceSpec().open(photos)[0], ConversionOptions())
    return {"bytes": len(pickle.dumps(plan)) / len(plan.source)}


def _packer(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "packer", *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # nothing is reported to anybody
    if find_spec("ray") is None:
        if not _PYTHON.exists():
            raise SystemExit("cluster: needs the environment of Ray: scripts/foreign --make ray")
        os.execv(_PYTHON, [str(_PYTHON), *sys.argv])
    main()
