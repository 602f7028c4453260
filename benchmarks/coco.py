"""COCO: the memory that an annotation file of the size of train2017's takes, read as a source and by json alone."""

import json
import random
import subprocess
import sys
from pathlib import Path

import base

_IMAGES, _ANNOTATIONS = 118_287, 860_001  # of instances_train2017.json, which has 448 MB
_POLYGON_POINTS = 23
_SOURCE = """
import resource, sys, time
from pathlib import Path
from packer.sources.annotations.coco import Source
begun = time.perf_counter()
source = Source(Path(sys.argv[1]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
stays = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(len(source), time.perf_counter() - begun, peak, stays)
"""
_JSON = """
import json, resource, sys, time
begun = time.perf_counter()
with open(sys.argv[1] + "/annotations/instances_train2017.json") as file:
    data = json.load(file)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
stays = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmRSS"))
print(len(data["images"]), time.perf_counter() - begun, peak, stays)
"""


def main() -> None:
    args = base.arguments(__doc__ or "", scratch=None, images=_IMAGES, annotations=_ANNOTATIONS)
    with base.scratch(args.scratch) as scratch:
        file_bytes = _written(scratch, args.images, args.annotations)
        found = {name: _measured(program, scratch) for name, program in (("source", _SOURCE), ("json", _JSON))}
    rows = {"annotation file": f"{file_bytes / 1e6:.0f} MB, {args.images} images, {args.annotations} annotations"}
    for name, (seconds, peak, stays) in found.items():
        rows[name] = f"peak {peak / 1e6:.0f} MB, {stays / 1e6:.0f} MB when it is read, {seconds:.0f} s"
    base.report("coco", rows, {"file_bytes": file_bytes, **found}, args)


def _written(root: Path, images: int, annotations: int) -> int:
    """A set of empty images, whose annotation file is written line by line; its size."""
    rng = random.Random(0)
    (root / "annotations").mkdir()
    (root / "train2017").mkdir()
    path = root / "annotations/instances_train2017.json"
    with path.open("w") as file:
        file.write('{"info": {}, "licenses": [], "images": [')
        for number in range(images):
            name = f"{number:012d}.jpg"
            (root / "train2017" / name).touch()
            url = f"http://images.cocodataset.org/train2017/{name}"
            entry = {"license": 3, "file_name": name, "coco_url": url, "height": 480, "width": 640}
            entry |= {"date_captured": "2013-11-14 11:18:45", "flickr_url": url, "id": number}
            file.write((", " if number else "") + json.dumps(entry))
        file.write('], "annotations": [')
        for number in range(annotations):
            polygon = [round(rng.uniform(0, 640), 2) for _ in range(2 * _POLYGON_POINTS)]
            entry = {"segmentation": [polygon], "area": rng.uniform(0, 9999), "iscrowd": 0, "image_id": number % images}
            entry |= {"bbox": polygon[:4], "category_id": number % 80 + 1, "id": number}
            file.write((", " if number else "") + json.dumps(entry))
        names = [{"supercategory": "none", "id": number, "name": f"class {number}"} for number in range(1, 81)]
        file.write(f'], "categories": {json.dumps(names)}}}')
    return path.stat().st_size


def _measured(program: str, root: Path) -> tuple[float, int, int]:
    """Seconds, and bytes in memory: at most, and when the file is read."""
    said = subprocess.run([sys.executable, "-c", program, root], check=True, capture_output=True, text=True).stdout
    _, seconds, peak, stays = said.split()
    return float(seconds), int(peak), int(stays)


if __name__ == "__main__":
    main()
