"""Weights: batches that repeat or skip samples in proportion to a weight of each sample.

The share of a sample is the number of samples of an epoch times its weight, divided by the sum of all weights. In each
epoch, a sample appears as often as its share, rounded down or up. The mean over many epochs is the share.

This is systematic sampling (Madow, Ann. Math. Stat. 1949). The samples are placed next to each other on an axis in
random order, each as long as its share. Marks at distance 1 from a random start select the samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from packer.errors import InvalidRequest
from packer.geometry import draw, shuffled
from packer.loading.sample_order import Step

Weights = npt.NDArray[np.float64]
# seeds of other random numbers than those of the order and of the geometry
_OF_AXIS, _OF_MARKS = 0x61786973, 0x6D61726B73
_REPETITION = 32  # bits of the number of a pass below the number of the repetition


@dataclass(frozen=True, eq=False)
class WeightedBatches:
    """Batches that repeat or skip samples in proportion to their weights.

    Args:
        weights: Weight of each sample.
        batch_size: Number of samples of a batch.
        count: Number of batches of a pass.
    """

    weights: Weights
    batch_size: int
    count: int

    def __len__(self) -> int:
        return self.count

    def of_pass(self, seed: int, number: int) -> list[Step]:
        """Return the batches of pass `number`. Each repetition of a sample gets another random geometry."""
        count = self.count * self.batch_size
        axis = shuffled(seed ^ _OF_AXIS, number, len(self.weights))
        ends = np.cumsum(self.weights[axis])
        start = draw(seed ^ _OF_MARKS, number, np.zeros(1, np.int64), 1)[0, 0]
        marks = np.minimum(np.floor(ends / ends[-1] * count + start), count).astype(np.int64)
        times = np.diff(marks, prepend=0)
        repetitions = np.arange(count) - np.repeat(marks - times, times)
        order = shuffled(seed, number, count)
        indices, passes = np.repeat(axis, times)[order], number + (repetitions[order] << _REPETITION)
        return list(map(Step, np.split(indices, self.count), np.split(passes, self.count)))

    def identity(self) -> str:
        """Return a text that identifies the weights, the batch size and the number of batches."""
        return f"{self.count} batches of {self.batch_size}, weights {crc32(self.weights.tobytes()):08x}"


def weighted_batches(weights: Any, samples: int, batch_size: int) -> WeightedBatches:
    """Return passes of `samples` // `batch_size` batches, but at least one.

    Raises InvalidRequest unless `weights` has a finite number of at least 0 for each sample, and one above 0.
    """
    try:
        found = np.asarray(weights, np.float64).copy()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InvalidRequest(f"weights={weights!r:.60}: expected one number for each sample: {error}") from error
    if found.shape != (samples,):
        raise InvalidRequest(f"weights: expected {samples} numbers, one for each sample, found shape {found.shape}")
    if not np.isfinite(found).all() or (found < 0).any() or not found.any():
        raise InvalidRequest("weights: expected finite numbers of at least 0, and one of more than 0")
    return WeightedBatches(found, batch_size, max(1, samples // batch_size))


def balanced(labels: Sequence[Any] | npt.NDArray[Any]) -> Weights:
    """Return weights that give each class the same share, for `Loader(weights=...)`.

    Args:
        labels: The class of each sample, such as `dataset.targets`: numbers or texts.

    Returns:
        float64 (N,): for each sample 1 / the number of samples of its class.

    Raises:
        InvalidRequest: `labels` is not a sequence of one value for each sample.
    """
    values = np.asarray(labels)
    if values.ndim != 1:
        raise InvalidRequest(f"labels: expected one class for each sample, found an array of shape {values.shape}")
    _, classes, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(1 / counts[classes], np.float64)
