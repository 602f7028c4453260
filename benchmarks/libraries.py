"""JPEG through PyTurboJPEG and the system's libturbojpeg against simplejpeg with its own: whole pictures and crops.

The time is the CPU time of one thread, the same pictures and boxes for both, in turn; a ratio is the median over the
rounds of one library's time by the other's in the same round. What each call holds the interpreter is in `crops`.
"""

from collections.abc import Callable
from functools import partial
from unittest import mock

import base
import crops

from packer.images.backends import strict_jpeg


def runs(
    size: tuple[int, int], made: dict[str, list[crops.File]]
) -> dict[str, Callable[[strict_jpeg.JPEGLibrary], float]]:
    """What is decoded -> microseconds per picture with a library."""

    def timed(library: strict_jpeg.JPEGLibrary, name: str, area: float) -> float:
        with mock.patch.object(strict_jpeg, "library", lambda: library):
            return crops.once(made[name], crops.boxes(size, area))

    return {
        "whole": partial(timed, name="kept", area=1.0),
        "crop of 35 %, kept": partial(timed, name="kept", area=0.35),
        "crop of 35 %, jpeg:90": partial(timed, name="jpeg:90", area=0.35),
    }


def main() -> None:
    args = base.arguments(__doc__ or "", rounds=21)
    libraries = crops.libraries()
    if "PyTurboJPEG" not in libraries:
        raise SystemExit("nothing to compare: apt install libturbojpeg0")
    figures: dict[str, dict[str, list[float]]] = {}
    rows: dict[str, str] = {name: strict_jpeg.describe(library) for name, library in libraries.items()}
    with base.scratch() as scratch:
        for size in ((500, 375), (1000, 750)):
            for what, run in runs(size, crops.files(scratch, size, None)).items():
                name = f"{size[0]}x{size[1]}, {what}"
                found = base.interleaved({each: partial(run, found) for each, found in libraries.items()}, args.rounds)
                figures[name] = found
                share = base.ratio(found, "PyTurboJPEG", "simplejpeg")
                rows[name] = f"{share:.2f} of simplejpeg's {base.spread(found['simplejpeg'], 'us', 0)}"
    base.report("PyTurboJPEG with the system's libturbojpeg / simplejpeg", rows, figures, args)


if __name__ == "__main__":
    main()
