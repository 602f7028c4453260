"""Choice: which samples a sheet shows."""

from collections.abc import Sequence

import numpy as np

from packer.errors import Refused
from packer.pack.opening import Pack


def choose(pack: Pack, *, count: int, keys: Sequence[str] = (), seed: int | None = None) -> list[int]:
    """Indices of the samples: those with the keys, in that order, else `count` of them spread over the whole pack.

    The pack is cut into `count` stretches: of each the first sample, or with a seed one drawn from it. Raises
    UnknownKey, and Refused for a pack without samples.
    """
    if keys:
        return [pack.index.index_of(key) for key in keys]
    if not len(pack):
        raise Refused(f"{pack.folder}: the pack has no sample to show; packer info says what was left out")
    count = min(count, len(pack))
    starts = [number * len(pack) // count for number in range(count + 1)]
    if seed is None:
        return starts[:-1]
    random = np.random.default_rng(seed)
    return [int(random.integers(low, high)) for low, high in zip(starts, starts[1:], strict=False)]
