"""Progress callback: a function of the caller's that is told how many samples and bytes of a long call are done.

It is called after every addition, at no limited rate: who draws a bar decides how often.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """samples: done of `total`, resumed_samples of them by an earlier run. bytes: read or written by this run."""

    samples: int
    total: int
    bytes: int
    resumed_samples: int = 0


ProgressCallback = Callable[[Progress], object]


class ProgressCounter:
    """Adds up what is done, and passes the sum to a callback; for one thread at a time."""

    def __init__(self, total: int, tell: ProgressCallback | None) -> None:
        """total: samples that there are. tell: called after each addition, and once before the first."""
        self._tell = tell
        self._now = Progress(0, total, 0)
        if tell is not None:
            tell(self._now)

    def add(self, samples: int, size: int) -> None:
        """This run has done so many more samples, and read or written so many more bytes."""
        self._set(samples, size, 0)

    def add_resumed(self, samples: int, size: int) -> None:
        """An earlier run had done so many more samples; their `size` counts for no rate."""
        self._set(samples, 0, samples)

    def _set(self, samples: int, size: int, resumed: int) -> None:
        now = self._now
        self._now = Progress(now.samples + samples, now.total, now.bytes + size, now.resumed_samples + resumed)
        if self._tell is not None:
            self._tell(self._now)
