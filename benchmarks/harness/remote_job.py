"""What one process of a loader is asked to do with a data set in an object store."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness.job import Job


@dataclass(frozen=True)
class RemoteJob:
    """images: the photos, in class folders. url: of the peer's own format. cache, cache_limit: a folder of this
    machine, and bytes that it may take, 0: as many as it wants.

    epochs: how many. batches: of the last one, 0: all. resume: a file with a state to begin with. save: a file for the
    state after the last batch. output: a file for what was delivered; digests: with a crc32 of each image, decoded
    whole, else they are cropped. variant: of the peer.
    """

    images: Path
    url: str
    cache: Path
    output: Path
    cache_limit: int = 0
    epochs: int = 1
    batches: int = 0
    resume: Path | None = None
    save: Path | None = None
    digests: bool = False
    variant: str = ""
    part_bytes: int = 4 << 20
    batch_size: int = 64
    workers: int = 2

    @property
    def task(self) -> Job:
        """The decoding, as the comparison on local disks has it."""
        return Job("full" if self.digests else "rrc", self.images, self.cache, "", self.workers, self.batch_size)

    def to_text(self) -> str:
        """As one JSON line; `from_text` reads it."""
        given = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self).items()}
        return json.dumps(given)

    @classmethod
    def from_text(cls, text: str) -> "RemoteJob":
        """Read what `to_text` wrote."""
        given = json.loads(text)
        for name in ("images", "cache", "output", "resume", "save"):
            given[name] = Path(given[name]) if given[name] is not None else None
        return cls(**given)
