"""Training items the way the grasp networks' own loaders make them: scikit-image on whole frames, labels parsed anew.

Written from the description of what those loaders do, step by step and in their dtypes; needs scikit-image and imageio.
"""

import random
from pathlib import Path
from typing import Any

import cv2
import imageio.v2 as imageio
import numpy as np
import torch
from skimage.draw import polygon
from skimage.transform import resize, rotate

QUARTERS = (0, np.pi / 2, 2 * np.pi / 2, 3 * np.pi / 2)


class Rectangle:
    """Four corners (row, column)."""

    def __init__(self, points: Any) -> None:
        self.points = points

    def turn(self, angle: float, center: Any) -> None:
        matrix = np.array([[np.cos(-angle), np.sin(-angle)], [-np.sin(-angle), np.cos(-angle)]])
        about = np.array(center).reshape((1, 2))
        self.points = ((np.dot(matrix, (self.points - about).T)).T + about).astype(int)

    def zoom(self, factor: float, center: Any) -> None:
        matrix = np.array([[1 / factor, 0], [0, 1 / factor]])
        about = np.array(center).reshape((1, 2))
        self.points = ((np.dot(matrix, (self.points - about).T)).T + about).astype(int)

    @property
    def angle(self) -> float:
        across, down = self.points[1, 1] - self.points[0, 1], self.points[1, 0] - self.points[0, 0]
        return (np.arctan2(-down, across) + np.pi / 2) % np.pi - np.pi / 2

    def side(self, one: int, other: int) -> float:
        across = self.points[other, 1] - self.points[one, 1]
        down = self.points[other, 0] - self.points[one, 0]
        return np.sqrt(across**2 + down**2)

    def pixels(self, shape: tuple[int, int]) -> Any:
        center = self.points.mean(axis=0).astype(int)
        points = corners(center, self.angle, self.side(0, 1) / 3, self.side(2, 1))
        return polygon(points[:, 0], points[:, 1], shape)


def corners(center: Any, angle: float, opening: float, jaw: float) -> Any:
    """Corners (4, 2), row and column."""
    xo, yo = np.cos(angle), np.sin(angle)
    y1, x1 = center[0] + opening / 2 * yo, center[1] - opening / 2 * xo
    y2, x2 = center[0] - opening / 2 * yo, center[1] + opening / 2 * xo
    return np.array(
        [
            [y1 - jaw / 2 * xo, x1 - jaw / 2 * yo],
            [y2 - jaw / 2 * xo, x2 - jaw / 2 * yo],
            [y2 + jaw / 2 * xo, x2 + jaw / 2 * yo],
            [y1 + jaw / 2 * xo, x1 + jaw / 2 * yo],
        ]
    ).astype(float)


def draw(rectangles: list[Rectangle], size: int) -> tuple[Any, Any, Any]:
    """Quality, angle and width in px."""
    quality, angle, width = np.zeros((size, size)), np.zeros((size, size)), np.zeros((size, size))
    for rectangle in rectangles:
        rows, columns = rectangle.pixels((size, size))
        quality[rows, columns] = 1.0
        angle[rows, columns] = rectangle.angle
        width[rows, columns] = rectangle.side(0, 1)
    return quality, angle, width


def turned(image: Any, rot: float, center: Any = None) -> Any:
    """Whole frame; always run, for no turn too."""
    about = (center[1], center[0]) if center is not None else None
    made = rotate(image, rot / np.pi * 180, center=about, mode="symmetric", preserve_range=True)
    return made.astype(image.dtype)


def zoomed(image: Any, zoom: float) -> Any:
    """The middle at the size of the whole."""
    rows, columns = int(image.shape[0] * (1 - zoom)) // 2, int(image.shape[1] * (1 - zoom)) // 2
    cut = image[rows : image.shape[0] - rows, columns : image.shape[1] - columns].copy()
    return resize(cut, image.shape, mode="symmetric", preserve_range=True).astype(image.dtype)


def resized(image: Any, size: int) -> Any:
    """Compared with (S, S) as the reference compares it: an RGB image is always resized."""
    if image.shape == (size, size):
        return image
    return resize(image, (size, size), preserve_range=True).astype(image.dtype)


