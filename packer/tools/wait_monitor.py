"""Wait monitor: measures and reports how long a training loop waits for batches."""

import sys
import time
import weakref
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

DATA_BOUND = 0.1  # share of waiting from which a loop counts as limited by data loading
PERCENTILES = (50, 90, 99)
Clock = Callable[[], float]


@dataclass(frozen=True)
class Report:
    """Times of all steps so far, in seconds.

    Attributes:
        wait_seconds: Time in `iter` and `next` of the loader.
        first_seconds: Part of `wait_seconds` before the first batch of each epoch.
        compute_seconds: Time in the body of the loop. Time between two epochs is neither waiting nor computing.
        waits: Wait for each batch.
    """

    epochs: int
    steps: int
    wait_seconds: float
    first_seconds: float
    compute_seconds: float
    waits: Sequence[float]

    @property
    def share(self) -> float:
        """Time spent waiting for batches, divided by the time of the loop (0 to 1)."""
        return self.wait_seconds / max(self.wait_seconds + self.compute_seconds, 1e-12)

    @property
    def verdict(self) -> str:
        """Text that states what limits the loop, and the share of waiting, such as "data-bound: 63 % waiting"."""
        bound = "data-bound" if self.share >= DATA_BOUND else "compute-bound"
        return f"{bound}: {self.share * 100:.0f} % waiting"

    def __str__(self) -> str:
        whole = self.wait_seconds + self.compute_seconds
        loop = f"{_counted(self.steps, 'step')} in {_counted(self.epochs, 'epoch')}"
        lines = [
            f"packer.monitor: {self.verdict} ({self.wait_seconds:.2f} of {whole:.2f} s, {loop}; "
            f"{self.first_seconds:.2f} s for first batches)"
        ]
        within = np.percentile(self.waits or (0.0,), PERCENTILES) * 1e3
        marks = ", ".join(f"{percent} % within {ms:.1f}" for percent, ms in zip(PERCENTILES, within, strict=True))
        lines.append(f"  waits in ms: {marks}, longest {max(self.waits, default=0.0) * 1e3:.1f}")
        return "\n".join(lines)


@dataclass
class _Record:
    epochs: int = 0
    first_seconds: float = 0.0
    compute_seconds: float = 0.0
    waits: "array[float]" = field(default_factory=lambda: array("d"))
    reported: int = 0  # steps of the latest report

    def report(self) -> Report:
        self.reported = len(self.waits)
        return Report(
            epochs=self.epochs,
            steps=len(self.waits),
            wait_seconds=sum(self.waits),
            first_seconds=self.first_seconds,
            compute_seconds=self.compute_seconds,
            waits=tuple(self.waits),
        )


class Monitor:
    """Wrapper that iterates over the batches of a loader and measures the wait for each batch.

    All other attributes (`sampler`, `set_epoch`, ...) are attributes of the loader. The monitor writes its report when
    the monitor is deleted or the program ends. If a call of `report` has included all steps, nothing is written.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        *,
        out: TextIO | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Wrap a loader. `out` receives the report. None selects sys.stderr."""
        self.loader = loader
        self._clock = clock
        self._record = _Record()
        self._tell = weakref.finalize(self, _tell, self._record, out or sys.stderr)

    def __iter__(self) -> Iterator[Any]:
        clock, record = self._clock, self._record
        began = clock()
        batches = iter(self.loader)
        is_first = True
        record.epochs += 1
        while True:
            try:
                batch = [next(batches)]
            except StopIteration:
                return
            now = clock()
            record.waits.append(now - began)
            if is_first:
                record.first_seconds += now - began
            is_first = False
            try:
                yield batch.pop()  # no reference keeps the batch alive
            finally:  # also after a break
                began = clock()
                record.compute_seconds += began - now

    def report(self) -> Report:
        """Return the times of all steps so far. `str(report)` is the text of the report."""
        return self._record.report()

    def __len__(self) -> int:
        loader: Any = self.loader
        return len(loader)

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # a copy has none before it is complete
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __repr__(self) -> str:
        return f"monitor({self.loader!r})"


def monitor(loader: Iterable[Any], *, out: TextIO | None = None) -> Monitor:
    """Measure how long a training loop waits for the batches of a loader, and write a report.

    Args:
        loader: The loader, or another iterable of batches.
        out: File to which the report is written. None selects sys.stderr.

    Returns:
        An iterable over the batches of the loader, with the attributes of the loader. The report is written when this
        iterable is deleted or the program ends.
    """
    return Monitor(loader, out=out)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _tell(record: _Record, out: TextIO) -> None:
    if len(record.waits) > record.reported:
        out.write(f"{record.report()}\n")
