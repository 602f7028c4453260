import math
from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer.synthetic import cornell
from packer.synthetic._rendering import TABLES, Camera, Grain, Lamp, draw, encode
from packer.synthetic._scene_objects import PALETTE, THINGS, Chords, Grasp, Piece, fits, make, outline, place

WHITE = (0.8, 0.8, 0.8)
CAMERA = Camera(0.5, 0.2, 200.0, (96, 128))
ABOVE = Camera(0.5, 1e-6, 200.0, (96, 128))
COORDINATE = st.floats(20, 200)


def table(camera=CAMERA):
    return np.full((*camera.size, 3), 200, np.uint8)


def disc(radius, top, colour=WHITE, **rest):
    return Piece((radius, radius), top, colour, corner=radius, **rest)


def bar(degrees):
    """Mask of a 90 x 16 px bar turned clockwise on the screen (y is down)."""
    turn = np.radians(degrees)
    along, across = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    points = [(100, 100) + a * 45 * along + b * 8 * across for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    mask = np.zeros((200, 200), np.uint8)
    cv2.fillPoly(mask, [np.rint(points).astype(np.int32)], 255)
    return mask


# camera


@given(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1))
def test_the_ground_behind_the_pixel_of_a_point_is_that_point(x, y):
    ((column, row),) = CAMERA.project(np.array([[x, y, 0.0]]))
    found = CAMERA.ground(np.array([column], np.float32), np.array([row], np.float32))
    assert np.concatenate(found) == pytest.approx([x, y], abs=1e-5)


@given(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1), st.floats(0, 0.2))
def test_a_point_above_the_table_covers_one_further_back(x, y, z):
    (column, row), (_, foot) = CAMERA.project(np.array([[x, y, z], [x, y, 0]]))
    _, behind = CAMERA.ground(np.array([column], np.float32), np.array([row], np.float32))
    assert row <= foot and behind[0] == pytest.approx((0.5 * y + 0.2 * z) / (0.5 - z), abs=1e-4)


def test_the_depth_of_the_table_is_along_the_axis():
    depth = CAMERA.table_depth()
    assert depth.shape == (96, 1) and depth[[47, 48]].mean() == pytest.approx(math.hypot(0.5, 0.2), abs=1e-4)
    assert (np.diff(depth[:, 0]) < 0).all()
    assert CAMERA.ray_lengths().min() == pytest.approx(1, abs=1e-4)


# pieces: the outline against a slow rule


def inside(piece, x, y):
    """Whether a point lies in a rounded box, by the box's two crossed bars and its four discs."""
    c, s = math.cos(piece.turn), math.sin(piece.turn)
    x, y = x - piece.at[0], y - piece.at[1]
    x, y = abs(c * x + s * y), abs(c * y - s * x)
    (long, wide), r = piece.half, piece.corner
    crossed = (x <= long and y <= wide - r) or (x <= long - r and y <= wide)
    return crossed or math.hypot(x - (long - r), y - (wide - r)) <= r


@given(
    st.tuples(*[st.floats(0.02, 0.1)] * 2),
    st.floats(0, 1),
    st.floats(-3, 3),
    st.tuples(*[st.floats(-0.12, 0.12)] * 2),
)
def test_the_outline_is_that_of_a_turned_rounded_box(half, share, turn, point):
    piece = Piece(half, 0.01, WHITE, at=(0.01, -0.02), turn=turn, corner=share * min(half))
    found, *_ = piece.relief(*(np.array([value], np.float32) for value in point))
    near = [inside(piece, point[0] + dx, point[1] + dy) for dx in (-1e-4, 1e-4) for dy in (-1e-4, 1e-4)]
    assert bool(found[0]) in near


