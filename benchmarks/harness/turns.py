"""One task of a comparison: contestants enter, are warmed up, and take turns."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import results, sets
from benchmarks.harness.environments import Environment
from benchmarks.harness.job import PASSES, SETS, Job
from benchmarks.harness.results import Absent, Line
from benchmarks.harness.running import Contestant, Failed
from packer.files.work_folder import ANYTHING, work_folder


def say(text: str) -> None:
    """Progress, beside the tables."""
    print(text, file=sys.stderr, flush=True)


class Turns:
    """The contestants of one task. work: where packs and logs go; timeout: seconds for one answer."""

    def __init__(self, task: str, images: Path, work: Path, *, timeout: float) -> None:
        self.task, self.images, self.work, self.timeout = task, images, work, timeout
        self.playing: list[tuple[Contestant, Line]] = []
        self.absent: list[Absent] = []

    def enter(self, name: str, peer: Any, job: Job, environment: Environment) -> None:
        """Start a contestant, prepare its data where that has not been done, and warm it up."""
        say(f"{self.task}: {name} {job.variant}")
        place = self.work / name / f"{SETS[self.task]}-{sets.digest(self.images)}"
        log = self.work / "logs" / f"{name}-{self.task}-{job.variant.replace(' ', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("")
        contestant = Contestant(name, job.at(place), environment, log)
        try:
            prepared = self._prepare(contestant)
            if hasattr(peer, "stored"):
                prepared["bytes"] = sets.size_bytes(peer.stored(job.at(place)))
            warm = contestant.ask("warm", timeout=self.timeout)
        except Failed as error:
            reason = f"{error}; {environment.lacks}" if environment.lacks else str(error)
            self.absent.append(Absent(contestant.name, self.task, reason))
        else:
            self.playing.append((contestant, Line(name, job.variant, self.task, peer.DOES, prepared, warm)))

    def _prepare(self, contestant: Contestant) -> dict[str, float]:
        """Seconds and bytes of the peer's own format; made once per set and kept."""
        place = contestant.job.work
        record = place.with_suffix(".json")
        if not record.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            with work_folder(place, {ANYTHING: ANYTHING}) as folder:  # it stays, unless nothing was put into it
                folder.clear()  # of a run that was stopped
                started = time.perf_counter()
                contestant.ask("prepare", timeout=self.timeout)
                seconds = time.perf_counter() - started
                record.write_text(json.dumps({"seconds": seconds, "bytes": sets.size_bytes(place)}))
            place.mkdir(exist_ok=True)
        found: dict[str, float] = json.loads(record.read_text())
        return found

    def leave_out(self, name: str, reason: str) -> None:
        """Note a peer that does not take part."""
        self.absent.append(Absent(name, self.task, reason))

    def play(self, epochs: int) -> None:
        """`epochs` rounds; in each everybody has one turn, in the same order."""
        os.sync()  # what was prepared is on disk before anything counts
        for number in range(epochs):
            say(f"{self.task}: epoch {number + 1} of {epochs}")
            for contestant, line in [*self.playing]:
                try:
                    line.epochs.append(contestant.ask("epoch", timeout=self.timeout))
                except Failed as error:
                    self.leave_out(contestant.name, str(error))
                    self.playing.remove((contestant, line))

    def close(self) -> None:
        """End all processes."""
        for contestant, _ in self.playing:
            contestant.close()

    def found(self) -> dict[str, Any]:
        """The figures, as `results.table` takes them."""
        count = sets.count(self.images)
        rows = results.summary([line for _, line in self.playing], count * PASSES.get(self.task, 1))
        about = {"images": count, "bytes": sets.size_bytes(self.images), "digest": sets.digest(self.images)}
        return {"set": about, "contestants": rows, "absent": [vars(one) for one in self.absent]}
