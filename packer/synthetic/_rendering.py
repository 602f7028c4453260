"""Rendering: things with a height, seen by a tilted camera over textured tables, and the files of the pictures.

The heights of a thing's pieces make one relief. Cut into slices as high as a pixel, each moved up the picture by its
height, it is seen from the side; picture, mask and depth come from that one assignment of pixels to places of the
relief, so they agree to the pixel. Light comes from the slope of the relief, shadow from its slices.

Lengths are in metres: the table is the plane z = 0, x to the right of the picture, y away from the camera. Colours of
things are linear RGB from 0 to 1; pictures are uint8 RGB with a gamma of 2.
"""

import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from packer.errors import PackerError
from packer.synthetic._scene_objects import PATTERNS, Floats, Generator, Picture, Piece, Plane, Thing, outline

# --- camera and light


@dataclass(frozen=True)
class Camera:
    """A pinhole that looks at the point (side, 0) of the table.

    height, back: where it is above the table and behind that point. focal: in px. size: (height, width) in px.
    """

    height: float
    back: float
    focal: float
    size: tuple[int, int]
    side: float = 0.0

    @property
    def tilt(self) -> tuple[float, float]:
        """Cosine and sine of the angle between its axis and the table."""
        length = math.hypot(self.back, self.height)
        return self.back / length, self.height / length

    def table_depth(self, row: Plane | None = None) -> Plane:
        """Depth of the table along the optical axis: float32, of these rows, or of all, then (H, 1)."""
        row = np.arange(self.size[0], dtype=np.float32)[:, None] if row is None else row
        cos, sin = self.tilt
        return np.asarray(self.height / (sin + (row - (self.size[0] - 1) / 2) / self.focal * cos), np.float32)

    def ground(self, column: Plane, row: Plane) -> tuple[Plane, Plane]:
        """The points x, y of the table behind pixels."""
        depth, (cos, sin) = self.table_depth(row), self.tilt
        right, down = (column - (self.size[1] - 1) / 2) / self.focal, (row - (self.size[0] - 1) / 2) / self.focal
        x, y = self.side + depth * right, depth * (cos - down * sin) - self.back
        return np.asarray(x, np.float32), np.asarray(y, np.float32)

    def project(self, points: Floats) -> Floats:
        """Points (N, 3) in the world as pixels (N, 2), x and y."""
        cos, sin = self.tilt
        x, y, z = (points - [self.side, -self.back, self.height]).T
        pixels = np.stack([x, -sin * y - cos * z], 1) / (cos * y - sin * z)[:, None]
        return np.asarray(pixels * self.focal + [(self.size[1] - 1) / 2, (self.size[0] - 1) / 2])

    def ray_lengths(self) -> Plane:
        """Distance from the pinhole per depth, float32 (H, W)."""
        y, x = ((np.arange(n) - (n - 1) / 2) / self.focal for n in self.size)
        return np.asarray(np.sqrt(1 + y[:, None] ** 2 + x * x), np.float32)


@dataclass(frozen=True)
class Lamp:
    """A far lamp of strength 1 and a sky; softness: width of a shadow's edge in m per m of height. Angles in rad."""

    azimuth: float
    elevation: float
    sky: float = 0.55
    softness: float = 0.25

    @property
    def towards(self) -> tuple[float, float, float]:
        """Unit vector to the lamp."""
        flat = math.cos(self.elevation)
        return flat * math.cos(self.azimuth), flat * math.sin(self.azimuth), math.sin(self.elevation)


# --- the picture


@dataclass(frozen=True)
class RenderedThing:
    """Picture, uint8 (H, W, 3) RGB; mask, uint8 (H, W), 255 on the thing; depth along the axis, float32 (H, W)."""

    picture: Picture
    mask: Picture
    depth: Plane


