"""Table: pictures of one thing each, which a metadata.csv lists, in the layout of Hugging Face's imagefolder.

    train/metadata.csv   file_name,mask_file_name,label,xmin,ymin,xmax,ymax,width,height
    train/000000.jpg     JPEG
    train/masks/000000.png   gray, 8 bit: 0 for the table, 255 for the thing
    val/                 every fifth

Boxes are the edges of the things, in pixels.
"""

from functools import partial
from pathlib import Path

import numpy as np

from packer.synthetic._growing_files import SharedFile
from packer.synthetic._labelled_scenes import SIZE, SceneStudio, Size, split_of, splits_of
from packer.synthetic._rendering import encode
from packer.synthetic.base import DrawnSample, SetSummary, check_counts, publishing, write_samples

_COLUMNS = b"file_name,mask_file_name,label,xmin,ymin,xmax,ymax,width,height\n"


def write(
    folder: Path, *, samples: int, seed: int = 0, threads: int = 1, classes: int = 10, size: Size | None = SIZE
) -> SetSummary:
    """Write `samples` pictures, their masks and the tables.

    size: (height, width) in px; None: several sizes. Raises InvalidRequest, PackExists, StorageError.
    """
    check_counts(samples=samples, seed=seed)
    studio = SceneStudio(seed=seed, classes=classes, size=size, most_things=1)
    shared = [SharedFile(f"{split}/metadata.csv", (_COLUMNS, b"")) for split in splits_of(samples)]
    with publishing(folder) as partial_folder:
        draw = partial(_draw, studio)
        return write_samples(draw, partial_folder, samples=samples, threads=threads, shared=shared)


def _draw(studio: SceneStudio, index: int) -> DrawnSample:
    scene, split, stem = studio.scene(index), split_of(index), f"{index:06d}"
    (thing,) = scene.things
    height, width = scene.picture.shape[:2]
    box = ",".join(map(str, thing.box))
    row = f"{stem}.jpg,masks/{stem}.png,{studio.classes[thing.label]},{box},{width},{height}\n"
    mask = np.where(thing.pixels, 255, 0).astype(np.uint8)
    files = {f"{split}/{stem}.jpg": scene.photo, f"{split}/masks/{stem}.png": encode(".png", mask)}
    return DrawnSample(files, {f"{split}/metadata.csv": [[row.encode()]]})
