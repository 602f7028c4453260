"""JPEG decoding by libjpeg-turbo: the accurate DCT, the fast one, fast upsampling, and both; time and PSNR of each.

Each image is decoded in four ways, one after the other, by one thread; PSNR and the largest difference are against
the accurate DCT with filtered upsampling. Only photos whose chroma is at half of both sides are taken.
`dct="fast"` is both.
"""

import math
import time
from pathlib import Path

import base
import numpy as np
import simplejpeg

from packer import images
from packer.errors import PackerError

_WAYS = {  # JDCT_IFAST; chroma enlarged by copies
    "accurate": (False, False),
    "fast DCT": (True, False),
    "fast upsampling": (False, True),
    "both": (True, True),
}


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, samples=200, rounds=9)
    with base.scratch() as scratch:
        folder = base.photos(args.folder, scratch, args.samples)
        photos = _images(folder, args.samples)
    megapixels = sum(height * width for _, (height, width, _) in photos) / len(photos) / 1e6
    rows = {"photos": f"{len(photos)}, {megapixels:.2f} MP each; simplejpeg {simplejpeg.__version__}"}
    figures: dict[str, object] = {}
    times, errors = _measured(photos, args.rounds)
    for name in _WAYS:
        ratio = base.ratio(times, name, "accurate")
        mean, most = errors[name]
        lost = "" if name == "accurate" else f", PSNR {-10 * math.log10(mean / 255**2):.1f} dB, at most {most} levels"
        taken = base.spread([1e6 * one / len(photos) for one in times[name]], "us", 0)
        rows[name] = f"{taken}, {ratio:.2f} of accurate{lost}"
        figures[name] = {"seconds": times[name], "squared error": mean, "most": most}
    base.report("JPEG decoding, fast and accurate", rows, figures, args)


def _images(folder: Path, most: int) -> list[tuple[bytes, tuple[int, int, int]]]:
    """Bytes and shape of the JPEGs below a folder with chroma at half of both sides."""
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
            found.append((data, (header.height, header.width, 3)))
    return found


def _measured(
    photos: list[tuple[bytes, tuple[int, int, int]]], rounds: int
) -> tuple[dict[str, list[float]], dict[str, tuple[float, int]]]:
    times: dict[str, list[float]] = {name: [0.0] * rounds for name in _WAYS}
    sums, most, values = dict.fromkeys(_WAYS, 0.0), dict.fromkeys(_WAYS, 0), 0
    for number in range(-1, rounds):
        for data, shape in photos:
            pixels = np.empty(shape, np.uint8)
            accurate = None
            for name, (fast_dct, fast_upsampling) in _WAYS.items():
                started = time.process_time()
                simplejpeg.decode_jpeg(data, "RGB", fast_dct, fast_upsampling, buffer=pixels)
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
