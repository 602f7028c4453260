"""One rank of one peer: `python -m benchmarks.harness.remote_contestant PEER VERB JOB`, JOB as one line of JSON.

VERB: `prepare` writes the peer's own format to the store; `run` reads it, as the variables RANK and WORLD_SIZE say that
torchrun sets too. What was delivered up to then is written also where the peer fails.
"""

import importlib
import json
import os
import sys
import time
import zlib
from datetime import timedelta
from typing import Any

import numpy as np

from benchmarks.harness.contestant import versions
from benchmarks.harness.images import Image
from benchmarks.harness.remote_job import RemoteJob

_PATIENCE = timedelta(seconds=60)


def digests(images: Image) -> list[int]:
    """A crc32 of the pixels of each image, rows of RGB, in whichever memory order they come."""
    last = images if images.shape[3] == 3 else images.transpose(0, 2, 3, 1)
    return [zlib.crc32(np.ascontiguousarray(image)) for image in last]


def run(peer: Any, job: RemoteJob, found: dict[str, Any]) -> None:
    """All epochs of the job; what is delivered is noted in `found`."""
    started = time.perf_counter()
    stream = peer.opened(job)
    if job.resume is not None:
        stream.restore(json.loads(job.resume.read_text()))
    for number in range(job.epochs):
        ids: list[list[int]] = []
        epoch: dict[str, Any] = {"batches": ids, "digests": []}
        found["epochs"].append(epoch)
        began = time.perf_counter() if number else started
        is_last = number == job.epochs - 1
        for images, numbers in stream.epoch():
            if not ids:
                epoch["first_batch_seconds"] = time.perf_counter() - began
            ids.append(numbers.tolist())
            if job.digests:
                epoch["digests"].append(digests(images))
            if is_last and len(ids) == job.batches:
                break
        epoch["seconds"] = time.perf_counter() - began
    if job.save is not None:
        job.save.write_text(json.dumps(stream.state()))
    found["is_whole"] = True


def main(arguments: list[str]) -> None:
    name, verb, text = arguments
    peer, job = importlib.import_module(f"benchmarks.remote_peers.{name}"), RemoteJob.from_text(text)
    if verb == "prepare":
        peer.prepare(job)
        return
    import torch

    torch.set_num_threads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        torch.distributed.init_process_group("gloo", timeout=_PATIENCE)
    peer.library()  # importing it is no part of the time to the first batch
    found: dict[str, Any] = {"epochs": [], "is_whole": False, "versions": versions(peer.PACKAGES)}
    try:
        run(peer, job, found)
    finally:
        job.output.write_text(json.dumps(found))
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # nobody takes what the others still read away


if __name__ == "__main__":
    main(sys.argv[1:])
