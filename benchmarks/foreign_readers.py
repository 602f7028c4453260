"""Other tools' formats, read: Loader on their parts beside LMDB, random reads beside the sequential reader of each."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import base
import cv2
import numpy as np

import packer
from packer import formats
from packer.pack.reader import Pack

ROOT = Path(__file__).resolve().parents[1]
HEIGHT, WIDTH, QUALITY = 375, 500, 90
LEAST_RATIO = 0.9
# each prints the seconds that a pass over all records takes, bytes of the image and the label as a number
_TIMED = """
import json, sys, time
def report(passes):
    took = []
    for records in (passes() for _ in range(2)):  # the first one has its caches to fill
        started, cpu, count, size = time.perf_counter(), time.process_time(), 0, 0
        for image, label in records:
            count, size = count + 1, size + len(image) + 0 * int(label)
        took = [time.perf_counter() - started, time.process_time() - cpu, count, size]
    print(json.dumps(took))
"""
_TFRECORD = """
from tfrecord import reader
def passes():
    description = {"image/encoded": "byte", "image/class/label": "int"}
    for path in sys.argv[1:]:
        for record in reader.tfrecord_loader(path, None, description):
            yield record["image/encoded"], record["image/class/label"][0]
report(passes)
"""
_WEBDATASET = """
import webdataset
def passes():
    for sample in webdataset.WebDataset(sys.argv[1:], shardshuffle=False):
        yield sample["jpg"], sample["cls"]
report(passes)
"""
_MXNET = """
import warnings
warnings.simplefilter("ignore")
import mxnet, numpy
mxnet.recordio.np = numpy
def passes():
    for path in sys.argv[1:]:
        reader = mxnet.recordio.MXRecordIO(path, "r")
        while record := reader.read():
            header, image = mxnet.recordio.unpack(record)
            yield image, header.label
report(passes)
"""
_MXNET_RANDOM = """
import random, warnings
warnings.simplefilter("ignore")
import mxnet, numpy
mxnet.recordio.np = numpy
readers = [mxnet.recordio.MXIndexedRecordIO(path[:-3] + "idx", path, "r") for path in sys.argv[1:]]
places = [(reader, key) for reader in readers for key in reader.keys]
def passes():
    random.shuffle(places)
    for reader, key in places:
        header, image = mxnet.recordio.unpack(reader.read_idx(key))
        yield image, header.label
report(passes)
"""
# name -> environment of scripts/foreign, format of the parts, their file, program
THEIRS = {
    "tfrecord, in order": ("tfrecord", "tfrecord", "data.tfrecord", _TFRECORD),
    "webdataset, in order": ("webdataset", "webdataset", "data.tar", _WEBDATASET),
    "mxnet, in order": ("mxnet", "recordio", "data.rec", _MXNET),
    "mxnet, at random": ("mxnet", "recordio", "data.rec", _MXNET_RANDOM),
}


def drawn(sources: Path, target: Path, samples: int) -> Path:
    """JPEGs of one size, cut out of real images at random places and scales, in ten folders."""
    images = [image for path in sorted(sources.rglob("*")) if (image := _opened(path)) is not None]
    if not images:
        raise SystemExit(f"{sources}: no image of at least {WIDTH}x{HEIGHT}")

    def write(number: int) -> None:
        draw = np.random.default_rng(number)
        image = images[number % len(images)]
        scale = draw.uniform(0.6, 1) * min(image.shape[0] / HEIGHT, image.shape[1] / WIDTH)
        height, width = int(HEIGHT * scale), int(WIDTH * scale)
        top, left = draw.integers(0, image.shape[0] - height + 1), draw.integers(0, image.shape[1] - width + 1)
        cut = cv2.resize(image[top : top + height, left : left + width], (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)
        path = target / f"class{number % 10}/{number:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), cut, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write, range(samples)))
    return target


def _opened(path: Path) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None":
    image = cv2.imread(str(path)) if path.suffix.lower() in (".jpg", ".jpeg", ".png") else None
    large = image is not None and image.shape[0] >= HEIGHT and image.shape[1] >= WIDTH
    return image.astype(np.uint8, copy=False) if image is not None and large else None


def packs(photos: Path, scratch: Path, *, pixels: int) -> dict[str, Path]:
    """A pack of the files in each format that holds files, and of the first ones' pixels in n5 and lmdb."""
    found = {}
    for name in ["lmdb", *(name for name in formats.names() if formats.load(name).Writer.slots)]:
        if not formats.load(name).Writer.one_shape:
            found[name] = scratch / f"{name}.pack"
            packer.convert(photos, found[name], to=name, order="stored", validate="header")
    few = scratch / "few"
    for path in islice(sorted(photos.rglob("*.jpg")), pixels):
        (few / path.parent.name).mkdir(parents=True, exist_ok=True)
        os.link(path, few / path.parent.name / path.name)
    found["n5"] = scratch / "n5.pack"
    packer.convert(few, found["n5"], to="n5")
    found["lmdb, pixels"] = scratch / "pixels.pack"
    packer.convert(found["n5"], found["lmdb, pixels"], to="lmdb")
    return found


