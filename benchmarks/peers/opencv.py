"""OpenCV: a folder of JPEG files, cv2.imdecode straight to RGB, torch's DataLoader. What most training scripts do."""

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.harness.images import Decode, Image, files
from benchmarks.harness.job import Job
from benchmarks.harness.stacking import Fetched, shuffled

TASKS = {"full": ("",), "rrc": ("",), "big": ("",)}
WITHOUT = {"raw224": "a folder of JPEG files has no raw images"}
DOES = "reads files, cv2.imdecode (RGB), DataLoader with worker processes"
PACKAGES = ("opencv-python", "torch")
SYSTEM = ()


def prepare(job: Job) -> None:
    """Nothing: the folder is the format."""


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    paths = files(job.images)
    return shuffled(Fetched(lambda index: Path(paths[index]).read_bytes(), len(paths), Decode(job)), job)
