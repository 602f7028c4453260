"""SPDL: its thread pipeline, batches as tasks; images by its own FFmpeg binding, or by OpenCV in the same threads."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.images import Decode, Image, files, random_crop
from benchmarks.harness.job import Job

TASKS = {"full": ("opencv", "io"), "rrc": ("opencv", "io"), "big": ("opencv", "io")}
WITHOUT = {"raw224": "it has no format of its own for raw images"}
DOES = (
    "spdl.pipeline, threads; io: spdl.io.load_image_batch, for crops one filter graph per image (FFmpeg's "
    "fast_bilinear); opencv: cv2.imdecode (RGB) into a batch"
)
PACKAGES = ("spdl-core", "spdl-io", "opencv-python")
SYSTEM = ("libavcodec-dev", "libavformat-dev", "libavfilter-dev", "libavdevice-dev", "libswscale-dev")


def prepare(job: Job) -> None:
    """Nothing: the folder is the format."""


class WithOpenCV:
    """Paths -> a batch, decoded by cv2."""

    def __init__(self, job: Job) -> None:
        self.decode = Decode(job)

    def __call__(self, paths: Sequence[str]) -> Image:
        first = self.decode(Path(paths[0]).read_bytes())
        batch = np.empty((len(paths), *first.shape), np.uint8)
        batch[0] = first
        for place, path in enumerate(paths[1:], 1):
            batch[place] = self.decode(Path(path).read_bytes())
        return batch


class WithFFmpeg:
    """Paths -> a batch, by spdl.io."""

    def __init__(self, job: Job) -> None:
        self.side = job.side if job.crops else None

    def __call__(self, paths: Sequence[str]) -> Image:
        import spdl.io

        if self.side is None:
            return spdl.io.to_numpy(spdl.io.load_image_batch(list(paths), width=None, height=None, pix_fmt="rgb24"))
        frames = [self.frame(path) for path in paths]
        return spdl.io.to_numpy(spdl.io.convert_frames(frames))

    def frame(self, path: str) -> Any:
        import spdl.io

        packets = spdl.io.demux_image(path)
        top, left, height, width = random_crop(packets.height, packets.width)
        flip = "hflip," if random.random() < 0.5 else ""
        crop = f"crop={width}:{height}:{left}:{top}:exact=1"
        scale = f"scale={self.side}:{self.side}:flags=fast_bilinear"
        return spdl.io.decode_packets(packets, filter_desc=f"{crop},{scale},{flip}format=rgb24")


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    from spdl.pipeline import PipelineBuilder

    paths = files(job.images)
    if job.variant == "io":
        load: Any = WithFFmpeg(job)
    else:
        import cv2

        cv2.setNumThreads(0)
        load = WithOpenCV(job)

    def epoch() -> Iterator[Image]:
        order = random.sample(paths, len(paths))
        builder = PipelineBuilder().add_source(order).aggregate(job.batch_size)
        pipeline = builder.pipe(load, concurrency=job.threads).add_sink(2).build(num_threads=job.threads)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator(timeout=120)

    return epoch
