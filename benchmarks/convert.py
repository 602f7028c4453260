"""Conversion that keeps bytes: against merely decoding the same files, against cp -r, and how long it takes to start.

The start is the conversion of ten files by their headers, beside an interpreter that imports NumPy and click alone.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import base

_DECODE = """
import sys
from pathlib import Path
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import simplejpeg
def decode(path):
    return simplejpeg.decode_jpeg(path.read_bytes(), "RGB").shape
paths = sorted(path for path in Path(sys.argv[1]).rglob("*") if path.is_file())
with ThreadPoolExecutor(int(sys.argv[2])) as pool:
    list(pool.map(decode, paths, chunksize=16))
"""


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, scratch=None, samples=4000, threads=2, rounds=7, only="")
    with base.scratch(args.scratch) as scratch:
        photos = base.photos(args.folder, scratch, args.samples)
        files = [path for path in photos.rglob("*") if path.is_file()]
        total = sum(path.stat().st_size for path in files)

        ten = scratch / "ten"
        ten.mkdir()
        for number, path in enumerate(files[:10]):
            shutil.copy(path, ten / f"{number}{path.suffix}")

        def packed(validate: str, folder: Path = photos) -> float:
            target = scratch / "out.pack"
            command = [*base.PACKER, "convert", folder, target, "--to", "lmdb", "--validate", validate]
            if validate == "full":
                command += ["--threads", str(args.threads)]
            time = base.seconds(command)
            shutil.rmtree(target)
            return time

        def copied() -> float:
            target = scratch / "copy"
            time = base.seconds(["cp", "-r", photos, target])
            shutil.rmtree(target)
            return time

        runs = {
            "decode": lambda: base.seconds([sys.executable, "-c", _DECODE, photos, str(args.threads)]),
            "full": lambda: packed("full"),
            "header": lambda: packed("header"),
            "cp": copied,
            "ten": lambda: packed("header", ten),
            "imports": lambda: base.seconds([sys.executable, "-c", "import numpy, click"]),
        }
        if args.only:
            runs = {name: runs[name] for name in args.only.split(",")}
        subprocess.run(["sync"], check=True)
        found = base.interleaved(runs, args.rounds)
    named = {
        "decode": f"decode only, {args.threads} threads",
        "full": "convert --validate full",
        "header": "convert --validate header",
        "cp": "cp -r",
        "ten": "convert --validate header of ten files",
        "imports": "an interpreter that imports NumPy and click",
    }
    ratios = {
        "rate of full / decode only": ("decode", "full", "  (wanted: >= 0.75)"),
        "time of header / cp -r": ("header", "cp", "  (wanted: <= 2.5, of 40 000 files <= 2.0)"),
        "time of ten files / imports alone": ("ten", "imports", ""),
    }
    rows = {"files": f"{len(files)}, {total / 1e6:.0f} MB; whole processes, start included, files in the page cache"}
    rows |= {named[name]: base.spread(times, "s", 3) for name, times in found.items()}
    for name, (one, other, wanted) in ratios.items():
        if one in found and other in found:
            rows[name] = f"{base.ratio(found, one, other):.2f}{wanted}"
    base.report("conversion", rows, found, args)


if __name__ == "__main__":
    main()
