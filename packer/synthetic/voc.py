"""VOC: pictures of things on tables with boxes and masks, in the layout of Pascal VOC 2012.

JPEGImages/2012_000000.jpg
Annotations/2012_000000.xml             boxes; the first pixel is 1, and xmax is the last that belongs to a thing
SegmentationClass/2012_000000.png       palette PNG, 0 for the table, 1 + the number of the class for things
SegmentationObject/2012_000000.png      palette PNG, 1 + the number of the `<object>`
ImageSets/{Main,Segmentation}/{train,val}.txt    every fifth is for validation
labels.txt                              the names of the classes, a line each
"""

from functools import partial
from pathlib import Path

from packer.synthetic._growing_files import SharedFile
from packer.synthetic._labelled_scenes import SIZE, LabelledScene, LabelledThing, SceneStudio, Size, split_of, splits_of
from packer.synthetic._rendering import encode_indexed
from packer.synthetic.base import (
    DrawnSample,
    SetSummary,
    check_counts,
    publishing,
    write_files,
    write_samples,
)

_VALUES = 256
_LISTS = ("Main", "Segmentation")


def write(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` pictures, their annotations and masks.

    size: (height, width) in px; None: several sizes. Raises InvalidRequest, PackExists, StorageError.
    """
    check_counts(samples=samples, seed=seed)
    studio = SceneStudio(seed=seed, classes=classes, size=size)
    shared = [SharedFile(f"ImageSets/{kind}/{split}.txt") for kind in _LISTS for split in splits_of(samples)]
    with publishing(folder) as partial_folder:
        names = {"labels.txt": "".join(f"{name}\n" for name in studio.classes).encode()}
        size_bytes = write_files(partial_folder, names)
        draw = partial(_draw, studio)
        done = write_samples(draw, partial_folder, samples=samples, threads=threads, shared=shared)
        return SetSummary(samples, done.files + len(names), done.size_bytes + size_bytes)


def palette() -> list[tuple[int, int, int]]:
    """Pascal VOC's colours: bit 3k, 3k + 1, 3k + 2 of a value are bit 7 - k of red, green and blue."""
    return [
        (_bits(value), _bits(value >> 1), _bits(value >> 2))
        for value in range(_VALUES)
    ]  # fmt: skip


def _bits(value: int) -> int:
    return sum((value >> (3 * bit) & 1) << (7 - bit) for bit in range(3))


def _draw(studio: SceneStudio, index: int) -> DrawnSample:
    scene, split, stem = studio.scene(index), split_of(index), f"2012_{index:06d}"
    colours = palette()
    files = {
        f"JPEGImages/{stem}.jpg": scene.photo,
        f"Annotations/{stem}.xml": _xml(scene, studio.classes, stem).encode(),
        f"SegmentationClass/{stem}.png": encode_indexed(scene.class_mask, colours),
        f"SegmentationObject/{stem}.png": encode_indexed(scene.object_mask, colours),
    }
    return DrawnSample(files, {f"ImageSets/{kind}/{split}.txt": [[f"{stem}\n".encode()]] for kind in _LISTS})


def _xml(scene: LabelledScene, classes: tuple[str, ...], stem: str) -> str:
    height, width = scene.picture.shape[:2]
    objects = "".join(_object(thing, classes[thing.label], width, height) for thing in scene.things)
    return (
        f"<annotation>\n\t<folder>VOC2012</folder>\n\t<filename>{stem}.jpg</filename>\n\t<size>"
        f"<width>{width}</width><height>{height}</height><depth>3</depth></size>\n\t<segmented>1</segmented>\n"
        f"{objects}</annotation>\n"
    )


def _object(thing: LabelledThing, name: str, width: int, height: int) -> str:
    left, top, right, bottom = thing.box
    is_cut = int(left == 0 or top == 0 or right == width or bottom == height)
    return (
        f"\t<object>\n\t\t<name>{name}</name>\n\t\t<pose>Unspecified</pose>\n\t\t<truncated>{is_cut}</truncated>\n"
        f"\t\t<difficult>0</difficult>\n\t\t<bndbox><xmin>{left + 1}</xmin><ymin>{top + 1}</ymin><xmax>{right}</xmax>"
        f"<ymax>{bottom}</ymax></bndbox>\n\t</object>\n"
    )
