"""Profiling: a pack as the user names it, made ready and profiled."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from packer.errors import Refused
from packer.measure import caching
from packer.measure.profile import Profile, profile
from packer.measure.setting import subjects


def profiled(
    pack: Path, *, samples: int, batch: int, cold: bool, geometry: str | None = None, **subject: Any
) -> tuple[Profile, str]:
    """The profile of at most so many samples, drawn at random but always the same; and what to say of the page cache.

    geometry: as people write it. subject: fields and transform of a Subject. Raises Refused for what is no pack.
    """
    (chosen,) = subjects((pack,), geometry, **subject)
    if not chosen.is_pack:
        raise Refused(f"{pack}: not a pack; packer convert makes one, packer bench measures folders, too")
    told = _dropped(caching.drop(chosen.files())) if cold else ""
    dataset: Any = chosen.open()
    indices = np.random.default_rng(0).permutation(len(dataset))[:samples].tolist()
    device = "cuda" if torch.cuda.is_available() else None
    how: dict[str, Any] = {"batch_size": batch, "device": device}
    if not cold:
        profile(dataset, indices, **how)
    return profile(dataset, indices, **how), told


def _dropped(left: caching.Residency) -> str:
    if left.share is None:
        return "The page cache was asked to drop the pack; this system does not tell whether it did (mincore)."
    if left.share > caching.WARM_SHARE:
        return f"NOT cold: {left.share:.0%} of the pack stayed in memory: a file system in memory, or another reader."
    return f"Cold: {left.share:.1%} of the pack was in memory."
