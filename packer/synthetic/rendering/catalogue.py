"""Catalogue: everyday things, built from parts with random proportions and colours.

Each function makes one thing, centred on the origin, resting on z = 0, lengths in m, long side along x.
"""

import math
from collections.abc import Callable

import numpy as np

from packer.synthetic.rendering.part import Material, Part, Vector

Generator = np.random.Generator
Colour = tuple[float, float, float]
Thing = list[Part]

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
_STEEL = Material((0.42, 0.43, 0.45), gloss=0.9)
_DARK = Material((0.03, 0.03, 0.033), gloss=0.35)
_ALONG_X: Vector = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])  # columns: local axes
_ALONG_Y: Vector = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


def about_z(angle: float) -> Vector:
    """Rotation by `angle` in rad, anticlockwise seen from above."""
    c, s = math.cos(angle), math.sin(angle)
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])


def _tinted(colour: Colour, random: Generator) -> Colour:
    """The colour, a little lighter or darker and off its hue."""
    r, g, b = np.clip(np.array(colour) * random.uniform(0.75, 1.2) + random.uniform(-0.015, 0.015, 3), 0.01, 0.85)
    return float(r), float(g), float(b)


def ball(random: Generator, colour: Colour) -> Thing:
    """A ball with patches or segments."""
    r = random.uniform(0.03, 0.045)
    light = colour if sum(colour) > 1.2 else (0.8, 0.79, 0.76)
    pattern = ("patches", "segments")[random.integers(2)]
    skin = Material(light, colour if light != colour else (0.03, 0.03, 0.03), pattern, 0.3)
    tilt = about_z(random.uniform(0, 3)) @ _ALONG_X @ about_z(random.uniform(0, 3))
    return [Part("ellipsoid", (r, r, r), skin, (0, 0, r), tilt)]


def banana(random: Generator, colour: Colour) -> Thing:
    """A bent row of ellipsoids."""
    bend, r = random.uniform(0.085, 0.11), random.uniform(0.015, 0.019)
    skin = Material(colour, gloss=0.15)
    parts: Thing = []
    for angle in np.linspace(-0.95, 0.95, 9):
        thick = r * (1 - 0.42 * (angle / 0.95) ** 4)
        centre = (bend * math.sin(angle), bend * (1 - math.cos(angle)) - 0.02, thick)
        parts.append(Part("ellipsoid", (0.021, thick, thick), skin, centre, about_z(angle)))
    x, y = bend * math.sin(1.1), bend * (1 - math.cos(1.1)) - 0.02
    stem = Material((0.10, 0.07, 0.02), gloss=0.1)
    parts.append(Part("box", (0.011, 0.004, 0.004), stem, (x, y, r * 0.6), about_z(1.1), bevel=0.002))
    return parts


def bottle(random: Generator, colour: Colour) -> Thing:
    """A bottle that lies on its side, with a label and a cap."""
    r, half = random.uniform(0.025, 0.034), random.uniform(0.055, 0.07)
    glass = Material(colour, (0.78, 0.76, 0.7), "label", 0.8)
    plain, cap = Material(colour, gloss=0.8), Material(tuple(PALETTE.values())[random.integers(12)], gloss=0.4)
    neck = r * random.uniform(0.36, 0.45)
    return [
        Part("frustum", (r, r, half), glass, (-0.03, 0, r), _ALONG_X, bevel=0.006),
        Part("frustum", (r, r, 0.016), plain, (half - 0.014, 0, r), _ALONG_X, taper=neck / r, bevel=0.001),
        Part("frustum", (neck, neck, 0.014), plain, (half + 0.015, 0, r), _ALONG_X),
        Part("frustum", (neck * 1.18, neck * 1.18, 0.009), cap, (half + 0.036, 0, r), _ALONG_X),
    ]


def bowl(random: Generator, colour: Colour) -> Thing:
    """A bowl that stands, open at the top."""
    r, half = random.uniform(0.038, 0.048), random.uniform(0.022, 0.03)
    wall = Material(colour, (0.8, 0.78, 0.72), "plain", 0.6)
    inside = Material(_tinted(colour, random), gloss=0.5)
    return [
        Part("frustum", (r, r, half), wall, (0, 0, half), taper=1.6, hollow=0.93),
        Part("frustum", (r * 0.94, r * 0.94, 0.003), inside, (0, 0, 0.0045)),
    ]


