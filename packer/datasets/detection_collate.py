"""Detection collate: batches of images with boxes in the form in which detectors take them, torchvision's among them.

Images have different numbers of boxes, which no tensor holds. So a batch is a pair: the images, and for each of
them a dict of its own tensors.
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
    """A collate function for torch's DataLoader and packer.Loader: (images, targets) of samples that are dicts.

    images: one tensor (N, 3, H, W) where all have one shape, else a list of tensors (3, H, W), which torchvision's
    detectors take. targets: a dict per image, its `boxes` (M, 4), its `labels` int64 (M,), and the `others`.
    Boxes of crowds, whose `box_crowd` is not 0, are in no target: read that field, too.
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
    ) -> None:
        """image, boxes, labels: names of the fields. others: names of fields that targets have under their own names:
        rows of boxes, or numbers of the image.

        first_label: the number of the pack's class 0; 1 for detectors that call the background 0, as torchvision's do.
        keep_crowd: whether boxes of crowds are in the targets: for metrics, with box_crowd among the others.
        Raises InvalidRequest for others that would take the place of boxes or labels.
        """
        self._image, self._boxes, self._labels = image, boxes, labels
        self._first_label = first_label
        self._keep_crowd = keep_crowd
        self._others = (others,) if isinstance(others, str) else tuple(others)
        taken = sorted({"boxes", "labels"} & set(self._others))
        if taken:
            raise InvalidRequest(
                f"DetectionCollate: others={taken[0]!r}: targets have {taken[0]!r} already; leave it out"
            )

    def __call__(self, samples: Sequence[Any]) -> DetectionBatch:
        """A batch of samples; raises InvalidRequest where a field is missing, or boxes and labels differ in number."""
        return self._images(samples), [self._target(sample) for sample in samples]

    def _images(self, samples: Sequence[Any]) -> Tensor | list[Tensor]:
        if (
            isinstance(samples, Batch)
            and samples.as_tuple is None
            and isinstance(samples.fields.get(self._image), Tensor)
        ):
            whole: Tensor = samples.fields[self._image]  # decoded into one tensor already
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
    """A sample's value as a tensor, numbers too; raises InvalidRequest."""
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
