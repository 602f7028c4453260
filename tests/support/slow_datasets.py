"""Data sets that sleep, and steps: importable in other processes."""

import os
import time
from typing import Any

import torch
from torch.utils.data import Dataset


class Sleeping(Dataset[Any]):
    """Samples that take so many seconds of nobody's CPU."""

    def __init__(self, samples: int, seconds: float) -> None:
        self.samples, self.seconds = samples, seconds

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return {"key": f"sample-{index}", "value": torch.tensor(index)}


class Dying(Sleeping):
    """Ends its process at the third sample."""

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            os.kill(os.getpid(), 9)
        return super().__getitem__(index)


class Failing(Sleeping):
    """Raises at the third sample."""

    def __getitem__(self, index: int) -> Any:
        if index == 2:
            raise ValueError("two is\ntoo much")
        return super().__getitem__(index)


def step(batch: Any) -> None:
    """A step that takes two milliseconds."""
    time.sleep(0.002)
