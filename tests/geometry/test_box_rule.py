"""BoxRule: which boxes stay, and where they are cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InvalidRequest
from packer.geometry import BoxRule

SIZE = (20, 40)  # height, width


def test_boxes_are_cut_at_the_edges_of_the_image() -> None:
    boxes = np.float32([[-3, -4, 50, 30], [5, 6, 7, 8], [39.5, 19.5, 41, 21]])
    assert BoxRule(clip=True).clipped(boxes, SIZE).tolist() == [[0, 0, 40, 20], [5, 6, 7, 8], [39.5, 19.5, 40, 20]]
    assert BoxRule().clipped(boxes, SIZE) is boxes


@pytest.mark.parametrize(
    ("box", "least", "stays"),
    [
        ((0, 0, 40, 20), 1.0, True),
        ((-10, 0, 10, 10), 0.5, True),  # half of it
        ((-10.1, 0, 10, 10), 0.5, False),
        ((-10, -10, 10, 10), 0.25, True),
        ((-10, -10, 10, 10), 0.26, False),
        ((50, 5, 60, 10), 0.01, False),
        ((-30, -10, 70, 30), 0.2, True),  # larger than the image: 800 of 4000
        ((40, 0, 50, 10), 0.001, False),  # beside it
        ((5, 5, 5, 9), 0.9, True),  # no area, its center inside
        ((5, 30, 5, 34), 0.9, False),
        ((39, 5, 40.0000038, 10), 1.0, True),  # on the edge, but for float32
        ((np.nan, 0, 1, 1), 0.9, True),
        ((-50, 0, np.inf, 1), 0.9, True),
    ],
)
def test_a_box_stays_where_enough_of_it_can_be_seen(box: tuple[float, ...], least: float, stays: bool) -> None:
    assert BoxRule(least_visible=least).visible(np.float32([box]), SIZE).tolist() == [stays]
    assert BoxRule(clip=True).visible(np.float32([box]), SIZE).tolist() == [True]


@given(st.lists(st.tuples(*[st.integers(-30, 60)] * 4), max_size=6), st.sampled_from([0.05, 0.25, 0.5, 0.9]))
def test_the_share_is_that_of_the_pixels(corners: list[tuple[int, int, int, int]], least: float) -> None:
    boxes = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners]
    boxes = [box for box in boxes if box[0] < box[2] and box[1] < box[3]]
    wanted = []
    for x0, y0, x1, y1 in boxes:
        seen = sum(0 <= x < SIZE[1] for x in range(x0, x1)) * sum(0 <= y < SIZE[0] for y in range(y0, y1))
        wanted.append(seen / ((x1 - x0) * (y1 - y0)))
    found = BoxRule(least_visible=least).visible(np.asarray(boxes, np.float32).reshape(-1, 4), SIZE)
    for share, stays in zip(wanted, found.tolist(), strict=True):
        assert stays == (share >= least) or abs(share - least) < 1e-2, (share, stays)


@pytest.mark.parametrize(
    ("box", "stays"),
    [
        ((5, 5, 7, 7), True),
        ((5, 5, 6.9, 9), False),
        ((5, 5, 9, 6.9), False),
        ((5, 5, 5, 9), False),  # no width
        ((7, 5, 5, 9), False),  # less than none
        ((-9, 5, 2, 9), True),
        ((-9, 5, 1.5, 9), False),  # wide enough, but for what is cut off
        ((30, 15, np.inf, np.inf), True),
        ((np.nan, 5, 9, 9), True),
        ((np.inf, 5, np.inf, 9), False),
    ],
)
def test_a_box_goes_where_a_side_of_what_is_left_is_too_short(box: tuple[float, ...], stays: bool) -> None:
    assert BoxRule(clip=True, min_side=2).visible(np.float32([box]), SIZE).tolist() == [stays]
    both = BoxRule(clip=True, min_side=2, least_visible=1.0)
    inside = box[0] >= 0
    assert both.visible(np.float32([box]), SIZE).tolist() == [stays and (inside or not np.isfinite(box).all())]


def test_without_clip_the_side_is_that_of_the_whole_box() -> None:
    assert BoxRule(min_side=2).visible(
        np.float32([(-9, 5, 1.5, 9), (50, 5, 51, 9), (np.inf, 5, np.inf, 9)]), SIZE
    ).tolist() == [
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("side", [0, -1, True, "1", float("nan"), float("inf")])
def test_a_side_that_is_none_is_refused(side: object) -> None:
    with pytest.raises(InvalidRequest, match="min_side"):
        BoxRule(min_side=side)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [0, -0.5, 1.01, True, "half", float("nan")])
def test_a_share_that_is_none_is_refused(share: object) -> None:
    with pytest.raises(InvalidRequest, match="least_visible"):
        BoxRule(least_visible=share)  # type: ignore[arg-type]


def test_clip_is_a_switch() -> None:
    with pytest.raises(InvalidRequest, match="clip='yes'"):
        BoxRule(clip="yes")  # type: ignore[arg-type]
