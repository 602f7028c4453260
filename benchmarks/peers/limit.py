"""The limit: threads that do nothing but the work itself, from memory into one batch that is used again and again."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.images import Image, cropped, files, raw
from benchmarks.harness.job import Job

TASKS = {"full": ("accurate", "fast dct"), "rrc": ("",), "raw224": ("",), "big": ("",)}
WITHOUT: dict[str, str] = {}
DOES = "encoded images in memory, simplejpeg in threads into a preallocated batch, cv2.resize bilinear; raw: memcpy"
PACKAGES = ("simplejpeg", "opencv-python")
SYSTEM = ()


def prepare(job: Job) -> None:
    """Nothing: everything is read into memory."""


class Decoding:
    """One image of the set into one place of the batch."""

    def __init__(self, job: Job) -> None:
        import simplejpeg

        self.decode_jpeg = simplejpeg.decode_jpeg
        self.values: Any = [Path(path).read_bytes() for path in files(job.images)]
        height, width = simplejpeg.decode_jpeg_header(self.values[0])[:2]
        self.shape = (job.side, job.side, 3) if job.crops else (height, width, 3)
        self.side, self.fast = (job.side if job.crops else None), job.variant == "fast dct"

    def __call__(self, index: int, out: Image) -> None:
        if self.side is None:
            self.decode_jpeg(self.values[index], "RGB", fastdct=self.fast, fastupsample=self.fast, buffer=out)
        else:
            cropped(self.decode_jpeg(self.values[index], "RGB"), self.side, out)


class Copying:
    """One raw image into one place of the batch."""

    def __init__(self, job: Job) -> None:
        self.values: Any = np.array(raw(job.images))
        self.shape = self.values.shape[1:]

    def __call__(self, index: int, out: Image) -> None:
        out[...] = self.values[index]


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    import cv2

    cv2.setNumThreads(0)
    work: Any = Copying(job) if job.task == "raw224" else Decoding(job)
    pool = ThreadPoolExecutor(job.threads)
    batch = np.empty((job.batch_size, *work.shape), np.uint8)

    def fill(places: Iterator[int], indices: Sequence[int]) -> None:
        for place in places:  # one counter for all threads: whoever is free takes the next
            if place >= len(indices):
                return
            work(indices[place], batch[place])

    def epoch() -> Iterator[Image]:
        order = random.sample(range(len(work.values)), len(work.values))
        for start in range(0, len(order), job.batch_size):
            indices = order[start : start + job.batch_size]
            places = itertools.count()
            for running in [pool.submit(fill, places, indices) for _ in range(job.threads)]:
                running.result()
            yield batch[: len(indices)]

    return epoch
