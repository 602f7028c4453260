"""Small Cornell and Jacquard folders for grasp items: smooth pictures, invented labels; packs of them; a slow look."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from tests.support import source_trees
from tests.support.conversions import packed

HEIGHT, WIDTH, SIDE = 96, 128, 96
OBJECTS = (3, 3, 7, 7, 7, 9)
HASHES = ("aa01", "aa01", "bb02", "bb02", "cc03", "cc03")


def smooth(seed: int, height: int, width: int, channels: int) -> Any:
    """Low waves, 0 ... 1, (height, width, channels)."""
    random = np.random.default_rng(seed)
    coarse = random.random((height // 8, width // 8, channels)).astype(np.float32)
    return np.clip(cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).reshape(height, width, -1), 0, 1)


def _pictures(seed: int, height: int, width: int) -> tuple[bytes, bytes]:
    colour = (smooth(seed, height, width, 3) * 255).astype(np.uint8)
    depth = (1.2 + 0.5 * smooth(seed + 100, height, width, 1)[..., 0]).astype(np.float32)
    return source_trees.encoded(".png", colour), source_trees.encoded(".tiff", depth)


def _lines(seed: int) -> str:
    """cpos: parallelograms of both windings around a place of the picture, of every third scene near its border."""
    random = np.random.default_rng(seed)
    middle = np.asarray([WIDTH - 9, HEIGHT - 8] if seed % 3 == 2 else [WIDTH / 2 + seed, HEIGHT / 2 - seed])
    lines = []
    for number in range(4):
        angle, opening, jaw = random.uniform(0, np.pi), random.uniform(6, 30), random.uniform(4, 16)
        along = np.asarray([np.cos(angle), np.sin(angle)]) * opening / 2
        across = np.asarray([-np.sin(angle), np.cos(angle)]) * jaw / 2 * (-1) ** number
        center = middle + random.uniform(-6, 6, 2)
        points = (center - along - across, center + along - across, center + along + across, center - along + across)
        lines += [f"{x:.3f} {y:.3f} " for x, y in points]
    return "\n".join(lines) + "\n"


def cornell(root: Path, count: int = 6) -> Path:
    """Scenes 0100, 0101, ... of three objects, with z.txt."""
    for number in range(count):
        picture, depth = _pictures(number, HEIGHT, WIDTH)
        stem = f"01/pcd{100 + number:04d}"
        source_trees.write(root, {f"{stem}r.png": picture, f"{stem}d.tiff": depth, f"{stem}cpos.txt": _lines(number)})
    table = "".join(f"{100 + number:04d} {OBJECTS[number]} Thing pcdb_0002\n" for number in range(count))
    return source_trees.write(root, {"processedData/z.txt": table})


def jacquard(root: Path, count: int = 6) -> Path:
    """Views of three objects, square."""
    for number in range(count):
        picture, depth = _pictures(50 + number, SIDE, SIDE)
        random = np.random.default_rng(number)
        rows = []
        for _ in range(5):
            x, y, theta = random.uniform(10, SIDE - 10), random.uniform(10, SIDE - 10), random.uniform(-90, 90)
            opening = random.integers(4, 60) * 1.5
            rows += [f"{x:.5f};{y:.5f};{theta:.4f};{opening};{jaw:.5f}\r\n" for jaw in (9.3, 4.65, 18.6)]
        stem = f"{HASHES[number]}/{number % 2}_{HASHES[number]}"
        files = {f"{stem}_RGB.png": picture, f"{stem}_perfect_depth.tiff": depth, f"{stem}_grasps.txt": "".join(rows)}
        source_trees.write(root, files)
    return root


FOLDERS = {"cornell": cornell, "jacquard": jacquard}


def packs(root: Path, **options: Any) -> dict[str, Path]:
    """A pack of each set: name -> folder."""
    found = {}
    for name, write in FOLDERS.items():
        found[name] = root / f"{name}.pack"
        packed(write(root / name), found[name], **options)
    return found


def slow_look(picture: Any, center: Any, rot: float, window: Any, zoom: float, size: int) -> Any:
    """float64 (size, size, ...): every output pixel's place in the picture, mirrored at its borders, bilinear.

    center: (row, column) that is turned about. window: top, left, height, width of what is then cut out.
    """
    top, left, height, width = window
    rows, columns = int(height * (1 - zoom)) // 2, int(width * (1 - zoom)) // 2
    r = top + rows + (np.arange(size) + 0.5) * (height - 2 * rows) / size - 0.5
    c = left + columns + (np.arange(size) + 0.5) * (width - 2 * columns) / size - 0.5
    dr, dc = np.meshgrid(r - center[0], c - center[1], indexing="ij")
    turn = [(1, 0), (0, 1), (-1, 0), (0, -1)][round(rot / (np.pi / 2))] if rot else (1, 0)
    cos, sin = turn
    source_r, source_c = center[0] + cos * dr + sin * dc, center[1] - sin * dr + cos * dc
    r0, c0 = np.floor(source_r).astype(int), np.floor(source_c).astype(int)
    fr, fc = source_r - r0, source_c - c0

    def at(row: Any, column: Any) -> Any:
        row, column = (_mirrored(each, n) for each, n in ((row, picture.shape[0]), (column, picture.shape[1])))
        return picture[row, column].astype(np.float64)

    if picture.ndim == 3:
        fr, fc = fr[..., None], fc[..., None]
    upper = at(r0, c0) * (1 - fc) + at(r0, c0 + 1) * fc
    lower = at(r0 + 1, c0) * (1 - fc) + at(r0 + 1, c0 + 1) * fc
    return upper * (1 - fr) + lower * fr


def _mirrored(index: Any, count: int) -> Any:
    index = index % (2 * count)
    return np.where(index < count, index, 2 * count - 1 - index)


def flat(item: Any) -> list[Any]:
    """x, the four maps, index, rot, zoom."""
    x, maps, *numbers = item
    return [*(x if isinstance(x, (tuple, list)) else [x]), *maps, *numbers]


def equal(one: Any, other: Any) -> bool:
    return torch.equal(torch.as_tensor(one), torch.as_tensor(other))
