"""Mix: batches from several datasets in fixed shares.

The samples of all datasets form one endless sequence, sorted by their places. Sample j (from 0) of a dataset with the
share w has the place (j + 1/2) / w. This is the method of Webster, which divides seats among parties. Let the first n
samples of the sequence contain m samples of a dataset. For M datasets, m differs from n w by at most 1/2 + w (M - 2) /
2. With two datasets, this is half a sample. If batch_size times the share is a whole number for every dataset, each
batch contains exactly these numbers.

If all datasets are packs with equal fields and options, they become one collection, whose batches are decoded as those
of one pack. Otherwise they are joined into a ConcatDataset.

Each epoch takes the next samples of the sequence. Each dataset goes through its own passes, which continue in the next
epoch. So all samples of a dataset are used equally often.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Literal, Never

import numpy as np
import numpy.typing as npt
from torch.utils.data import ConcatDataset, Dataset

from packer.datasets.pack_dataset import PackDataset, joined
from packer.errors import InvalidRequest, WrongType
from packer.geometry import shuffled
from packer.loading.batch_jobs import unwrapped
from packer.loading.batch_sampler_order import BatchPasses
from packer.loading.sample_order import Indices, Step
from packer.loading.weights import WeightedBatches
from packer.system.argument_types import check_parameters

_OF_DATASET = 0x64617461736574  # seed of other random numbers than those of the geometry
_DIGITS = 6  # the length of an epoch in samples is rounded to it, because 70 / 0.7 is more than 100


class Mix:
    """Datasets and their shares of each batch, for `packer.Loader`.

    A Loader makes the same batches for any number of ranks, threads and workers. It divides the batches among the
    ranks.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset[Any]],
        weights: Sequence[float],
        *,
        epoch: Literal["shortest", "longest"] = "shortest",
        exact: bool = True,
    ) -> None:
        """Mix datasets.

        Args:
            datasets: Datasets of packs with the same fields, Subsets of them, or other datasets. Class lists of labels
                are merged by name, as packer.concat does.
            weights: A number above 0 for each dataset, such as (0.7, 0.3). The share of a dataset is its number divided
                by their sum.
            epoch: "shortest" ends an epoch when the first dataset is used up, "longest" when all datasets are used up.
                For N batches, give `steps_per_epoch=N` to the Loader.
            exact: True: each batch contains the share of each dataset, except for rounding. False: samples are drawn at
                random, and a batch contains these shares on average.

        Raises:
            WrongType: An argument has another type.
            InvalidRequest: A weight is not above 0, a dataset is empty, or datasets and weights differ in number.
        """
        check_parameters(Mix.__init__, {"weights": weights, "epoch": epoch, "exact": exact})
        self.datasets = tuple(datasets)
        self.weights = np.asarray(tuple(weights), np.float64)
        self.epoch = epoch
        self.exact = bool(exact)
        if not self.datasets or len(self.datasets) != len(self.weights):
            raise InvalidRequest(
                f"weights: expected one for each dataset, found {len(self.weights)} for {len(self.datasets)} datasets"
            )
        if not (np.isfinite(self.weights).all() and (self.weights > 0).all()):
            raise InvalidRequest(
                f"weights={tuple(weights)!r:.60}: expected numbers of more than 0; drop a dataset of 0"
            )
        try:
            concatenated: ConcatDataset[Any] = ConcatDataset(self.datasets)
            sizes = np.diff(concatenated.cumulative_sizes, prepend=0)
        except (TypeError, AssertionError) as error:
            raise WrongType(f"datasets: expected datasets with len() and [index]: {error}") from error
        if not sizes.all():
            raise InvalidRequest(f"datasets: number {int(np.argmin(sizes))} is empty; drop it and its weight")
        self._sizes: Indices = sizes.astype(np.int64)
        self.dataset: Dataset[Any] = _collection(self.datasets) or concatenated

    def __len__(self) -> Never:
        raise WrongType("a Mix is not a data set: it is the order of batches too; use packer.Loader(mix, batch_size)")

    def __repr__(self) -> str:
        parts = zip(self.weights.tolist(), self.datasets, strict=True)
        return f"Mix({', '.join(f'{weight:g} of {dataset!r}' for weight, dataset in parts)})"

    def batches(self, batch_size: int, *, shuffle: bool) -> BatchPasses:
        """Return the batches of all epochs. Each epoch has at least one batch.

        Args:
            batch_size: Number of samples of a batch.
            shuffle: True shuffles each dataset in each of its passes. False keeps its order.
        """
        shares = self.weights / self.weights.sum()
        lengths = np.round(self._sizes / shares, _DIGITS)  # of an epoch in samples that uses up one dataset
        is_shortest = self.epoch == "shortest"
        count = max(1, floor(lengths.min() / batch_size)) if is_shortest else ceil(lengths.max() / batch_size)
        if not self.exact:
            return WeightedBatches(np.repeat(shares / self._sizes, self._sizes), batch_size, count)
        return _MixedBatches(self._sizes, shares, batch_size, count, bool(shuffle))