@given(st.floats(0.01, 0.05), st.floats(-0.06, 0.06), st.floats(-0.06, 0.06))
def test_a_dome_on_a_disc_is_a_ball(r, x, y):
    ball = disc(r, 2 * r, form="dome", edge=r)
    found, height, foot, _, _ = ball.relief(np.array([x], np.float32), np.array([y], np.float32))
    reach = math.hypot(x, y)
    if reach < r * 0.999:
        rise = math.sqrt(r * r - reach * reach)
        assert found[0] and (height[0], foot[0]) == pytest.approx((r + rise, r - rise), abs=1e-4)
    elif reach > r * 1.001:
        assert not found[0]


def test_a_ring_has_a_hole_and_a_taper_narrows():
    x = np.array([0.0, 0.03, 0.045, 0.06], np.float32)
    assert disc(0.05, 0.01, wall=0.01).relief(x, x * 0)[0].tolist() == [False, False, True, False]
    wedge = Piece((0.05, 0.02), 0.01, WHITE, taper=0.5)
    ends = np.array([-0.045, 0.045], np.float32)
    assert wedge.relief(ends, np.full(2, 0.015, np.float32))[0].tolist() == [True, False]


def test_a_bent_bar_follows_its_arc():
    bent = Piece((0.08, 0.01), 0.01, WHITE, bend=0.1)
    angle = np.linspace(-0.75, 0.75, 9, dtype=np.float32)
    assert bent.relief(0.1 * np.sin(angle), 0.1 - 0.1 * np.cos(angle))[0].all()
    assert not bent.relief(np.array([0.07], np.float32), np.array([0.0], np.float32))[0].any()


# scenes


def test_a_box_is_nearer_than_the_table_by_its_height():
    drawn = draw([Piece((0.03, 0.02), 0.1, WHITE)], ABOVE, Lamp(0.3, 1.0), table=table())
    assert drawn.depth[48, 64] == pytest.approx(0.4, abs=1e-3) and drawn.depth[5, 5] == pytest.approx(0.5, abs=1e-3)
    assert np.array_equal(drawn.mask > 0, drawn.depth < ABOVE.table_depth() - 1e-4)


@pytest.mark.parametrize("kind", list(THINGS))
def test_picture_mask_and_depth_agree_to_the_pixel(kind):
    camera = Camera(0.3, 0.25, 330.0, (240, 320))
    thing = place(make(kind, np.random.default_rng(5), colour="red"), turn=0.7, at=(0, -0.02), scale=0.6)
    plain = [replace(piece, colour=(1, 0, 0), second=(1, 0, 0), gloss=0) for piece in thing]
    drawn = draw(plain, camera, Lamp(0.3, 1.0, sky=1.0), table=table(camera))
    on = drawn.mask > 0
    assert on.sum() > 500 and np.array_equal(on, drawn.depth < camera.table_depth())
    red = (drawn.picture[..., 0] > drawn.picture[..., 1] + 10.0) | (drawn.picture.max(axis=2) < 20)
    core, rim = cv2.erode(drawn.mask, np.ones((3, 3))) > 0, cv2.dilate(drawn.mask, np.ones((3, 3))) > 0
    assert red[core].mean() > 0.98 and not red[~rim].any()


@pytest.mark.parametrize("order", [1, -1])
def test_the_higher_of_two_pieces_is_seen(order):
    low, high = Piece((0.03, 0.03), 0.02, WHITE), Piece((0.01, 0.01), 0.1, (0.01, 0.01, 0.01), gloss=0.0)
    drawn = draw([low, high][::order], ABOVE, Lamp(0.3, 1.0), table=table())
    assert drawn.depth[48, 64] == pytest.approx(0.4, abs=1e-3)
    assert drawn.picture[48, 64].mean() < 60


def test_the_nearer_of_two_pieces_hides_the_one_behind_it():
    near = Piece((0.03, 0.01), 0.08, (0.8, 0, 0), at=(0, -0.03))
    far = Piece((0.03, 0.01), 0.02, (0, 0, 0.8), at=(0, 0.01))
    camera, lamp = Camera(0.3, 0.4, 200.0, (96, 128)), Lamp(0.3, 1.0)
    alone, behind = (draw([piece], camera, lamp, table=table()).mask > 0 for piece in (near, far))
    both = draw([near, far], camera, lamp, table=table())
    assert (alone & behind).sum() > 100 and ((both.mask > 0) != (alone | behind)).sum() < 30
    inner = cv2.erode(alone.astype(np.uint8), np.ones((3, 3))) > 0
    assert (both.picture[inner & behind][:, 0] > both.picture[inner & behind][:, 2]).all()


