"""Progress callback: a function of the user that receives the progress of a long call, such as `packer.convert`.

The callback is called whenever progress is added, without a limit on the rate.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """Progress of a call.

    Attributes:
        samples: Number of processed samples, including `resumed_samples`.
        total: Number of all samples.
        bytes: Number of bytes that this run has read or written.
        resumed_samples: Number of samples that an earlier, interrupted run has processed.
    """

    samples: int
    total: int
    bytes: int
    resumed_samples: int = 0


ProgressCallback = Callable[[Progress], object]


class ProgressCounter:
    """Counter that adds up progress and passes the sum to a callback. Not thread-safe."""

    def __init__(self, total: int, tell: ProgressCallback | None) -> None:
        """Count up to `total` samples. `tell`, if not None, is called now and after each addition."""
        self._tell = tell
        self._now = Progress(0, total, 0)
        if tell is not None:
            tell(self._now)

    def add(self, samples: int, size: int) -> None:
        """Add the number of samples that this run has processed, and the bytes that it has read or written."""
        self._set(samples, size, 0)

    def add_resumed(self, samples: int, size: int) -> None:
        """Add the number of samples that an earlier run has processed. `size` is ignored."""
        self._set(samples, 0, samples)

    def _set(self, samples: int, size: int, resumed: int) -> None:
        now = self._now
        self._now = Progress(now.samples + samples, now.total, now.bytes + size, now.resumed_samples + resumed)
        if self._tell is not None:
            self._tell(self._now)
