"""Size buckets: batches of images of similar size, so that little of a padded batch is padding.

The images are divided into buckets by their sizes once. Let the box of a bucket be its largest height times its largest
width. While an image of a bucket fills too little of the box, the bucket is cut in two. The cut is along the axis on
which the sizes differ more. So any batch from one bucket stays within the limit. In each pass, the samples of each
bucket are shuffled and cut into batches, and the batches of all buckets are shuffled.
"""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from torch.utils.data import Dataset

from packer.datasets.pack_dataset import PackDataset
from packer.errors import InvalidRequest
from packer.geometry import shuffled
from packer.loading.batch_jobs import unwrapped
from packer.loading.sample_order import Indices, Step
from packer.system.argument_types import check_parameters

_OF_BATCHES = 0x62617463686573  # seed of other random numbers than those of the samples


class SizeBuckets:
    """Shuffled batches of images of similar size, for `packer.Loader(dataset, batch_sampler=...)`.

    The batches depend on the seed of the Loader and on the epoch. They are divided among the ranks.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        *,
        most_padding: float = 0.1,
        sizes: Sequence[Sequence[int]] | npt.NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """Group the samples of a dataset.

        Args:
            dataset: The dataset of the Loader.
            batch_size: Largest number of samples of a batch. In a bucket, the lengths of batches differ by at most 1.
            most_padding: Largest share of padding, 0 <= share < 1. In a batch, each image fills at least 1 -
                most_padding of the largest height times the largest width.
            sizes: (height, width) of each sample in px. The default is the size of the first image of each sample, as
                it is stored in the pack.

        Raises:
            WrongType: An argument has another type.
            InvalidRequest: An argument is out of range, or `sizes` is None and the dataset is not a pack's with an
                image.
        """
        given = {"batch_size": batch_size, "most_padding": most_padding}
        check_parameters(SizeBuckets.__init__, given)
        if batch_size < 1 or not 0 <= most_padding < 1:
            raise InvalidRequest(f"{given}: expected a batch_size of at least 1, and most_padding from 0 to below 1")
        found = np.asarray(sizes if sizes is not None else stored_sizes(dataset), np.int64)
        count = len(dataset)  # type: ignore[arg-type]
        if found.shape != (count, 2) or (found < 1).any():
            raise InvalidRequest(
                f"sizes: expected {count} pairs (height, width) in px, at least 1, found shape {found.shape}"
            )
        self._batch_size = int(batch_size)
        self._buckets = _buckets(found, most_padding)
        self._counts = np.bincount(self._buckets)

    def __len__(self) -> int:
        """Return the number of batches of a pass."""
        return int((-(-self._counts // self._batch_size)).sum())

    def identity(self) -> str:
        """Return a text that identifies the buckets and the batch size."""
        return f"buckets {crc32(self._buckets.tobytes()):08x} of {self._batch_size}"

    def of_pass(self, seed: int, number: int) -> list[Step]:
        """Return the batches of pass `number`. Equal arguments give equal batches.

        Args:
            seed: Seed of the Loader.
            number: Number of the pass.
        """
        order = shuffled(seed, number, len(self._buckets))
        by_bucket = order[np.argsort(self._buckets[order], kind="stable")]
        batches = [
            Step(batch, np.full(len(batch), number))
            for bucket in np.split(by_bucket, np.cumsum(self._counts)[:-1])
            for batch in np.array_split(bucket, -(-len(bucket) // self._batch_size))
        ]
        return [batches[at] for at in shuffled(seed ^ _OF_BATCHES, number, len(batches)).tolist()]


def _buckets(sizes: Indices, most_padding: float) -> Indices:
    """Return the number of the bucket of each size, int64 (n,)."""
    unique, inverse = np.unique(sizes, axis=0, return_inverse=True)
    buckets = np.empty(len(unique), np.int64)
    left, number = [np.arange(len(unique))] if len(unique) else [], 0
    while left:
        members = left.pop()
        chosen = unique[members]
        low, high = chosen.min(axis=0), chosen.max(axis=0)
        if chosen.prod(axis=1).min() >= (1 - most_padding) * high.prod():
            buckets[members] = number
            number += 1
            continue
        axis = int(np.argmax(high / low))
        is_small = chosen[:, axis] <= np.sqrt(low[axis] * high[axis])
        left += [members[is_small], members[~is_small]]
    return np.asarray(buckets[inverse.reshape(-1)])


def stored_sizes(dataset: Dataset[Any]) -> Indices:
    """Return (height, width) of the first image of each sample, as stored in the pack, int64 (n, 2).

    Raises InvalidRequest if the dataset is neither a PackDataset with an image nor a Subset of one.
    """
    pack, subset = unwrapped(dataset)
    if not isinstance(pack, PackDataset) or not pack.sample_decoder().images:
        raise InvalidRequest(f"sizes: {type(dataset).__name__} is not a pack's dataset with an image; give sizes=")
    decoder = pack.sample_decoder()
    rows = pack.pack_indices(np.arange(len(pack)) if subset is None else subset)
    return decoder.pack.index.sizes(decoder.images[0])[rows].astype(np.int64)
