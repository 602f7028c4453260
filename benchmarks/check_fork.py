"""Compare GraspDataset(exact="fork") with the loaders of a checkout of andvg3/Grasp-Anything, item by item.

    python benchmarks/check_fork.py CHECKOUT ocid=FOLDER vmrd=FOLDER grasp-anything=FOLDER [--size 224]

FOLDER: a set of that kind, or a part of it. Exits 1 where rectangles or maps of an item are not equal to the bit; says
the mean difference of images, which the loaders warp three times and packer once. Four turns, three zooms. Needs
scikit-image and imageio; matplotlib, which the checkout imports to draw, need not be there. What the loaders need of
NumPy and of the working directory is put there for them: np.int and np.float, and a list that names all label files.
"""

import argparse
import importlib
import itertools
import os
import pickle
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import numpy as np

from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.grasp import GraspDataset, targets

TURNS = (0, np.pi / 2, np.pi, 3 * np.pi / 2)
ZOOMS = (1.0, 0.83, 0.5)
# kind of source, module and class of the loader
LOADERS = {
    "ocid": ("ocid-grasp", "ocid_grasp_data", "OCIDGraspDataset"),
    "vmrd": ("vmrd", "vmrd_data", "VMRDDataset"),
    "grasp-anything": ("grasp-anything", "grasp_anything_data", "GraspAnythingDataset"),
}
LIST = "split/grasp-anything/seen.obj"  # which its loader opens in the working directory


def prepare(checkout: Path) -> None:
    """Make the checkout's code one that can be imported."""
    vars(np).update(int=int, float=float)
    for name in ("matplotlib", "matplotlib.pyplot"):
        sys.modules.setdefault(name, types.ModuleType(name))
    sys.path.insert(0, str(checkout.absolute()))


def theirs(name: str, folder: Path, size: int) -> Any:
    """The fork's data set, its files in order."""
    _, module, cls = LOADERS[name]
    if name == "grasp-anything":
        stems = [path.stem for path in folder.glob("grasp_label_positive/*_[0-9].pt")]
        Path(LIST).parent.mkdir(parents=True, exist_ok=True)
        Path(LIST).write_bytes(pickle.dumps(stems))
    made = getattr(importlib.import_module(f"utils.data.{module}"), cls)(
        str(folder), output_size=size, include_depth=False, include_rgb=True, seen=True
    )
    made.grasp_files.sort()
    return made


def maps_of_fork(rectangles: Any, size: int) -> Any:
    """float32 (4, size, size), as its __getitem__ makes them."""
    quality, angle, width = rectangles.draw((size, size))
    width = np.clip(width, 0.0, size / 2) / (size / 2)
    return np.stack([quality, np.cos(2 * angle), np.sin(2 * angle), width]).astype(np.float32)


def compare(name: str, folder: Path, size: int, scratch: Path) -> bool:
    """Whether names, rectangles and maps of all items are the same; says how many, and how far images are apart."""
    fork = theirs(name, folder, size)
    source, _ = SourceSpec(LOADERS[name][0], {"missing": "skip"}).open(folder)
    convert_source(source, scratch / f"{name}.pack", ConversionOptions(order="stored"))
    own = GraspDataset(
        scratch / f"{name}.pack", size, include_depth=False, style="grconvnet", items="label", exact="fork"
    )
    names = [Path(path).stem for path in fork.grasp_files]
    bad = int(names != [key.rpartition("/")[2] for key in own.keys()])  # noqa: SIM118  it is no dict
    levels = []
    for index, rot, zoom in itertools.product(range(min(len(own), len(fork))), TURNS, ZOOMS):
        rectangles = fork.get_gtbb(index, rot, zoom)
        points = own.get_gtbb(index, rot, zoom)
        drawn = np.empty((4, 1, size, size), np.float32)
        targets.draw(points, np.zeros(len(points), np.int64), size / 2, drawn)
        same = np.array_equal(np.asarray([each.points for each in rectangles]).reshape(-1, 4, 2), points)
        bad += not (same and np.array_equal(maps_of_fork(rectangles, size), drawn[:, 0]))
        images = [each.get_rgb(index, rot, zoom, normalise=False).astype(float) for each in (fork, own)]
        levels.append(float(np.abs(images[0] - images[1]).mean()))
    print(
        f"{name}: {len(own)} items, {len(fork)} of the fork, {len(levels)} looks, {bad} differences; "
        f"images differ by {np.mean(levels):.2f} gray levels ({max(levels):.2f} the worst look)"
    )
    return not bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("sets", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--size", type=int, default=224)
    given = parser.parse_args()
    sets = [(name, Path(folder).absolute()) for name, _, folder in (each.partition("=") for each in given.sets)]
    if unknown := {name for name, _ in sets} - set(LOADERS):
        parser.error(f"{sorted(unknown)[0]}: expected one of {', '.join(LOADERS)}")
    prepare(given.checkout)
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        found = [compare(name, folder, given.size, Path(scratch)) for name, folder in sets]
        os.chdir("/")
    return not all(found)


if __name__ == "__main__":
    sys.exit(main())
