"""Part: a box, a frustum or an ellipsoid, met by rays in closed form.

Every thing is a list of parts. A part has a local frame: boxes and ellipsoids fill [-half, half]; a frustum stands
along its z axis with the radius half[0] at the bottom and half[0] * taper at the top, and may have a hole.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Plane = npt.NDArray[np.float32]
Planes = tuple[Plane, Plane, Plane]  # x, y, z; arrays that broadcast against each other

_NEAR = np.float32(1e-4)
_FAR = np.float32(np.inf)
_SIGNS = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])


@dataclass(frozen=True)
class Material:
    """How a surface looks: linear RGB colours, the pattern of the second one, and the strength of highlights (0-1)."""

    colour: tuple[float, float, float]
    second: tuple[float, float, float] = (0.8, 0.8, 0.8)
    pattern: str = "plain"
    gloss: float = 0.3


@dataclass(frozen=True)
class Part:
    """One convex piece, or a tube; see the module's text.

    form: box, frustum or ellipsoid. half: half extents in m. bevel: width in m over which edges look round.
    hollow: radius of the hole, as a share of the outer one. rotation: columns are the local axes in the world.
    """

    form: str
    half: tuple[float, float, float]
    material: Material
    centre: tuple[float, float, float] = (0.0, 0.0, 0.0)
    rotation: Vector = field(default_factory=lambda: np.eye(3))
    taper: float = 1.0
    hollow: float = 0.0
    bevel: float = 0.003

    @cached_property
    def corners(self) -> Vector:
        """The 8 corners of its box in the world, (8, 3)."""
        wide = max(1.0, self.taper)
        local = _SIGNS * np.array(self.half) * np.array([wide, wide, 1.0])
        return np.asarray(local @ self.rotation.T + np.array(self.centre))

    @cached_property
    def turn(self) -> Plane:
        """The rotation as float32, for many points."""
        return self.rotation.astype(np.float32)

    def moved(self, turn: Vector, shift: Vector, *, scale: float) -> "Part":
        """The part scaled about the origin, then turned, then shifted."""
        centre = turn @ np.array(self.centre) * scale + shift
        x, y, z = (float(length) * scale for length in self.half)
        place = (float(centre[0]), float(centre[1]), float(centre[2]))
        return replace(self, half=(x, y, z), centre=place, rotation=turn @ self.rotation, bevel=self.bevel * scale)

    def to_local(self, points: Planes) -> Planes:
        """World points, as three arrays, in the local frame."""
        x, y, z = (plane - np.float32(at) for plane, at in zip(points, self.centre, strict=True))
        turn = self.turn
        first, second, third = (turn[0, i] * x + turn[1, i] * y + turn[2, i] * z for i in range(3))
        return first, second, third

    def hit(self, origin: Planes, direction: Planes) -> Plane:
        """Smallest t > 0 at which origin + t direction (both local) meets the surface; inf where it does not."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # a miss is inf or nan; both compare false
            if self.form == "box":
                return _hit_box(origin, direction, half=self.half)
            if self.form == "ellipsoid":
                return _hit_ellipsoid(origin, direction, half=self.half)
            return self._hit_frustum(origin, direction)

    def normal(self, points: Planes) -> Planes:
        """Unit normals in the local frame at local points of the surface; they bend round the edges."""
        if self.form == "box":
            return _unit(*(_edge(p, half=h, bevel=self.bevel) for p, h in zip(points, self.half, strict=True)))
        if self.form == "ellipsoid":
            return _unit(*(p / np.float32(h * h) for p, h in zip(points, self.half, strict=True)))
        return self._frustum_normal(points)

    def _radius(self) -> tuple[float, float]:
        """Radius at z = 0, and its growth per z."""
        bottom, top = self.half[0], self.half[0] * self.taper
        return (bottom + top) / 2, (top - bottom) / (2 * self.half[2])

    def _hit_frustum(self, origin: Planes, direction: Planes) -> Plane:
        radius, growth = self._radius()
        best = _hit_cone(origin, direction, radius=radius, growth=growth, half=self.half[2])
        if self.hollow:
            hole = (radius * self.hollow, growth * self.hollow)
            best = np.minimum(best, _hit_cone(origin, direction, radius=hole[0], growth=hole[1], half=self.half[2]))
        for z in (-self.half[2], self.half[2]):
            t = (np.float32(z) - origin[2]) / direction[2]
            squares = (origin[0] + t * direction[0]) ** 2 + (origin[1] + t * direction[1]) ** 2
            outer = radius + growth * z
            inside = (squares <= outer**2) & (squares >= (outer * self.hollow) ** 2) & (t > _NEAR)
            best = np.minimum(best, np.where(inside, t, _FAR))
        return best

    def _frustum_normal(self, points: Planes) -> Planes:
        x, y, z = points
        radius, growth = self._radius()
        reach = np.sqrt(x * x + y * y) + np.float32(1e-9)
        outer = np.float32(radius) + np.float32(growth) * z
        bevel = np.float32(min(self.bevel, radius / 2))
        side = np.clip((reach - outer) / bevel + 1, 0, 1)
        if self.hollow:
            side = side - np.clip((outer * np.float32(self.hollow) - reach) / bevel + 1, 0, 1)
        cap = _edge(z, half=self.half[2], bevel=self.bevel)
        return _unit(side * x / reach, side * y / reach, cap - side * np.float32(growth))


