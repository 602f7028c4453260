"""Append: new photos into a pack, against packing all photos anew. Bytes are those of files that are not links.

Two sources are appended: a folder of the new photos alone, and the folder of all photos, whose known photos are read
and compared. All photos are links to 1000 photos, because more take minutes to draw. The pack is restored before each
round by links, which costs no data.
"""

import os
import shutil
import statistics
import subprocess
from pathlib import Path

import base


def main() -> None:
    args = base.arguments(__doc__ or "", scratch=None, samples=100_000, new=0.01, size="96x72", threads=2, rounds=3)
    with base.scratch(args.scratch) as scratch:
        everything, known, new = scratch / "all", scratch / "known", scratch / "new"
        made = scratch / "made"
        words = ["synth", "folder", made, "--samples", 1000, "--size", args.size, "--seed", "0"]
        subprocess.run([*base.PACKER, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
        photos = sorted(path for path in made.rglob("*") if path.is_file())
        count = round(args.samples * (1 + args.new))
        chosen = {round(number * count / (count - args.samples)) for number in range(count - args.samples)}
        for number in range(count):
            photo = photos[number % len(photos)]
            for folder in (everything, new if number in chosen else known):
                target = folder / photo.parent.name / f"{number:07}{photo.suffix}"
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(photo, target)
        pack, anew = scratch / "known.pack", scratch / "anew.pack"
        base.seconds([*base.PACKER, "convert", known, pack, "--threads", str(args.threads)])
        written: dict[str, int] = {}

        def packed() -> float:
            shutil.rmtree(anew, ignore_errors=True)
            time = base.seconds([*base.PACKER, "convert", everything, anew, "--threads", str(args.threads)])
            written["anew"] = sum(_files(anew).values())
            return time

        def appended(name: str, source: Path) -> float:
            target = scratch / "out.pack"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(pack, target, copy_function=os.link)
            before = _files(target)
            time = base.seconds([*base.PACKER, "append", target, source, "--threads", str(args.threads)])
            written[name] = sum(size for inode, size in _files(target).items() if inode not in before)
            return time

        runs = {
            "anew": packed,
            "new": lambda: appended("new", new),
            "all": lambda: appended("all", everything),
            "start": lambda: base.seconds([*base.PACKER, "info", pack]),
        }
        found = base.interleaved(runs, args.rounds)
        rows = {
            f"pack {count:,} photos anew": _row(found["anew"], written["anew"]),
            f"append {len(chosen):,} photos": _row(found["new"], written["new"]),
            "  of packing anew": f"{base.ratio(found, 'new', 'anew'):.2%} of the time, "
            f"{written['new'] / written['anew']:.2%} of the bytes",
            f"append the folder of all {count:,}": _row(found["all"], written["all"]),
            "  of packing anew ": f"{base.ratio(found, 'all', 'anew'):.2%} of the time",
            "packer info": base.spread(found["start"], "s"),
        }
        figures = {"seconds": found, "bytes": written, "photos": count, "new": len(chosen)}
        base.report(f"Append {args.new:.0%} of {args.size} photos", rows, figures, args)


def _files(pack: Path) -> dict[int, int]:
    """Inode -> size of every file of a pack."""
    return {path.stat().st_ino: path.stat().st_size for path in pack.rglob("*") if path.is_file()}


def _row(seconds: list[float], size: int) -> str:
    return f"{statistics.median(seconds):.2f} s  ({min(seconds):.2f} - {max(seconds):.2f}), {size / 1e6:.2f} MB"


if __name__ == "__main__":
    main()
