"""Other tools' formats, bytes kept: `packer convert --to X` beside the writer that comes with each, and cp -r.

Once with the strict check of all data, and once with `--validate header` where the tool has a writer of its own.
"""

import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import base

from packer import formats

sys.path.insert(
    0, str(Path(__file__).resolve().parents[1])
)  # of the peers, which `scripts/bench --peers` runs as modules

from benchmarks.harness import environments
from benchmarks.peers import litdata, streaming

ROOT = Path(__file__).resolve().parents[1]
_LISTED = """
import pathlib, sys
photos, target = map(pathlib.Path, sys.argv[1:])
target.mkdir()
folders = sorted(path for path in photos.iterdir() if path.is_dir())
files = [(path, number) for number, folder in enumerate(folders) for path in sorted(folder.iterdir())]
"""
_TFRECORD = """
from tfrecord.tools import tfrecord2idx
from tfrecord.writer import TFRecordWriter
writer = TFRecordWriter(str(target / "a.tfrecord"))
for path, label in files:
    writer.write({"image/encoded": (path.read_bytes(), "byte"), "image/class/label": (label, "int")})
writer.close()
tfrecord2idx.create_index(str(target / "a.tfrecord"), str(target / "a.tfrecord.idx"))
"""
_WEBDATASET = """
import webdataset
with webdataset.ShardWriter(str(target / "%06d.tar"), maxsize=256e6, verbose=0) as writer:
    for number, (path, label) in enumerate(files):
        writer.write({"__key__": f"{number:08d}", "jpg": path.read_bytes(), "cls": label})
"""
_MXNET = """
import warnings
warnings.simplefilter("ignore")
import mxnet, numpy
mxnet.recordio.np = numpy
writer = mxnet.recordio.MXIndexedRecordIO(str(target / "a.idx"), str(target / "a.rec"), "w")
for number, (path, label) in enumerate(files):
    header = mxnet.recordio.IRHeader(0, float(label), number, 0)
    writer.write_idx(number, mxnet.recordio.pack(header, path.read_bytes()))
writer.close()
"""
_LITDATA = """
import functools, litdata
def sample(pair):
    return {"image": pair[0].read_bytes(), "label": pair[1]}
if __name__ == "__main__":
    litdata.optimize(
        fn=sample, inputs=files, output_dir=str(target / "chunks"), chunk_bytes="64MB", num_workers=2,
        reorder_files=False, start_method="fork",
    )
"""
_STREAMING = """
from benchmarks.peers.streaming import library
with library().MDSWriter(out=str(target / "mds"), columns={"image": "bytes", "label": "int"}) as writer:
    for path, label in files:
        writer.write({"image": path.read_bytes(), "label": label})
"""


@dataclass(frozen=True)
class Writer:
    """A tool's own writer: its program, and the Python that has it."""

    name: str
    python: Path
    program: str

    def __call__(self, photos: Path, target: Path) -> list[str | Path]:
        return [self.python, "-c", f"{_LISTED}{self.program}", photos, target]


_OURS = {"tfrecord": "tfrecord", "webdataset": "webdataset", "mxnet": "recordio"}  # tool -> format of packer


def writers(place: Path, wanted: Collection[str]) -> list[Writer]:
    """Those whose environments there are; what is not there is said."""
    found = []
    for name, program in {"tfrecord": _TFRECORD, "webdataset": _WEBDATASET, "mxnet": _MXNET}.items():
        if name not in wanted:
            continue
        python = ROOT / ".foreign" / name / "bin/python"
        if (ROOT / ".foreign" / name / "complete").exists():
            found.append(Writer(name, python, program))
        else:
            print(f"{name}: no environment; scripts/foreign --make {name} makes it", file=sys.stderr)
    for name, peer, program in (("litdata", litdata, _LITDATA), ("streaming", streaming, _STREAMING)):
        if name not in wanted:
            continue
        try:
            found.append(Writer(name, environments.make(name, peer, place).python, program))
        except environments.NotInstalled as error:
            print(f"{name}: {error}", file=sys.stderr)
    return found


def main() -> None:
    args = base.arguments(
        __doc__ or "",
        folder=None,
        scratch=None,
        environments=ROOT / ".benchmarks",
        writers="tfrecord,webdataset,mxnet,litdata,streaming",
        formats=",".join(formats.names()),
        samples=4000,
        rounds=5,
    )
    with base.scratch(args.scratch) as scratch:
        photos = base.photos(args.folder, scratch, args.samples)
        files = [path for path in photos.rglob("*") if path.is_file()]
        total = sum(path.stat().st_size for path in files)
        target = scratch / "written"

        def timed(command: list[str | Path]) -> float:
            time = base.seconds(command)
            shutil.rmtree(target)
            return time

        theirs = writers(Path(args.environments).absolute(), args.writers.split(","))
        runs = {writer.name: lambda writer=writer: timed(writer(photos, target)) for writer in theirs}
        for name in args.formats.split(","):
            command = [*base.PACKER, "convert", photos, target, "--to", name]
            runs[f"packer {name}"] = lambda command=command: timed(command)
            if name in _OURS.values():
                runs[f"packer {name}, headers"] = lambda command=command: timed([*command, "--validate", "header"])
        runs["cp -r"] = lambda: timed(["cp", "-r", photos, target])
        subprocess.run(["sync"], check=True)
        found = base.interleaved(runs, args.rounds)
    rows = {"files": f"{len(files)}, {total / 1e6:.0f} MB; whole processes, start included, files in the page cache"}
    rows |= {name: base.spread(times, "s") for name, times in found.items()}
    for theirs_name, ours in _OURS.items():
        for name in (f"packer {ours}", f"packer {ours}, headers"):
            if theirs_name in found and name in found:
                rows[f"time of {theirs_name}'s own writer / {name}"] = (
                    f"{base.ratio(found, theirs_name, name):.2f}  (wanted: > 1)"
                )
    base.report("writing other tools' formats", rows, found, args)


if __name__ == "__main__":
    main()
