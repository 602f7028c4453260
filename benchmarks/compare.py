"""packer against other loaders, in turn, on the same images and cores; run it with scripts/bench --peers [NAMES]."""

import argparse
import importlib
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.harness import environments, plot, results, sets
from benchmarks.harness.job import SETS, TASKS, Job
from benchmarks.harness.turns import Turns, say
from packer.files.atomic_save import save
from packer.system.parallel import usable_cores
from packer.tools.report import machine

ROOT = Path(__file__).parents[1]
PEERS = Path(__file__).parent / "peers"
BATCH = {"big": 16}
SAMPLES = {"photos": (4000, "500x375"), "big": (256, "3000x2000")}


def names() -> list[str]:
    """Every peer; the limit and packer come first."""
    found = sorted(path.stem for path in PEERS.glob("*.py") if path.stem != "__init__")
    return sorted(found, key=lambda name: (name != results.LIMIT, name != results.OURS))


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench --peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"peers, default all: {', '.join(names())}")
    parser.add_argument("--tasks", default=",".join(TASKS), help="default: %(default)s")
    parser.add_argument("--variants", help="of peers that have several, those alone, such as 'loader jpeg:90,loader'")
    parser.add_argument("--epochs", type=int, default=5, help="that count, after one that does not; default: 5")
    parser.add_argument("--threads", type=int, default=usable_cores(), help="or processes; default: usable cores")
    parser.add_argument("--images", type=Path, help="folder of JPEGs of one size in class folders; default: synthetic")
    parser.add_argument("--images-big", type=Path, help="the same for task big")
    parser.add_argument("--samples", type=int, help="size of the synthetic sets; default: 4000, and 256 big ones")
    parser.add_argument("--venvs", type=Path, default=ROOT / ".peers/venvs", help="default: .peers/venvs")
    parser.add_argument("--work", type=Path, default=ROOT / ".peers/work", help="sets and packs; default: .peers/work")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for one answer of a contestant")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON; the tables go to stderr")
    parser.add_argument("--output", "-o", type=Path, metavar="FILE.json", help="also write all figures to this file")
    parser.add_argument("--plot", type=Path, help="draw them into this PNG file; needs matplotlib")
    parser.add_argument("--plot-sizes", type=Path, help="draw speed against bytes an image; needs matplotlib, too")
    args = parser.parse_args(given)
    args.tasks = args.tasks.split(",")
    args.variants = args.variants.split(",") if args.variants else None
    if unknown := sorted({*args.names} - {*names()} | {*args.tasks} - {*TASKS}):
        parser.error(f"unknown name {unknown[0]!r}; peers: {', '.join(names())}; tasks: {', '.join(TASKS)}")
    if (args.plot or args.plot_sizes) and not find_spec("matplotlib"):
        parser.error("a plot needs the package 'matplotlib': scripts/install plot")
    return args


class Comparison:
    """All that the tasks share: the peers' environments and the sets of images."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.peers = {name: importlib.import_module(f"benchmarks.peers.{name}") for name in args.names or names()}
        self.ready: dict[str, environments.Environment] = {}
        self.reasons: dict[str, str] = {}
        self.images: dict[str, Path] = {}
        for name, peer in self.peers.items():
            say(f"environment of {name}")
            try:
                self.ready[name] = environments.make(name, peer, args.venvs.absolute())
            except environments.NotInstalled as error:
                self.reasons[name] = f"cannot be installed here: {error}"

    def set(self, name: str) -> Path:
        """The folder of a set of images, made on first use."""
        if name not in self.images:
            folder = self.args.work.absolute() / "sets"
            if name == "raw":
                self.images[name] = sets.raw(self.set("photos"), folder)
            elif given := self.args.images if name == "photos" else self.args.images_big:
                self.images[name] = given.absolute()
            else:
                samples, size = SAMPLES[name]
                self.images[name] = sets.photos(folder, self.args.samples or samples, size)
        return self.images[name]

    def run(self, task: str) -> dict[str, Any]:
        """One task: everybody is prepared and warmed up, then they take turns."""
        args, images = self.args, self.set(SETS[task])
        turns = Turns(task, images, args.work.absolute(), timeout=args.timeout)
        try:
            for name, peer in self.peers.items():
                if reason := self.reasons.get(name) or peer.WITHOUT.get(task):
                    turns.leave_out(name, reason)
                    continue
                wanted = [each for each in peer.TASKS[task] if not args.variants or each in args.variants]
                for variant in wanted if len(peer.TASKS[task]) > 1 else peer.TASKS[task]:
                    job = Job(task, images, args.work, variant, args.threads, BATCH.get(task, 64))
                    turns.enter(name, peer, job, self.ready[name])
            turns.play(args.epochs)
        finally:
            turns.close()
        return turns.found()


def main(given: list[str]) -> None:
    args = arguments(given)
    comparison = Comparison(args)
    found = {}
    for task in args.tasks:
        found[task] = comparison.run(task)
        print(results.table(task, found[task]) + "\n", file=sys.stderr if args.json else sys.stdout, flush=True)
    settings = {"epochs": args.epochs, "threads": args.threads, "batch_size": 64, "batch_size_big": BATCH["big"]}
    document = results.document(machine(), settings, found)
    if args.json:
        print(json.dumps(document, sort_keys=True))
    if args.output:
        save(args.output, (json.dumps(document, indent=2) + "\n").encode())
    if args.plot:
        plot.draw(document, args.plot)
    if args.plot_sizes:
        plot.draw_sizes(document, args.plot_sizes)


if __name__ == "__main__":
    main(sys.argv[1:])
