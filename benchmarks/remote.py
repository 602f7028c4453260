"""Training from an object store: packer, LitData and MosaicML Streaming, same photos, full speed and 200 Mbit/s.

A proxy between the loaders and SeaweedFS counts bytes, limits the rate, and answers 503, cuts and changes bytes.
"""

import argparse
import importlib
import itertools
import json
import random
import re
import shutil
import statistics
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.base import hand_over  # noqa: E402
from benchmarks.harness import environments, object_store, sets  # noqa: E402
from benchmarks.harness.images import Decode, files  # noqa: E402
from benchmarks.harness.job import Job  # noqa: E402
from benchmarks.harness.object_store import BUCKET, SeaweedFS, client_variables  # noqa: E402
from benchmarks.harness.remote_job import RemoteJob  # noqa: E402
from benchmarks.harness.remote_ranks import HANGS, Outcome, Ranks  # noqa: E402
from benchmarks.harness.s3_proxy import Faults, Flip, Proxy  # noqa: E402
from packer.tools.report import machine  # noqa: E402

PEERS = ("packer", "litdata", "streaming")
VARIANTS = ("xxh64",)  # of all peers, beside their defaults
LIMITED = 200_000_000  # bits a second
SHARE = 0.05
GLOBAL_BATCH = 96  # of 2 ranks and of 3
WHERE = ("sent", "stored", "cached")
_HANGS_S = 60.0


