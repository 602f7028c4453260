"""Desk: a white board with a back wall on a carpeted floor, as a Kinect above it sees it."""

from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from packer.synthetic.rendering.camera import Camera
from packer.synthetic.rendering.catalogue import about_z
from packer.synthetic.rendering.part import Material, Part
from packer.synthetic.rendering.scene import Scene, render
from packer.synthetic.rendering.shadow import Lamp
from packer.synthetic.rendering.texture import Generator, Picture, board, carpet

Plane = npt.NDArray[np.float32]

_FOCAL = 525.0  # px, of a Kinect at 640x480
_SIZE = (480, 640)
_FLOOR = 0.24  # m below the board
_WHITE = Material((0.80, 0.775, 0.765), gloss=0.05)
_GREY = Material((0.66, 0.63, 0.61), gloss=0.05)
_CARTON = Material((0.30, 0.17, 0.08), (0.55, 0.5, 0.42), "screen", 0.1)
_BLACK = Material((0.012, 0.012, 0.013), gloss=0.3)


@dataclass(frozen=True)
class Desk:
    """An empty desk: its camera (the board is the table at z = 0), lamp, picture and depth.

    picture: uint8 (480, 640, 3) RGB. depth: float32 (480, 640), along the optical axis in m.
    """

    camera: Camera
    lamp: Lamp
    picture: Picture
    depth: Plane


@dataclass(frozen=True)
class Sheets:
    """The textures that all desks share, uint8 RGB squares."""

    board: Picture
    carpet: Picture


def sheets(random: Generator) -> Sheets:
    """New textures."""
    return Sheets(board(random, 512), carpet(random, 512))


def draw_desk(random: Generator, *, textures: Sheets) -> Desk:
    """A new desk: light, camera and what stands around differ a little from desk to desk."""
    camera = Camera(random.uniform(0.86, 0.93), random.uniform(0.44, 0.5), _FOCAL, _SIZE, random.uniform(-0.06, 0.06))
    lamp = Lamp(random.uniform(-2.6, -0.5), random.uniform(1.05, 1.25), sky=random.uniform(0.8, 1.1), softness=0.5)
    high = camera.raised(_FLOOR)
    floor = _spread(textures.carpet, high, metres=0.7)
    drawn = render(Scene(high, _furniture(random), lamp), floor)
    picture = _smudge(drawn.picture, camera, sheet=textures.board, random=random)
    depth = drawn.full_depth(high.table_depth())
    return Desk(camera, lamp, picture, depth)


def _furniture(random: Generator) -> list[Part]:
    left, right, back = random.uniform(-0.7, -0.6), random.uniform(0.44, 0.5), random.uniform(0.30, 0.36)
    front, thick = -1.0, 0.008
    wide, deep = (right - left) / 2, (back - front) / 2
    top = Part("box", (wide, deep, _FLOOR / 2), _WHITE, ((left + right) / 2, (back + front) / 2, _FLOOR / 2))
    end = right - random.uniform(0.15, 0.24)
    wall = Part("box", ((end - left) / 2, thick, 0.28), _GREY, ((left + end) / 2, back - thick, _FLOOR + 0.27))
    turn = random.uniform(0.2, 0.8)
    carton = Part("box", (0.17, 0.12, 0.1), _CARTON, (right + 0.12, back + 0.3, 0.1), about_z(turn))
    leg = Part("frustum", (0.03, 0.03, 0.3), _BLACK, (right + random.uniform(0.3, 0.4), back + 0.22, 0.3))
    return [top, wall, carton, leg]


def _spread(texture: Picture, camera: Camera, *, metres: float) -> Picture:
    """The table's plane covered with a texture that repeats every `metres`."""
    cell = metres / texture.shape[0]
    to_picture = camera.table_to_picture() @ np.diag([cell, cell, 1.0])
    size = (camera.size[1], camera.size[0])
    return np.asarray(cv2.warpPerspective(texture, to_picture, size, borderMode=cv2.BORDER_WRAP))


def _smudge(picture: Picture, camera: Camera, *, sheet: Picture, random: Generator) -> Picture:
    """Light and dirt on the bright surfaces: falls off towards the back and to one side."""
    dirt = _spread(np.roll(sheet, tuple(random.integers(0, sheet.shape[0], 2)), (0, 1)), camera, metres=0.9)
    lightened = cv2.addWeighted(dirt, 1.0, dirt, 0.0, 255.0 - float(sheet.mean()))
    clean = cv2.multiply(picture, lightened, scale=1 / 255)
    bright = picture.min(axis=2, keepdims=True) > 150
    level = np.array([[0.86, 0.9, 0.84], [0.97, 1.04, 0.99], [0.98, 1.05, 1.02]]) + random.uniform(-0.03, 0.03, (3, 3))
    light = cv2.resize(
        (level * 200).astype(np.uint8), (picture.shape[1], picture.shape[0]), interpolation=cv2.INTER_LINEAR
    )
    out = cv2.multiply(np.where(bright, clean, picture), cv2.cvtColor(light, cv2.COLOR_GRAY2BGR), scale=1 / 200)
    return np.asarray(out)
