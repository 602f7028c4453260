"""Shuffle quality: how near the batches of a shuffle by blocks come to those of a full shuffle, told by the labels.

The measure is the variance of the classes' counts in a batch, relative to what a full shuffle has on average (that of
drawing a batch without putting back): 1 is ideal, and a pack that is sorted by class and read in order has nearly the
batch size. It needs the label column and the order alone, and reads no part.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from packer.schema import Schema

Integers = npt.NDArray[np.int64]

POOR_VARIANCE_RATIO = 1.5  # from here on a Loader warns
_MOST_COUNTS = 1 << 22  # that are held at a time


@dataclass(frozen=True)
class ShuffleQuality:
    """variance_ratio: 1 for a full shuffle. classes, parts: in a batch, on average. batches: that were looked at."""

    variance_ratio: float
    classes: float
    parts: float
    batches: int


def label_field(schema: Schema) -> str | None:
    """The name of the field whose classes tell: the first number with names, one for each sample; None for none."""
    fields = (field for field in schema if field.classes and field.is_column and not field.shape and not field.hidden)
    return next((field.name for field in fields), None)


def shuffle_quality(
    labels: npt.NDArray[np.int64], part_numbers: Integers, order: Integers, *, batch_size: int
) -> ShuffleQuality | None:
    """Of the whole batches of an order; None where there is none, or where all samples have one label.

    labels, part_numbers: of each sample. order: of sample indices, all of a pass or its beginning.
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
    squares, seen, parts = 0.0, 0, 0
    for rows in np.array_split(np.arange(whole), -(-whole * len(classes) // _MOST_COUNTS)):
        counts = _counts(numbers[samples[rows]], len(classes))
        squares += float(((counts - batch_size * shares) ** 2).sum())
        seen += int(np.count_nonzero(counts))
        ordered = np.sort(part_numbers[samples[rows]], axis=1)
        parts += int(np.count_nonzero(np.diff(ordered, axis=1))) + len(rows)
    return ShuffleQuality(squares / whole / float(expected), seen / whole, parts / whole, whole)


def _counts(numbers: Integers, classes: int) -> Integers:
    """How often each class is in each row."""
    rows = len(numbers)
    keys = numbers + np.arange(rows)[:, None] * classes
    return np.bincount(keys.ravel(), minlength=rows * classes).reshape(rows, classes)
