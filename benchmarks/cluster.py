"""Conversions on a Ray cluster of three machines: the same bytes, whatever is killed when, and what a part costs more.

The machines are raylets of their own on this one, with one CPU each; the head has none. `scripts/foreign --make ray`
makes the environment that this runs in. Killed with SIGKILL are, each at moments spread over a conversion: a machine
(its raylet with the workers), a worker, the command itself, which is then run again, and, where the pack goes to a
bucket (SeaweedFS on this machine), a process of the store's client. Tasks: same, folder, bucket, overhead, plan.
"""

import argparse
import hashlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import base

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import packer  # noqa: E402
from benchmarks.harness.environments import Environment  # noqa: E402
from benchmarks.harness.object_store import BUCKET, SeaweedFS, client_variables  # noqa: E402
from packer.conversion.options import ConversionOptions  # noqa: E402
from packer.conversion.plan import make_plan  # noqa: E402
from packer.conversion.source_spec import SourceSpec  # noqa: E402
from packer.errors import NoObject  # noqa: E402
from packer.stores.store import Store  # noqa: E402
from packer.stores.url import parse  # noqa: E402

_FOREIGN = ROOT / ".foreign"
_PYTHON = _FOREIGN / "ray/bin/python"
_MACHINES = 3
_STORE = {"object_store_memory": 80 << 20}
_FORMATS = ("lmdb", "hdf5", "pth")
_PART_SECONDS = 0.1  # about what one takes
_Options = Mapping[str, Any]
_File = TypeVar("_File")
# where a pack goes -> what is killed meanwhile
_TARGETS = {"folder": ("machine", "worker", "driver"), "bucket": ("machine", "worker", "driver", "helper")}


