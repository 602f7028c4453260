"""DataLoaderX: torch's DataLoader, one batch ahead of the loop that takes them."""

from collections.abc import Iterator
from typing import Any, TypeVar

from torch.utils.data import DataLoader

from packer.loading.background import BackgroundIterator, Channel

T_co = TypeVar("T_co", covariant=True)

_AHEAD = 1


class DataLoaderX(DataLoader[T_co]):
    """A DataLoader whose next batch is collated, or unpacked from its worker, while the current one is used.

    Arguments as of torch.utils.data.DataLoader. With num_workers=0 samples are made in that thread; what they draw
    from torch's generator and what the training step draws come in no fixed order then.
    """

    _running: Channel | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        if self._running is not None:  # persistent workers have one iterator
            self._running.wait_for_the_end()
        ahead = BackgroundIterator(super().__iter__(), _AHEAD)
        self._running = ahead.channel
        return ahead