def _collection(datasets: Sequence[Dataset[Any]]) -> PackDataset | None:
    """Return one dataset that joins `datasets`, or None unless they are packs with equal fields and options."""
    packs = []
    try:
        for dataset in datasets:
            pack, rows = unwrapped(dataset)
            if not isinstance(pack, PackDataset) or not pack.decodes_batches():
                return None
            packs.append(pack if rows is None else pack.select(rows))
        alike = all(packs[0].makes_samples_like(pack) for pack in packs)
        return joined(packs, [""] * len(packs)) if alike else None
    except InvalidRequest:  # other fields or codecs, a sample twice in a Subset, or items of a GraspDataset
        return None


@dataclass(frozen=True, eq=False)
class _MixedBatches:
    sizes: Indices  # number of samples of each dataset
    shares: npt.NDArray[np.float64]  # of each dataset, with the sum 1
    batch_size: int
    count: int  # batches of an epoch
    shuffle: bool

    def __len__(self) -> int:
        return self.count

    def identity(self) -> str:
        parts = zip(self.shares.tolist(), self.sizes.tolist(), strict=True)
        return f"{self.count} batches of {self.batch_size}, shuffle={self.shuffle}, shares {list(parts)}"

    def of_pass(self, seed: int, number: int) -> list[Step]:
        count = self.count * self.batch_size
        done, members = self._piece(number * count, count)
        indices, passes = np.empty((2, count), np.int64)
        for member, size in enumerate(self.sizes.tolist()):
            places = np.flatnonzero(members == member)
            before, after = int(done[member]), int(done[member]) + len(places)
            own, taken = np.divmod(np.arange(before, after), size)
            for each in range(before // size, -(-after // size)) if self.shuffle else ():
                here = slice(max(each * size - before, 0), (each + 1) * size - before)
                taken[here] = shuffled(seed ^ (_OF_DATASET + member), each, size)[taken[here]]
            indices[places], passes[places] = taken + self.sizes[:member].sum(), own
        return list(map(Step, np.split(indices, self.count), np.split(passes, self.count)))

    def _piece(self, begin: int, count: int) -> tuple[Indices, Indices]:
        """Return the number of samples of each dataset before sample `begin`, and the datasets of the next `count`."""
        margin = len(self.sizes)  # the place of the n-th sample of the sequence differs from n by half of it at most
        first = np.maximum(np.floor((begin - margin) * self.shares - 0.5), 0).astype(np.int64)
        last = np.ceil((begin + count + margin) * self.shares + 0.5).astype(np.int64)
        places = [(np.arange(*bounds) + 0.5) / share for *bounds, share in zip(first, last, self.shares, strict=True)]
        members = np.repeat(np.arange(margin), last - first)[np.argsort(np.concatenate(places), kind="stable")]
        skipped = begin - int(first.sum())
        return first + np.bincount(members[:skipped], minlength=margin), members[skipped : skipped + count]
