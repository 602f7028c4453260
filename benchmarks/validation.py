"""What `convert --validate full` costs by format, and beside another checkout of packer: processor time, in turn."""

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import base
import cv2
import numpy as np

_SIDE = 1024
_DEPTH_SUFFIX = "_d.tiff"
_RUN = "from packer.cli import run; run()"


def main() -> None:
    args = base.arguments(__doc__ or "", other=None, scratch=None, samples=24, threads=1, rounds=7)
    checkouts = {"this": Path(__file__).resolve().parent.parent}
    if args.other is not None:
        checkouts["other"] = args.other.resolve()
    with base.scratch(args.scratch) as scratch:
        runs: dict[str, Callable[[], float]] = {}
        sizes = {}
        for name, write in _writers().items():
            folder = scratch / name.replace(" ", "-")
            folder.mkdir()
            for number in range(args.samples * (8 if name == "jpeg" else 1)):
                write(folder, number)
            sizes[name] = sum(path.stat().st_size for path in folder.iterdir())
            for which, checkout in checkouts.items():
                for how in ("full", "header"):
                    runs[f"{name}, {how}, {which}"] = partial(_converted, checkout, folder, how, args.threads)
        found = base.interleaved(runs, args.rounds)
    rows = {}
    for name, size in sizes.items():
        rows[f"{name}, {size / 1e6:.0f} MB"] = ""
        for which in checkouts:
            full, header = base.spread(found[f"{name}, full, {which}"], "s"), f"{name}, header, {which}"
            rows[f"  {name}: full, header, {which}"] = f"{full}, {base.spread(found[header], 's')}"
        if args.other is not None:
            ratio = base.ratio(found, f"{name}, full, this", f"{name}, full, other")
            rows[f"  {name}: time of full, this / other"] = f"{ratio:.2f}"
    base.report("validation", rows, found, args)


def _writers() -> dict[str, Callable[[Path, int], None]]:
    """Functions that write image `number` into a folder."""
    compression, predictor = cv2.IMWRITE_TIFF_COMPRESSION, cv2.IMWRITE_TIFF_PREDICTOR
    none, lzw, deflate, packbits, horizontal = 1, 5, 8, 32773, 2

    def written(pixels: Callable[[int], np.ndarray], suffix: str, *options: int) -> Callable[[Path, int], None]:
        return lambda folder, number: _write(folder / f"{number:04}{suffix}", pixels(number), options)

    return {
        "jpeg": written(partial(_photo, height=375, width=500), ".jpg", cv2.IMWRITE_JPEG_QUALITY, 90),
        "png": written(_photo, ".png"),
        "webp": written(_photo, ".webp", cv2.IMWRITE_WEBP_QUALITY, 80),
        "tiff float32": written(_depth, _DEPTH_SUFFIX, compression, none),
        "tiff float32 deflate": written(_depth, _DEPTH_SUFFIX, compression, deflate),
        "tiff uint8 lzw": written(_photo, ".tiff", compression, lzw, predictor, horizontal),
        "tiff uint8 packbits": written(_photo, ".tiff", compression, packbits),
    }


def _write(path: Path, pixels: np.ndarray, options: tuple[int, ...]) -> None:
    if path.name.endswith(_DEPTH_SUFFIX):  # a depth lies beside an image
        cv2.imwrite(str(path).replace(_DEPTH_SUFFIX, ".png"), np.zeros((8, 8), np.uint8))
    if not cv2.imwrite(str(path), pixels, list(options)):
        raise SystemExit(f"{path}: cannot write the image")


def _photo(number: int, *, height: int = _SIDE, width: int = _SIDE) -> np.ndarray:
    """uint8 (H, W, 3): smooth colors with a little noise."""
    random = np.random.default_rng(number)
    smooth = cv2.resize(random.integers(0, 256, (12, 16, 3), np.uint8), (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(smooth.astype(np.int16) + random.integers(-6, 7, smooth.shape), 0, 255).astype(np.uint8)


def _depth(number: int) -> np.ndarray:
    """float32 (H, W), meters, as of a rendered scene: mostly a plane."""
    rows, columns = np.indices((_SIDE, _SIDE)).astype(np.float32) / _SIDE
    depth = 1.5 + 0.2 * rows
    depth[(rows - 0.5) ** 2 + (columns - 0.4) ** 2 < 0.02 + number / 1000] -= np.float32(0.1)
    return depth


def _converted(checkout: Path, folder: Path, validate: str, threads: int) -> float:
    """Processor time of the whole process."""
    target = folder.parent / "out.pack"
    options = ["--to", "lmdb", "--validate", validate, "--threads", str(threads)]
    if "float32" in folder.name:
        options += ["--sidecar", f"depth={_DEPTH_SUFFIX}:depth"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", _RUN, "convert", str(folder), str(target), *options]
    subprocess.run(command, check=True, cwd=folder.parent, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(target)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
