"""NVIDIA DALI with every operator on the CPU: one pipeline, `threads` worker threads in it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.harness.images import RATIO, SCALE, Image, raw
from benchmarks.harness.job import Job

TASKS = {"full": ("fast idct", "accurate"), "rrc": ("fast idct", "accurate"), "raw224": ("",), "big": ("fast idct",)}
WITHOUT: dict[str, str] = {}
DOES = (
    "readers.file with random_shuffle, decoders.image or decoders.image_random_crop, resize, flip; raw: readers.numpy; "
    "outputs are read in place, two batches ahead"
)
PACKAGES = ("nvidia-dali-cuda120",)
SYSTEM = ()
AHEAD = 2


def prepare(job: Job) -> None:
    """JPEG files stay as they are; raw images become one .npy file each."""
    if job.task == "raw224":
        for index, image in enumerate(raw(job.images)):
            np.save(job.work / f"{index:08d}.npy", image)


def images(job: Job) -> Any:
    """The graph: one node that yields (height, width, 3)."""
    from nvidia.dali import fn, types

    # the last batch is filled up with copies, so that every epoch holds every image: up to a batch of extra work
    options = {"name": "reader", "random_shuffle": True, "initial_fill": 1024, "pad_last_batch": True}
    if job.task == "raw224":
        return fn.readers.numpy(file_root=str(job.work), file_filter="*.npy", **options)
    encoded, _ = fn.readers.file(file_root=str(job.images), **options)
    decoding = {"device": "cpu", "output_type": types.RGB, "use_fast_idct": job.variant == "fast idct"}
    if not job.crops:
        return fn.decoders.image(encoded, **decoding)
    part = fn.decoders.image_random_crop(
        encoded, random_area=list(SCALE), random_aspect_ratio=list(RATIO), num_attempts=10, **decoding
    )
    small = fn.resize(part, size=[job.side, job.side], interp_type=types.INTERP_LINEAR, antialias=False)
    return fn.flip(small, horizontal=fn.random.coin_flip())


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    from nvidia.dali import pipeline_def

    make = pipeline_def(lambda: images(job))
    pipe = make(batch_size=job.batch_size, num_threads=job.threads, device_id=None, prefetch_queue_depth=AHEAD, seed=1)
    pipe.build()
    count = pipe.epoch_size("reader")

    fresh = True

    def epoch() -> Iterator[Image]:
        """Runs are scheduled by hand, so that none goes on beyond the end of an epoch while others have their turn."""
        nonlocal fresh
        batches = -(-count // job.batch_size)
        for _ in range(1 if fresh else AHEAD):  # the very first call starts AHEAD runs by itself
            pipe.schedule_run()
        fresh = False
        for number in range(batches):
            (output,) = pipe.share_outputs()
            yield np.asarray(output.as_tensor())[: count - number * job.batch_size]
            pipe.release_outputs()
            if number + AHEAD < batches:
                pipe.schedule_run()

    return epoch