class Bench:
    """One peer in front of the store."""

    def __init__(self, name: str, args: argparse.Namespace, images: Path, store: SeaweedFS, proxy: Proxy) -> None:
        self.name, self.args, self.images, self.store, self.proxy = name, args, images, store, proxy
        self.peer = importlib.import_module(f"benchmarks.remote_peers.{name}")
        environment = environments.make(name, self.peer, args.venvs.absolute())
        self.work = args.work.absolute() / name
        self.ranks = Ranks(name, environment, self.work / "runs", client_variables(proxy.endpoint))
        self.direct = Ranks(name, environment, self.work / "prepare", client_variables(store.endpoint))
        self.job = RemoteJob(
            images,
            f"s3://{BUCKET}/{name}",
            self.work / "cache",
            self.work / "unused.json",
            part_bytes=args.part_bytes,
            batch_size=args.batch_size,
            workers=args.workers,
        )
        self.labels = [Path(path).parent.name for path in files(images)]
        self.clean_names: set[str] = set()
        self.figures: dict[str, Any] = {}

    def prepare(self) -> None:
        """The data set in the store."""
        done = self.direct.play(self.job, verb="prepare", timeout=900)
        if done.failure:
            raise SystemExit(f"{self.name}: {done.failure}")
        self.sizes = self.store.sizes(self.name)
        self.bytes = sum(self.sizes.values())
        self.parts = [key for key, size in self.sizes.items() if size > self.args.part_bytes // 2]
        self.figures["stored"] = {"bytes": self.bytes, "objects": len(self.sizes), "parts": len(self.parts)}

    def fresh(self) -> None:
        """An empty cache."""
        shutil.rmtree(self.job.cache, ignore_errors=True)

    def note(self, measure: str, found: dict[str, Any]) -> None:
        """One more figure of a measure; it is also shown, since a run takes half an hour."""
        print(f"{self.name} {measure}: {json.dumps(found)}", file=sys.stderr, flush=True)
        self.figures.setdefault(measure, []).append(found)

    # ---- the measures

    def speed(self, measure: str, faults: Faults) -> None:
        """Two epochs of one rank, with nothing in the cache before."""
        self.fresh()
        self.proxy.begin(faults)
        done = self.ranks.play(replace(self.job, epochs=2))
        found: dict[str, Any] = {"failure": done.failure}
        if done.is_whole:
            (rank,) = done.found
            self.figures["versions"] = rank["versions"]
            first, second = rank["epochs"]
            counts = [len(done.numbers(epoch)) for epoch in (0, 1)]
            found |= {"first_batch_s": first["first_batch_seconds"], "once": is_once(done.numbers(), self.count)}
            found |= {"epoch_1": counts[0] / first["seconds"], "epoch_2": counts[1] / second["seconds"]}
            found["bytes"] = self.proxy.counts()["bytes"] / self.bytes
            found["variance"] = statistics.mean(self.variance(done, epoch) for epoch in (0, 1))
            self.clean_names |= {kind(path) for path in self.job.cache.rglob("*")}
        self.note(measure, found)

    @property
    def count(self) -> int:
        return len(self.labels)

    def two_ranks(self) -> None:
        """Bytes of one epoch of two ranks that share a cache, and whether they deliver each photo once."""
        self.fresh()
        self.proxy.begin(Faults())
        done = self.ranks.play(replace(self.job, batch_size=GLOBAL_BATCH // 2), world=2)
        share = self.proxy.counts()["bytes"] / self.bytes
        self.note("two_ranks", {"failure": done.failure, "bytes": share, "once": is_once(done.numbers(), self.count)})

    def limit(self) -> None:
        """One epoch with a cache limit of a quarter of the data: the most bytes on the disk."""
        self.fresh()
        self.proxy.begin(Faults())
        limit = self.bytes // 4
        done = self.ranks.play(replace(self.job, cache_limit=limit), watched=True)
        found = {"failure": done.failure, "peak": done.peak / limit, "bytes": self.proxy.counts()["bytes"] / self.bytes}
        if done.is_whole:
            found["variance"] = self.variance(done)
        self.note("limit", found | {"once": is_once(done.numbers(), self.count)})

    def variance(self, done: Outcome, epoch: int = 0) -> float:
        """Label variance of an epoch of one rank."""
        return variance_ratio(done.found[0]["epochs"][epoch]["batches"], self.labels, self.args.batch_size)

    def kill(self, share: float, digests: list[int]) -> None:
        """SIGKILL to all processes when so much was sent: what stays, and what an epoch in this cache then delivers."""
        self.fresh()
        self.proxy.begin(Faults(bits_per_second=LIMITED))
        wanted = share * self.bytes
        done = self.ranks.play(self.job, kill_when=lambda: self.proxy.counts()["bytes"] > wanted)
        left = [path for path in self.job.cache.rglob("*") if path.is_file()]
        whole = {Path(key).name: size for key, size in self.sizes.items()}
        files_left = sorted(
            path.name
            for path in left
            if (path.stat().st_size != whole[path.name] if path.name in whole else kind(path) not in self.clean_names)
        )
        self.proxy.begin(Faults())
        after = self.ranks.play(replace(self.job, digests=True), timeout=_HANGS_S)
        found = {"files": len(files_left), "names": files_left[:20], "processes": done.left, "shared": done.shared}
        self.note("kill", found | {"after": self.delivered(after, digests)})

    def resume(self) -> None:
        """Two ranks stop in the middle of an epoch; three go on: each photo once."""
        self.fresh()
        self.proxy.begin(Faults())
        state = self.work / "state.json"
        first = replace(self.job, batch_size=GLOBAL_BATCH // 2, batches=self.count // GLOBAL_BATCH * 2 // 5, save=state)
        begun = self.ranks.play(first, world=2)
        numbers = begun.numbers()
        found: dict[str, Any] = {"failure": begun.failure, "before": len(numbers)}
        if begun.is_whole:
            rest = replace(self.job, batch_size=GLOBAL_BATCH // 3, resume=state)
            ended = self.ranks.play(rest, world=3)
            numbers = numbers + ended.numbers()
            found["failure"] = ended.failure
        counts = Counter(numbers)
        missing = self.count - len(counts)
        found |= {"missing": missing, "again": len(numbers) - len(counts), "once": is_once(numbers, self.count)}
        self.note("resume", found)

    def flip(self, where: str, seed: int, digests: list[int]) -> None:
        """A byte of one part has another value: "sent": in every answer; "stored": in the store; "cached": on this
        machine, after an epoch that fetched it.
        """
        chosen = random.Random(seed)
        key = chosen.choice(sorted(self.parts))
        at = chosen.randrange(self.sizes[key] // 10, self.sizes[key] * 9 // 10)
        for variant in self.peer.VARIANTS:
            self.fresh()
            self.proxy.begin(Faults(flip=Flip(key, at) if where == "sent" else None))
            if where == "cached":
                self.ranks.play(self.job)
                for path in self.job.cache.rglob(Path(key).name):
                    path.write_bytes(flipped(path.read_bytes(), at))
            elif where == "stored":
                whole = self.store.read(key, most=self.sizes[key])
                self.store.write(key, flipped(whole, at))
            done = self.ranks.play(replace(self.job, digests=True, variant=variant), timeout=_HANGS_S)
            if where == "stored":
                self.store.write(key, whole)
            found = {"where": where, "variant": variant, "key": key, "at": at}
            self.note("flip", found | {"delivered": self.delivered(done, digests)})

    def faults(self, seed: int, digests: list[int]) -> None:
        """So many requests are answered 503 or cut."""
        self.fresh()
        self.proxy.begin(Faults(share=SHARE, seed=seed))
        done = self.ranks.play(replace(self.job, digests=True), timeout=2 * _HANGS_S)
        self.note("faults", {"counts": self.proxy.counts(), "delivered": self.delivered(done, digests)})

    def delivered(self, done: Outcome, digests: list[int]) -> dict[str, Any]:
        """Whether an epoch came to its end with each photo once, as it is."""
        numbers, wrong = done.numbers(), done.wrong(digests)
        equal = done.is_whole and not wrong and is_once(numbers, self.count)
        return {"equal": equal, "photos": len(numbers), "wrong": wrong, "failure": done.failure}


def flipped(data: bytes, at: int) -> bytes:
    """The same with one bit of the byte there changed."""
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def kind(path: Path) -> str:
    """The name of a file without its numbers."""
    return re.sub("[0-9]+", "N", path.name)


def is_once(numbers: Iterable[int], count: int) -> bool:
    """Whether each of so many was delivered, and none twice."""
    return sorted(numbers) == list(range(count))


def variance_ratio(batches: list[list[int]], labels: list[str], size: int) -> float:
    """Variance of the classes' shares in whole batches, relative to what a full shuffle has on average."""
    classes = sorted(set(labels))
    of_photo = np.array([classes.index(label) for label in labels])
    shares = np.bincount(of_photo, minlength=len(classes)) / len(labels)
    whole = [batch for batch in batches if len(batch) == size]
    counts = np.array([np.bincount(of_photo[batch], minlength=len(classes)) for batch in whole])
    found = ((counts - size * shares) ** 2).mean(axis=0).sum()
    expected = (size * shares * (1 - shares)).sum() * (len(labels) - size) / (len(labels) - 1)
    return float(found / expected)


def reference(images: Path) -> list[int]:
    """A crc32 of the pixels of each photo."""
    decode = Decode(Job("full", images, images))
    return [zlib.crc32(decode(Path(name).read_bytes()).tobytes()) for name in files(images)]


def rows(bench: Bench) -> dict[str, str]:
    """The lines of the table for one peer."""
    found = bench.figures

    def spread(measure: str, name: str, digits: int) -> str:
        values = [each[name] for each in found.get(measure, ()) if name in each]
        if not values:
            return next((each["failure"] for each in found.get(measure, ()) if each.get("failure")), "-")[:60]
        low, high = min(values), max(values)
        text = f"{statistics.median(values):.{digits}f}"
        return text if len(values) == 1 else f"{text} ({low:.{digits}f} - {high:.{digits}f})"

    def outcomes(measure: str, text: Callable[[dict[str, Any]], str]) -> str:
        counted = Counter(text(each) for each in found.get(measure, ()))
        return "; ".join(f"{count} x {name}" for name, count in counted.items()) or "-"

    def equal(each: dict[str, Any]) -> str:
        if each["equal"]:
            return "equal data"
        return f"stopped: {each['failure']}"[:80] if each["failure"] else f"{each['wrong']} photos wrong, no error"

    table = {}
    for measure, title in (("full", "full speed"), ("limited", "200 Mbit/s")):
        table[f"{title}: first batch, s"] = spread(measure, "first_batch_s", 2)
        table[f"{title}: images/s, epoch 1"] = spread(measure, "epoch_1", 0)
        table[f"{title}: images/s, epoch 2"] = spread(measure, "epoch_2", 0)
        table[f"{title}: server bytes / data"] = spread(measure, "bytes", 3)
    table["2 ranks: server bytes / data"] = spread("two_ranks", "bytes", 3)
    table["2 ranks: each photo once"] = outcomes("two_ranks", lambda each: str(each["once"]))
    table["peak of the cache / limit"] = spread("limit", "peak", 3)
    table["that epoch: server bytes / data"] = spread("limit", "bytes", 3)
    table["that epoch: label variance / full shuffle"] = spread("limit", "variance", 2)
    table["files left by SIGKILL"] = spread("kill", "files", 0)
    table["/dev/shm left by SIGKILL"] = outcomes("kill", lambda each: str(len(each["shared"])))
    table["processes left by SIGKILL"] = spread("kill", "processes", 0)
    table["epoch after SIGKILL"] = outcomes("kill", lambda each: equal(each["after"]))
    table["resumed 2 -> 3 ranks"] = outcomes(
        "resume",
        lambda each: (
            "each once" if each["once"] else f"{each['missing']} missing, {each['again']} again {each['failure']}"[:100]
        ),
    )
    for where, variant in itertools.product(WHERE, ("", *VARIANTS)):
        chosen = [each for each in found.get("flip", ()) if (each["where"], each["variant"]) == (where, variant)]
        errors = sum(bool(each["delivered"]["failure"]) for each in chosen)
        hung = sum(each["delivered"]["failure"].startswith(HANGS) for each in chosen)
        text = f"{errors} of {len(chosen)}{f', {hung} by hanging' if hung else ''}" if chosen else "-"
        table[f"flipped byte found, {where}{' (' + variant + ')' if variant else ''}"] = text
    table["503 and cut, 5 %"] = outcomes("faults", lambda each: equal(each["delivered"]))
    table["label variance / full shuffle"] = spread("full", "variance", 2)
    return table


MEASURES = ("full", "limited", "ranks", "limit", "kill", "resume", "faults", "flip")


def measure(benches: list[Bench], args: argparse.Namespace, digests: list[int]) -> None:
    """All measures in turn."""
    plan: dict[str, list[Callable[[Bench], None]]] = {
        "full": [lambda bench: bench.speed("full", Faults())] * args.rounds,
        "limited": [lambda bench: bench.speed("limited", Faults(bits_per_second=LIMITED))] * args.rounds,
        "ranks": [lambda bench: bench.two_ranks()],
        "limit": [lambda bench: bench.limit()],
        "kill": [lambda bench, share=share: bench.kill(share, digests) for share in (0.15, 0.4, 0.7)],  # type: ignore[misc]
        "resume": [lambda bench: bench.resume()],
        "faults": [lambda bench, seed=seed: bench.faults(seed, digests) for seed in range(args.trials)],  # type: ignore[misc]
        "flip": [
            lambda bench, where=where, seed=seed: bench.flip(where, seed, digests)  # type: ignore[misc]
            for where, seed in itertools.product(WHERE, range(args.trials))
        ],
    }
    for name in args.only.split(","):
        for (number, step), bench in itertools.product(enumerate(plan[name]), benches):
            print(f"{name} {number + 1} of {len(plan[name])}: {bench.name}", file=sys.stderr, flush=True)
            step(bench)


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench remote", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON; the report goes to stderr")
    parser.add_argument("--output", "-o", type=Path, metavar="FILE.json", help="also write the figures to this file")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--only", default=",".join(MEASURES), help="default: %(default)s")
    parser.add_argument("--samples", type=int, default=3840, help=f"a multiple of {GLOBAL_BATCH}; default: 3840")
    parser.add_argument("--images", type=Path, help="folder of JPEGs of one size in class folders; default: synthetic")
    parser.add_argument("--part-bytes", type=int, default=4 << 20, help="default: 4 MiB")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="of what is timed; default: 3")
    parser.add_argument(
        "--trials", type=int, default=3, help="of each flipped byte and of failing requests; default: 3"
    )
    parser.add_argument("--venvs", type=Path, default=ROOT / ".peers/venvs", help="default: .peers/venvs")
    parser.add_argument("--work", type=Path, default=ROOT / ".peers/remote", help="caches; default: .peers/remote")
    args = parser.parse_args()
    images = args.images or sets.photos(args.work.absolute() / "sets", args.samples, "500x375")
    if sets.count(images) % GLOBAL_BATCH:
        parser.error(f"{images}: {sets.count(images)} photos: expected a multiple of {GLOBAL_BATCH}")
    digests = reference(images)
    weed = environments.make("seaweedfs", object_store, args.venvs.absolute(), pins=object_store.PINS)
    with (
        tempfile.TemporaryDirectory(prefix="packer-bench-") as scratch,
        SeaweedFS(weed, Path(scratch) / "seaweedfs") as store,
        Proxy(store.address) as proxy,
    ):
        benches = [Bench(name, args, images, store, proxy) for name in args.peers.split(",")]
        for bench in benches:
            bench.prepare()
        measure(benches, args, digests)
    tables = {bench.name: rows(bench) for bench in benches}
    stream = sys.stderr if args.json else sys.stdout
    info = machine()
    about = {"photos": sets.count(images), "bytes": sets.size_bytes(images), "part_bytes": args.part_bytes}
    print(f"{info['cpu']}, {info['cores']} cores, Python {info['python']}; {about}", file=stream)
    print("| | " + " | ".join(tables) + " |\n|---" + "|---" * len(tables) + "|", file=stream)
    for title in next(iter(tables.values())):
        print(f"| {title} | " + " | ".join(table.get(title, "-") for table in tables.values()) + " |", file=stream)
    figures = {bench.name: bench.figures for bench in benches}
    hand_over({"title": "Remote", "machine": info, "set": about, "tables": tables, "figures": figures}, args)


if __name__ == "__main__":
    main()
