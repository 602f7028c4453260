"""Progress callback: a function of the caller that receives the progress of a long call.

It is called after every addition, without a limit on the rate.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Progress of a call.

    Attributes:
        samples: Samples that are done.
        total: All samples.
        bytes: Bytes that this run has read or written.
        resumed_samples: Samples of `samples` that an earlier run did.
    """

    samples: int
    total: int
    bytes: int
    resumed_samples: int = 0


ProgressCallback = Callable[[Progress], object]


class ProgressCounter:
    """Adds up progress and passes the sum to a callback; for one thread at a time."""

    def __init__(self, total: int, tell: ProgressCallback | None) -> None:
        """Count up to `total` samples; `tell` is called once now, and after each addition."""
        self._tell = tell
        self._now = Progress(0, total, 0)
        if tell is not None:
            tell(self._now)

    def add(self, samples: int, size: int) -> None:
        """Add samples of this run, and the bytes that it has read or written."""
        self._set(samples, size, 0)

    def add_resumed(self, samples: int, size: int) -> None:
        """Add samples of an earlier run; their `size` does not count as bytes of this run."""
        self._set(samples, 0, samples)

    def _set(self, samples: int, size: int, resumed: int) -> None:
        now = self._now
        self._now = Progress(now.samples + samples, now.total, now.bytes + size, now.resumed_samples + resumed)
        if self._tell is not None:
            self._tell(self._now)
