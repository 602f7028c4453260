"""Tables: a table of a million rows opened as a source: seconds and peak memory, against its rows kept parsed."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import base

# of this program alone: ru_maxrss begins with what its parent had
_PEAK = """
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
"""
_OPENED = """
import sys, time
from pathlib import Path
from packer.sources.annotations import table
from packer.sources._trees.file_tree import Contents, FileState, FileTree

class Listed(FileTree):  # a folder with the table and the images that it names, which nobody has to make
    def __init__(self, path, images):
        self.root, self._path = path.parent, path
        names = [path.name, *(f"train/{number:07d}.jpg" for number in range(images))]
        self._contents = Contents(names, ["train"])
    contents = property(lambda self: self._contents)
    def read(self, name):
        return self._path.read_bytes()
    def start(self, name, count):
        return self.read(name)[:count]
    def state(self, name):
        return FileState(1000, 0, True)

path, images, group = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
tree = Listed(path, images)
PEAK
before = peak()
begun = time.process_time()
source = table.Source(tree, group_by=group)
opened, most = time.process_time() - begun, peak()
begun = time.process_time()
for number in range(20_000):
    source.value(number * 7919 % len(source), "label" if not group else "box_labels")
print(len(source), opened, most, before, (time.process_time() - begun) / 20_000 * 1e6)
"""
_PARSED = """
import csv, json, sys
from pathlib import Path
PEAK
with open(sys.argv[1], newline="") as file:
    rows = list(csv.DictReader(file)) if sys.argv[1].endswith("csv") else [json.loads(line) for line in file]
print(len(rows), peak())
"""


def main() -> None:
    args = base.arguments(__doc__ or "", scratch=None, samples=1_000_000)
    rows = {}
    with base.scratch(args.scratch) as scratch:
        for name, path, images, group in _tables(scratch, args.samples):
            samples, seconds, peak, before, each = _said(_OPENED, path, images, group)
            text = f"{samples:.0f} samples, {seconds:.1f} s of CPU, peak {peak / 1e6:.0f} MB"
            text += f" ({before / 1e6:.0f} MB of them before: Python, NumPy and the names of the files)"
            rows[f"{name}, {path.stat().st_size / 1e6:.0f} MB"] = f"{text}; {each:.0f} us a row's labels at random"
            if path.suffix != ".parquet":
                rows[f"{name}: its rows as a list of dicts"] = f"peak {_said(_PARSED, path)[1] / 1e6:.0f} MB"
    base.report("tables", rows, {}, args)


def _tables(scratch: Path, count: int) -> list[tuple[str, Path, int, str]]:
    """Each: what it is, the file, how many images it names, the column to group by."""
    header = ["file_name", "label", "width", "height", "score", "caption"]
    flat, lines, boxes = scratch / "metadata.csv", scratch / "metadata.jsonl", scratch / "boxes" / "metadata.csv"
    boxes.parent.mkdir()
    with flat.open("w", newline="") as table, lines.open("w") as objects:
        writer = csv.writer(table)
        writer.writerow(header)
        for number in range(count):
            row = [
                f"train/{number:07d}.jpg",
                f"class {number % 1000}",
                640,
                480,
                number / 7,
                f"an image, the {number}th",
            ]
            writer.writerow(row)
            objects.write(json.dumps(dict(zip(header, row, strict=True))) + "\n")
    with boxes.open("w", newline="") as table:
        writer = csv.writer(table)
        writer.writerow(["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"])
        for number in range(count):
            at = number % 600
            writer.writerow([f"train/{number // 5:07d}.jpg", 640, 480, f"class {number % 80}", at, 10, at + 30, 200])
    found = [
        ("csv", flat, count, ""),
        ("json lines", lines, count, ""),
        ("csv, 5 boxes an image", boxes, count // 5, "filename"),
    ]
    if (parquet := _parquet(flat)) is not None:
        found.append(("parquet", parquet, count, ""))
    return found


def _parquet(table: Path) -> Path | None:
    try:
        from pyarrow import csv as arrow
        from pyarrow import parquet
    except ModuleNotFoundError:
        print("parquet: left out: pyarrow is not installed")
        return None
    path = table.with_suffix(".parquet")
    parquet.write_table(arrow.read_csv(table), path)
    return path


def _said(program: str, *words: object) -> list[float]:
    command = [sys.executable, "-c", program.replace("PEAK", _PEAK), *map(str, words)]
    return [float(word) for word in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


if __name__ == "__main__":
    main()
