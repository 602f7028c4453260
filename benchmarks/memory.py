"""Memory of a conversion, for more and more files: it must not grow with them."""

import subprocess
import sys
from pathlib import Path

import base

_CHILD = """
import json, resource, sys
from pathlib import Path
from packer import sources
from packer.conversion.options import ConversionOptions
from packer.conversion.convert import convert_source
source = sources.load("folder").Source(Path(sys.argv[1]))
summary = convert_source(source, Path(sys.argv[2]), ConversionOptions(validate=sys.argv[3]), threads=2)
print(json.dumps({"rss_kb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "seconds": summary.seconds,
                  "samples": summary.samples, "torch": "torch" in sys.modules}))
"""


def linked(photos: Path, folder: Path, count: int) -> Path:
    """`count` names for the same few files: hard links, so that 100 000 samples take no disk."""
    sources = sorted(path for path in photos.rglob("*") if path.is_file())
    for index in range(count):
        place = folder / f"class{index % 100:03d}"
        if index < 100:
            place.mkdir(parents=True)
        (place / f"{index:07d}.jpg").hardlink_to(sources[index % len(sources)])
    return folder


def main() -> None:
    args = base.arguments(__doc__ or "", samples=100_000, size="160x120")
    rows, figures = {}, {}
    with base.scratch() as scratch:
        photos = scratch / "few"
        command = [*base.PACKER, "synth", "folder", str(photos), "--samples", "500", "--seed", "0", "--size", args.size]
        subprocess.run(command, check=True)
        for count in (args.samples // 100, args.samples // 10, args.samples):
            folder = linked(photos, scratch / f"set{count}", count)
            words = [sys.executable, "-c", _CHILD, str(folder), str(scratch / f"{count}.pack"), "header"]
            text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
            figures[count] = base.json.loads(text)
            rows[f"{count} files"] = (
                f"peak {figures[count]['rss_kb'] / 1e3:.0f} MB, {count / figures[count]['seconds']:.0f} samples/s, "
                f"torch imported: {figures[count]['torch']}"
            )
    rows["wanted"] = f"< 300 MB at {args.samples} files"
    base.report("memory of a conversion", rows, figures, args)


if __name__ == "__main__":
    main()