class Reference(torch.utils.data.Dataset):
    """Items of a folder of the original set."""

    def __init__(self, folder: Path, size: int = 300, *, rotate: bool = True, zoom: bool = True) -> None:
        self.size = size
        self.rotate, self.zoom = rotate, zoom
        self.grasps = sorted(folder.rglob("*cpos.txt")) or sorted(folder.rglob("*_grasps.txt"))

    def __len__(self) -> int:
        return len(self.grasps)

    def rgb_file(self, index: int) -> Path:
        name = self.grasps[index].name
        return self.grasps[index].with_name(name.replace("cpos.txt", "r.png").replace("grasps.txt", "RGB.png"))

    def depth_file(self, index: int) -> Path:
        name = self.grasps[index].name
        return self.grasps[index].with_name(
            name.replace("cpos.txt", "d.tiff").replace("grasps.txt", "perfect_depth.tiff")
        )

    @property
    def is_cornell(self) -> bool:
        return self.grasps[0].name.endswith("cpos.txt")

    def rectangles(self, index: int) -> list[Rectangle]:
        with self.grasps[index].open() as file:
            if not self.is_cornell:
                return self._jacquard(file)
            found = []
            lines = [line.split() for line in file]
            for at in range(0, len(lines), 4):
                try:
                    found.append(
                        Rectangle(np.array([[round(float(y)), round(float(x))] for x, y in lines[at : at + 4]]))
                    )
                except ValueError:  # NaN
                    continue
            return found

    def _jacquard(self, file: Any) -> list[Rectangle]:
        factor = self.size / 1024.0
        found = []
        for line in file:
            x, y, theta, opening, jaw = [float(word) for word in line.strip().split(";")]
            points = corners(np.array([y, x]), -theta / 180.0 * np.pi, opening, jaw)
            found.append(Rectangle(points * factor if factor != 1.0 else points))
        return found

    def window(self, index: int) -> tuple[Any, int, int]:
        center = np.mean(np.vstack([each.points for each in self.rectangles(index)]), axis=0).astype(int)
        left = max(0, min(center[1] - self.size // 2, 640 - self.size))
        top = max(0, min(center[0] - self.size // 2, 480 - self.size))
        return center, left, top

    def get_gtbb(self, index: int, rot: float = 0, zoom: float = 1.0) -> list[Rectangle]:
        found = self.rectangles(index)
        middle = (self.size // 2, self.size // 2)
        center, left, top = self.window(index) if self.is_cornell else (middle, 0, 0)
        for each in found:
            each.turn(rot, center)
            if self.is_cornell:
                each.points = each.points + np.array((-top, -left)).reshape((1, 2))
            each.zoom(zoom, middle)
        return found

    def _framed(self, index: int, image: Any, rot: float) -> Any:
        if not self.is_cornell:
            return turned(image, rot)
        center, left, top = self.window(index)
        image = turned(image, rot, center)
        return image[top : min(480, top + self.size), left : min(640, left + self.size)]

    def get_depth(self, index: int, rot: float = 0, zoom: float = 1.0) -> Any:
        # OpenCV reads the LZW files, which imageio does only with imagecodecs; it is also the faster of the two
        depth = cv2.imread(str(self.depth_file(index)), cv2.IMREAD_UNCHANGED)
        image = self._framed(index, depth, rot)
        image = np.clip(image - image.mean(), -1, 1)
        return resized(zoomed(image, zoom), self.size)

    def get_rgb(self, index: int, rot: float = 0, zoom: float = 1.0, normalise: bool = True) -> Any:
        image = self._framed(index, imageio.imread(self.rgb_file(index)), rot)
        image = resized(zoomed(image, zoom), self.size)
        if normalise:
            image = image.astype(np.float32) / 255.0
            image -= image.mean()
            image = image.transpose((2, 0, 1))
        return image

    def item(self, index: int, rot: float, zoom: float) -> Any:
        depth, rgb = self.get_depth(index, rot, zoom), self.get_rgb(index, rot, zoom)
        quality, angle, width = draw(self.get_gtbb(index, rot, zoom), self.size)
        width = np.clip(width, 0.0, 150.0) / 150.0
        x = torch.from_numpy(np.concatenate((np.expand_dims(depth, 0), rgb), 0).astype(np.float32))
        maps = (quality, np.cos(2 * angle), np.sin(2 * angle), width)
        y = tuple(torch.from_numpy(np.expand_dims(each, 0).astype(np.float32)) for each in maps)
        return x, y, index, rot, zoom

    def __getitem__(self, index: int) -> Any:
        rot = random.choice(QUARTERS) if self.rotate else 0.0
        zoom = np.random.uniform(0.5, 1.0) if self.zoom else 1.0
        return self.item(index, rot, zoom)