def draw(thing: Thing, camera: Camera, lamp: Lamp, *, table: Picture, depth: Plane | None = None) -> RenderedThing:
    """Draw a thing over a picture of the empty table and its depth, by default that of the plane; both stay."""
    picture, mask = table.copy(), np.zeros(camera.size, np.uint8)
    distance = np.array(np.broadcast_to(camera.table_depth() if depth is None else depth, camera.size))
    relief = _Relief(thing, camera)
    relief.darken(picture, lamp)
    seen = relief.seen()
    mask[seen.y, seen.x] = 255
    foot = camera.table_depth((seen.row + relief.top).astype(np.float32))
    distance[seen.y, seen.x] = foot - np.float32(camera.tilt[1]) * seen.z
    front = np.zeros_like(picture)
    front[seen.y, seen.x] = relief.shade(seen, lamp)
    if len(seen.x):  # edges are softened over about a pixel
        window = np.s_[max(0, seen.y.min() - 2) : seen.y.max() + 3, max(0, seen.x.min() - 2) : seen.x.max() + 3]
        behind = cv2.cvtColor(255 - cv2.GaussianBlur(mask[window], (3, 3), 0.6), cv2.COLOR_GRAY2BGR)
        rest = cv2.multiply(picture[window], behind, scale=1 / 255)
        picture[window] = cv2.add(rest, cv2.GaussianBlur(front[window], (3, 3), 0.6))
    return RenderedThing(picture, mask, distance)


@dataclass(frozen=True)
class _Seen:
    """The N pixels that show the thing: x and y in the picture, row and column of the place in the relief, height z."""

    x: npt.NDArray[np.intp]
    y: npt.NDArray[np.intp]
    row: npt.NDArray[np.intp]
    column: npt.NDArray[np.intp]
    z: Plane


_SLICES = 7  # of a shadow


