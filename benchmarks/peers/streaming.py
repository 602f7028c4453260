"""MosaicML Streaming: MDS shards in a local folder, shuffled, torch's DataLoader around it."""

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks.harness import stacking
from benchmarks.harness.images import Decode, Image, files, raw
from benchmarks.harness.job import Job

TASKS = {"full": ("",), "rrc": ("",), "raw224": ("",), "big": ("",)}
WITHOUT: dict[str, str] = {}
DOES = "MDS shards, shuffle=True, cv2.imdecode (RGB) instead of its slower PIL encoding, DataLoader"
PACKAGES = ("mosaicml-streaming", "opencv-python", "torch")
SYSTEM = ()


def library() -> Any:
    """The module `streaming`. It imports torchvision for data sets that are not used here, and the torchvision of the
    package index is built for CUDA: beside a CPU build of torch it does not load, so two empty names stand in for it.
    """
    try:
        importlib.import_module("torchvision")
    except (ImportError, RuntimeError):
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        names = {
            "torchvision": {},
            "torchvision.datasets": {"VisionDataset": object, "CIFAR10": object},
            "torchvision.transforms": {},
            "torchvision.transforms.functional": {"to_tensor": None},
        }
        for name, members in names.items():
            module = sys.modules[name] = ModuleType(name)
            module.__dict__.update(members, __spec__=ModuleSpec(name, None))
    return importlib.import_module("streaming")


def prepare(job: Job) -> None:
    streaming = library()
    is_raw = job.task == "raw224"
    values: Any = raw(job.images) if is_raw else files(job.images)
    columns = {"image": f"ndarray:uint8:{job.side},{job.side},3" if is_raw else "bytes"}
    with streaming.MDSWriter(out=str(job.work / "mds"), columns=columns) as writer:
        for value in values:
            writer.write({"image": value if is_raw else Path(value).read_bytes()})


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    import torch
    from torch.utils.data import DataLoader

    streaming, decode, is_raw = library(), Decode(job), job.task == "raw224"

    class Stored(streaming.StreamingDataset):  # type: ignore[misc,name-defined]
        def __getitem__(self, at: int) -> Any:
            value = super().__getitem__(at)["image"]
            return torch.from_numpy(value.copy() if is_raw else decode(value))

    streaming.base.util.clean_stale_shared_memory()
    data = Stored(local=str(job.work / "mds"), shuffle=True, batch_size=job.batch_size)
    return stacking.epochs(DataLoader(data, **stacking.loader_options(job)))