def loading(pack: Path) -> Callable[[], tuple[float, float]]:
    """Images/s of an epoch of the Loader, and microseconds of CPU per image: whole images, shuffled, decoded."""
    loader = packer.Loader(packer.open(pack, fields=("image", "label")), 64, shuffle=True)

    def run() -> tuple[float, float]:
        started, cpu, count = time.perf_counter(), time.process_time(), 0
        for batch in loader:
            count += len(batch["label"])
        return count / (time.perf_counter() - started), (time.process_time() - cpu) / count * 1e6

    return run


def random_reads(pack: Path) -> Callable[[], tuple[float, float]]:
    """Records/s, and microseconds of CPU per record, of one thread: encoded image and label, each crc32 compared."""
    opened = Pack(pack, verify="always")

    def run() -> tuple[float, float]:
        order = np.random.default_rng().permutation(len(opened)).tolist()
        labels = opened.index.column("label")
        started, cpu, size = time.perf_counter(), time.process_time(), 0
        for index in order:
            with opened.record(index, ("image",)) as record:
                size += len(bytes(record["image"])) + 0 * int(labels[index])
        return len(order) / (time.perf_counter() - started), (time.process_time() - cpu) / len(order) * 1e6

    return run


def their_reads(environment: str, files: list[Path], program: str) -> Callable[[], tuple[float, float]]:
    """As `random_reads`, of the tool's own reader on the same files, in its environment."""
    python = ROOT / ".foreign" / environment / "bin/python"

    def run() -> tuple[float, float]:
        done = subprocess.run(
            [python, "-c", _TIMED + program, *map(str, files)], check=True, stdout=subprocess.PIPE, text=True
        )
        wall, cpu, count, _ = json.loads(done.stdout.splitlines()[-1])
        return count / wall, cpu / count * 1e6

    return run


def apart(found: dict[str, list[tuple[float, float]]]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Rates, and CPU times."""
    return tuple({name: [pair[at] for pair in pairs] for name, pairs in found.items()} for at in (0, 1))


def main() -> None:
    args = base.arguments(__doc__ or "", images=None, scratch=None, samples=4000, pixels=800, rounds=7)
    with base.scratch(args.scratch) as scratch:
        if args.images is None:
            photos = base.photos(None, scratch, args.samples)
        else:
            photos = drawn(args.images, scratch / "photos", args.samples)
        found = packs(photos, scratch, pixels=args.pixels)
        loaded = base.interleaved({name: loading(pack) for name, pack in found.items()}, args.rounds)
        reads = {f"packer, {name}": random_reads(pack) for name, pack in found.items()}
        for name, (environment, format, file, program) in THEIRS.items():
            if (ROOT / ".foreign" / environment / "complete").exists():
                files = sorted(found[format].glob(f"part-*/{file}"))
                reads[name] = their_reads(environment, files, program)
            else:
                print(f"{name}: no environment; scripts/foreign --make {environment} makes it", file=sys.stderr)
        read = base.interleaved(reads, args.rounds)
    (rates, loader_cpus), (walls, cpus) = map(apart, (loaded, read))
    rows = {}
    for name, values in rates.items():
        beside = "lmdb, pixels" if name == "n5" else "lmdb"
        cpu = base.spread(loader_cpus[name], "us of CPU", 0)
        share = f"/ {beside}: {base.ratio(rates, name, beside):.2f}  (wanted: >= {LEAST_RATIO})"
        share += f", of CPU {base.ratio(loader_cpus, name, beside):.2f}"
        rows[f"Loader, {name}"] = f"{base.spread(values, 'images/s', 0)}; {cpu}{'; ' + share if name != beside else ''}"
    for name, values in walls.items():
        rows[f"records, {name}"] = f"{base.spread(values, 'records/s', 0)}; {base.spread(cpus[name], 'us of CPU', 1)}"
    for name, (_, format, _, _) in THEIRS.items():
        if name in walls:
            times = base.ratio(walls, f"packer, {format}", name)
            rows[f"packer at random / {name}"] = f"{times:.2f}; CPU {base.ratio(cpus, f'packer, {format}', name):.2f}"
    figures = {"images_per_second": rates, "records_per_second": walls, "cpu_us": cpus, "loader_cpu_us": loader_cpus}
    base.report(f"reading other tools' formats, {args.samples} JPEGs of {WIDTH}x{HEIGHT}", rows, figures, args)


if __name__ == "__main__":
    main()
