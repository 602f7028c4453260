"""JPEG through PyTurboJPEG and the system's libturbojpeg against simplejpeg with its own: whole images and crops.

The time is the CPU time of one thread, the same images and boxes for both, in turn; a ratio is the median over the
rounds of one library's time by the other's in the same round. What each call holds the interpreter is in `crops`.
Where PyTurboJPEG's library is libjpeg-turbo 3, which decodes a region alone, it also runs without that.
"""

import copy
from collections.abc import Callable
from functools import partial
from unittest import mock

import base
import crops
import turbojpeg

from packer.images.backends import strict_jpeg


def runs(
    size: tuple[int, int], made: dict[str, list[crops.File]]
) -> dict[str, Callable[[strict_jpeg.JPEGLibrary], float]]:
    """What is decoded -> microseconds per image with a library."""

    def timed(library: strict_jpeg.JPEGLibrary, name: str, area: float) -> float:
        with mock.patch.object(strict_jpeg, "library", lambda: library):
            return crops.once(made[name], crops.boxes(size, area))

    return {
        "whole": partial(timed, name="kept", area=1.0),
        "crop of 35 %, kept": partial(timed, name="kept", area=0.35),
        "crop of 35 %, jpeg:90": partial(timed, name="jpeg:90", area=0.35),
    }


def main() -> None:
    args = base.arguments(__doc__ or "", rounds=21, libturbojpeg=None)
    path = (str(args.libturbojpeg),) if args.libturbojpeg else ()
    with mock.patch.object(turbojpeg, "TurboJPEG", partial(turbojpeg.TurboJPEG, *path)):
        libraries = crops.libraries()
    if "PyTurboJPEG" not in libraries:
        raise SystemExit("nothing to compare: apt install libturbojpeg0, or name another with --libturbojpeg")
    without_regions = copy.copy(libraries["PyTurboJPEG"])
    if libraries["PyTurboJPEG"].decode_region is not None:
        without_regions.__dict__["decode_region"] = None
        libraries["PyTurboJPEG without regions"] = without_regions
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
                if "PyTurboJPEG without regions" in found:
                    gain = base.ratio(found, "PyTurboJPEG without regions", "PyTurboJPEG")
                    rows[name] += f"; regions make it {gain:.2f} times as fast"
    base.report("PyTurboJPEG / simplejpeg", rows, figures, args)


if __name__ == "__main__":
    main()
