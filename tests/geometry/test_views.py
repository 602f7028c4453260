"""Views multiply, orientations are EXIF's, sizes are torchvision's, points go where the pixels go."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from packer.errors import InvalidRequest
from packer.geometry import (
    CenterCrop,
    Geometry,
    RandomHorizontalFlip,
    RandomRotation,
    RandomZoom,
    Resize,
    View,
    identity,
    move_boxes,
    move_points,
    upright,
)

numbers = st.floats(-100, 100)
views = st.builds(
    View, st.tuples(*[numbers] * 6), st.tuples(st.integers(1, 50), st.integers(1, 50))
)  # size plays no part in the matrix
points = st.lists(st.tuples(numbers, numbers), min_size=1, max_size=5).map(lambda rows: np.asarray(rows, np.float64))


def at_pixels(view: View, image: np.ndarray) -> np.ndarray:
    """The image through a view that moves whole pixels, pixel by pixel."""
    out = np.zeros((*view.size, *image.shape[2:]), image.dtype)
    for y in range(image.shape[0]):
        for x in range(image.shape[1]):
            to_x, to_y = move_points(np.asarray([[x, y]]), view.array)[0]
            out[int(to_y), int(to_x)] = image[y, x]
    return out


@given(views, views, points)
def test_then_is_one_view_after_the_other(first: View, second: View, given_points: np.ndarray) -> None:
    both = first.then(second)
    step = np.asarray(given_points, np.float64) @ first.array[:, :2].T + first.array[:, 2]
    expected = step @ second.array[:, :2].T + second.array[:, 2]
    assert np.allclose(move_points(given_points, both.array), expected, rtol=1e-4, atol=1e-3)
    assert both.size == second.size


@given(views)
def test_the_identity_changes_nothing(view: View) -> None:
    assert identity(3, 4).then(view) == view
    assert view.then(identity(*view.size)) == view


def test_only_the_identity_of_that_size_is_one() -> None:
    assert identity(3, 4).is_identity(3, 4)
    assert not identity(3, 4).is_identity(4, 3)
    assert not View((1.0, 0.0, 0.5, 0.0, 1.0, 0.0), (3, 4)).is_identity(3, 4)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_is_what_pillow_makes_of_the_exif_orientation(orientation: int) -> None:
    pixels = np.arange(3 * 5 * 3, dtype=np.uint8).reshape(3, 5, 3)
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = orientation
    image.info["exif"] = exif.tobytes()
    expected = np.asarray(ImageOps.exif_transpose(image))
    assert np.array_equal(at_pixels(upright(orientation, 3, 5), pixels), expected)


@given(st.integers(1, 2000), st.integers(1, 2000), st.integers(1, 600))
def test_one_number_is_the_shorter_side_and_the_longer_is_cut_to_whole_pixels(h: int, w: int, side: int) -> None:
    # torchvision.transforms.functional._compute_resized_output_size
    short, long = (w, h) if w <= h else (h, w)
    new_short, new_long = side, int(side * long / short)
    expected = (new_long, new_short) if w <= h else (new_short, new_long)
    assert Resize(side).view(h, w).size == expected


def test_both_numbers_are_the_size() -> None:
    assert Resize((30, 40)).view(7, 9).size == (30, 40)


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 500), st.integers(1, 500))
def test_a_resize_maps_the_edges_of_the_image_onto_the_edges(h: int, w: int, to_h: int, to_w: int) -> None:
    view = Resize((to_h, to_w)).view(h, w)
    edges = np.asarray([[-0.5, -0.5], [w - 0.5, h - 0.5]])
    assert np.allclose(move_points(edges, view.array), [[-0.5, -0.5], [to_w - 0.5, to_h - 0.5]], atol=1e-4)


@given(st.integers(1, 500), st.integers(1, 500))
def test_a_resize_to_the_same_size_is_the_identity(h: int, w: int) -> None:
    assert Resize((h, w)).view(h, w).is_identity(h, w)


@given(st.integers(1, 99_999), st.integers(1, 99_999))
def test_what_the_user_types_is_width_before_height(height: int, width: int) -> None:
    assert Resize.parse(f"{width}x{height}") == Resize((height, width))
    assert Resize.parse(f"{width}X{height}") == Resize((height, width))
    assert Resize.parse(str(height)) == Resize(height)


@pytest.mark.parametrize(
    "text", ["", "x", "3x", "x3", "3x4x5", "-3", "3.5", " 3", "3 x 4", "0", "0x3", "3x0", "٣", "1e3", "9" * 5000]
)
def test_any_other_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="resize"):
        Resize.parse(text)


@pytest.mark.parametrize("shape", [(0, 2), (5, 2), (2, 4, 2), (0, 4, 2)])
def test_points_keep_their_shape_and_become_float32(shape: tuple[int, ...]) -> None:
    moved = move_points(np.ones(shape), identity(4, 4).array)
    assert moved.shape == shape
    assert moved.dtype == np.float32
    assert (moved == 1).all()


@given(views, st.lists(st.tuples(*[numbers] * 4), max_size=4))
def test_a_moved_box_is_the_tightest_around_its_moved_corners(view: View, rows: list[tuple[float, ...]]) -> None:
    boxes = np.asarray(rows, np.float64).reshape(-1, 4)
    moved = move_boxes(boxes, view.array)
    assert moved.shape == boxes.shape
    assert moved.dtype == np.float32
    for box, (x0, y0, x1, y1) in zip(moved, boxes, strict=True):
        corners = np.asarray([[x0, y0], [x0, y1], [x1, y0], [x1, y1]], np.float64) - 0.5
        around = corners @ view.array[:, :2].T + view.array[:, 2] + 0.5
        assert np.allclose(box, [*around.min(axis=0), *around.max(axis=0)], rtol=1e-6)


@pytest.mark.parametrize(
    ("view", "moved"),
    [
        (RandomHorizontalFlip(1).view(64, 96, [0.0]), [56, 8, 88, 24]),
        (RandomRotation(choices=(180,)).view(64, 96, [0.0]), [56, 40, 88, 56]),
        (Resize((32, 48)).view(64, 96, []), [4, 4, 20, 12]),
        (CenterCrop((32, 48)).view(64, 96, []), [-16, -8, 16, 8]),
    ],
)
def test_boxes_have_edges_between_pixels(view: View, moved: list[float]) -> None:
    """As COCO and torchvision have them."""
    assert np.allclose(move_boxes(np.asarray([[8, 8, 40, 24]]), view.array), [moved], atol=1e-4)


@given(
    st.integers(1, 500),
    st.integers(1, 500),
    st.floats(0, 0.999),
    st.sampled_from(
        [RandomHorizontalFlip(1), RandomRotation(), RandomRotation(choices=(0, 90, 180, 270)), RandomZoom(0.2, 3)]
    ),
)
def test_the_middle_stays_in_the_middle(height: int, width: int, number: float, geometry: Geometry) -> None:
    view = geometry.view(height, width, [number])
    middle = np.asarray([[(width - 1) / 2, (height - 1) / 2]])
    assert np.allclose(move_points(middle, view.array), middle, atol=1e-3)
    assert view.size == (height, width)


def test_directions_are_as_seen() -> None:
    right_of_the_middle = np.asarray([[3.0, 2.0]])  # of 5x5; y points down
    assert move_points(right_of_the_middle, RandomHorizontalFlip(1).view(5, 5, [0]).array).tolist() == [[1, 2]]
    assert move_points(right_of_the_middle, RandomRotation((90, 90)).view(5, 5, [0]).array).tolist() == [[2, 1]]
    assert move_points(right_of_the_middle, RandomZoom(0.5, 0.5).view(5, 5, [0]).array).tolist() == [[4, 2]]
