"""Detection collate: makes batches of images and boxes for detectors, such as those of torchvision.

Images have different numbers of boxes. Therefore a batch is a pair: the images, and one dict of tensors per image.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from packer.datasets.batch import Batch
from packer.errors import InvalidRequest

_CROWD = "box_crowd"
DetectionBatch = tuple[Tensor | list[Tensor], list[dict[str, Tensor]]]


class DetectionCollate:
    """A collate function for torch's DataLoader and packer.Loader. It returns (images, targets) for samples in dicts.

    `images` is a tensor (N, 3, H, W), or a list of tensors (3, H, W) if the images have different shapes. `targets` is
    a list with a dict for each image: `boxes` (M, 4), `labels` int64 (M,), and the fields in `others`. If samples
    contain the field `box_crowd`, boxes of crowds are removed, unless `keep_crowd` is set.
    """

    def __init__(
        self,
        *,
        image: str = "image",
        boxes: str = "boxes",
        labels: str = "box_labels",
        first_label: int = 0,
        others: Sequence[str] = (),
        keep_crowd: bool = False,
        scale: bool = False,
    ) -> None:
        """Create the function.

        Args:
            image: Name of the field of images.
            boxes: Name of the field of boxes.
            labels: Name of the field of the labels of boxes.
            first_label: Label of the pack's class 0. Use 1 for detectors with 0 as background, as in torchvision.
            others: Names of further fields for the targets. Each has a row per box, or one number per image.
            keep_crowd: True keeps boxes of crowds, for metrics that also need "box_crowd" in `others`. False removes
                them.
            scale: True returns images in float32 from 0 to 1, as torchvision's detectors need them. False keeps uint8.

        Raises:
            InvalidRequest: `others` contains "boxes" or "labels".
        """
        self._image, self._boxes, self._labels = image, boxes, labels
        self._first_label = first_label
        self._keep_crowd = keep_crowd
        self._scale = scale
        self._others = (others,) if isinstance(others, str) else tuple(others)
        taken = sorted({"boxes", "labels"} & set(self._others))
        if taken:
            raise InvalidRequest(
                f"DetectionCollate: others={taken[0]!r}: targets have {taken[0]!r} already; leave it out"
            )

    def __call__(self, samples: Sequence[Any]) -> DetectionBatch:
        """Return a batch. Raises InvalidRequest if a field is absent, or does not have one row per box."""
        images = self._images(samples)
        if self._scale:
            images = images / 255 if isinstance(images, Tensor) else [image / 255 for image in images]
        return images, [self._target(sample) for sample in samples]

    def _images(self, samples: Sequence[Any]) -> Tensor | list[Tensor]:
        if (
            isinstance(samples, Batch)
            and samples.as_tuple is None
            and isinstance(samples.fields.get(self._image), Tensor)
        ):
            whole: Tensor = samples.fields[self._image]  # one tensor already
            return whole
        images = [_tensor(sample, self._image) for sample in samples]
        return torch.stack(images) if len({image.shape for image in images}) == 1 else images

    def _target(self, sample: Any) -> dict[str, Tensor]:
        fields = {"boxes": self._boxes, "labels": self._labels, **{name: name for name in self._others}}
        target = {name: _tensor(sample, field) for name, field in fields.items()}
        crowd = None if self._keep_crowd or _CROWD not in sample else _tensor(sample, _CROWD)
        rows = {fields[name]: value for name, value in target.items() if value.ndim}
        rows |= {} if crowd is None else {_CROWD: crowd}
        for name, value in rows.items():
            if len(value) != len(target["boxes"]):
                raise InvalidRequest(
                    f"DetectionCollate: a sample has {len(target['boxes'])} {self._boxes!r} and {len(value)} {name!r}: "
                    "expected a row per box, or a number; a transform that drops boxes has to drop their rows, too"
                )
        if crowd is not None:
            target = {name: value[crowd == 0] if value.ndim else value for name, value in target.items()}
        return target | {"labels": target["labels"].to(torch.int64) + self._first_label}


def _tensor(sample: Any, name: str) -> Tensor:
    """Return the field `name` of a sample as a tensor. Raises InvalidRequest if it is absent or has another type."""
    if not isinstance(sample, Mapping):
        raise InvalidRequest(
            f"DetectionCollate: expected samples that are dicts, found {type(sample).__name__}; drop as_tuple"
        )
    if name not in sample:
        raise InvalidRequest(
            f"DetectionCollate: samples have no field {name!r} (found {', '.join(map(str, sample))}); choose it with "
            "fields= of packer.open, or give its name"
        )
    value = sample[name]
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value)
    if not isinstance(value, Tensor):
        raise InvalidRequest(
            f"DetectionCollate: field {name!r}: expected a tensor or a number, found {type(value).__name__}; open the "
            'pack with output="torch", and leave texts out of others'
        )
    return value
