"""Worker: one process that fuzzes one target with one engine until its time is over or an input ends it.

    python -m tests.fuzz.worker ENGINE TARGET FOLDER SECONDS SEED

FOLDER has `corpus` with the inputs to start from, and gets `findings`, and `progress` for whoever started this.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.progress import Progress
from tests.fuzz.target import Finding, Target, judge, limit_memory, load

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

_BATCH = 500
_MOST_INPUTS = 150_000  # of one worker: libFuzzer keeps up to 2 KB of each, which the limit on memory counts


class Judge:
    """Tries inputs and saves the first finding of each signature."""

    def __init__(self, target: Target, folder: Path) -> None:
        self._target = target
        self._folder = folder / "findings"
        self._progress = Progress(folder / "progress", target.most_bytes)
        self.known: set[tuple[str, str]] = set()

    def __call__(self, data: bytes) -> Finding | None:
        """A finding that is not known yet."""
        self._progress.begin(data)
        found = judge(self._target, data)
        return None if found is None or found.signature in self.known else found

    def keep(self, found: Finding) -> None:
        """Save it, unless an earlier worker did."""
        self.known.add(found.signature)
        mark = f"\n{found.where}\n"
        there = (path for path in self._folder.glob(f"{found.kind}-*.txt"))
        if not any(mark in path.read_text(encoding="utf-8") for path in there):
            found.save(self._folder)


def with_atheris(name: str, folder: Path, seconds: int, seed: int) -> None:
    """libFuzzer, guided by the coverage of packer's code and by the comparisons in it."""
    import atheris

    with atheris.instrument_imports(include=["packer"], enable_loader_override=False):
        target = load(name)
    tried = _warmed(target, folder)

    def one(data: bytes) -> None:
        found = tried(data)
        if found is not None:
            tried.keep(found)

    options: dict[str, object] = {
        "max_total_time": seconds,
        "runs": _MOST_INPUTS,
        "max_len": target.most_bytes,
        "timeout": 1 << 20,  # tests.fuzz.campaign looks at the clock, and here processor time counts
        "rss_limit_mb": limit_memory(),
        "artifact_prefix": f"{folder / 'artifacts'}/",
        "seed": seed,
        "use_value_profile": 1,
        "reload": 0,
    }
    if target.tokens:
        tokens = folder / "tokens"
        options["dict"] = tokens
        tokens.write_text("".join(map(_quoted, target.tokens)), encoding="ascii")
    (folder / "artifacts").mkdir(exist_ok=True)
    atheris.Setup([sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(folder / "corpus")], one)
    atheris.Fuzz()


def _quoted(token: bytes) -> str:
    """A line of a dictionary of libFuzzer's."""
    return '"' + "".join(rf"\x{byte:02x}" for byte in token) + '"\n'


def with_hypothesis(name: str, folder: Path, seconds: int, seed: int) -> None:
    """Hypothesis, which knows the grammar of mutations and not the coverage, and makes findings small."""
    from tests.fuzz.mutation import mutated

    target = load(name)
    tried = _warmed(target, folder)
    starts = [path.read_bytes() for path in sorted((folder / "corpus").iterdir())] or [b""]
    inputs = mutated(starts, target.tokens, target.most_bytes)
    until = time.monotonic() + seconds
    limit_memory()
    while time.monotonic() < until:
        found = _smallest(tried, inputs, until, seed)
        if found is not None:
            tried.keep(found)
        seed += 1


def _smallest(tried: Judge, inputs: "SearchStrategy[bytes]", until: float, seed: int) -> Finding | None:
    """The smallest finding of some hundred inputs that is not known yet."""
    import hypothesis

    last: Finding | None = None

    def one(data: bytes) -> None:
        nonlocal last
        if time.monotonic() < until and (found := tried(data)) is not None:
            last = found
            raise AssertionError(found.where)

    settings = hypothesis.settings(
        max_examples=_BATCH,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        report_multiple_bugs=False,
    )
    with suppress(AssertionError, hypothesis.errors.Flaky):  # Flaky: a finding near a bound, or the end of the time
        hypothesis.seed(seed)(settings(hypothesis.given(inputs)(one)))()
    return last


def _warmed(target: Target, folder: Path) -> Judge:
    """A judge that has seen the seeds, so that what libraries take once is taken before the bounds are set."""
    tried = Judge(target, folder)
    for data in target.seeds():
        found = tried(data)
        if found is not None:
            tried.keep(found)
    return tried


def main(engine: str, name: str, folder: str, seconds: str, seed: str) -> None:
    """See the module."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    engines = {"atheris": with_atheris, "hypothesis": with_hypothesis}
    engines[engine](name, Path(folder), int(seconds), int(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