class _Relief:
    """A thing's heights above the places of the table behind a window of pixels, at (left, top) of the picture."""

    def __init__(self, thing: Thing, camera: Camera) -> None:
        self.thing, self.camera = thing, camera
        boxes = [_box(camera, outline([piece])) for piece in thing]
        self.left, self.top = min(box[0] for box in boxes), min(box[1] for box in boxes)
        self.shape = max(box[3] for box in boxes) - self.top, max(box[2] for box in boxes) - self.left
        middle: list[float] = np.mean([piece.at for piece in thing], axis=0).tolist()
        across = camera.project(np.array([[*middle, 0], [middle[0] + 0.01, middle[1], 0], [*middle, 0.01]]))
        # px per m along the table and upwards
        self.scale, self.rise = (max(1.0, float(np.abs(across[i] - across[0]).max()) * 100) for i in (1, 2))
        self.owner = np.full(self.shape, -1, np.int8)
        self.fields = np.zeros((5, *self.shape), np.float32)  # height, its slope right and down, u, v
        self.height = self.fields[0]
        self.foot = np.full(self.shape, np.inf, np.float32)
        for number, (piece, box) in enumerate(zip(thing, boxes, strict=True)):
            self._add(number, piece, box)

    def _add(self, number: int, piece: Piece, box: tuple[int, int, int, int]) -> None:
        left, top, right, bottom = box
        column, row = np.arange(left, right, dtype=np.float32), np.arange(top, bottom, dtype=np.float32)[:, None]
        inside, height, foot, u, v = piece.relief(*self.camera.ground(column, row))
        window = np.s_[top - self.top : bottom - self.top, left - self.left : right - self.left]
        shown = inside & (height > self.height[window])
        slopes = (cv2.Sobel(height, cv2.CV_32F, dx, 1 - dx, scale=self.scale / 8) for dx in (1, 0))
        new = np.stack([height, *slopes, u, v])
        np.copyto(self.fields[:, window[0], window[1]], new, where=shown)
        np.copyto(self.owner[window], np.int8(number), where=shown)
        np.minimum(self.foot[window], np.where(inside, foot, np.inf), out=self.foot[window])

    def seen(self) -> _Seen:
        """What the camera sees: a place covers the pixels above it from its foot to its height; the nearest is seen."""
        high = np.where(self.owner >= 0, np.rint(self.height * self.rise), -1).astype(np.int16)
        low = np.rint(np.minimum(self.foot, 1) * self.rise).astype(np.int16)
        steps = max(0, int(high.max()))
        lift = np.zeros((self.shape[0] + steps, self.shape[1]), np.int16)  # 1 + the slice that is seen
        for step in range(steps + 1):
            view = lift[steps - step : steps - step + self.shape[0]]
            np.maximum(view, ((low <= step) & (high >= step)) * np.int16(step + 1), out=view)
        y, x = np.nonzero(lift)
        inside = (y + self.top >= steps) & (y + self.top - steps < self.camera.size[0])
        inside &= (x + self.left >= 0) & (x + self.left < self.camera.size[1])
        y, x = y[inside], x[inside]
        level = lift[y, x] - 1
        row = y - steps + level
        z = np.where(level >= high[row, x], self.height[row, x], (level + 0.5) / np.float32(self.rise))
        return _Seen(x + self.left, y + self.top - steps, row, x, np.asarray(z, np.float32))

    def darken(self, picture: Picture, lamp: Lamp) -> None:
        """Multiply the thing's shadow into a picture of the table: its slices, shifted away from the lamp, blurred."""
        scale = min(1.0, 48 / max(self.shape))
        cell = self.scale * scale  # px of the small map per m
        tallest = float(self.height.max())
        slope = np.array(lamp.towards[:2]) / lamp.towards[2] * (-1, self.camera.tilt[1]) * cell
        pad = int(np.abs(slope).max() * tallest + 0.03 * cell) + 2
        size = round(self.shape[1] * scale) + 2 * pad, round(self.shape[0] * scale) + 2 * pad
        inner = size[0] - 2 * pad, size[1] - 2 * pad
        height, foot = (cv2.resize(plane, inner, interpolation=cv2.INTER_NEAREST) for plane in (self.height, self.foot))
        sun = np.zeros(size[::-1], np.float32)
        for z in np.linspace(0, tallest, _SLICES, endpoint=False).tolist():
            small = ((height > z) & (foot <= z + tallest / _SLICES)).astype(np.float32)
            shift = np.array([[1, 0, pad + slope[0] * z], [0, 1, pad + slope[1] * z]])
            moved = cv2.warpAffine(small, shift, size)
            np.maximum(sun, cv2.GaussianBlur(moved, (0, 0), 0.5 + lamp.softness * z * cell), out=sun)
            if z == 0:
                near = cv2.GaussianBlur(moved, (0, 0), 0.5 + 0.012 * cell)
        beam = lamp.towards[2]
        light = np.sqrt((beam * (1 - sun) + lamp.sky * (1 - 0.75 * near)) / (beam + lamp.sky))
        large = cv2.resize(light, (round(size[0] / scale), round(size[1] / scale)), interpolation=cv2.INTER_LINEAR)
        top, left = self.top - round(pad / scale), self.left - round(pad / scale)
        large = large[max(0, -top) :, max(0, -left) :]
        view = picture[max(0, top) :, max(0, left) :][: large.shape[0], : large.shape[1]]
        if view.size:
            shade = cv2.cvtColor((large[: view.shape[0], : view.shape[1]] * 255).astype(np.uint8), cv2.COLOR_GRAY2BGR)
            cv2.multiply(view, shade, dst=view, scale=1 / 255)

    def shade(self, seen: _Seen, lamp: Lamp) -> Picture:
        """Colours, uint8 (N, 3): Lambert's law, Blinn's highlight, and a sky that hollows and feet see less of."""
        place = seen.row * self.shape[1] + seen.column
        height, right, down, u, v = self.fields.reshape(5, -1).take(place, axis=1)
        owner = self.owner.ravel()[place]
        wall = seen.z < height - np.float32(1.5 / self.rise)
        material = owner.astype(np.intp)
        for number, piece in enumerate(self.thing):
            if piece.pattern != "plain":
                chosen = np.flatnonzero(owner == number)
                marked = PATTERNS[piece.pattern](u[chosen], v[chosen], seen.z[chosen] / np.float32(piece.top))
                material[chosen[marked]] += len(self.thing)
        albedo = np.array([piece.colour for piece in self.thing] + [piece.second for piece in self.thing], np.float32)
        gloss = np.array([piece.gloss for piece in self.thing], np.float32)[owner]
        cos, sin = self.camera.tilt
        nx, ny = -right, down / np.float32(sin)
        nz = np.where(wall, np.float32(0.15), np.float32(1))
        length = np.sqrt(nx * nx + ny * ny + nz * nz)
        nx, ny, nz = nx / length, ny / length, nz / length
        lx, ly, lz = lamp.towards
        half = np.array([lx, ly - cos, lz + sin])
        hx, hy, hz = (half / np.linalg.norm(half)).astype(np.float32).tolist()
        shine = np.maximum(nx * hx + ny * hy + nz * hz, 0)
        for _ in range(5):  # to the power of 32, ten times as fast as **
            shine *= shine
        shine *= np.float32(0.8) * gloss
        blur = cv2.blur(self.height, (2 * int(0.03 * self.scale) + 1,) * 2).ravel()[place]
        open_ = 1 - np.clip((blur - seen.z) / np.float32(0.04), 0, 0.7)
        light = np.maximum(nx * lx + ny * ly + nz * lz, 0) * open_ + lamp.sky * open_ * (0.62 + 0.38 * nz)
        linear = albedo[material] * (light / (lz + lamp.sky))[:, None] + (shine * open_)[:, None]
        return np.asarray(255 * np.sqrt(np.clip(linear, 0, 1)) + np.float32(0.5)).astype(np.uint8)