def test_a_lying_ball_shows_table_below_it_where_it_does_not_touch():
    ball = disc(0.03, 0.06, form="dome", edge=0.03)
    drawn = draw(
        [ball], Camera(0.3, 0.3, 300.0, (120, 160)), Lamp(0.3, 1.0), table=np.full((120, 160, 3), 200, np.uint8)
    )
    rows, columns = np.nonzero(drawn.mask)
    assert np.ptp(rows) == pytest.approx(np.ptp(columns), rel=0.1)  # a circle, not an egg


def test_a_shadow_falls_on_the_side_away_from_the_lamp():
    for azimuth, column in ((0.0, 42), (math.pi, 85)):
        picture = draw([Piece((0.02, 0.02), 0.08, WHITE)], CAMERA, Lamp(azimuth, 0.8), table=table()).picture
        assert picture[50, column].mean() < 185 < picture[50, 127 - column].mean()
        assert (picture[2, 2] == 200).all()


@pytest.mark.parametrize("x", [-3.0, 3.0, -0.16, 0.16])
def test_a_thing_at_or_beyond_the_edge_changes_nothing_in_the_middle(x):
    ball = disc(0.02, 0.04, form="dome", edge=0.02, at=(x, 0))
    drawn = draw([ball], CAMERA, Lamp(0.3, 1.0), table=table())
    assert not drawn.mask[:, 50:78].any() and (drawn.picture[:, 50:78] == 200).all()
    assert drawn.mask.any() == (abs(x) < 1)


@pytest.mark.parametrize("kind", list(THINGS))
def test_every_thing_rests_on_the_table_and_can_be_grasped(kind):
    random = np.random.default_rng(3)
    camera = Camera(0.9, 0.5, 525.0, (240, 320))
    for turn in (0.3, 2.0):
        thing = place(make(kind, random), turn=turn, at=(0, 0))
        assert min(piece.foot for piece in thing) == 0 and np.abs(outline(thing)).max() < 0.17
        mask = draw(thing, camera, Lamp(0.3, 1.0), table=table(camera)).mask
        chords = Chords.through(mask, random, count=60, longest=110)
        assert any(fits(mask, g.corners()) for g in chords.grasps(random, longest=110, gap=(3.0, 9.0), unit=0.5))


def test_a_red_thing_is_redder_than_a_blue_one():
    for kind in THINGS:
        means = []
        for colour in ("red", "blue"):
            thing = make(kind, np.random.default_rng(1), colour=colour)
            picture = draw(thing, Camera(0.4, 0.2, 300, (96, 128)), Lamp(0.5, 1.0), table=table()).picture.astype(float)
            means.append((picture[..., 0] - picture[..., 2]).mean())
        assert means[0] > means[1], kind
    assert len(PALETTE) == 12


# grasps: the angle oracle


@settings(max_examples=40, deadline=None)
@given(st.floats(-90, 90), st.integers(0, 99))
def test_a_bar_is_grasped_across(degrees, seed):
    mask, random = bar(degrees), np.random.default_rng(seed)
    chords = Chords.through(mask, random, count=20, longest=60)
    found = [g for g in chords.grasps(random, longest=60, gap=(2.0, 5.0), unit=0.5) if fits(mask, g.corners())]
    turns = [math.degrees(g.angle) - (degrees + 90) for g in found if np.hypot(g.x - 100, g.y - 100) < 30]
    assert turns
    assert all(abs((turn + 90) % 180 - 90) < 32 for turn in turns)
    assert all(-math.pi / 2 < g.angle <= math.pi / 2 for g in found)


