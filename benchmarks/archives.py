"""Folders in archives: conversion from a tar and a zip against the loose files, and listing 100 000 files."""

import io
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import base

_MANY = 100_000
_LISTED = """
import resource, sys, time
from pathlib import Path
from packer.conversion.source_spec import SourceSpec
begun = time.perf_counter()
source, _ = SourceSpec("folder").open(Path(sys.argv[1]))
print(len(source), time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def main() -> None:
    args = base.arguments(__doc__ or "", folder=None, scratch=None, samples=4000, threads=2, rounds=7)
    with base.scratch(args.scratch) as scratch:
        photos = base.photos(args.folder, scratch, args.samples)
        archives = {"tar": scratch / "all.tar", "zip": scratch / "all.zip"}
        _archive(photos, **archives)

        def packed(source: Path) -> float:
            target = scratch / "out.pack"
            command = [*base.PACKER, "convert", source, target, "--from", "folder", "--to", "lmdb"]
            time = base.seconds([*command, "--threads", str(args.threads)])
            shutil.rmtree(target)
            return time

        runs = {
            "folder": lambda: packed(photos),
            "tar": lambda: packed(archives["tar"]),
            "zip": lambda: packed(archives["zip"]),
        }
        found = base.interleaved(runs, args.rounds)
        listed = {kind: _listed(path) for kind, path in _many(scratch).items()}
    rows = {
        "files": f"{args.samples}; whole processes, start included, files in the page cache, members of the zip stored",
        **{f"convert from a {name}": base.spread(times, "s") for name, times in found.items()},
        "rate from the tar / from loose files": f"{base.ratio(found, 'folder', 'tar'):.2f}  (wanted: >= 0.9)",
        "rate from the zip / from loose files": f"{base.ratio(found, 'folder', 'zip'):.2f}  (wanted: >= 0.9)",
        **{f"{_MANY} files listed in a {kind}, s and peak memory": text for kind, text in listed.items()},
    }
    base.report("archives", rows, found, args)


def _archive(folder: Path, *, tar: Path, zip: Path) -> None:  # noqa: A002  the name of the kind
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    with tarfile.open(tar, "w") as made, zipfile.ZipFile(zip, "w") as stored:
        for path in files:
            made.add(path, path.relative_to(folder))
            stored.write(path, path.relative_to(folder))


def _many(scratch: Path) -> dict[str, Path]:
    paths = {"tar": scratch / "many.tar", "zip": scratch / "many.zip"}
    with tarfile.open(paths["tar"], "w") as made, zipfile.ZipFile(paths["zip"], "w") as stored:
        for number in range(_MANY):
            info = tarfile.TarInfo(f"class{number % 100:03d}/image_{number:06d}.jpg")
            info.size = 1000
            made.addfile(info, io.BytesIO(bytes(1000)))
            stored.writestr(info.name, bytes(1000))
    return paths


def _listed(path: Path) -> str:
    said = subprocess.run([sys.executable, "-c", _LISTED, path], check=True, capture_output=True, text=True).stdout
    count, seconds, peak = said.split()
    return f"{count} samples, {float(seconds):.2f} s, {int(peak) / 1e6:.0f} MB"


if __name__ == "__main__":
    main()
