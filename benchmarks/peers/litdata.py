"""LitData: optimized chunks in a local folder, StreamingDataset and StreamingDataLoader."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import stacking
from benchmarks.harness.images import Copy, Decode, Image, files, raw
from benchmarks.harness.job import Job

TASKS = {"full": ("",), "rrc": ("",), "raw224": ("",), "big": ("",)}
WITHOUT: dict[str, str] = {}
DOES = "optimize()d chunks, shuffle=True, transform= with cv2.imdecode (RGB), StreamingDataLoader with worker processes"
PACKAGES = ("litdata", "opencv-python", "torch")
SYSTEM = ()


def jpeg(path: str) -> dict[str, Any]:
    """The bytes of a file."""
    return {"image": Path(path).read_bytes()}


def pixels(folder: Path, index: int) -> dict[str, Any]:
    """The bytes of a raw image: LitData's own serializer of arrays is several times slower."""
    return {"image": raw(folder)[index].tobytes()}


def prepare(job: Job) -> None:
    import litdata

    if job.task == "raw224":
        inputs: list[Any] = list(range(len(raw(job.images))))
        function: Any = partial(pixels, job.images)
    else:
        inputs, function = files(job.images), jpeg
    litdata.optimize(
        fn=function,
        inputs=inputs,
        output_dir=str(job.work / "chunks"),
        chunk_bytes="64MB",
        num_workers=job.threads,
        reorder_files=False,
        start_method="fork",
    )


class Finish:
    """A stored sample -> a tensor."""

    def __init__(self, job: Job) -> None:
        self.decode: Callable[[Any], Image] = Copy(job.side) if job.task == "raw224" else Decode(job)

    def __call__(self, sample: dict[str, Any]) -> Any:
        import torch

        return torch.from_numpy(self.decode(sample["image"]))


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    import litdata

    data = litdata.StreamingDataset(str(job.work / "chunks"), shuffle=True, drop_last=False, transform=Finish(job))
    return stacking.epochs(litdata.StreamingDataLoader(data, **stacking.loader_options(job)))
