"""Finish: what is done to a batch where it arrives: pictures normalised, floats narrowed, layout changed.

A picture is a tensor of four dimensions, (N, C, H, W). Formula: that of torchvision's ToTensor and Normalize,
(value / 255 - mean) / std in float32, one rounding for each operation, so that all devices give the same bits.
"""

from collections.abc import Collection, Sequence
from typing import Any

import torch

from packer.errors import Refused
from packer.loading.nesting import mapped, tensors

MeanStd = tuple[Sequence[float], Sequence[float]]

_PICTURE_NDIM = 4


class Finish:
    """Changes batches; their own containers and tensors stay as they are."""

    def __init__(
        self,
        *,
        normalize: MeanStd | None = None,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        skip: Collection[str] = (),
    ) -> None:
        """normalize: (mean, std), a number per channel each, in units of 0 to 1; of uint8 pictures with those channels.

        dtype: of every floating-point tensor, normalised pictures among them; None leaves them.
        channels_last: the memory format of all pictures; False leaves it. skip: keys that are left alone.
        Raises Refused.
        """
        if dtype is not None and not dtype.is_floating_point:
            raise Refused(f"dtype={dtype}: expected a floating-point one; integers keep theirs")
        self._normalize = _checked(normalize) if normalize is not None else None
        self._dtype = dtype
        self._channels_last = channels_last
        self._skip = skip
        self._constants: dict[torch.device, tuple[torch.Tensor, ...]] = {}

    def __bool__(self) -> bool:
        """Whether anything is done at all."""
        return self._normalize is not None or self._dtype is not None or self._channels_last

    def __call__(self, batch: Any) -> Any:
        """The batch as wanted, in new containers; raises Refused where there is no picture to normalise."""
        if self._normalize is not None and not any(map(self._is_raw, tensors(batch, self._skip))):
            raise Refused(self._complaint(batch))
        return mapped(batch, self._tensor, self._skip)

    def _is_raw(self, tensor: torch.Tensor) -> bool:
        if self._normalize is None or tensor.dtype != torch.uint8 or tensor.ndim != _PICTURE_NDIM:
            return False
        return tensor.shape[1] == len(self._normalize[0])

    def _complaint(self, batch: Any) -> str:
        channels = len(self._normalize[0]) if self._normalize is not None else 0
        found = [f"{str(each.dtype)[6:]} {tuple(each.shape)}" for each in tensors(batch, self._skip)]
        return (
            f"normalize: expected a uint8 picture (N, {channels}, H, W), found {', '.join(found) or 'no tensor'}; "
            "a picture of floats has been normalised before: do it in one place only"
        )

    def _tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        if self._channels_last and tensor.ndim == _PICTURE_NDIM:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if self._is_raw(tensor):
            levels, mean, std = self._on(tensor.device)
            tensor = tensor.to(torch.float32).div_(levels).sub_(mean).div_(std)
        if self._dtype is not None and tensor.is_floating_point():
            tensor = tensor.to(self._dtype)
        return tensor

    def _on(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """255, mean and std there: as tensors, for a GPU multiplies by the inverse of a Python number."""
        found = self._constants.get(device)
        if found is None:
            given: Any = self._normalize
            mean, std = (torch.tensor(each, dtype=torch.float32, device=device).view(-1, 1, 1) for each in given)
            found = self._constants[device] = (torch.full_like(mean, 255), mean, std)
        return found


def _checked(normalize: Any) -> MeanStd:
    try:
        mean, std = (tuple(float(each) for each in values) for values in normalize)
    except (TypeError, ValueError) as error:
        raise Refused(f"normalize={normalize!r}: expected (mean, std), a number per channel each") from error
    if not mean or len(mean) != len(std):
        raise Refused(f"normalize: expected as many means as stds, found {len(mean)} and {len(std)}")
    if not all(0 <= each <= 1 for each in mean) or not all(0 < each <= 1 for each in std):
        raise Refused(
            f"normalize: mean {mean} and std {std} must be in units of 0 to 1; divide those of 0 to 255 by 255"
        )
    return mean, std
