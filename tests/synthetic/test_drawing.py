import cv2
import numpy as np
import pytest

from packer.synthetic.drawing import KINDS, PALETTE, clouds, draw_object, draw_table, encode, make_object, photograph

SIZE = (120, 160)


def gray(value=120):
    return np.full((*SIZE, 3), value, np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_the_colored_pixels_are_those_with_a_height(kind):
    drawn = make_object(kind, np.random.default_rng(5), color="red")
    image = gray()
    heights = draw_object(image, drawn, at=(80, 60), turn=0.7, scale=50 / drawn.radius)
    assert heights.dtype == np.float32
    assert heights.max() == pytest.approx(drawn.height, rel=0.01)
    mask = heights > 0
    assert mask.sum() > 300
    assert (image[~mask].std(1) == 0).all()  # a shadow keeps the table gray
    assert (image[mask][:, 0] > image[mask][:, 2] + 10.0).any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_red_object_is_redder_than_a_blue_one(kind):
    means = []
    for color in ("red", "blue"):
        image = gray()
        drawn = make_object(kind, np.random.default_rng(1), color=color)
        draw_object(image, drawn, at=(80, 60), turn=0.0, scale=50 / drawn.radius)
        means.append((image[..., 0].astype(float) - image[..., 2]).mean())
    assert means[0] > means[1]


def test_an_object_is_where_it_was_put_and_as_large_as_its_scale():
    ball = make_object("ball", np.random.default_rng(0))
    rows, columns = np.nonzero(draw_object(gray(), ball, at=(100, 40), turn=1.0, scale=500))
    assert (columns.mean(), rows.mean()) == pytest.approx((100, 40), abs=1)
    assert max(np.ptp(rows), np.ptp(columns)) == pytest.approx(2 * ball.radius * 500, abs=3)


@pytest.mark.parametrize("at", [(-500, 60), (80, 900), (0, 0)])
def test_an_object_at_the_edge_or_outside_leaves_the_rest_of_the_table(at):
    image = gray()
    drawn = make_object("ball", np.random.default_rng(0))
    heights = draw_object(image, drawn, at=at, turn=0.0, scale=500)
    assert heights.any() == (at == (0, 0))
    assert (image[60:, 80:] == 120).all()


def test_there_are_twelve_colors_and_tables_of_every_size():
    assert len(PALETTE) == 12
    for number in range(6):
        for size in ((16, 16), (33, 200)):
            assert draw_table(np.random.default_rng(0), size, number=number).shape == (*size, 3)


def test_grain_has_the_deviation_of_its_option():
    noisy = photograph(gray(), np.random.default_rng(0), grain=5.0)
    assert noisy.astype(float).std() == pytest.approx(5, rel=0.1)
    assert noisy.mean() == pytest.approx(120, abs=0.5)


def test_clouds_have_a_deviation_near_one():
    assert clouds(np.random.default_rng(0), (300, 400), cells=60).std() == pytest.approx(1, abs=0.3)


def test_files_hold_rgb_and_exact_depth():
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    for suffix in (".png", ".jpg"):
        blue, _, back = cv2.imdecode(np.frombuffer(encode(suffix, red), np.uint8), cv2.IMREAD_COLOR)[4, 4]
        assert blue < 10 and back > 240
    depth = np.random.default_rng(0).random((9, 7), np.float32)
    assert np.array_equal(cv2.imdecode(np.frombuffer(encode(".tiff", depth), np.uint8), cv2.IMREAD_UNCHANGED), depth)
