"""What a contestant is asked to do."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

TASKS = ("full", "rrc", "raw224", "big")
SETS = {"full": "photos", "rrc": "photos", "raw224": "raw", "big": "big"}  # the images that a task reads
PASSES = {"raw224": 5}  # passes over the set in one epoch, so that an epoch takes seconds


@dataclass(frozen=True)
class Job:
    """One task of one peer. `images` holds JPEG files in class folders, for raw224 `pixels.npy`: (n, 224, 224, 3)."""

    task: str
    images: Path
    work: Path
    variant: str = ""
    threads: int = 2
    batch_size: int = 64
    side: int = 224

    @property
    def crops(self) -> bool:
        """Whether the images are cropped, resized and flipped."""
        return self.task in ("rrc", "big")

    def at(self, work: Path) -> "Job":
        """The same job with another work folder."""
        return replace(self, work=work)

    def to_text(self) -> str:
        """As one JSON line; `from_text` reads it."""
        return json.dumps(
            {name: value if isinstance(value, (int, str)) else str(value) for name, value in asdict(self).items()}
        )

    @classmethod
    def from_text(cls, text: str) -> "Job":
        """Read what `to_text` wrote."""
        given = json.loads(text)
        return cls(**given | {"images": Path(given["images"]), "work": Path(given["work"])})
