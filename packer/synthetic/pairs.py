"""Pairs: pictures of things on tables and masks of their classes, in the layout of CamVid.

    train/000000.jpg       JPEG
    trainannot/000000.png  gray, 8 bit: 0 for the table, 1 + the number of the class for things
    val/, valannot/        every fifth
    classes.txt            the names of the values, a line each, the table first

With `colours` the masks are RGB, and label_colors.txt, with lines `R G B NAME`, takes the place of classes.txt, as
CamVid is published.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from packer.synthetic._labelled_scenes import SIZE, SceneStudio, Size, split_of
from packer.synthetic._rendering import encode
from packer.synthetic.base import DrawnSample, SetSummary, check_counts, publishing, write_files, write_samples

BACKGROUND = "table"


@dataclass(frozen=True)
class _Studio:
    """What draws the scenes, and the colours of the values of a mask; None for masks of numbers."""

    scenes: SceneStudio
    colours: tuple[tuple[int, int, int], ...] | None


def write(
    folder: Path,
    *,
    samples: int,
    seed: int = 0,
    threads: int = 1,
    classes: int = 10,
    size: Size | None = SIZE,
    colours: bool = False,
) -> SetSummary:
    """Write `samples` pictures and their masks.

    size: (height, width) in px; None: several sizes. colours: whether masks are in colours by a table.
    Raises InvalidRequest, PackExists, StorageError.
    """
    check_counts(samples=samples, seed=seed)
    scenes = SceneStudio(seed=seed, classes=classes, size=size)
    names = (BACKGROUND, *scenes.classes)
    with publishing(folder) as partial_folder:
        studio = _Studio(scenes, tuple(map(colour_of, names)) if colours else None)
        extra = {"label_colors.txt": _table(names)} if colours else {"classes.txt": _lines(names)}
        size_bytes = write_files(partial_folder, extra)
        done = write_samples(partial(_draw, studio), partial_folder, samples=samples, threads=threads)
        return SetSummary(samples, done.files + len(extra), done.size_bytes + size_bytes)


def colour_of(name: str) -> tuple[int, int, int]:
    """The colour of a class in masks in colours: multiples of 16, black for the table."""
    if name == BACKGROUND:
        return 0, 0, 0
    red, green, blue = hashlib.sha256(name.encode()).digest()[:3]
    return red & 0xF0, green & 0xF0, blue & 0xF0


def _lines(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def _table(names: Iterable[str]) -> bytes:
    return _lines("{} {} {}\t\t{}".format(*colour_of(name), name) for name in names)


def _draw(studio: _Studio, index: int) -> DrawnSample:
    scene = studio.scenes.scene(index)
    split = split_of(index)
    mask = scene.class_mask
    shown = mask if studio.colours is None else np.array(studio.colours, np.uint8)[mask]
    return DrawnSample({
        f"{split}/{index:06d}.jpg": scene.photo,
        f"{split}annot/{index:06d}.png": encode(".png", shown),
    })  # fmt: skip
