"""What every source has in common about places: what is no box is refused, and a mask of another size is said."""

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

import packer
from packer import sources
from packer.errors import BadInputs
from packer.images import sniff
from packer.pack import manifest as manifests
from packer.schema import MOST_PIXELS, PIXEL_KINDS
from packer.sources import base
from tests.support.source_trees import BUILDERS, encoded, image, write

WITH_BOXES = ("coco", "table", "vmrd", "voc", "yolo")
WITH_SECOND_IMAGES = (
    *("cornell", "grasp-anything", "graspnet-rect", "ivalab", "jacquard", "ocid-grasp", "pairs", "regrad", "voc"),
    *("npz", "webdataset"),
)


def boxes_of_a_table(root: Path) -> Path:
    """A table with boxes: that of the builders has none."""
    rows = "file_name,xmin,ymin,xmax,ymax\na.png,1,2,30,40\nb.png,,,,\n"
    return write(root, {"metadata.csv": rows, "a.png": image(1), "b.png": image(2)})


def with_value(monkeypatch: pytest.MonkeyPatch, name: str, field: str, changed: Any) -> None:
    """Let the source give another value of a field, of every sample."""
    kind: type[base.Source] = sources.load(name).Source
    real = kind.__getitem__

    def given(source: base.Source, index: int) -> base.Sample:
        sample = real(source, index)
        return sample | {field: changed(sample[field])}

    monkeypatch.setattr(kind, "__getitem__", given)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", WITH_BOXES)
@pytest.mark.parametrize("box", [(np.nan, 2, 3, 4), (1, 2, np.inf, 4)])
def test_what_is_no_box_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, box: tuple[float, ...]
) -> None:
    root = (boxes_of_a_table if name == "table" else BUILDERS[name])(tmp_path / "in")
    with_value(monkeypatch, name, "boxes", lambda boxes: np.float32([box] * max(1, len(boxes))))
    with pytest.raises(BadInputs, match="field 'boxes'.*box 1: .*finite") as raised:
        packer.convert(root, tmp_path / "a.pack", kind=name)
    assert str(root) in str(raised.value)


def smaller(value: Any, *, turned: bool) -> Any:
    """An image of half the sides, turned or not: a file for a file, pixels for pixels."""
    if isinstance(value, bytes) and sniff(value, MOST_PIXELS).palette:
        pixels = np.asarray(Image.open(io.BytesIO(value)))  # the indices, as a gray image
    elif isinstance(value, bytes):
        pixels = cv2.imdecode(np.frombuffer(value, np.uint8), cv2.IMREAD_UNCHANGED)
    else:
        pixels = value
    small = np.ascontiguousarray(np.swapaxes(pixels, 0, 1)[:-3] if turned else pixels[::2, ::2])
    if not isinstance(value, bytes):
        return small
    header = sniff(value, MOST_PIXELS)
    return encoded(".tiff" if header.dtype.startswith("float") else ".png", small)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", WITH_SECOND_IMAGES)
def test_a_image_of_another_size_than_the_first_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    root = BUILDERS[name](tmp_path / "in")
    source: base.Source = sources.load(name).Source(root)
    field = [field.name for field in source.schema if field.kind in PIXEL_KINDS][1]
    for turned in (True, False):
        with monkeypatch.context() as patch:
            with_value(patch, name, field, lambda value, turned=turned: smaller(value, turned=turned))
            pack = tmp_path / f"{turned}.pack"
            summary = packer.convert(root, pack, kind=name)
        incomplete = manifests.read(pack).incomplete
        if turned:
            assert any("another shape, which geometries stretch" in text for text in map(str, incomplete)), incomplete
        else:
            assert any(f"{field}: another size" in note for note in summary.notes), summary.notes