def box(random: Generator, colour: Colour) -> Thing:
    """A printed carton."""
    half = (random.uniform(0.06, 0.095), random.uniform(0.04, 0.058), random.uniform(0.014, 0.032))
    second = tuple(PALETTE.values())[random.integers(12)] if random.random() < 0.4 else (0.8, 0.78, 0.7)
    return [Part("box", half, Material(colour, second, "print", 0.25), (0, 0, half[2]), bevel=0.002)]


def bracket(random: Generator, colour: Colour) -> Thing:
    """Two bars that make an L."""
    long, short, w = random.uniform(0.06, 0.085), random.uniform(0.035, 0.05), random.uniform(0.009, 0.014)
    metal = Material(colour, gloss=0.5)
    return [
        Part("box", (long, w, w), metal, (0, 0, w)),
        Part("box", (w, short, w), metal, (w - long, short + w, w)),
        Part("frustum", (w * 0.45, w * 0.45, 0.002), _DARK, (long * 0.75, 0, 2 * w)),
        Part("frustum", (w * 0.45, w * 0.45, 0.002), _DARK, (w - long, 2 * short * 0.85, 2 * w)),
    ]


def can(random: Generator, colour: Colour) -> Thing:
    """A drink can that stands, with a ring on its lid."""
    r, half = random.uniform(0.029, 0.034), random.uniform(0.045, 0.06)
    print_ = Material(colour, (0.82, 0.8, 0.76), ("label", "rings", "ribs")[random.integers(3)], 0.7)
    return [
        Part("frustum", (r, r, half), print_, (0, 0, half), bevel=0.004),
        Part("frustum", (r * 0.9, r * 0.9, 0.003), _STEEL, (0, 0, 2 * half), hollow=0.9, bevel=0.001),
        Part("frustum", (r * 0.86, r * 0.86, 0.001), _STEEL, (0, 0, 2 * half)),
        Part("frustum", (0.009, 0.009, 0.001), _STEEL, (0.008, 0, 2 * half + 0.002), hollow=0.6, bevel=0.0005),
    ]


def dumbbell(random: Generator, colour: Colour) -> Thing:
    """Two weights on a bar."""
    r, half = random.uniform(0.026, 0.034), random.uniform(0.014, 0.02)
    weight = Material(colour, gloss=0.25)
    reach = random.uniform(0.05, 0.06)
    return [
        Part("frustum", (r, r, half), weight, (-reach, 0, r), _ALONG_X, bevel=0.006),
        Part("frustum", (r, r, half), weight, (reach, 0, r), _ALONG_X, bevel=0.006),
        Part("frustum", (0.011, 0.011, reach), _STEEL, (0, 0, r), _ALONG_X),
    ]


def frame(random: Generator, colour: Colour) -> Thing:
    """A small ladder: two rails and some rungs."""
    half, wide, w = random.uniform(0.085, 0.115), random.uniform(0.028, 0.04), random.uniform(0.0045, 0.006)
    wood = Material(colour, tuple(np.array(colour) * 0.6), "grain", 0.15)
    rails = [Part("box", (half, w, w), wood, (0, side * wide, w)) for side in (-1, 1)]
    places = np.linspace(-0.8, 0.8, int(random.integers(3, 6))) * half
    return rails + [Part("box", (w, wide * 1.3, w * 0.8), wood, (float(x), 0, 2.2 * w)) for x in places]


def hammer(random: Generator, colour: Colour) -> Thing:
    """A handle with a steel head across it."""
    half = random.uniform(0.075, 0.095)
    grip = Material(colour, (0.04, 0.04, 0.04), "hoop", 0.3)
    return [
        Part("frustum", (0.012, 0.012, half), grip, (-0.012, 0, 0.014), _ALONG_X, taper=0.75),
        Part("box", (0.012, 0.026, 0.013), _STEEL, (half - 0.008, 0.004, 0.014)),
        Part("frustum", (0.014, 0.014, 0.010), _STEEL, (half - 0.008, -0.03, 0.014), _ALONG_Y),
        Part("box", (0.006, 0.018, 0.009), _STEEL, (half - 0.008, 0.042, 0.013)),
    ]


