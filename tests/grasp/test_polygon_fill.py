"""Filled polygons, pixel by pixel, against the slow rule and, where it is installed, scikit-image."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.grasp.polygon_fill import fill
from packer.grasp.targets import rectangle
from tests.support import slow_grasps
from tests.support.slow_grasps import scikit

HEIGHT, WIDTH = 21, 26
ANGLES = (0.0, np.pi / 2, -np.pi / 2, np.pi / 4, float(np.arctan2(3, 4)), 0.3)


def filled(y: Any, x: Any) -> Any:
    """Which pixels fast filling finds, bool (N, HEIGHT, WIDTH)."""
    pixels, number = fill(y, x, HEIGHT, WIDTH).pixels(WIDTH)
    found = np.zeros((y.shape[1], HEIGHT * WIDTH), bool)
    found[number, pixels] = True
    return found.reshape(-1, HEIGHT, WIDTH)


def slowly(polygon: Callable[..., Any], y: Any, x: Any) -> Any:
    found = np.zeros((y.shape[1], HEIGHT, WIDTH), bool)
    for number in range(y.shape[1]):
        rows, columns = polygon(y[:, number], x[:, number], (HEIGHT, WIDTH))
        found[number, rows, columns] = True
    return found


def test_pixels_come_polygon_after_polygon() -> None:
    count = np.arange(9)
    y, x = rectangle(5.0 + count, np.full(9, 7.0), 0.1 * count, np.full(9, 4.0), np.full(9, 4.0))
    runs = fill(y, x, HEIGHT, WIDTH)
    assert (np.diff(runs.polygon) >= 0).all()
    assert set(runs.polygon.tolist()) == set(range(9))


@st.composite
def rectangles(draw: Any) -> tuple[float, ...]:
    length = st.one_of(st.integers(0, 30).map(float), st.integers(0, 90).map(lambda n: n / 3), st.floats(0.4, 40))
    angle = st.one_of(st.sampled_from(ANGLES), st.floats(-np.pi / 2, np.pi / 2))
    return (float(draw(st.integers(-9, 30))), float(draw(st.integers(-9, 35))), draw(angle), draw(length), draw(length))


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(st.lists(rectangles(), min_size=1, max_size=6))
def test_every_rectangle_has_the_pixels_of_the_slow_rule(given: list[tuple[float, ...]]) -> None:
    y, x = rectangle(*np.asarray(given).T)
    np.testing.assert_array_equal(filled(y, x), slowly(slow_grasps.polygon, y, x))


def test_the_slow_rule_is_that_of_scikit_image() -> None:
    polygon = scikit()
    random = np.random.default_rng(0)
    count = 3000
    whole = random.random(count) < 0.5
    row, column = random.integers(-9, 35, (2, count)).astype(float)
    angle = np.where(whole, random.choice(ANGLES, count), random.uniform(-np.pi / 2, np.pi / 2, count))
    opening, jaw = np.where(random.random((2, count)) < 0.5, random.integers(0, 60, (2, count)) / 3, 20 * whole + 1.7)
    y, x = rectangle(row, column, angle, opening, jaw)
    expected = slowly(polygon, y, x)
    np.testing.assert_array_equal(slowly(slow_grasps.polygon, y, x), expected)
    np.testing.assert_array_equal(filled(y, x), expected)
