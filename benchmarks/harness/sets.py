"""The images of the comparison: the project's own synthetic photos, or a folder that is given."""

import hashlib
import subprocess
from pathlib import Path

import numpy as np

from benchmarks.base import PACKER
from benchmarks.harness.images import RAW, files
from benchmarks.harness.job import Job
from packer.files.work_folder import ANYTHING, work_folder

SIDE = Job.side


def photos(folder: Path, samples: int, size: str) -> Path:
    """`samples` JPEG files of one size, quality 90, in class folders; made once."""
    place = folder / f"photos-{samples}-{size}"
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        words = ["synth", "folder", str(place), "--samples", str(samples), "--seed", "0", "--size", size]
        subprocess.run([*PACKER, *words], check=True)
    return place


def raw(images: Path, folder: Path) -> Path:
    """The same images resized to 224x224 px, as one array; made once per set."""
    place = folder / f"raw-{digest(images)}"
    if not place.exists():
        import cv2

        folder.mkdir(parents=True, exist_ok=True)
        with work_folder(folder / f".{place.name}.raw", {"set": ANYTHING}) as work:
            work.clear()  # of a run that was stopped
            work.make_folder("set").close()
            names = files(images)
            shape = (len(names), SIDE, SIDE, 3)
            pixels = np.lib.format.open_memmap(work.inside / "set" / RAW, mode="w+", dtype=np.uint8, shape=shape)
            for place_in_set, name in enumerate(names):
                image = cv2.imread(name, cv2.IMREAD_COLOR_RGB)
                pixels[place_in_set] = cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
            pixels.flush()
            work.publish("set", work.above, place.name)
    return place


def count(folder: Path) -> int:
    """How many images a set has."""
    return len(np.load(folder / RAW, mmap_mode="r")) if (folder / RAW).exists() else len(files(folder))


def size_bytes(folder: Path) -> int:
    """Size of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def digest(folder: Path) -> str:
    """Names and sizes of a folder's files: another set gets another one."""
    lines = [f"{Path(name).relative_to(folder)} {Path(name).stat().st_size}" for name in files(folder)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
