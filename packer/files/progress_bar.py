"""Progress bar: shows the progress of a long call on stderr."""

import os
import sys
import time
from types import TracebackType
from typing import Any

from packer.files.terminal_output import echo
from packer.system.progress_callback import Progress

_PLAIN_SECONDS = 5.0


class ProgressBar:
    """Shows a bar on a terminal or in a notebook, and elsewhere a line every 5 seconds. With `quiet` it shows nothing.

    The progress is on stderr, so that stdout contains only results.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._started = self._shown = time.monotonic()
        self._bar: Any = None

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, now: Progress) -> None:
        """Show the progress. A call with 0 samples starts the clock and the bar instead."""
        if not now.samples:
            self._started = self._shown = time.monotonic()
            if self._bar is None and not self._quiet:  # a second one would move the cursor
                self._bar = _notebook_bar(now.total) or (_bar(now.total) if sys.stderr.isatty() else None)
            return
        time_now = time.monotonic()
        seconds = time_now - self._started
        if self._bar is not None:
            self._bar.set_postfix_str(f"{now.bytes / 1e6 / max(seconds, 1e-9):.1f} MB/s", refresh=False)
            self._bar.initial = now.resumed_samples
            if now.samples == now.resumed_samples:
                self._bar.n = now.samples
            self._bar.update(now.samples - self._bar.n)
        elif not self._quiet and time_now - self._shown >= _PLAIN_SECONDS:
            self._shown = time_now
            echo(_progress_line(now, seconds), err=True)


def _bar(total: int) -> Any:
    from tqdm import tqdm  # 50 ms, which runs without a terminal save

    # without a known width, as in some containers, tqdm would show nothing
    known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    width = {"dynamic_ncols": True} if known else {"ncols": 100}
    return tqdm(total=total, unit=" samples", file=sys.stderr, leave=False, **width)


def _notebook_bar(total: int) -> Any:
    """Return a bar below the running cell. None without a notebook or without ipywidgets."""
    if "IPython" not in sys.modules:
        return None
    from tqdm.auto import tqdm  # finds out from IPython where it runs

    if not any(each.__module__ == "tqdm.notebook" for each in tqdm.__mro__):
        return None
    return tqdm(total=total, unit=" samples", leave=False)


def _progress_line(now: Progress, seconds: float) -> str:
    mine = now.samples - now.resumed_samples
    left = seconds / max(mine, 1) * (now.total - now.samples)
    return (
        f"{now.samples}/{now.total} samples, {mine / seconds:.0f} samples/s, "
        f"{now.bytes / 1e6 / seconds:.1f} MB/s, {left:.0f} s left"
    )