def marker(random: Generator, colour: Colour) -> Thing:
    """A pen with a cap in its colour."""
    r, half = random.uniform(0.0065, 0.0095), random.uniform(0.045, 0.055)
    shaft = Material(colour if random.random() < 0.5 else (0.75, 0.75, 0.72), gloss=0.5)
    cap = Material(colour, gloss=0.6)
    return [
        Part("frustum", (r, r, half), shaft, (-0.018, 0, r * 1.15), _ALONG_X, bevel=0.002),
        Part("frustum", (r * 1.15, r * 1.15, 0.024), cap, (half, 0, r * 1.15), _ALONG_X, taper=0.86),
        Part("box", (0.02, 0.0018, 0.0012), cap, (half - 0.004, 0, r * 2.3)),
    ]


def mouse(random: Generator, colour: Colour) -> Thing:
    """A computer mouse: a flat ellipsoid with a wheel."""
    long, wide, high = random.uniform(0.048, 0.056), random.uniform(0.028, 0.033), random.uniform(0.026, 0.031)
    shell = Material(colour, gloss=0.5)
    return [
        Part("ellipsoid", (long, wide, high), shell, (0, 0, high * 0.42)),
        Part("ellipsoid", (long * 1.02, wide * 1.03, high * 0.5), _DARK, (0, 0, high * 0.3)),
        Part("frustum", (0.008, 0.008, 0.0035), _DARK, (long * 0.6, 0, high * 1.16), _ALONG_Y),
    ]


def mug(random: Generator, colour: Colour) -> Thing:
    """A cup that stands, with a handle and something in it."""
    r, half = random.uniform(0.032, 0.039), random.uniform(0.034, 0.046)
    glaze = Material(colour, (0.8, 0.79, 0.75), ("plain", "rings", "ribs")[random.integers(3)], 0.7)
    plain, drink = Material(colour, gloss=0.7), Material((0.07, 0.03, 0.012), gloss=0.6)
    return [
        Part("frustum", (r, r, half), glaze, (0, 0, half), taper=random.uniform(1.0, 1.12), hollow=0.88),
        Part("frustum", (r * 0.9, r * 0.9, half * 0.7), drink, (0, 0, half * 0.75)),
        Part("frustum", (half * 0.62, half * 0.62, 0.006), plain, (r * 1.25, 0, half), _ALONG_Y, hollow=0.72),
    ]


def remote(random: Generator, colour: Colour) -> Thing:
    """A remote control with rows of buttons."""
    half = (random.uniform(0.07, 0.09), random.uniform(0.019, 0.024), random.uniform(0.008, 0.011))
    keys = (0.55, 0.55, 0.55) if sum(colour) < 0.8 else (0.05, 0.05, 0.05)
    dot = Material((0.7, 0.05, 0.05), gloss=0.5)
    return [
        Part("box", half, Material(colour, keys, "buttons", 0.4), (0, 0, half[2]), bevel=0.004),
        Part("frustum", (0.005, 0.005, 0.0015), dot, (half[0] * 0.84, half[1] * 0.4, half[2] * 2)),
    ]


def scissors(random: Generator, colour: Colour) -> Thing:
    """Two blades that cross, with two rings to hold."""
    angle, r = random.uniform(0.14, 0.24), random.uniform(0.017, 0.022)
    grip = Material(colour, gloss=0.4)
    parts: Thing = [Part("frustum", (0.005, 0.005, 0.007), _STEEL, (0, 0, 0.007))]
    for side in (-1, 1):
        turn = about_z(side * angle)
        blade = turn @ np.array([0.042, 0.0, 0.005 + 0.001 * side])
        ring = turn @ np.array([-0.062, 0.0, 0.0065])
        arm = turn @ np.array([-0.02, 0.0, 0.005])
        parts.append(Part("box", (0.048, 0.0055, 0.0022), _STEEL, (blade[0], blade[1], blade[2]), turn))
        parts.append(Part("box", (0.026, 0.005, 0.005), grip, (arm[0], arm[1], arm[2]), turn))
        parts.append(Part("frustum", (r, r, 0.006), grip, (ring[0], ring[1] - side * 0.006, ring[2]), hollow=0.66))
    return parts


