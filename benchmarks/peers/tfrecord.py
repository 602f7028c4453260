"""TFRecord by vahidk's `tfrecord`: files of tf.train.Example with an index, a shuffle queue, torch's DataLoader."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import stacking
from benchmarks.harness.images import Copy, Decode, Image, files, raw
from benchmarks.harness.job import Job

TASKS = {"full": ("",), "rrc": ("",), "raw224": ("",), "big": ("",)}
WITHOUT: dict[str, str] = {}
DOES = (
    "one indexed file, shuffle queue of 1000, cv2.imdecode (RGB) in transform=, DataLoader; checksums are not compared"
)
PACKAGES = ("tfrecord", "opencv-python", "torch")
SYSTEM = ()


def prepare(job: Job) -> None:
    from tfrecord.tools import tfrecord2idx
    from tfrecord.writer import TFRecordWriter

    values: Any = raw(job.images) if job.task == "raw224" else files(job.images)
    target = str(job.work / "set.tfrecord")
    writer = TFRecordWriter(target)
    for value in values:
        data = Path(value).read_bytes() if isinstance(value, str) else value.tobytes()
        writer.write({"image": (data, "byte")})
    writer.close()
    tfrecord2idx.create_index(target, str(job.work / "set.idx"))


class Finish:
    """A record -> a tensor."""

    def __init__(self, job: Job) -> None:
        self.decode: Callable[[Any], Image] = Copy(job.side) if job.task == "raw224" else Decode(job)

    def __call__(self, record: dict[str, Any]) -> Any:
        import torch

        return torch.from_numpy(self.decode(record["image"]))


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    from tfrecord.torch.dataset import TFRecordDataset
    from torch.utils.data import DataLoader

    data = TFRecordDataset(
        str(job.work / "set.tfrecord"),
        str(job.work / "set.idx"),
        {"image": "byte"},
        shuffle_queue_size=1000,
        transform=Finish(job),
    )
    return stacking.epochs(DataLoader(data, **stacking.loader_options(job)))
