"""Small folders of grasp sets for grasp items: smooth images, invented labels; packs of them; a slow look."""

import io
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


def _images(seed: int, height: int, width: int) -> tuple[bytes, bytes]:
    color = (smooth(seed, height, width, 3) * 255).astype(np.uint8)
    depth = (1.2 + 0.5 * smooth(seed + 100, height, width, 1)[..., 0]).astype(np.float32)
    return source_trees.encoded(".png", color), source_trees.encoded(".tiff", depth)


def _lines(seed: int, height: int = HEIGHT, width: int = WIDTH) -> str:
    """cpos: parallelograms of both windings around a place of the image, of every third scene near its border."""
    random = np.random.default_rng(seed)
    middle = np.asarray([width - 9, height - 8] if seed % 3 == 2 else [width / 2 + seed, height / 2 - seed])
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
        image, depth = _images(number, HEIGHT, WIDTH)
        stem = f"01/pcd{100 + number:04d}"
        source_trees.write(root, {f"{stem}r.png": image, f"{stem}d.tiff": depth, f"{stem}cpos.txt": _lines(number)})
    table = "".join(f"{100 + number:04d} {OBJECTS[number]} Thing pcdb_0002\n" for number in range(count))
    return source_trees.write(root, {"processedData/z.txt": table})


def jacquard(root: Path, count: int = 6) -> Path:
    """Views of three objects, square."""
    for number in range(count):
        image, depth = _images(50 + number, SIDE, SIDE)
        random = np.random.default_rng(number)
        rows = []
        for _ in range(5):
            x, y, theta = random.uniform(10, SIDE - 10), random.uniform(10, SIDE - 10), random.uniform(-90, 90)
            opening = random.integers(4, 60) * 1.5
            rows += [f"{x:.5f};{y:.5f};{theta:.4f};{opening};{jaw:.5f}\r\n" for jaw in (9.3, 4.65, 18.6)]
        stem = f"{HASHES[number]}/{number % 2}_{HASHES[number]}"
        files = {f"{stem}_RGB.png": image, f"{stem}_perfect_depth.tiff": depth, f"{stem}_grasps.txt": "".join(rows)}
        source_trees.write(root, files)
    return root


FOLDERS = {"cornell": cornell, "jacquard": jacquard}

# four, five and six folders above an image: the second alone is what the fork lists
SEQUENCES = ("ARID20/table/top/seq01", "ARID10/floor/left/box/seq02", "ARID10/table/left/mix/odd/seq03")


# height and width of an image, and the seed of its labels: in the middle; near the border, where a window that is
# kept within other bounds hangs over; near the border of an image that is larger than the fork's bounds
OCID = ((HEIGHT, WIDTH, 1), (HEIGHT, WIDTH, 2), (512, 704, 5))
VMRD = ((HEIGHT, WIDTH, 1), (HEIGHT, WIDTH, 2), (776, 1032, 5))


def ocid(root: Path) -> Path:
    """Images of each sequence."""
    for number, sequence in enumerate(SEQUENCES):
        for at, (height, width, seed) in enumerate(OCID if number == 1 else OCID[:1]):
            image = source_trees.encoded(".png", (smooth(20 + at, height, width, 3) * 255).astype(np.uint8))
            mask = source_trees.encoded(".png", np.zeros((height, width), np.uint8))
            name = f"result_2018-08-2{at}"
            files = {f"{sequence}/rgb/{name}.png": image, f"{sequence}/seg_mask_labeled_combi/{name}.png": mask}
            source_trees.write(root, {**files, f"{sequence}/Annotations/{name}.txt": _lines(seed, height, width)})
    return root


def vmrd(root: Path) -> Path:
    """Images of two objects each."""
    for number, (height, width, seed) in enumerate(VMRD, start=1):
        key = f"{number:05d}"
        color = (smooth(30 + number, height, width, 3) * 255).astype(np.uint8)
        corners = np.asarray(_lines(seed, height, width).split(), np.float64).reshape(-1, 8)
        rows = [" ".join(f"{value:.3f}" for value in row) for row in corners]
        lines = "".join(f"{row} {1 + at % 2} easy\r\n" for at, row in enumerate(rows))
        files = {f"JPEGImages/{key}.jpg": source_trees.encoded(".jpg", color), f"Grasps/{key}.txt": lines}
        source_trees.write(root, {**files, f"Annotations/{key}.xml": "<annotation></annotation>"})
    return root


# image -> object -> grasps; one of no label file, an empty one, and a number of two digits
ANYTHING = {"3f731b45": {0: 3, 1: 2, 10: 4}, "83c43efd": {0: 0, 3: 5}, "95eb5d89": {}}


def anything(root: Path, width: int = SIDE) -> Path:
    """Grasp-Anything: a label file, a tensor of rows score, x, y, opening, jaw, theta, for each object."""
    for number, (key, objects) in enumerate(ANYTHING.items()):
        color = (smooth(40 + number, SIDE, width, 3) * 255).astype(np.uint8)
        source_trees.write(root, {f"image/{key}.jpg": source_trees.encoded(".jpg", color)})
        for at, count in objects.items():
            low, high = [0, 10, 10, 6, 4, -90], [1, SIDE - 10, SIDE - 10, 40, 20, 90]
            rows = np.random.default_rng([number, at]).uniform(low, high, (count, 6)).astype(np.float32)
            file = io.BytesIO()
            torch.save(torch.from_numpy(rows), file)
            source_trees.write(root, {f"grasp_label_positive/{key}_{at}.pt": file.getvalue()})
    return root


def packs(root: Path, **options: Any) -> dict[str, Path]:
    """A pack of each set: name -> folder."""
    found = {}
    for name, write in FOLDERS.items():
        found[name] = root / f"{name}.pack"
        packed(write(root / name), found[name], **options)
    return found


def slow_look(image: Any, center: Any, rot: float, window: Any, zoom: float, size: int) -> Any:
    """float64 (size, size, ...): every output pixel's place in the image, mirrored at its borders, bilinear.

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
        row, column = (_mirrored(each, n) for each, n in ((row, image.shape[0]), (column, image.shape[1])))
        return image[row, column].astype(np.float64)

    if image.ndim == 3:
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
