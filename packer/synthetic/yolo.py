"""YOLO: pictures of things on tables with polygons, in the layout of ultralytics.

    data.yaml                  path, train, val, names
    images/train/000000.jpg, images/val/...     JPEG; every fifth is for validation
    labels/train/000000.txt    `class x y x y ...`, shares of the picture's sides; empty where there are no things

Polygons follow the edges of pixels; a thing with holes has one that goes there and back on the same way. What encloses
a polygon is the thing's box.
"""

from functools import partial
from pathlib import Path

from packer.synthetic._labelled_scenes import SIZE, LabelledThing, SceneStudio, Size, split_of, splits_of
from packer.synthetic.base import DrawnSample, SetSummary, check_counts, publishing, write_files, write_samples


def write(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` pictures and their labels.

    size: (height, width) in px; None: several sizes. Raises InvalidRequest, PackExists, StorageError.
    """
    check_counts(samples=samples, seed=seed)
    studio = SceneStudio(seed=seed, classes=classes, size=size)
    with publishing(folder) as partial_folder:
        description = {"data.yaml": _description(studio.classes, splits_of(samples)).encode()}
        size_bytes = write_files(partial_folder, description)
        done = write_samples(partial(_draw, studio), partial_folder, samples=samples, threads=threads)
        return SetSummary(samples, done.files + len(description), done.size_bytes + size_bytes)


def _description(classes: tuple[str, ...], splits: tuple[str, ...]) -> str:
    folders = [f"{split}: images/{split}" for split in splits]
    names = [f"  {label}: {name}" for label, name in enumerate(classes)]
    return "\n".join(["path: .", *folders, "", "names:", *names, ""])


def _draw(studio: SceneStudio, index: int) -> DrawnSample:
    scene, name = studio.scene(index), f"{split_of(index)}/{index:06d}"
    height, width = scene.picture.shape[:2]
    rows = "".join(_row(thing, width, height) for thing in scene.things)
    return DrawnSample({f"images/{name}.jpg": scene.photo, f"labels/{name}.txt": rows.encode()})


def _row(thing: LabelledThing, width: int, height: int) -> str:
    shares = (f"{x / width!r} {y / height!r}" for x, y in thing.polygon())
    return f"{thing.label} {' '.join(shares)}\n"
