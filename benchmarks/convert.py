"""Conversion that keeps bytes: against merely decoding the same files, and against cp -r."""

import shutil
import subprocess
import sys

import base

_DECODE = """
import sys
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
    args = base.arguments(__doc__ or "", folder=None, scratch=None, samples=4000, threads=2, rounds=7)
    with base.scratch(args.scratch) as scratch:
        photos = base.photos(args.folder, scratch, args.samples)
        files = [path for path in photos.rglob("*") if path.is_file()]
        total = sum(path.stat().st_size for path in files)

        def packed(validate: str) -> float:
            target = scratch / "out.pack"
            command = [*base.PACKER, "convert", photos, target, "--to", "lmdb", "--validate", validate]
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
        }
        subprocess.run(["sync"], check=True)
        found = base.interleaved(runs, args.rounds)
    rows = {
        "files": f"{len(files)}, {total / 1e6:.0f} MB; whole processes, start included, files in the page cache",
        f"decode only, {args.threads} threads": base.spread(found["decode"], "s"),
        "convert --validate full": base.spread(found["full"], "s"),
        "convert --validate header": base.spread(found["header"], "s"),
        "cp -r": base.spread(found["cp"], "s"),
        "rate of full / decode only": f"{base.ratio(found, 'decode', 'full'):.2f}  (wanted: >= 0.75)",
        "time of header / cp -r": f"{base.ratio(found, 'header', 'cp'):.2f}  (wanted: <= 2.5)",
    }
    base.report("conversion", rows, found, args)


if __name__ == "__main__":
    main()
