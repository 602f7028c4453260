"""When a grasp counts as right: overlap of filled rectangles, and angle."""

import numpy as np
import pytest

from packer.grasp.metrics import angle, angle_difference, iou, is_correct_grasp
from packer.grasp.targets import rectangle


def grasp(row: float, column: float, degrees: float, opening: float, jaw: float) -> np.ndarray:
    """Corners (4, 2), row and column; degrees counter-clockwise."""
    values = (row, column, np.radians(degrees), opening, jaw)
    y, x = rectangle(*(np.asarray([value], float) for value in values))
    return np.stack([y[:, 0], x[:, 0]], axis=1)


def test_a_rectangle_overlaps_itself_wholly_and_another_place_not_at_all() -> None:
    one = grasp(40, 40, 20, 30, 12)
    assert iou(one, one) == 1.0
    assert iou(one, grasp(40, 90, 20, 30, 12)) == 0.0


def test_the_overlap_is_counted_in_whole_pixels_with_their_sides() -> None:
    one, other = grasp(10, 10, 0, 8, 4), grasp(10, 14, 0, 8, 4)  # columns 6-14 and 10-18, 5 rows each
    assert iou(one, other) == 25 / (45 + 45 - 25)


@pytest.mark.parametrize(("degrees", "right"), [(0, True), (29.9, True), (30.1, False), (90, False), (-29.9, True)])
def test_an_angle_within_30_degrees_is_right(degrees: float, right: bool) -> None:
    assert is_correct_grasp(grasp(40, 40, degrees, 20, 20), np.stack([grasp(40, 40, 0, 20, 20)])) is right


def test_half_a_turn_is_no_difference() -> None:
    one = grasp(40, 40, 89, 20, 8)
    assert angle_difference(angle(one), angle(grasp(40, 40, -89, 20, 8))) == pytest.approx(np.radians(2))
    assert is_correct_grasp(one, grasp(40, 40, -89, 20, 8)[None])
    assert is_correct_grasp(one, one[None, [2, 3, 0, 1]])


def test_a_quarter_of_overlap_is_not_enough_and_more_is() -> None:
    truth = grasp(40, 40, 0, 54, 8)[None]  # 55 columns, 9 rows
    assert iou(grasp(40, 73, 0, 54, 8), truth[0]) == 22 / 88
    assert not is_correct_grasp(grasp(40, 73, 0, 54, 8), truth)
    assert is_correct_grasp(grasp(40, 72, 0, 54, 8), truth)


def test_what_lies_outside_of_the_image_does_not_overlap() -> None:
    assert iou(grasp(-40, -40, 0, 20, 8), grasp(-40, -40, 0, 20, 8)) == 0.0
    assert iou(grasp(-40, 40, 0, 20, 8), grasp(40, 40, 0, 20, 8)) == 0.0


def test_one_true_rectangle_of_several_is_enough_and_none_is_not() -> None:
    truths = np.stack([grasp(200, 200, 0, 20, 8), grasp(40, 40, 10, 22, 8)])
    assert is_correct_grasp(grasp(40, 40, 0, 20, 8), truths)
    assert not is_correct_grasp(grasp(40, 40, 0, 20, 8), truths[:0])
