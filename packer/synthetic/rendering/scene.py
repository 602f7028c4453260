"""Scene: parts on a table under a lamp and a sky -> picture, depth and mask.

The table is a picture that is given; only the window that the parts and their shadows touch is drawn. Light is a lamp
far away (lambert, Blinn's highlight, shadow rays) and a sky (brighter from above, darker next to things).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt

from packer.synthetic.rendering.camera import Camera
from packer.synthetic.rendering.part import Part, Plane, Planes
from packer.synthetic.rendering.pattern import PATTERNS
from packer.synthetic.rendering.shadow import Lamp, Shadow, lit

Picture = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_CELLS = 112  # of the shadow map at step 1


@dataclass(frozen=True)
class Scene:
    """What stands in front of which camera, under which lamp.

    parts: at least one, resting on the table. step: pixels per ray in each direction; 1 gives a mask and a depth for
    every pixel, 2 is three times as fast and leaves them at half the size.
    """

    camera: Camera
    parts: Sequence[Part]
    lamp: Lamp
    step: int = 1


@dataclass(frozen=True)
class Window:
    """Rays on a grid of pixels: those of the columns `x` (1, w) and the rows `y` (h, 1), float32."""

    x: Plane
    y: Plane

    @property
    def shape(self) -> tuple[int, int]:
        """(h, w) in rays."""
        return self.y.shape[0], self.x.shape[1]


@dataclass(frozen=True)
class Rendering:
    """A finished picture.

    picture: uint8 (H, W, 3) RGB. top, left: where the window lies, in px. depth: float32 (h, w), along the optical
    axis in m, inf beside the things. mask: bool (h, w).
    """

    picture: Picture
    top: int
    left: int
    depth: Plane
    mask: Mask

    def full_mask(self) -> Picture:
        """uint8 (H, W): 255 on the things; for step 1."""
        full = np.zeros(self.picture.shape[:2], np.uint8)
        full[self.top : self.top + self.mask.shape[0], self.left : self.left + self.mask.shape[1]] = self.mask
        return np.asarray(full * np.uint8(255))

    def full_depth(self, table: Plane) -> Plane:
        """float32 (H, W): a table's depth with the things in front of it; for step 1."""
        full = np.array(np.broadcast_to(table, self.picture.shape[:2]))
        view = full[self.top : self.top + self.mask.shape[0], self.left : self.left + self.mask.shape[1]]
        np.minimum(view, self.depth, out=view)
        return full