def main() -> None:
    args = base.arguments(
        __doc__ or "", photos=None, cornell=None, scratch=None, samples=240, moments=20, parts=60, rounds=5, tasks="all"
    )
    wanted = ("same", *_TARGETS, "overhead", "plan") if args.tasks == "all" else tuple(args.tasks.split("/"))
    with base.scratch(args.scratch) as work, _store(work, wanted):
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
    for name, victims in _TARGETS.items():
        kills = _Kills(photos, work, machines, _Folder(work) if name == "folder" else _Bucket(work))
        for victim in victims if name in wanted else ():
            figures[f"{name}, {victim}"] = runs = [
                kills.run(victim, (at + 0.5) / args.moments) for at in range(args.moments)
            ]
            _say(f"{name}, {victim}: {runs}")
            rows[f"pack in a {name}, {victim} killed"] = (
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


@contextmanager
def _store(work: Path, wanted: tuple[str, ...]) -> Iterator[None]:
    """A server, to which the machines that are made afterwards are led."""
    if "bucket" not in wanted:
        yield
        return
    with SeaweedFS(Environment(_FOREIGN / "seaweedfs/bin/python", dict(os.environ)), work / "seaweedfs") as server:
        os.environ.update(client_variables(server.endpoint))
        yield


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
                packer.convert(root, many, engine="ray", ray_address=machines.address, **options)
                same = _folder_digest(one) == _folder_digest(many)
                found[f"{name}, {format}, {way}"] = {
                    "same": same,
                    "parts": summary.parts,
                    "sha256": _folder_digest(one),
                }
                _say(f"{name}, {format}, {way}: {found[f'{name}, {format}, {way}']}")
                shutil.rmtree(one)
                shutil.rmtree(many)
    return found


# ---- where a pack goes


class _Folder:
    """A pack on the disk that all machines see. options: what `packer convert` is told besides."""

    options: _Options = {}

    def __init__(self, work: Path) -> None:
        self.pack: Path | str = work / "killed"
        self._pack, self._partial = work / "killed", work / ".killed.partial"

    def is_complete(self) -> bool:
        """Whether the pack is there."""
        return self._pack.exists()

    def has_begun(self) -> bool:
        """Whether a machine builds a part."""
        return any(self._partial.glob("attempts/*"))

    def building(self) -> list[int]:
        """The processes that build a part whose record is not written yet."""
        texts = [
            _read(path) for path in self._partial.glob("attempts/*/node") if not (path.parent / "record.json").exists()
        ]
        return [int(text.rpartition(" ")[2]) for text in texts if text]

    def finished(self) -> dict[str, object]:
        """Inode of each part that is on disk with its record, moved to its place or not yet."""
        found: dict[str, object] = {}
        for record in (*self._partial.glob("done/*.json"), *self._partial.glob("attempts/*/record.json")):
            said = _read(record)
            if not said:
                continue
            name = json.loads(said)["part"]["name"]
            above = self._partial if record.parent.name == "done" else record.parent
            for place in (above / "pack" / name, self._partial / "pack" / name):
                try:
                    found[name] = place.stat().st_ino
                except OSError:  # moved in this very moment
                    continue
                break
        return found

    def parts(self) -> dict[str, object]:
        """Inode of each part of the complete pack: a part is moved, never copied."""
        return {path.name: path.stat().st_ino for path in self._pack.glob("part-*")}

    def digest(self) -> str:
        """Of the complete pack."""
        return _digest({path.relative_to(self._pack).as_posix(): path for path in _files(self._pack)}, Path.read_bytes)

    def remove(self) -> None:
        """The complete pack."""
        shutil.rmtree(self._pack)


class _Bucket:
    """A pack in an object store; machines share no folder, and the command's own is a new one whenever it is run."""

    def __init__(self, work: Path) -> None:
        self.pack: Path | str = f"s3://{BUCKET}/killed.pack"
        self._store = Store(parse(str(self.pack)))
        self._work, self._runs = work, 0
        self._nodes = work / "nodes"
        self._nodes.mkdir(exist_ok=True)

    @property
    def options(self) -> _Options:
        """Folders of the machines, and of the command."""
        self._runs += 1
        scratch = self._work / f"scratch-{self._runs}"
        scratch.mkdir()
        return {"worker_scratch": self._nodes, "scratch": scratch}

    def is_complete(self) -> bool:
        """Whether the pack is there."""
        return self._store.state("packer.json") is not None

    def has_begun(self) -> bool:
        """Whether a machine builds a part."""
        return any(self._store.objects(".partial/attempts"))

    def building(self) -> list[int]:
        """The processes that build a part whose record is not written yet."""
        done = {each.name.rpartition("/")[2][:10] for each in self._store.objects(".partial/done")}
        found = []
        for each in self._store.objects(".partial/attempts"):
            if each.name.rpartition("/")[2][:10] not in done:
                with suppress(NoObject):
                    found.append(int(self._store.read(each.name, most=each.bytes).decode().rpartition(" ")[2]))
        return found

    def finished(self) -> dict[str, object]:
        """When each part was put whose record is there."""
        there = {each.name: each.modified_ns for each in self._store.objects()}
        return {name: at for name, at in there.items() if f".partial/done/{name[:10]}.json" in there}

    def parts(self) -> dict[str, object]:
        """When each part was put."""
        return {each.name: each.modified_ns for each in self._store.objects() if each.name.startswith("part-")}

    def digest(self) -> str:
        """Of the complete pack, and of nothing else: what is left of a conversion would change it."""
        objects = {each.name: each for each in self._store.objects()}
        return _digest(objects, lambda each: self._store.read(each.name, most=each.bytes))

    def remove(self) -> None:
        """The complete pack."""
        for each in list(self._store.objects()):
            self._store.remove(each.name)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def _digest(files: Mapping[str, _File], read: Callable[[_File], bytes]) -> str:
    """sha256 over names and bytes."""
    found = hashlib.sha256()
    for name in sorted(files):
        found.update(name.encode() + b"\0" + read(files[name]))
    return found.hexdigest()


def _folder_digest(folder: Path) -> str:
    return _digest({path.relative_to(folder).as_posix(): path for path in _files(folder)}, Path.read_bytes)


# ---- what is killed


class _Kills:
    """One conversion, which is run again and again; its length is that of an undisturbed run."""

    options: _Options = {"to": "lmdb", "resize": 224, "part_bytes": 400_000}
    words = ("--to", "lmdb", "--resize", "224", "--part-size", "400000", "--engine", "ray")

    def __init__(self, photos: Path, work: Path, machines: _Machines, place: _Folder | _Bucket) -> None:
        self._photos, self._work, self._machines, self._place = photos, work, machines, place
        self._clean: str | None = None
        self._parts = 0
        self._moment = 0.0

    def run(self, victim: str, moment: float) -> dict[str, int]:
        """Kill a victim when that share of the parts is finished, and some ms more; the counts of what came of it."""
        if self._clean is None:
            one = self._work / "clean"
            self._parts = packer.convert(self._photos, one, **self.options).parts
            self._clean = _folder_digest(one)
            shutil.rmtree(one)
            self._convert()  # starts the workers
            self._place.remove()
        self._moment = moment
        found = _VICTIMS[victim](self)
        found["same"] = int(self._place.digest() == self._clean)
        self._place.remove()
        self._machines.replace()
        return found

    def _comes(self) -> bool:
        """Wait for the moment; False where the conversion ended first."""
        at = self._moment * self._parts
        while not self._place.is_complete():
            if len(self._place.finished()) >= int(at) and self._place.has_begun():
                time.sleep(at % 1 * _PART_SECONDS)
                return not self._place.is_complete()
            time.sleep(0.002)
        return False

    def _convert(self) -> None:
        where = {"engine": "ray", "address": self._machines.address, **self._place.options}
        packer.convert(self._photos, self._place.pack, **where, **self.options)

    def machine(self) -> dict[str, int]:
        """The conversion goes on by itself."""
        return self._disturbed(self._machines.kill)

    def worker(self) -> dict[str, int]:
        """One that builds a part just then, or the next one that does."""

        def kill() -> None:
            until = time.monotonic() + 10
            while time.monotonic() < until and not self._place.is_complete():
                for process in self._place.building():
                    os.kill(process, signal.SIGKILL)
                    return
                time.sleep(0.001)
            raise ProcessLookupError

        return self._disturbed(kill)

    def helper(self) -> dict[str, int]:
        """The process of a store's client, of a machine or of the command; the oldest one at even moments."""

        def kill() -> None:
            found = sorted(_client_processes())
            os.kill(found[0 if int(self._moment * 1000) % 2 else -1], signal.SIGKILL)

        return self._disturbed(kill)

    def _disturbed(self, kill: Callable[[], None]) -> dict[str, int]:
        before: dict[str, object] = {}
        killed: list[int] = []

        def later() -> None:
            if not self._comes():
                return
            before.update(self._place.finished())
            try:
                kill()
            except ProcessLookupError:  # the conversion, or its part, ended first
                return
            killed.append(1)

        thread = threading.Thread(target=later)
        thread.start()
        self._convert()
        thread.join()
        return {"killed": len(killed), "finished": len(before), "twice": self._twice(before)}

    def driver(self) -> dict[str, int]:
        """The command, which is then run again, here."""
        words = [sys.executable, "-m", "packer", "convert", self._photos, self._place.pack, *self.words]
        for name, folder in self._place.options.items():
            words += [f"--{name.replace('_', '-')}", folder]
        command = subprocess.Popen(
            [*map(str, words), "--ray-address", self._machines.address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        killed = self._comes()
        command.kill()
        command.wait()
        before = self._place.finished()
        if not self._place.is_complete():
            self._convert()
        return {"killed": int(killed), "finished": len(before), "twice": self._twice(before)}

    def _twice(self, before: Mapping[str, object]) -> int:
        """How many of these parts were made again."""
        parts = self._place.parts()
        return sum(parts[name] != found for name, found in before.items())


# another one to kill is one more line
_VICTIMS: Mapping[str, Callable[[_Kills], dict[str, int]]] = {
    "machine": _Kills.machine,
    "worker": _Kills.worker,
    "driver": _Kills.driver,
    "helper": _Kills.helper,
}


def _client_processes() -> list[int]:
    """Those of the stores' client, on all machines and of the command."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if b"packer.stores.client_program" in words:
            found.append(int(place.name))
    return found


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
        (f"{args.parts} parts of one small image", small, {"part_bytes": 1}),
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