def screwdriver(random: Generator, colour: Colour) -> Thing:
    """A ribbed grip and a thin shaft."""
    r, half = random.uniform(0.012, 0.016), random.uniform(0.034, 0.042)
    grip = Material(colour, (0.03, 0.03, 0.03), "ribs", 0.5)
    return [
        Part("frustum", (r, r, half), grip, (-0.055, 0, r), _ALONG_X, taper=0.82, bevel=0.006),
        Part("frustum", (0.0042, 0.0042, 0.045), _STEEL, (0.024, 0, r), _ALONG_X),
        Part("box", (0.006, 0.006, 0.002), _STEEL, (0.073, 0, r), bevel=0.001),
    ]


def sunglasses(random: Generator, colour: Colour) -> Thing:
    """Two lenses, a bridge and two arms."""
    r = random.uniform(0.022, 0.026)
    rim, lens = Material(colour, gloss=0.6), Material((0.02, 0.022, 0.025), gloss=1.0)
    parts: Thing = [Part("box", (0.01, 0.003, 0.003), rim, (0, 0.004, 0.012))]
    for side in (-1, 1):
        x = side * (r + 0.006)
        parts.append(Part("frustum", (r, r, 0.004), rim, (x, 0, 0.008), hollow=0.86, bevel=0.002))
        parts.append(Part("frustum", (r * 0.88, r * 0.88, 0.002), lens, (x, 0, 0.008)))
        arm = about_z(side * 0.12)
        parts.append(Part("box", (0.0025, 0.042, 0.004), rim, (side * (2 * r), -0.042, 0.006), arm))
    return parts


def tape(random: Generator, colour: Colour) -> Thing:
    """A roll that lies flat, with a hole."""
    r, half = random.uniform(0.04, 0.052), random.uniform(0.01, 0.017)
    core = Material((0.35, 0.24, 0.13), gloss=0.1)
    hole = random.uniform(0.62, 0.74)
    return [
        Part("frustum", (r, r, half), Material(colour, gloss=0.6), (0, 0, half), hollow=hole + 0.05),
        Part("frustum", (r * (hole + 0.05), r * (hole + 0.05), half), core, (0, 0, half), hollow=0.93),
    ]


def wrench(random: Generator, colour: Colour) -> Thing:
    """A ring spanner: a flat bar between two rings."""
    half, r = random.uniform(0.055, 0.075), random.uniform(0.013, 0.016)
    metal = _STEEL if random.random() < 0.6 else Material(colour, gloss=0.7)
    return [
        Part("box", (half, 0.007, 0.0035), metal, (0, 0, 0.005)),
        Part("frustum", (r, r, 0.005), metal, (-half - 0.006, 0, 0.005), hollow=0.55, bevel=0.002),
        Part("frustum", (r * 0.82, r * 0.82, 0.005), metal, (half + 0.005, 0, 0.005), hollow=0.55, bevel=0.002),
    ]


THINGS: dict[str, Callable[[Generator, Colour], Thing]] = {
    maker.__name__: maker
    for maker in (
        *(ball, banana, bottle, bowl, box, bracket, can, dumbbell, frame, hammer, marker, mouse, mug, remote),
        *(scissors, screwdriver, sunglasses, tape, wrench),
    )
}


def make(kind: str, random: Generator, *, colour: str | None = None) -> Thing:
    """A new thing of that kind; colour: a name of PALETTE, None for any that suits."""
    name = colour or _usual(kind, random)
    return THINGS[kind](random, _tinted(PALETTE[name], random))


def place(thing: Thing, *, turn: float, at: tuple[float, float], scale: float = 1.0) -> Thing:
    """The thing scaled, turned by `turn` rad about the vertical and moved to `at` (x, y) on the table in m."""
    return [part.moved(about_z(turn), np.array([*at, 0.0]), scale=scale) for part in thing]


def _usual(kind: str, random: Generator) -> str:
    few = {"banana": ("yellow",), "frame": ("brown", "white", "orange"), "remote": ("black", "grey", "white")}
    names = few.get(kind, tuple(PALETTE))
    return names[int(random.integers(len(names)))]