def render(scene: Scene, table: Picture) -> Rendering:
    """Draw the scene over a picture of the empty table, uint8 (H, W, 3) RGB, which stays as it is."""
    picture = table.copy()
    Shadow(scene.parts, scene.lamp, cells=_CELLS // scene.step).darken(picture, scene.camera)
    top, left, window = _window(scene)
    depth, owner = _trace(scene, window)
    mask = owner >= 0
    if mask.any():
        colour = np.zeros((*window.shape, 3), np.uint8)
        colour[mask] = _shade(scene, window, depth=depth, owner=owner)
        _paste(picture[top:, left:], colour, mask, step=scene.step)
    return Rendering(picture, top, left, depth, mask)


def _window(scene: Scene) -> tuple[int, int, Window]:
    """The part of the picture that holds all parts: top, left, rays; 2 steps of rim, so that edges can be softened."""
    height, width = scene.camera.size
    pixels = scene.camera.project(np.concatenate([part.corners for part in scene.parts]))
    rim = 2 * scene.step
    left, top = (int(low) for low in np.clip(np.floor(pixels.min(0)) - rim, 0, [width - 1, height - 1]))
    right, bottom = (
        int(high) for high in np.clip(np.ceil(pixels.max(0)) + rim + 1, [left + 1, top + 1], [width, height])
    )
    middle = (scene.step - 1) / 2
    x = np.arange(left, right, scene.step, dtype=np.float32)[None, :] + np.float32(middle)
    y = np.arange(top, bottom, scene.step, dtype=np.float32)[:, None] + np.float32(middle)
    return top, left, Window(x, y)


def _trace(scene: Scene, window: Window) -> tuple[Plane, npt.NDArray[np.int16]]:
    """Depth of the nearest part per ray, inf where there is none, and which part it is, -1 where there is none."""
    depth = np.full(window.shape, np.inf, np.float32)
    owner = np.full(window.shape, -1, np.int16)
    for number, part in enumerate(scene.parts):
        pixels = scene.camera.project(part.corners)
        (left, top), (right, bottom) = pixels.min(0) - 1, pixels.max(0) + 1
        columns = slice(*np.searchsorted(window.x[0], [left, right]))
        rows = slice(*np.searchsorted(window.y[:, 0], [top, bottom]))
        direction = scene.camera.directions(window.x[:, columns], window.y[rows], rotation=part.rotation)
        position = scene.camera.position.astype(np.float32)
        t = part.hit(part.to_local((position[0], position[1], position[2])), direction)
        nearer = t < depth[rows, columns]
        depth[rows, columns][nearer] = t[nearer]
        owner[rows, columns][nearer] = number
    return depth, owner


def _shade(scene: Scene, window: Window, *, depth: Plane, owner: npt.NDArray[np.int16]) -> Picture:
    """Colours of the M rays that meet a part, uint8 (M, 3), after gamma."""
    rows, columns = np.nonzero(owner >= 0)
    owners = owner[rows, columns]
    directions = scene.camera.directions(window.x[0, columns], window.y[rows, 0], rotation=np.eye(3))
    t = depth[rows, columns]
    px, py, pz = (np.float32(o) + t * d for o, d in zip(scene.camera.position, directions, strict=True))
    look = _Surface.empty(len(rows))
    for number in np.unique(owners):
        chosen = np.flatnonzero(owners == number)
        look.fill(chosen, scene.parts[number], points=(px[chosen], py[chosen], pz[chosen]))
    seen = lit(scene.parts, scene.lamp, points=(px, py, pz), normals=look.normals)
    return _light(scene.lamp, look, directions=directions, seen=seen)


@dataclass
class _Surface:
    """What M rays met: unit normals 3 x (M,), albedo (M, 3), gloss (M,)."""

    normals: Planes
    albedo: Plane
    gloss: Plane

    @classmethod
    def empty(cls, count: int) -> "_Surface":
        x, y, z = (np.zeros(count, np.float32) for _ in range(3))
        return cls((x, y, z), np.zeros((count, 3), np.float32), np.zeros(count, np.float32))

    def fill(self, chosen: npt.NDArray[np.intp], part: Part, *, points: Planes) -> None:
        local = part.to_local(points)
        normal = part.normal(local)
        turn = part.turn
        for axis, plane in enumerate(self.normals):
            plane[chosen] = sum(turn[axis, i] * normal[i] for i in range(3))
        x, y, z = (p / np.float32(h) for p, h in zip(local, part.half, strict=True))
        material = part.material
        two = np.array([material.colour, material.second], np.float32)
        self.albedo[chosen] = two[PATTERNS[material.pattern](x, y, z).astype(np.intp)]
        self.gloss[chosen] = material.gloss


def _light(lamp: Lamp, look: _Surface, *, directions: Planes, seen: Plane) -> Picture:
    nx, ny, nz = look.normals
    lx, ly, lz = lamp.towards.astype(np.float32)
    length = np.sqrt(sum(d * d for d in directions))
    hx, hy, hz = (side - d / length for side, d in zip((lx, ly, lz), directions, strict=True))
    half = (nx * hx + ny * hy + nz * hz) / np.sqrt(hx * hx + hy * hy + hz * hz)
    lambert = np.maximum(nx * lx + ny * ly + nz * lz, 0) * seen
    ambient = lamp.sky * (0.62 + 0.38 * nz)
    highlight = look.gloss * seen * np.maximum(half, 0) ** np.float32(48) * np.float32(0.9)
    linear = look.albedo * ((lambert * lamp.strength + ambient) / lamp.on_table())[:, None] + highlight[:, None]
    return np.asarray(255 * np.sqrt(np.minimum(linear, 1)) + np.float32(0.5)).astype(np.uint8)


def _paste(target: Picture, colour: Picture, mask: Mask, *, step: int) -> None:
    """Blend a window, black beside the mask, into the top left of `target`; edges are softened over about a pixel."""
    cover = mask.astype(np.uint8) * np.uint8(255)
    if step > 1:
        size = (cover.shape[1] * step, cover.shape[0] * step)
        front, opaque = (cv2.resize(part, size, interpolation=cv2.INTER_LINEAR) for part in (colour, cover))
    else:
        front, opaque = (cv2.GaussianBlur(part, (3, 3), 0.55) for part in (colour, cover))
    view = target[: opaque.shape[0], : opaque.shape[1]]
    height, width = view.shape[:2]
    behind = cv2.cvtColor(255 - opaque[:height, :width], cv2.COLOR_GRAY2BGR)
    view[:] = cv2.add(cv2.multiply(view, behind, scale=1 / 255), front[:height, :width])