def test_misses_have_both_ends_on_the_thing():
    mask, random = bar(30), np.random.default_rng(0)
    missed = Chords.through(mask, random, count=20, longest=60).misses(random, longest=60)
    assert missed
    for g in missed:
        p = g.corners()
        x, y = np.rint([(p[0] + p[3]) / 2, (p[1] + p[2]) / 2]).astype(int).T
        assert mask[y, x].all() and not fits(mask, p)


def test_an_empty_mask_has_no_grasps():
    random = np.random.default_rng(0)
    chords = Chords.through(np.zeros((20, 20), np.uint8), random, count=20, longest=60)
    assert chords.grasps(random, longest=60, gap=(2.0, 5.0), unit=0.5) == []
    assert chords.misses(random, longest=60) == []


def test_a_grasp_outside_the_picture_does_not_fit():
    assert not fits(np.full((20, 20), 255, np.uint8), Grasp(5, 5, 0.3, 30, 4).corners())


# rectangles


@given(COORDINATE, COORDINATE, st.floats(-1.57, 1.57), st.floats(13, 100), st.floats(9, 60), st.integers(0, 99))
def test_a_marked_rectangle_is_a_parallelogram_near_its_grasp(x, y, angle, opening, jaw, seed):
    p = cornell._snapped(Grasp(x, y, angle, opening, jaw), np.random.default_rng(seed))
    assert p[0] + p[2] == pytest.approx(p[1] + p[3], abs=1e-9)
    assert (p[1:3] == np.rint(p[1:3])).all() and p[0, 0] == np.rint(p[0, 0])
    across, along = p[2] - p[1], p[0] - p[1]
    assert abs(across @ along) / np.hypot(*across) / np.hypot(*along) <= 0.041
    assert np.hypot(*along) == pytest.approx(opening, abs=0.55)
    assert p.mean(0) == pytest.approx([x, y], abs=8)


@given(st.lists(st.lists(st.tuples(COORDINATE, COORDINATE), min_size=4, max_size=4), max_size=4))
def test_lines_are_read_back(rectangles):
    text = cornell._lines([np.array(corners) for corners in rectangles]).decode()
    values = [[float(value) for value in line.split()] for line in text.splitlines()]
    assert np.array(values).ravel() == pytest.approx(np.array(rectangles).ravel(), abs=6e-4)


def test_lines_write_nan_as_the_real_set_does():
    corners = np.array([[np.nan, np.nan], [253, 319.7], [1.5, 2], [100, 0.125]])
    assert cornell._lines([corners]) == b"NaN NaN \n253 319.7 \n1.5 2 \n100 0.125\n"


# textures and files


@pytest.mark.parametrize("texture", TABLES)
def test_textures_are_seamless(texture):
    sheet = texture(np.random.default_rng(0), 192).astype(float)
    assert sheet.shape == (192, 192, 3)
    for axis in (0, 1):
        steps = np.abs(np.diff(sheet, axis=axis, append=sheet.take([0], axis))).mean(axis=(1 - axis, 2))
        assert steps[-1] <= 1.2 * steps[:-1].max()


def test_grain_has_the_deviation_that_was_asked_for():
    grey = np.full((90, 120, 3), 100, np.uint8)
    noisy = Grain(np.random.default_rng(0), (90, 120), deviation=5.0).add(grey, np.random.default_rng(1))
    assert noisy.astype(float).std() == pytest.approx(5, rel=0.1) and noisy.mean() == pytest.approx(100, abs=0.5)


def test_files_hold_rgb_and_exact_depth():
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 0] = 255
    for suffix in (".png", ".jpg"):
        blue, _, back = cv2.imdecode(np.frombuffer(encode(suffix, red), np.uint8), cv2.IMREAD_COLOR)[4, 4]
        assert blue < 10 and back > 240
    depth = np.random.default_rng(0).random((9, 7), np.float32)
    assert np.array_equal(cv2.imdecode(np.frombuffer(encode(".tiff", depth), np.uint8), cv2.IMREAD_UNCHANGED), depth)
