"""Texture: surfaces of tables and walls as seamless uint8 RGB squares, and sensor noise."""

from collections.abc import Callable

import cv2
import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float32]
Generator = np.random.Generator


def fractal(random: Generator, side: int, *, first: int = 3, octaves: int = 6, fall: float = 0.55) -> Plane:
    """Seamless cloudy noise, float32 (side, side), mean about 0, deviation 1; `first` is the coarsest period."""
    total = np.zeros((side, side), np.float32)
    for octave in range(octaves):
        cells = min(first << octave, side)
        total += fall**octave * _stretched(random, side, cells=(cells, cells))
    return np.asarray((total - total.mean()) / total.std(), np.float32)


def _stretched(random: Generator, side: int, *, cells: tuple[int, int]) -> Plane:
    """One octave of seamless noise with (rows, columns) cells."""
    grid = random.standard_normal(cells, np.float32)
    rim = 2
    grid = np.pad(grid, rim, mode="wrap")
    scale = (side / cells[0], side / cells[1])
    size = (round(grid.shape[1] * scale[1]), round(grid.shape[0] * scale[0]))
    large = cv2.resize(grid, size, interpolation=cv2.INTER_CUBIC)
    top, left = round(rim * scale[0]), round(rim * scale[1])
    return np.asarray(large[top : top + side, left : left + side])


def _coloured(value: Plane, *, dark: tuple[int, int, int], light: tuple[int, int, int]) -> Picture:
    """value 0-1 between two 8-bit colours."""
    ramp = np.linspace(0, 1, 256)[:, None] * (np.array(light) - np.array(dark)) + np.array(dark)
    index = np.clip(value * 255, 0, 255).astype(np.uint8)
    return np.asarray(np.clip(ramp, 0, 255).astype(np.uint8)[index])


def concrete(random: Generator, side: int) -> Picture:
    """Light grey screed with darker clouds, pores and fine scratches."""
    value = 0.67 + 0.03 * fractal(random, side, first=3, fall=0.7)
    clouds = np.clip(fractal(random, side, first=3, octaves=5) - 0.9, 0, 2)
    rough = fractal(random, side, first=24, octaves=4, fall=0.8)
    value -= clouds * (0.05 + 0.05 * np.clip(rough, 0, 2))
    value -= 0.08 * (_stretched(random, side, cells=(side // 5, side // 5)) > 2.9)
    return _coloured(value, dark=(96, 97, 93), light=(236, 236, 235))


def wood(random: Generator, side: int) -> Picture:
    """Planks along the columns, with grain and a few tones."""
    rings = fractal(random, side, first=2, octaves=3) * 0.8 + 9 * _stretched(random, side, cells=(2, 6)) * 0.3
    fine = _stretched(random, side, cells=(side // 24, side // 2)) * 0.35
    value = 0.5 + 0.16 * np.sin(rings * 4) + 0.12 * fine + 0.1 * _stretched(random, side, cells=(4, side // 8))
    planks = 5
    plank = np.arange(side) * planks // side
    value += (random.random(planks).astype(np.float32) * 0.3 - 0.15)[plank]
    seam = np.abs((np.arange(side) * planks / side) % 1 - 0.5) > 0.492
    value = np.where(seam, value * 0.35, value)
    tone = random.random()
    dark, light = ((70, 40, 20), (190, 140, 92)) if tone < 0.5 else ((128, 96, 62), (226, 198, 158))
    return _coloured(value, dark=dark, light=light)


def cloth(random: Generator, side: int) -> Picture:
    """A plain weave in one of several colours."""
    threads = 2 * np.pi * (side // 6) / side * np.arange(side)
    weave = np.sin(threads)[:, None] * np.sin(threads)[None, :]
    value = 0.55 + 0.12 * weave + 0.06 * fractal(random, side, octaves=7, fall=0.8)
    colours = [((30, 44, 78), (92, 116, 164)), ((84, 40, 44), (172, 104, 100)), ((70, 82, 62), (148, 162, 132))]
    dark, light = colours[int(random.integers(len(colours)))]
    return _coloured(value.astype(np.float32), dark=dark, light=light)


def tiles(random: Generator, side: int) -> Picture:
    """Ceramic squares, each with a tone of its own, and grey joints."""
    count = 8
    cell = np.arange(side) * count / side
    tone = random.random((count, count)).astype(np.float32)[cell.astype(int)[:, None], cell.astype(int)[None, :]]
    distance = np.abs(cell % 1 - 0.5)
    joint = np.maximum(distance[:, None], distance[None, :]) > 0.475
    value = 0.7 + 0.16 * tone + 0.03 * fractal(random, side)
    return _coloured(np.where(joint, 0.25, value).astype(np.float32), dark=(92, 90, 84), light=(224, 216, 200))


def carpet(random: Generator, side: int) -> Picture:
    """Short brown pile."""
    pile = fractal(random, side, first=side // 6, octaves=3, fall=1.0)
    value = 0.45 + 0.15 * pile + 0.05 * fractal(random, side, octaves=4)
    return _coloured(value, dark=(34, 25, 22), light=(122, 98, 86))


def board(random: Generator, side: int) -> Picture:
    """White melamine with faint smudges and a few small scratches."""
    value = 0.9 + 0.008 * fractal(random, side, octaves=5)
    sheet = _coloured(value, dark=(120, 112, 108), light=(238, 233, 233))
    for _ in range(14):
        x, y = random.integers(0, side, 2)
        length, angle = random.integers(4, max(6, side // 40)), random.random() * np.pi
        end = (int(x + length * np.cos(angle)), int(y + length * np.sin(angle)))
        cv2.line(sheet, (int(x), int(y)), end, [int(random.integers(150, 205))] * 3, 1, cv2.LINE_AA)
    return sheet


TABLES: dict[str, Callable[[Generator, int], Picture]] = {
    "concrete": concrete,
    "wood": wood,
    "cloth": cloth,
    "tiles": tiles,
    "board": board,
}


class Grain:
    """Sensor noise: one tile of it, cut at a new place for every picture."""

    _SPARE = 61

    def __init__(self, random: Generator, size: tuple[int, int], *, deviation: float, blur: float = 0.0) -> None:
        """size: (height, width) of the largest picture; deviation in grey levels; blur in px, as demosaicing has it."""
        noise = random.standard_normal((size[0] + self._SPARE, size[1] + self._SPARE, 3), np.float32)
        if blur:
            noise = np.asarray(cv2.GaussianBlur(noise, (0, 0), blur), np.float32)
        noise *= deviation / noise.std()
        self._tile = np.clip(np.round(noise) + 128, 0, 255).astype(np.uint8)

    def add(self, picture: Picture, random: Generator) -> Picture:
        """The picture, uint8 (H, W, 3), with noise; a new array."""
        top, left = random.integers(0, self._SPARE, 2)
        cut = self._tile[top : top + picture.shape[0], left : left + picture.shape[1]]
        return np.asarray(cv2.addWeighted(picture, 1.0, cut, 1.0, -128.0), np.uint8)
