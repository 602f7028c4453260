"""Writer: arrays that a program writes one after another, against `convert` of a list of the same arrays."""

import shutil
import time

import base
import numpy as np

import packer
from packer import images


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, scratch=None, samples=1000, codec="jpeg:95", threads=2, rounds=7)
    with base.scratch(args.scratch) as scratch:
        photos = sorted(base.photos(args.folder, scratch, args.samples).rglob("*.jpg"))[: args.samples]
        pixels = [np.ascontiguousarray(images.decode(path.read_bytes(), "image")) for path in photos]
        samples = [{"image": array, "label": number % 10} for number, array in enumerate(pixels)]
        target = scratch / "out.pack"
        codecs = {"image": args.codec}

        def converted() -> float:
            shutil.rmtree(target, ignore_errors=True)
            begun = time.perf_counter()
            packer.convert(samples, target, codecs=codecs, axes="hwc", part_bytes=256 << 20, threads=args.threads)
            return time.perf_counter() - begun

        def written() -> float:
            shutil.rmtree(target, ignore_errors=True)
            begun = time.perf_counter()
            fields = {"image": args.codec, "label": "number"}
            with packer.Writer(target, fields=fields, axes="hwc", threads=args.threads) as writer:
                for sample in samples:
                    writer.write(sample)
            return time.perf_counter() - begun

        found = base.interleaved({"convert": converted, "Writer": written}, args.rounds)
    rows = {
        "samples": f"{len(samples)} arrays, {sum(array.nbytes for array in pixels) / 1e6:.0f} MB, as {args.codec}",
        **{name: base.spread(times, "s") for name, times in found.items()},
        "rate of Writer / convert": f"{base.ratio(found, 'convert', 'Writer'):.2f}  (wanted: >= 0.9)",
    }
    base.report("writer", rows, found, args)


if __name__ == "__main__":
    main()
