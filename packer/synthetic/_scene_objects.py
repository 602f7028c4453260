"""Scene objects: the everyday objects that synthetic sets show, and where a gripper fits across them.

A thing is a list of pieces. Each is an outline, given by its signed distance, and a profile: how high it is so far
inside the outline. Lengths are in metres, on the table z = 0.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

Picture = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.uint8]
Plane = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Generator = np.random.Generator
Colour = tuple[float, float, float]

# --- pieces

Pattern = Callable[[Plane, Plane, Plane], npt.NDArray[np.bool_]]


def _print(u: Plane, v: Plane, w: Plane) -> npt.NDArray[np.bool_]:
    title = (np.abs(v - 0.45) < 0.2) & (np.abs(u) < 0.7) & (np.sin(u * 17) > -0.4)
    text = (np.abs(v + 0.45) < 0.35) & (np.abs(u + 0.32) < 0.43) & (np.sin(v * 32) > 0.2)
    return np.asarray((title | text | ((u - 0.45) ** 2 + (v + 0.4) ** 2 < 0.09)) & (w > 0.97))


def _buttons(u: Plane, v: Plane, w: Plane) -> npt.NDArray[np.bool_]:
    rows, columns = (u + 0.1) * 5, v * 1.9 + 0.5
    near = (rows - np.round(rows)) ** 2 + ((columns - np.round(columns)) * 1.3) ** 2 < 0.1
    return np.asarray(near & (np.abs(u + 0.07) < 0.78) & (np.abs(v) < 0.78) & (w > 0.9))


# where the second colour shows: u, v along and across the piece from -1 to 1, w its height from 0 to 1
PATTERNS: dict[str, Pattern] = {
    "plain": lambda u, v, w: np.zeros(u.shape, bool),
    "label": lambda u, v, w: (np.abs(u) < 0.62) & (np.abs(np.abs(u) - 0.53) > 0.03),
    "band": lambda u, v, w: (np.abs(w - 0.5) < 0.31) & (np.abs(np.abs(w - 0.5) - 0.26) > 0.02),
    "rings": lambda u, v, w: (np.sin(w * 28) > 0.35) & (w < 0.95),
    "ribs": lambda u, v, w: np.sin(np.arctan2(v, u) * 12) > 0.4,
    "grooves": lambda u, v, w: np.sin(v * 11) > 0.4,
    "hoops": lambda u, v, w: np.abs(u) > 0.72,
    "segments": lambda u, v, w: np.sin(np.arctan2(v, u - 0.3) * 3 + w) > 0,
    "patches": lambda u, v, w: np.sin(6 * u + 1) * np.sin(6 * v + 2) * np.sin(9 * w) > 0.12,
    "grain": lambda u, v, w: np.sin(5 * v + 3 * np.sin(4 * u + 2 * w)) > 0.5,
    "print": _print,
    "buttons": _buttons,
}


@dataclass(frozen=True)
class Piece:
    """One shape of a thing: a rounded box in its own x and y, turned by `turn` rad and put at `at`.

    half: half its length and width. corner: radius of its corners; a disc has that of its half, a capsule that of its
    width. wall: of a ring, the width of what stays around its hole; 0: no hole. taper: width at the right end, as a
    share of that in the middle. bend: radius of the arc along which it lies; 0: straight.
    top: its greatest height. edge: its height at the outline. Between them it is round: a `slab` over `bevel`, a `bar`
    across its width (a cylinder that lies), a `dome` from all sides.
    foot: height of its underside, 0 for what stands on the table; bars and domes are round below as well.
    """

    half: tuple[float, float]
    top: float
    colour: Colour
    form: Literal["slab", "bar", "dome"] = "slab"
    at: tuple[float, float] = (0.0, 0.0)
    turn: float = 0.0
    corner: float = 0.0
    wall: float = 0.0
    taper: float = 1.0
    bend: float = 0.0
    edge: float | None = None
    bevel: float = 0.003
    foot: float = 0.0
    second: Colour = (0.8, 0.79, 0.75)
    pattern: str = "plain"
    gloss: float = 0.4

    @property
    def corners(self) -> Floats:
        """The corners (4, 2) of the box around it."""
        x, y = self.half[0], self.half[1] * max(1.0, self.taper)
        sag = x * x / (2 * self.bend) if self.bend else 0.0
        c, s = math.cos(self.turn), math.sin(self.turn)
        return np.array([[-x, -y], [x, -y], [-x, y + sag], [x, y + sag]]) @ [[c, s], [-s, c]] + self.at

    def moved(self, turn: float, at: tuple[float, float], scale: float) -> "Piece":
        """The piece scaled about the origin, turned about it, and shifted."""
        c, s = scale * math.cos(turn), scale * math.sin(turn)
        x, y = self.at
        lengths = {name: getattr(self, name) * scale for name in ("top", "corner", "wall", "bend", "bevel", "foot")}
        return replace(
            self,
            **lengths,
            half=(self.half[0] * scale, self.half[1] * scale),
            edge=None if self.edge is None else self.edge * scale,
            at=(c * x - s * y + at[0], s * x + c * y + at[1]),
            turn=self.turn + turn,
        )

    def relief(self, x: Plane, y: Plane) -> tuple[npt.NDArray[np.bool_], Plane, Plane, Plane, Plane]:
        """Inside or not, height, underside, and u and v of the patterns, at points of the table."""
        c, s = np.float32(math.cos(self.turn)), np.float32(math.sin(self.turn))
        x, y = x - np.float32(self.at[0]), y - np.float32(self.at[1])
        x, y = c * x + s * y, c * y - s * x
        if self.bend:
            r = np.float32(self.bend)
            x, y = r * np.arctan2(x, r - y), r - np.sqrt(x * x + (r - y) ** 2)
        u, v = x / np.float32(self.half[0]), y / np.float32(self.half[1])
        if self.taper != 1:
            v = v / np.clip(1 + np.float32(self.taper - 1) * u, 0.2, 2)
            y = v * np.float32(self.half[1])
        beyond_x = np.abs(x) - np.float32(self.half[0] - self.corner)
        beyond_y = np.abs(y) - np.float32(self.half[1] - self.corner)
        around = np.sqrt(np.maximum(beyond_x, 0) ** 2 + np.maximum(beyond_y, 0) ** 2)
        outer = around + np.minimum(np.maximum(beyond_x, beyond_y), 0)
        inward = np.float32(self.corner) - outer  # distance from the outline, positive inside
        width = min(self.half)
        if self.wall:
            inward, width = np.minimum(inward, np.float32(self.wall) - inward), self.wall / 2
        depth = (
            1 - np.abs(v) if self.form == "bar" else inward / np.float32(width if self.form == "dome" else self.bevel)
        )
        share = np.clip(depth, 0, 1)
        edge = max(0.0, self.top - self.bevel) if self.edge is None else self.edge
        round_ = np.float32(self.top - edge) * np.sqrt(share * (2 - share))
        height = np.float32(edge) + round_
        foot = np.float32(edge) - round_ if self.form != "slab" else np.zeros_like(height)
        return inward >= 0, height, np.maximum(foot, np.float32(self.foot)), u, v


Thing = list[Piece]


def place(thing: Thing, *, turn: float, at: tuple[float, float], scale: float = 1.0) -> Thing:
    """The thing scaled, turned by `turn` rad and moved to `at` on the table."""
    return [piece.moved(turn, at, scale) for piece in thing]


def outline(thing: Thing) -> Floats:
    """Points (N, 2) of the table around the thing."""
    return np.concatenate([piece.corners for piece in thing])


# --- the catalogue: each function makes one thing, centred on the origin, long side along x; its name is the class

# linear RGB
PALETTE: dict[str, Colour] = {
    "red": (0.62, 0.05, 0.05),
    "orange": (0.80, 0.25, 0.03),
    "yellow": (0.82, 0.58, 0.05),
    "green": (0.07, 0.36, 0.10),
    "teal": (0.03, 0.32, 0.33),
    "blue": (0.05, 0.14, 0.52),
    "violet": (0.25, 0.09, 0.42),
    "pink": (0.78, 0.26, 0.38),
    "brown": (0.24, 0.11, 0.05),
    "white": (0.80, 0.79, 0.76),
    "grey": (0.28, 0.29, 0.30),
    "black": (0.025, 0.025, 0.028),
}
_STEEL: Colour = (0.42, 0.43, 0.45)
_DARK: Colour = (0.03, 0.03, 0.033)
_CREAM: Colour = (0.80, 0.79, 0.75)
_ACROSS = math.pi / 2


def _ball(random: Generator, colour: Colour) -> Thing:
    r = random.uniform(0.03, 0.045)
    pattern = ("patches", "segments")[random.integers(2)]
    light, mark = (colour, _DARK) if sum(colour) > 1.2 else (_CREAM, colour)
    skin = Piece((r, r), 2 * r, light, "dome", corner=r, edge=r, second=mark, pattern=pattern)
    return [skin]


def _banana(random: Generator, colour: Colour) -> Thing:
    bend, r = random.uniform(0.085, 0.11), random.uniform(0.016, 0.02)
    end = (bend * math.sin(0.1 / bend), bend * (1 - math.cos(0.1 / bend)) - 0.02)
    return [
        Piece((0.096, r), 1.8 * r, colour, "dome", (0, -0.02), corner=r, edge=0.7 * r, bend=bend, gloss=0.15),
        Piece((0.009, 0.004), 0.018, (0.10, 0.07, 0.02), at=end, turn=0.1 / bend),
        Piece((0.004, 0.004), 0.018, (0.06, 0.04, 0.02), at=(-end[0] * 0.97, end[1] * 0.92), corner=0.004),
    ]


def _bottle(random: Generator, colour: Colour) -> Thing:
    r, half = random.uniform(0.025, 0.034), random.uniform(0.055, 0.07)
    neck, cap = r * random.uniform(0.36, 0.45), tuple(PALETTE.values())[random.integers(12)]
    x = half - 0.03
    return [
        Piece((half, r), 2 * r, colour, "bar", (-0.03, 0), edge=r, pattern="label", gloss=0.8, corner=0.005),
        Piece((0.018, r * 0.7), 1.7 * r, colour, "bar", (x + 0.016, 0), edge=r, taper=neck / r / 0.7, gloss=0.8),
        Piece((0.018, neck), r + neck, colour, "bar", (x + 0.045, 0), edge=r, gloss=0.8),
        Piece((0.009, neck * 1.2), r + neck * 1.2, cap, "bar", (x + 0.066, 0), edge=r),
    ]


def _bowl(random: Generator, colour: Colour) -> Thing:
    r, top = random.uniform(0.058, 0.072), random.uniform(0.034, 0.046)
    inside = replace(_disc(r - 0.004, top * 0.4, _tinted(colour, random), gloss=0.1), bevel=top * 0.1)
    return [_ring(r, top, colour, wall=0.008, pattern="band", gloss=0.6), inside]


def _box(random: Generator, colour: Colour) -> Thing:
    half, top = (random.uniform(0.06, 0.095), random.uniform(0.04, 0.058)), random.uniform(0.028, 0.064)
    second = tuple(PALETTE.values())[random.integers(12)] if random.random() < 0.4 else _CREAM
    return [Piece(half, top, colour, second=second, pattern="print", corner=0.002, bevel=0.002, gloss=0.25)]


def _bracket(random: Generator, colour: Colour) -> Thing:
    long, short, w = random.uniform(0.06, 0.085), random.uniform(0.035, 0.05), random.uniform(0.009, 0.014)
    holes = [(long * 0.75, 0.0), (w - long, 2 * short * 0.85)]
    return [
        Piece((long, w), 2 * w, colour),
        Piece((w, short), 2 * w + 0.0001, colour, at=(w - long, short)),
        *(Piece((w * 0.5, w * 0.5), 2 * w + 0.001, _DARK, at=at, corner=w * 0.5) for at in holes),
    ]


def _can(random: Generator, colour: Colour) -> Thing:
    r, top = random.uniform(0.029, 0.034), random.uniform(0.09, 0.12)
    print_ = ("band", "rings", "ribs")[random.integers(3)]
    return [
        _disc(r, top - 0.004, colour, pattern=print_, gloss=0.7),
        _ring(r * 0.93, top, _STEEL, wall=0.004, gloss=0.9),
        _disc(r * 0.84, top - 0.0035, _STEEL, gloss=0.9),
        replace(_ring(0.009, top - 0.0015, _STEEL, wall=0.004, gloss=0.9), at=(0.008, 0)),
    ]


def _dumbbell(random: Generator, colour: Colour) -> Thing:
    r, half, reach = random.uniform(0.026, 0.034), random.uniform(0.014, 0.02), random.uniform(0.05, 0.06)
    weights = (Piece((half, r), 2 * r, colour, "bar", (x, 0), corner=0.004, edge=r) for x in (-reach, reach))
    return [Piece((reach, 0.011), r + 0.011, _STEEL, "bar", edge=r, gloss=0.9), *weights]


def _frame(random: Generator, colour: Colour) -> Thing:
    half, wide, w = random.uniform(0.085, 0.115), random.uniform(0.028, 0.04), random.uniform(0.0045, 0.006)
    dark = (colour[0] * 0.6, colour[1] * 0.6, colour[2] * 0.6)
    rungs = np.linspace(-0.8, 0.8, int(random.integers(3, 6))) * half
    bars = [((half, w), 2 * w, (0.0, side * wide)) for side in (-1, 1)]
    bars += [((w, wide * 1.3), 3 * w, (x, 0.0)) for x in rungs.tolist()]
    return [Piece(h, top, colour, at=at, second=dark, pattern="grain", gloss=0.15) for h, top, at in bars]


def _hammer(random: Generator, colour: Colour) -> Thing:
    half = random.uniform(0.075, 0.095)
    return [
        Piece((half, 0.011), 0.026, colour, "bar", (-0.012, 0), edge=0.013, second=_DARK, pattern="hoops", taper=0.85),
        Piece((0.026, 0.011), 0.028, _STEEL, at=(half - 0.008, 0.004), turn=_ACROSS, corner=0.002, gloss=0.9),
        Piece((0.010, 0.014), 0.028, _STEEL, "bar", (half - 0.008, -0.03), _ACROSS, edge=0.014, gloss=0.9),
        Piece((0.018, 0.007), 0.022, _STEEL, at=(half - 0.008, 0.04), turn=_ACROSS, taper=0.6, gloss=0.9),
    ]


def _marker(random: Generator, colour: Colour) -> Thing:
    r, half = random.uniform(0.0065, 0.0095), random.uniform(0.045, 0.055)
    shaft = colour if random.random() < 0.5 else (0.75, 0.75, 0.72)
    return [
        Piece((half, r), 2.1 * r, shaft, "bar", (-0.018, 0), edge=1.1 * r, corner=0.002),
        Piece((0.024, 1.15 * r), 2.3 * r, colour, "bar", (half, 0), edge=1.15 * r, taper=0.86, gloss=0.6),
        Piece((0.02, 0.0018), 2.3 * r + 0.002, colour, at=(half - 0.004, 0), bevel=0.001),
    ]


def _mouse(random: Generator, colour: Colour) -> Thing:
    long, wide, top = random.uniform(0.05, 0.058), random.uniform(0.028, 0.033), random.uniform(0.034, 0.042)
    return [
        Piece((long, wide), top, colour, "dome", corner=wide * 0.98, edge=0.012, gloss=0.5),
        Piece((0.008, 0.003), top + 0.001, _DARK, "dome", (long * 0.45, 0), edge=top - 0.003, corner=0.003, foot=0.01),
    ]


def _mug(random: Generator, colour: Colour) -> Thing:
    r, top = random.uniform(0.034, 0.041), random.uniform(0.068, 0.09)
    pattern = ("plain", "rings", "band")[random.integers(3)]
    return [
        _ring(r, top, colour, wall=0.007, pattern=pattern, gloss=0.7),
        _disc(r - 0.004, top * 0.8, (0.07, 0.03, 0.012), gloss=0.1),
        Piece(
            (0.026, 0.02), top * 0.74, colour, at=(r + 0.01, 0), corner=0.02, wall=0.010, bevel=0.005, foot=top * 0.36
        ),
    ]


def _remote(random: Generator, colour: Colour) -> Thing:
    half, top = (random.uniform(0.07, 0.09), random.uniform(0.019, 0.024)), random.uniform(0.016, 0.022)
    keys = (0.55, 0.55, 0.55) if sum(colour) < 0.8 else (0.05, 0.05, 0.05)
    dot = replace(_disc(0.005, top + 0.0015, (0.7, 0.05, 0.05)), at=(half[0] * 0.84, half[1] * 0.4))
    return [Piece(half, top, colour, second=keys, pattern="buttons", corner=0.008, bevel=0.004), dot]


def _scissors(random: Generator, colour: Colour) -> Thing:
    angle, r = random.uniform(0.14, 0.24), random.uniform(0.019, 0.024)
    thing: Thing = []
    for side in (-1, 1):
        blade = Piece((0.05, 0.006), 0.009 + 0.001 * side, _STEEL, at=(0.042, 0), taper=0.35, bevel=0.002, gloss=0.9)
        arm = Piece((0.028, 0.005), 0.012, colour, "dome", (-0.02, 0), edge=0.006, corner=0.005)
        ring = Piece((r * 1.15, r), 0.014, colour, "dome", (-0.062, -side * 0.006), edge=0.006, corner=r, wall=0.008)
        thing += [piece.moved(side * angle, (0, 0), 1) for piece in (blade, arm, ring)]
    return [*thing, _disc(0.005, 0.014, _STEEL, gloss=0.9)]


def _screwdriver(random: Generator, colour: Colour) -> Thing:
    r, half = random.uniform(0.012, 0.016), random.uniform(0.034, 0.042)
    grip = Piece((half, r), 2 * r, colour, "bar", (-0.055, 0), second=_DARK, pattern="grooves", taper=0.85)
    return [
        Piece((0.045, 0.0042), r + 0.0042, _STEEL, "bar", (0.024, 0), edge=r, gloss=0.9),
        Piece((0.008, 0.006), r + 0.002, _STEEL, at=(0.073, 0), taper=0.8, bevel=0.001, foot=r - 0.002, gloss=0.9),
        replace(grip, corner=0.006, edge=r),
    ]


def _sunglasses(random: Generator, colour: Colour) -> Thing:
    r = random.uniform(0.022, 0.026)
    thing: Thing = [Piece((0.011, 0.003), 0.015, colour, "dome", (0, 0.006), edge=0.01, corner=0.003)]
    for side in (-1, 1):
        x = side * (r + 0.007)
        arm = Piece((0.042, 0.0028), 0.011, colour, at=(side * 2 * r, -0.046), turn=_ACROSS + side * 0.12, bevel=0.002)
        rim = Piece((r * 1.08, r), 0.013, colour, "dome", (x, 0), corner=r * 0.9, wall=0.005, edge=0.009, gloss=0.6)
        lens = Piece((r * 1.06, r * 0.98), 0.0105, (0.02, 0.022, 0.025), "dome", (x, 0), corner=r * 0.88, edge=0.007)
        thing += [arm, lens, rim]
    return thing


def _tape(random: Generator, colour: Colour) -> Thing:
    r, top, hole = random.uniform(0.04, 0.052), random.uniform(0.02, 0.034), random.uniform(0.66, 0.78)
    core = _ring(r * hole, top + 0.001, (0.35, 0.24, 0.13), wall=0.003, gloss=0.1)
    return [_ring(r, top, colour, wall=r * (1 - hole), gloss=0.6), core]


def _wrench(random: Generator, colour: Colour) -> Thing:
    half, r = random.uniform(0.055, 0.075), random.uniform(0.013, 0.016)
    metal = _STEEL if random.random() < 0.6 else colour
    rings = [(_ring(size, 0.011, metal, wall=size * 0.45, gloss=0.7), x) for size, x in ((r, -half), (r * 0.82, half))]
    bar = Piece((half - r * 0.6, 0.0068), 0.009, metal, taper=0.85, gloss=0.7)
    return [bar, *(replace(ring, at=(x * 1.06, 0), bevel=0.002) for ring, x in rings)]


_MAKERS = (
    *(_ball, _banana, _bottle, _bowl, _box, _bracket, _can, _dumbbell, _frame, _hammer, _marker, _mouse, _mug, _remote),
    *(_scissors, _screwdriver, _sunglasses, _tape, _wrench),
)
THINGS: dict[str, Callable[[Generator, Colour], Thing]] = {maker.__name__[1:]: maker for maker in _MAKERS}
_USUAL = {"banana": ("yellow",), "frame": ("brown", "white", "orange"), "remote": ("black", "grey", "white")}


def make(kind: str, random: Generator, *, colour: str | None = None) -> Thing:
    """A new thing of that kind; colour: a name of PALETTE, None for any that suits."""
    names = _USUAL.get(kind, tuple(PALETTE))
    return THINGS[kind](random, _tinted(PALETTE[colour or names[int(random.integers(len(names)))]], random))


def _tinted(colour: Colour, random: Generator) -> Colour:
    """The colour, a little lighter or darker and off its hue."""
    r, g, b = np.clip(np.array(colour) * random.uniform(0.75, 1.2) + random.uniform(-0.015, 0.015, 3), 0.01, 0.85)
    return float(r), float(g), float(b)


def _disc(radius: float, top: float, colour: Colour, *, gloss: float = 0.4, pattern: str = "plain") -> Piece:
    return Piece((radius, radius), top, colour, corner=radius, gloss=gloss, pattern=pattern)


def _ring(r: float, top: float, colour: Colour, *, wall: float, gloss: float, pattern: str = "plain") -> Piece:
    return replace(_disc(r, top, colour, gloss=gloss, pattern=pattern), wall=wall, bevel=min(0.003, wall / 2))


# --- grasps


@dataclass(frozen=True)
class Grasp:
    """Where a gripper with two fingers grasps, in px of the picture: its opening lies along (cos, sin) with y down.

    angle: in rad, in (-pi/2, pi/2]. opening: between the fingers. jaw: length of a finger's plate.
    """

    x: float
    y: float
    angle: float
    opening: float
    jaw: float

    def corners(self) -> Floats:
        """(4, 2) x, y: p0 to p1 is the opening, p1 to p2 the jaw."""
        c, s = math.cos(self.angle), math.sin(self.angle)
        along, across = np.array([c, s]) * self.opening / 2, np.array([-s, c]) * self.jaw / 2
        return np.stack([-along - across, along - across, along + across, across - along]) + [self.x, self.y]


def fits(mask: Mask, corners: Floats) -> bool:
    """Whether a rectangle's centre lies on the thing, and both jaws (p1 p2 and p3 p0) beside it and in the picture."""
    if corners.min() < 0 or (corners.max(0) > np.array(mask.shape[::-1]) - 1).any():
        return False
    steps = np.linspace(0, 1, int(np.abs(corners[2] - corners[1]).max()) + 2)[:, None]
    jaws = [corners[a] + steps * (corners[b] - corners[a]) for a, b in ((1, 2), (3, 0))]
    x, y = np.rint(np.concatenate([corners.mean(0)[None], *jaws])).astype(int).T
    return bool(mask[y[0], x[0]]) and not mask[y[1:], x[1:]].any()


