"""JPEG decoding by libjpeg-turbo: the accurate DCT, the fast one, fast upsampling, and both; time and PSNR of each.

Each picture is decoded in four ways, one after the other, by one thread; PSNR and the largest difference are against
the accurate DCT with filtered upsampling. Only pictures whose chroma is at half of both sides are taken.
"""

import math
import statistics
import time
from pathlib import Path

import base
import numpy as np

from packer import images
from packer.errors import PackerError
from packer.images.backends import strict_jpeg

_WAYS = {
    "accurate": {},
    "fast DCT": {"fast_dct": True},
    "fast upsampling": {"fast_upsampling": True},
    "both": {"fast_dct": True, "fast_upsampling": True},
}


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=200, rounds=9)
    with base.scratch() as scratch:
        folder = base.photos(args.folder, scratch, args.samples)
        pictures = _pictures(folder, args.samples)
    rows = {"pictures": f"{len(pictures)}, {sum(size for _, _, size in pictures) / len(pictures) / 1e6:.2f} MP each"}
    figures: dict[str, object] = {}
    for found in strict_jpeg.attempts():
        if isinstance(found, str):
            rows[found] = ""
            continue
        times, errors = _measured(found, pictures, args.rounds)
        label = strict_jpeg.describe(found)
        for name in _WAYS:
            ratio = statistics.median(a / b for a, b in zip(times[name], times["accurate"], strict=True))
            taken = f"{base.spread([1e6 * one / len(pictures) for one in times[name]], 'us', 0)}"
            mean, most = errors[name]
            lost = (
                "" if name == "accurate" else f", PSNR {-10 * math.log10(mean / 255**2):.1f} dB, at most {most} levels"
            )
            rows[f"{label}, {name}"] = f"{taken}, {ratio:.2f} of accurate{lost}"
            figures[f"{label}, {name}"] = {"seconds": times[name], "squared error": mean, "most": most}
    base.report("JPEG decoding, fast and accurate", rows, figures, args)


def _pictures(folder: Path, most: int) -> list[tuple[bytes, tuple[int, int, int], int]]:
    """Bytes, shape and number of pixels of the JPEGs below a folder with chroma at half of both sides."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in (".jpg", ".jpeg") or len(found) == most:
            continue
        data = path.read_bytes()
        try:
            header = images.validate(data, "image")
        except PackerError:
            continue
        if header.scan is not None and header.scan.mcu == (16, 16) and header.channels == 3:
            found.append((data, (header.height, header.width, 3), header.height * header.width))
    return found


def _measured(
    library: strict_jpeg.JPEGLibrary, pictures: list[tuple[bytes, tuple[int, int, int], int]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, tuple[float, int]]]:
    times: dict[str, list[float]] = {name: [0.0] * rounds for name in _WAYS}
    sums, most, values = dict.fromkeys(_WAYS, 0.0), dict.fromkeys(_WAYS, 0), 0
    for number in range(-1, rounds):
        for data, shape, _ in pictures:
            pixels = np.empty(shape, np.uint8)
            accurate = None
            for name, how in _WAYS.items():
                started = time.process_time()
                library.decode(data, pixels, **how)
                if number >= 0:
                    times[name][number] += time.process_time() - started
                    continue
                if accurate is None:
                    accurate = pixels.astype(np.int16)
                    values += accurate.size
                apart = np.abs(pixels - accurate)
                sums[name] += float((apart.astype(np.float64) ** 2).sum())
                most[name] = max(most[name], int(apart.max()))
    return times, {name: (sums[name] / values, most[name]) for name in _WAYS}


if __name__ == "__main__":
    main()
