"""What packer.Loader costs beside the decoder: time to the first batch, interpreter time, memory over epochs; ds[i]."""

import gc
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import base
import cv2
import numpy as np

import packer
from packer.datasets.batch_decoder import PackBatchDecoder, take_from
from packer.geometry import Compose, Geometry, RandomHorizontalFlip, RandomResizedCrop, draw
from packer.images import sniff
from packer.images.backends import strict_jpeg
from packer.system.buffer_pool import BufferPool, pageable

BATCH = 64
GEOMETRIES: dict[str, Geometry | None] = {
    "full decode": None,
    "RandomResizedCrop(224, antialias=False) + flip": Compose(
        RandomResizedCrop(224, antialias=False), RandomHorizontalFlip()
    ),
    "RandomResizedCrop(224) + flip": Compose(RandomResizedCrop(224), RandomHorizontalFlip()),
}


def first_batch(pack: Path, geometry: Geometry | None) -> float:
    """Milliseconds from iter() to the first of shuffled batches, the pack open, its pages in memory."""
    loader = packer.Loader(packer.open(pack, fields=("image",)), BATCH, shuffle=True, geometry=geometry)
    started = time.perf_counter()
    batches = iter(loader)
    next(batches)
    took = (time.perf_counter() - started) * 1e3
    batches.close()  # type: ignore[attr-defined]
    return took


@contextmanager
def without_work() -> Iterator[None]:
    """libjpeg's and OpenCV's work, which goes on without the interpreter, taken out; Python and NumPy are left."""

    def given_back(source: Any, *given: Any, dst: Any = None, fx: float = 1, fy: float = 1, **_: Any) -> Any:
        """Memory of the right shape, whatever is in it."""
        if dst is None and given and isinstance(given[-1], np.ndarray):
            return given[-1]  # the memory to write to, where it is not named
        if dst is not None or not isinstance(source, np.ndarray):
            return dst
        height, width = source.shape[:2]
        size = given[0] if given and given[0] is not None else (round(width * fx), round(height * fy))
        return np.empty((size[1], size[0], *source.shape[2:]), source.dtype)

    with ExitStack() as patches:
        library = strict_jpeg.library()
        # of PyTurboJPEG the call that lets go of the interpreter; simplejpeg has one for all
        decompress = "_decompress" if hasattr(library, "_decompress") else "decode"
        patches.enter_context(mock.patch.object(library, decompress, lambda *_, **__: 0))
        for name in ("resize", "flip", "warpAffine", "GaussianBlur", "merge", "transform"):
            patches.enter_context(mock.patch.object(cv2, name, given_back))
        yield


def interpreter_time(pack: Path, geometry: Geometry | None) -> float:
    """Microseconds of one thread per image, everything but the work of libjpeg and OpenCV: at most the GIL is held."""
    with without_work():
        return cpu_time(pack, geometry)


def cpu_time(pack: Path, geometry: Geometry | None) -> float:
    """Microseconds of CPU time of one thread per image.

    The median over shuffled batches of the whole set, so that files and index come from memory and not from caches.
    """
    data_set = packer.open(pack, fields=("image",))
    sample_decoder, pool, took = data_set.sample_decoder(), BufferPool(2, new=pageable), []
    order = np.random.default_rng(0).permutation(len(data_set))
    batches = [order[at : at + BATCH] for at in range(0, len(order) - len(order) % BATCH, BATCH)] or [order]
    for epoch in range(4):  # checksums are compared in the first
        for places in batches:
            random = draw(0, epoch, places, geometry.draws).tolist() if geometry else []
            started = time.thread_time()
            decoder = PackBatchDecoder(
                sample_decoder, places, take=partial(take_from, pool), geometry=geometry, random=random
            )
            decoder.fill(0, len(places))
            decoder.fields()
            took.append((time.thread_time() - started) / len(places))
    return statistics.median(took[len(batches) :]) * 1e6


def one_by_one(pack: Path, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of CPU per ds[i] at random, and of the bare decoder call for the same images, in turn."""
    data_set = packer.open(pack, fields=("image",))
    sample_decoder = data_set.sample_decoder()
    order = np.random.default_rng(0).permutation(len(data_set))[:500].tolist()
    with sample_decoder.pack.records(order, ["image"]) as records:
        files = [bytes(record["image"]) for record in records]
    sizes = [(found.height, found.width, 3) for found in map(sniff, files)]
    decode = strict_jpeg.library().decode

    def timed(run: Callable[[], None]) -> Callable[[], float]:
        def timing() -> float:
            started = time.thread_time()
            run()
            return (time.thread_time() - started) / len(order) * 1e3

        return timing

    def bare() -> None:
        for file, size in zip(files, sizes, strict=True):
            decode(file, np.empty(size, np.uint8))

    def packed() -> None:
        for index in order:
            data_set[index]

    return base.interleaved({"decoder": timed(bare), "ds[i]": timed(packed)}, rounds)


def memory(pack: Path, epochs: int) -> tuple[float, float]:
    """Resident MB after the fifth and after the last epoch of cropped batches, all of them dropped at once."""
    loader = packer.Loader(
        packer.open(pack, fields=("image",)), BATCH, shuffle=True, geometry=GEOMETRIES["RandomResizedCrop(224) + flip"]
    )
    early = 0.0
    for number in range(epochs):
        for _ in loader:
            pass
        if number == min(4, epochs - 1):
            early = _resident()
    gc.collect()
    return early, _resident()


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def main() -> None:
    args = base.arguments(__doc__ or "", images=None, samples=1000, rounds=5, epochs=50)
    with tempfile.TemporaryDirectory(prefix="packer-bench-") as name:
        folder, pack = Path(name), Path(name) / "set.pack"
        photos = base.photos(args.images, folder, args.samples)
        base.seconds([*base.PACKER, "convert", photos, pack, "--to", "lmdb"])
        cut = Path(name) / "jpeg.pack"
        base.seconds([*base.PACKER, "convert", photos, cut, "--to", "lmdb", "--codec", "image=jpeg:90"])
        figures: dict[str, Any] = {}
        rows: dict[str, str] = {}
        for label, geometry in GEOMETRIES.items():
            first_batch(pack, geometry)
            figures[f"first batch, {label}"] = [first_batch(pack, geometry) for _ in range(args.rounds)]
            rows[f"first batch, {label}"] = base.spread(figures[f"first batch, {label}"], "ms", 0)
            for codec, which in (("kept bytes", pack), ("jpeg:90", cut)):
                row = f"interpreter, {label}, {codec}"
                figures[row] = interpreter_time(which, geometry)
                rows[row] = f"{figures[row]:.1f} us per image"
        single = one_by_one(pack, args.rounds)
        figures["one by one"] = single
        rows["ds[i] / bare decoder call"] = (
            f"{base.ratio(single, 'ds[i]', 'decoder'):.2f}  ({statistics.median(single['ds[i]']):.3f} ms)"
        )
        early, late = figures["memory"] = memory(pack, args.epochs)
        rows[f"resident memory after 5 and {args.epochs} epochs"] = f"{early:.0f} MB, {late:.0f} MB"
    base.report("packer.Loader beside the decoder", rows, figures, args)


if __name__ == "__main__":
    sys.exit(main())
