"""Shuffle quality: shows whether a shuffle by blocks mixes the classes as well as a full shuffle.

The measure is the variance of the class counts in a batch, divided by the expected variance in a full shuffle. The
ideal is 1. For a pack that is sorted by class and read in order, the measure is near the batch size. It is computed
from the labels in the index and the order, and reads no part.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.schema import Schema

Integers = npt.NDArray[np.int64]

POOR_VARIANCE_RATIO = 1.5  # a Loader warns above it
_MOST_COUNTS = 1 << 22  # counts in memory at a time


@dataclass(frozen=True)
class ShuffleQuality:
    """Quality of a shuffle.

    Args:
        variance_ratio: Variance of the class counts, divided by that of a full shuffle. More than 1 is worse.
        classes: Mean number of classes in a batch.
    """

    variance_ratio: float
    classes: float


def label_field(schema: Schema) -> str | None:
    """Return the name of the first field with one class number per sample and a class list, or None."""
    fields = (field for field in schema if field.classes and field.is_column and not field.shape and not field.hidden)
    return next((field.name for field in fields), None)


def shuffle_quality(labels: Integers, order: Integers, *, batch_size: int) -> ShuffleQuality | None:
    """Return the quality of the full batches of an order. None without full batches, or if all labels are equal.

    Args:
        labels: Label of each sample.
        order: Sample indices of a pass, or of its beginning.
        batch_size: Number of samples of a batch.
    """
    classes, numbers = np.unique(labels, return_inverse=True)
    whole = len(order) // batch_size
    if not whole or len(classes) < 2:
        return None
    shares = np.bincount(numbers) / len(labels)
    expected = (batch_size * shares * (1 - shares)).sum() * (len(labels) - batch_size) / (len(labels) - 1)
    if not expected:  # one batch of all
        return None
    samples = order[: whole * batch_size].reshape(whole, batch_size)
    squares, seen = 0.0, 0
    for rows in np.array_split(np.arange(whole), -(-whole * len(classes) // _MOST_COUNTS)):
        counts = _counts(numbers[samples[rows]], len(classes))
        squares += float(((counts - batch_size * shares) ** 2).sum())
        seen += int(np.count_nonzero(counts))
    return ShuffleQuality(squares / whole / float(expected), seen / whole)


def _counts(numbers: Integers, classes: int) -> Integers:
    """Return the number of samples of each class in each row, int64 (rows, classes)."""
    rows = len(numbers)
    keys = numbers + np.arange(rows)[:, None] * classes
    return np.bincount(keys.ravel(), minlength=rows * classes).reshape(rows, classes)
