"""What `packer advise` foretells of each pack that it tries, beside what `packer bench` measures of it, in turn."""

import shlex
import statistics
import subprocess
from collections.abc import Iterator
from pathlib import Path

import base

from packer.conversion.source_spec import SourceSpec
from packer.geometry.parsing import parse
from packer.system.parallel import usable_cores
from packer.tools import bench
from packer.tools.measured_workload import LoaderSetting, Subject
from packer.tools.packing_candidates import Speeds, candidates, predict
from packer.tools.packing_trial import SourceSample, TrialRunner

WITHIN = 1.3
GEOMETRY = "Resize((224, 224))"
# a set of this size is in memory: neither its disk nor its room there has a part in the figures
IN_MEMORY = Speeds(write=1e9, read=None, free_bytes=1 << 50, memory_bytes=1 << 50)


def compared(root: Path, scratch: Path, *, rounds: int, seconds: float) -> Iterator[tuple[str, float]]:
    """Each pack's name with foretold by measured images/s, once a round.

    A trial and the bench of its pack follow each other, so that both find the machine in the same state.
    """
    through = LoaderSetting("Loader", usable_cores(), 32)
    geometry = parse(GEOMETRY)
    trials, sample = TrialRunner(scratch, through, geometry), SourceSample(SourceSpec("auto", {}).open(root)[0])
    sizes = sample.sizes(geometry, None)
    for _ in range(rounds):
        for group in candidates(sample.few, sizes):
            for trial in trials.trials(sample.few, group, seconds=seconds):
                how = trial.candidate
                if how.format in ("hdf5", "pth") and how.codec != "raw":
                    continue  # advise measures what these formats cost of raw images only
                pack = scratch / f"{root.name}: {how.format}, {how.codec}, {how.size or 'size as it is'}"
                if not pack.exists():
                    subprocess.run([*base.PACKER, *shlex.split(how.line(root, pack))[1:]], check=True)
                (line,) = bench.run(
                    [Subject(pack, geometry=geometry)], [through], rounds=1, cold=False, say=lambda _: None
                )
                yield pack.name, predict(trial, sample.whole, IN_MEMORY).rate / line.rate


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=240, rounds=5, seconds=2.5)
    found: dict[str, list[float]] = {}
    with base.scratch() as scratch:
        roots = [args.folder] if args.folder else [scratch / "photos", scratch / "cornell"]
        if not args.folder:
            base.photos(None, scratch, args.samples)
            few = str(-(-args.samples // 4))
            subprocess.run([*base.PACKER, "synth", "cornell", str(roots[1]), "--samples", few], check=True)
        for root in roots:
            for name, ratio in compared(root, scratch, rounds=args.rounds, seconds=args.seconds):
                found.setdefault(name, []).append(ratio)
    rows = {name: base.spread(ratios, "of what was measured", 2) for name, ratios in found.items()}
    medians = [statistics.median(ratios) for ratios in found.values()]
    within = sum(1 / WITHIN <= median <= WITHIN for median in medians)
    rows["within 30 %"] = f"{within} of {len(medians)}  (wanted: all)"
    base.report("images/s that packer advise foretells", rows, {"foretold_by_measured": found}, args)


if __name__ == "__main__":
    main()