def _hit_box(origin: Planes, direction: Planes, *, half: tuple[float, float, float]) -> Plane:
    near: Plane | np.float32 = -_FAR
    far: Plane | np.float32 = _FAR
    for o, d, h in zip(origin, direction, half, strict=True):
        inverse = 1 / d
        first, second = (np.float32(-h) - o) * inverse, (np.float32(h) - o) * inverse
        near, far = np.maximum(near, np.minimum(first, second)), np.minimum(far, np.maximum(first, second))
    return np.asarray(np.where((near <= far) & (far > _NEAR), np.where(near > _NEAR, near, far), _FAR))


def _hit_ellipsoid(origin: Planes, direction: Planes, *, half: tuple[float, float, float]) -> Plane:
    ox, oy, oz = (o / np.float32(h) for o, h in zip(origin, half, strict=True))
    dx, dy, dz = (d / np.float32(h) for d, h in zip(direction, half, strict=True))
    a, b, c = dx * dx + dy * dy + dz * dz, ox * dx + oy * dy + oz * dz, ox * ox + oy * oy + oz * oz - 1
    root = np.sqrt(b * b - a * c)
    near, far = (-b - root) / a, (-b + root) / a
    return np.asarray(np.where(near > _NEAR, near, np.where(far > _NEAR, far, _FAR)))


def _hit_cone(origin: Planes, direction: Planes, *, radius: float, growth: float, half: float) -> Plane:
    (ox, oy, oz), (dx, dy, dz) = origin, direction
    slope = np.float32(growth)
    at_origin = np.float32(radius) + slope * oz
    a = dx * dx + dy * dy - slope * slope * dz * dz
    b = ox * dx + oy * dy - slope * at_origin * dz
    c = ox * ox + oy * oy - at_origin * at_origin
    root = np.sqrt(b * b - a * c)
    best: Plane | np.float32 = _FAR
    for t in ((-b - root) / a, (-b + root) / a):
        z = oz + t * dz
        valid = (np.abs(z) <= np.float32(half)) & (t > _NEAR)  # the cone's other sheet is beyond the half height
        best = np.minimum(best, np.where(valid, t, _FAR))
    return np.asarray(best)


def _edge(p: Plane, *, half: float, bevel: float) -> Plane:
    """Signed share of this axis in the normal: 1 on its own face, falling to 0 one bevel below it."""
    width = np.float32(min(bevel, half))
    return np.asarray(np.sign(p) * np.clip((np.abs(p) - np.float32(half)) / width + 1, 0, 1))


def _unit(x: Plane, y: Plane, z: Plane) -> Planes:
    length = np.sqrt(x * x + y * y + z * z) + np.float32(1e-9)
    return x / length, y / length, z / length