def differ(a: Grasp, b: Grasp, *, distance: float) -> bool:
    """Whether two grasps are `distance` px or 30 degrees apart."""
    turn = abs((a.angle - b.angle + math.pi / 2) % math.pi - math.pi / 2)
    return math.hypot(a.x - b.x, a.y - b.y) > distance or turn > math.pi / 6


@dataclass(frozen=True)
class Chords:
    """Lines through random points of a thing: points (N, 2) x, y, angles (N, A), and how far the thing goes on, in px.

    before, after: (N, A), against and along the angle; infinite beyond what was looked at.
    """

    points: Floats
    angles: Floats
    before: Floats
    after: Floats

    @classmethod
    def through(cls, mask: Mask, random: Generator, *, count: int, longest: float, stride: int = 1) -> "Chords":
        """`count` points, none in an empty mask, and 24 angles; stride: px from one look at the mask to the next."""
        rows, columns = np.nonzero(mask)
        chosen = random.integers(0, max(1, len(rows)), count if len(rows) else 0)
        angles = (np.arange(24) + random.random((len(chosen), 1))) * (math.pi / 24)
        points = np.stack([columns[chosen], rows[chosen]], 1).astype(np.float32)
        steps = np.arange(1, int(longest) + 1, stride, dtype=np.float32)
        reach = []
        for sign in (-1, 1):
            across, down = (sign * f(angles).astype(np.float32)[..., None] * steps for f in (np.cos, np.sin))
            x = np.clip((across + points[:, 0, None, None] + np.float32(0.5)).astype(np.int32), 0, mask.shape[1] - 1)
            y = np.clip((down + points[:, 1, None, None] + np.float32(0.5)).astype(np.int32), 0, mask.shape[0] - 1)
            free = mask.ravel()[y * np.int32(mask.shape[1]) + x] == 0
            reach.append(np.where(free.any(-1), free.argmax(-1) * stride + 0.5, np.inf))
        return cls(points.astype(np.float64), angles, *reach)

    def grasps(self, random: Generator, *, longest: float, gap: tuple[float, float], unit: float) -> list[Grasp]:
        """For each point, a grasp along one of its shortest lines, so across the thing there; jaws are 10 px.

        Its ends lie beside the thing, by a random number of px within `gap`; openings are multiples of `unit`, in px.
        """
        length = self.before + self.after
        short = length <= length.min(axis=1, keepdims=True, initial=np.inf) * 1.08
        chosen = (short * (random.random(length.shape) + 0.01)).argmax(axis=1)
        found = []
        for i, k in enumerate(chosen.tolist()):
            if math.isfinite(length[i, k]):
                angle, shift = float(self.angles[i, k]), (self.after[i, k] - self.before[i, k]) / 2
                opening = math.ceil((length[i, k] + 2 * random.uniform(*gap)) / unit) * unit
                x, y = (self.points[i] + shift * np.array([math.cos(angle), math.sin(angle)])).tolist()
                found.append(Grasp(x, y, _folded(angle), opening, 10.0))
        return [grasp for grasp in found if grasp.opening <= longest]

    def misses(self, random: Generator, *, longest: float) -> list[Grasp]:
        """Rectangles that do not grasp: along the thing instead of across it, with both ends on it."""
        shorter = np.minimum(np.minimum(self.before, self.after), longest)
        found = []
        for i, k in enumerate(shorter.argmax(axis=1).tolist()):
            opening = min(random.uniform(7, 48), 1.6 * float(shorter[i, k]))
            x, y = self.points[i].tolist()
            found.append(Grasp(x, y, _folded(float(self.angles[i, k])), opening, random.uniform(16, 60)))
        return [grasp for grasp in found if grasp.opening >= 7]


def _folded(angle: float) -> float:
    """The same line's angle in (-pi/2, pi/2]."""
    return math.pi / 2 - (math.pi / 2 - angle) % math.pi