def _box(camera: Camera, points: Floats) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of the window of pixels that holds these points (N, 2) of the table."""
    pixels = camera.project(np.column_stack([points, np.zeros(len(points))]))
    (left, top), (right, bottom) = np.floor(pixels.min(0)).astype(int) - 1, np.ceil(pixels.max(0)).astype(int) + 2
    return int(left), int(top), int(right), int(bottom)


# --- tables


def clouds(random: Generator, side: int, *, first: int = 3, octaves: int = 6, fall: float = 0.55) -> Plane:
    """Seamless value noise in octaves, float32 (side, side), deviation 1; first: number of the largest clouds."""
    total = sum(
        fall**octave * _noise(random, side, cells=(min(first << octave, side),) * 2) for octave in range(octaves)
    )
    return np.asarray(total / np.std(total), np.float32)


def _noise(random: Generator, side: int, *, cells: tuple[int, int]) -> Plane:
    """One octave with (rows, columns) cells."""
    grid = np.pad(random.standard_normal(cells, np.float32), 2, mode="wrap")
    down, right = side / cells[0], side / cells[1]
    large = cv2.resize(grid, (round(grid.shape[1] * right), round(grid.shape[0] * down)), interpolation=cv2.INTER_CUBIC)
    return np.asarray(large[round(2 * down) :, round(2 * right) :][:side, :side])


def coloured(value: Plane, dark: tuple[int, int, int], light: tuple[int, int, int]) -> Picture:
    """value 0-1 between two 8-bit colours."""
    ramp = np.linspace(dark, light, 256).astype(np.uint8)
    return np.asarray(ramp[np.clip(value * 255, 0, 255).astype(np.uint8)])


def concrete(random: Generator, side: int) -> Picture:
    """Light grey screed with darker clouds."""
    stain = np.clip(clouds(random, side, octaves=5) - 0.9, 0, 2)
    stain *= 0.05 + 0.05 * np.clip(clouds(random, side, first=24, octaves=4, fall=0.8), 0, 2)
    return coloured(0.67 + 0.03 * clouds(random, side, fall=0.7) - stain, (96, 97, 93), (236, 236, 235))


def wood(random: Generator, side: int) -> Picture:
    """Planks along the columns, each of a tone of its own, with grain."""
    rings = clouds(random, side, first=2, octaves=3) * 0.8 + 2.7 * _noise(random, side, cells=(2, 6))
    plank = np.arange(side) * 5 / side
    value = 0.5 + 0.16 * np.sin(rings * 4) + 0.1 * _noise(random, side, cells=(4, side // 8))
    value += random.uniform(-0.15, 0.15, 5).astype(np.float32)[plank.astype(int)]
    return coloured(value * np.where(np.abs(plank % 1 - 0.5) > 0.492, 0.35, 1), (70, 40, 20), (208, 168, 124))


def cloth(random: Generator, side: int) -> Picture:
    """A plain weave in one of several colours."""
    thread = np.sin(2 * np.pi * (side // 6) / side * np.arange(side, dtype=np.float32))
    value = 0.55 + 0.12 * np.outer(thread, thread) + 0.06 * clouds(random, side, octaves=7, fall=0.8)
    dyes = [((30, 44, 78), (92, 116, 164)), ((84, 40, 44), (172, 104, 100)), ((70, 82, 62), (148, 162, 132))]
    return coloured(value, *dyes[int(random.integers(len(dyes)))])


def tiles(random: Generator, side: int) -> Picture:
    """Ceramic squares, each of a tone of its own, and grey joints."""
    cell = np.arange(side) * 8 / side
    tone = random.random((8, 8)).astype(np.float32)[np.ix_(cell.astype(int), cell.astype(int))]
    joint = np.abs(cell % 1 - 0.5) > 0.475
    value = np.where(joint | joint[:, None], 0.25, 0.7 + 0.16 * tone + 0.03 * clouds(random, side))
    return coloured(value, (92, 90, 84), (224, 216, 200))


def board(random: Generator, side: int) -> Picture:
    """White melamine with faint smudges and a few small scratches."""
    sheet = coloured(0.9 + 0.008 * clouds(random, side, octaves=5), (120, 112, 108), (238, 233, 233))
    for x, y in random.integers(0, side, (14, 2)).tolist():
        right, down = random.integers(-side // 40, side // 40, 2).tolist()
        cv2.line(sheet, (x, y), (x + right, y + down), [int(random.integers(150, 205))] * 3, 1, cv2.LINE_AA)
    return sheet


TABLES = (concrete, wood, cloth, tiles, board)


def spread(texture: Picture, camera: Camera, *, turn: float = 0.0) -> Picture:
    """The table covered with a square texture, which is as large as what the picture shows of it."""
    height, width = camera.size
    corners = np.array([[0, 0], [width, 0], [0, height], [width, height]], np.float32)
    ground = np.stack(camera.ground(corners[:, 0], corners[:, 1]), 1)
    ground -= ground.mean(0)
    c, s = math.cos(turn), math.sin(turn)
    ground /= 2.04 * np.hypot(*ground.T).max()  # inside the texture: OpenCV is 10 times slower at a border
    source = (ground @ np.array([[c, -s], [s, c]]) + 0.5) * texture.shape[0]
    placed = cv2.getPerspectiveTransform(source.astype(np.float32), corners)
    return np.asarray(cv2.warpPerspective(texture, placed, (width, height)))


def lit(picture: Picture, level: Floats) -> Picture:
    """The picture under uneven light: multiplied by a coarse map, (h, w) or (h, w, 3), about 1."""
    coarse = np.clip(level * 200, 0, 255).astype(np.uint8)
    light = cv2.resize(coarse, (picture.shape[1], picture.shape[0]), interpolation=cv2.INTER_LINEAR)
    coloured_light = light if light.ndim == 3 else cv2.cvtColor(light, cv2.COLOR_GRAY2BGR)
    return np.asarray(cv2.multiply(picture, coloured_light, scale=1 / 200), np.uint8)


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


def encode(suffix: str, pixels: npt.NDArray[Any], *settings: int) -> bytes:
    """The bytes of a file; three channels are RGB. settings: pairs for cv2.imencode."""
    done, data = cv2.imencode(suffix, pixels if pixels.ndim == 2 else cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), settings)
    if not done:
        raise PackerError(f"{suffix}: OpenCV cannot encode an array of shape {pixels.shape}; install another build")
    return data.tobytes()


def encode_indexed(values: npt.NDArray[np.uint8], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """The bytes of a PNG whose pixels are numbers of colours, up to 256 of them, as OpenCV writes none."""
    height, width = values.shape
    rows = np.pad(values, ((0, 0), (1, 0)))  # a row begins with its filter, 0 for none
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(channel for colour in palette for channel in colour)),
        (b"IDAT", zlib.compress(rows.tobytes())),
        (b"IEND", b""),
    )
    written = (struct.pack(">I", len(data)) + name + data + _crc(name + data) for name, data in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def _crc(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))
