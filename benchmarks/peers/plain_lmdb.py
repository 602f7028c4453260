"""Plain LMDB, as people write it by hand: key -> JPEG bytes, one transaction per worker, cv2, torch's DataLoader."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness.images import Copy, Decode, Image, files, raw
from benchmarks.harness.job import Job
from benchmarks.harness.stacking import Fetched, shuffled

TASKS = {"full": ("",), "rrc": ("",), "raw224": ("",), "big": ("",)}
WITHOUT: dict[str, str] = {}
DOES = "lmdb, cv2.imdecode (RGB), DataLoader with worker processes"
PACKAGES = ("lmdb", "opencv-python", "torch")
SYSTEM = ()


class Fetch:
    """index -> bytes; the environment is opened once per process, on first use."""

    def __init__(self, path: Path) -> None:
        self.path, self.opened_by, self.transaction = path, -1, None

    def __call__(self, index: int) -> Any:
        if self.opened_by != os.getpid():
            import lmdb

            environment = lmdb.open(str(self.path), readonly=True, lock=False, readahead=False, meminit=False)
            self.transaction, self.opened_by = environment.begin(buffers=True), os.getpid()
        return self.transaction.get(b"%08d" % index)


def prepare(job: Job) -> None:
    import lmdb

    values = raw(job.images) if job.task == "raw224" else [Path(path).read_bytes() for path in files(job.images)]
    with lmdb.open(str(job.work / "lmdb"), map_size=1 << 36) as environment, environment.begin(write=True) as writing:
        for index, value in enumerate(values):
            writing.put(b"%08d" % index, bytes(value), append=True)
    (job.work / "count").write_text(str(len(values)))


def epochs(job: Job) -> Callable[[], Iterator[Image]]:
    count = int((job.work / "count").read_text())
    decode: Callable[[Any], Image] = Copy(job.side) if job.task == "raw224" else Decode(job)
    return shuffled(Fetched(Fetch(job.work / "lmdb"), count, decode), job)
