"""Random numbers that depend only on (seed, epoch, sample index), and not on the order of calls or the thread.

The generator is SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). The initial state of a sample is a hash of the three
numbers. Each random number is one step of the generator. A call computes a complete batch and stores no state.
"""

import numpy as np
import numpy.typing as npt

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def draw(
    seed: int, epoch: int | npt.NDArray[np.int64], indices: npt.NDArray[np.int64], count: int
) -> npt.NDArray[np.float64]:
    """Return float64 (len(indices), count) in [0, 1). Row i depends on seed, epoch (or epoch[i]) and indices[i]."""
    steps = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(_GAMMA))[None, :]
    bits = _mixed(_states(seed, epoch, indices)[:, None] + steps)
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def shuffled(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """Return a random permutation of 0 to count - 1, int64 (count,), which depends only on `seed` and `epoch`."""
    bits = np.uint64(max(count - 1, 1).bit_length())
    numbers = np.arange(count, dtype=np.int64)
    # the low bits of each random key are the number: all keys differ, so every sorting algorithm gives this order
    keys = (_states(seed, epoch, numbers) >> bits << bits) | numbers.astype(np.uint64)
    keys.sort()
    return np.asarray((keys & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64))


def _states(seed: int, epoch: int | npt.NDArray[np.int64], indices: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    gamma = np.uint64(_GAMMA)
    epochs = (np.atleast_1d(epoch).astype(np.uint64) + np.uint64(1)) * gamma
    state = _mixed(_mixed(np.asarray([seed & _MASK], np.uint64)) ^ epochs)
    return _mixed(state + indices.astype(np.uint64) * gamma)


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the finalizer of SplitMix64, a hash function for 64-bit integers, to each value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(values ^ (values >> np.uint64(31)))
