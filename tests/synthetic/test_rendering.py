import math

import cv2
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from packer.synthetic.rendering import catalogue, grasp, image, rectangle
from packer.synthetic.rendering.camera import Camera
from packer.synthetic.rendering.part import Material, Part
from packer.synthetic.rendering.scene import Scene, render
from packer.synthetic.rendering.shadow import Lamp
from packer.synthetic.rendering.texture import TABLES, Grain, carpet

WHITE = Material((0.8, 0.8, 0.8))
CAMERA = Camera(0.5, 0.2, 200.0, (96, 128))
SEARCH = grasp.Search(tries=20, longest=60, gap=(2.0, 5.0), jaw=(6.0, 10.0))
COORDINATE = st.floats(20, 200)


def table(camera=CAMERA):
    return np.full((*camera.size, 3), 200, np.uint8)


def bar(degrees):
    """Mask of a 90 x 16 px bar turned clockwise on the screen (y is down)."""
    turn = np.radians(degrees)
    along, across = np.array([np.cos(turn), np.sin(turn)]), np.array([-np.sin(turn), np.cos(turn)])
    points = [(100, 100) + a * 45 * along + b * 8 * across for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
    mask = np.zeros((200, 200), np.uint8)
    cv2.fillPoly(mask, [np.rint(points).astype(np.int32)], 255)
    return mask


# camera


@given(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1), st.floats(0, 0.2))
def test_the_ray_through_a_projected_point_meets_that_point(x, y, z):
    point = np.array([x, y, z])
    ((column, row),) = CAMERA.project(point[None])
    direction = CAMERA.directions(np.array([[column]], np.float32), np.array([[row]], np.float32), rotation=np.eye(3))
    depth = (point - CAMERA.position) @ CAMERA.axes[2]
    met = CAMERA.position + depth * np.array([float(d[0, 0]) for d in direction])
    assert met == pytest.approx(point, abs=1e-5)


@given(st.floats(-0.1, 0.1), st.floats(-0.1, 0.1))
def test_the_homography_agrees_with_the_projection(x, y):
    pixel = CAMERA.table_to_picture() @ [x, y, 1]
    assert pixel[:2] / pixel[2] == pytest.approx(CAMERA.project(np.array([[x, y, 0.0]]))[0], abs=1e-6)


def test_the_depth_of_the_table_is_that_of_its_points():
    depth = CAMERA.table_depth()
    for row in (0, 50, 95):
        direction = CAMERA.directions(np.array([[7]], np.float32), np.array([[row]], np.float32), rotation=np.eye(3))
        assert CAMERA.position[2] + depth[row, 0] * direction[2][0, 0] == pytest.approx(0, abs=1e-6)
    assert CAMERA.ray_lengths().min() == pytest.approx(1, abs=1e-4)


# parts: brute force against the closed form


def inside(part, points):
    x, y, z = points.T
    if part.form == "box":
        return (np.abs(points) <= part.half).all(1)
    if part.form == "ellipsoid":
        return ((points / part.half) ** 2).sum(1) <= 1
    share = (z / part.half[2] + 1) / 2
    radius = part.half[0] * (1 + (part.taper - 1) * share)
    reach = np.hypot(x, y)
    return (np.abs(z) <= part.half[2]) & (reach <= radius) & (reach >= radius * part.hollow)


@settings(max_examples=150)
@given(
    st.sampled_from(["box", "ellipsoid", "frustum", "cone", "tube"]),
    st.tuples(*[st.floats(-0.9, 0.9)] * 3),
    st.tuples(*[st.floats(-1, 1)] * 3).filter(lambda d: np.linalg.norm(d) > 0.1),
)
def test_a_ray_meets_a_part_where_marching_along_it_does(form, through, direction):
    half = (0.5, 0.4, 0.6) if form in ("box", "ellipsoid") else (0.5, 0.5, 0.6)
    shape = {"frustum": {"taper": 0.5}, "cone": {"taper": 0.0}, "tube": {"taper": 1.3, "hollow": 0.6}}
    part = Part(form if form in ("box", "ellipsoid") else "frustum", half, WHITE, **shape.get(form, {}))
    unit = np.array(direction) / np.linalg.norm(direction)
    origin = np.array(through) * half - 3 * unit
    # a ray along a cone's axis meets the tip that float32 loses there, in a difference of equals
    assume(form != "cone" or max(map(abs, through[:2])) > 0.01 or max(map(abs, unit[:2])) > 0.01)
    steps = np.arange(0, 6, 0.002)
    met = inside(part, origin + steps[:, None] * unit)
    t = float(part.hit(tuple(np.float32(o) for o in origin), tuple(np.float32(d) for d in unit)))
    run = met[:-1] & met[1:]  # a graze shorter than the step may be seen by either side alone
    if run.any():
        assert t <= steps[run.argmax()] + 0.002
    if math.isfinite(t):
        near = inside(part, origin + (t + np.linspace(-4e-3, 4e-3, 41))[:, None] * unit)
        assert near.any() or not run.any()


@pytest.mark.parametrize("form", ["box", "ellipsoid", "frustum"])
def test_normals_have_unit_length_and_point_outwards(form):
    part = Part(form, (0.5, 0.5, 0.5), WHITE, bevel=0.05)
    for axis in (0, 2):
        point = [np.float32(0.5 if i == axis else 0.0) for i in range(3)]
        normal = np.array([float(n) for n in part.normal(tuple(np.array([p]) for p in point))[axis]])
        assert normal == pytest.approx(1, abs=1e-4)


def test_the_wall_of_a_hole_faces_its_axis():
    tube = Part("frustum", (0.5, 0.5, 0.5), WHITE, hollow=0.6, bevel=0.01)
    x, _, _ = tube.normal((np.float32([0.3]), np.float32([0]), np.float32([0])))
    assert x[0] == pytest.approx(-1, abs=1e-4)


# scenes


def test_a_box_is_nearer_than_the_table_by_its_height():
    high = Camera(0.5, 1e-6, 200.0, (96, 128))
    box = Part("box", (0.03, 0.02, 0.05), WHITE, (0, 0, 0.05))
    drawn = render(Scene(high, [box], Lamp(0.3, 1.0)), table())
    depth = drawn.full_depth(high.table_depth())
    assert depth[48, 64] == pytest.approx(0.4, abs=1e-3) and depth[5, 5] == pytest.approx(0.5, abs=1e-3)
    assert np.array_equal(drawn.full_mask() > 0, depth < high.table_depth() - 1e-4)


@pytest.mark.parametrize("order", [1, -1])
def test_the_nearer_of_two_parts_is_seen(order):
    low = Part("box", (0.03, 0.03, 0.01), WHITE, (0, 0, 0.01))
    high = Part("box", (0.01, 0.01, 0.05), Material((0.01, 0.01, 0.01), gloss=0.0), (0, 0, 0.05))
    camera = Camera(0.5, 1e-6, 200.0, (96, 128))
    drawn = render(Scene(camera, [low, high][::order], Lamp(0.3, 1.0)), table(camera))
    assert drawn.full_depth(camera.table_depth())[48, 64] == pytest.approx(0.4, abs=1e-3)
    assert drawn.picture[48, 64].mean() < 60


def test_a_shadow_falls_on_the_side_away_from_the_lamp():
    box = Part("box", (0.02, 0.02, 0.04), WHITE, (0, 0, 0.04))
    for azimuth, column in ((0.0, 40), (math.pi, 88)):
        picture = render(Scene(CAMERA, [box], Lamp(azimuth, 0.8)), table()).picture
        assert picture[52, column].mean() < 190 < picture[52, 127 - column].mean()
        assert (picture[2, 2] == 200).all()


def test_a_thing_shades_the_one_behind_it():
    plate = Part("box", (0.06, 0.04, 0.005), WHITE, (0, 0, 0.005))
    post = Part("box", (0.01, 0.04, 0.03), WHITE, (0.04, 0, 0.03))
    camera = Camera(0.5, 1e-6, 200.0, (96, 128))
    lit, shaded = (render(Scene(camera, [plate, post], Lamp(at, 0.8)), table(camera)).picture for at in (math.pi, 0.0))
    assert shaded[48, 72].mean() < lit[48, 72].mean() - 30


def test_a_thing_outside_the_picture_changes_nothing_in_its_middle():
    ball = Part("ellipsoid", (0.02, 0.02, 0.02), WHITE, (3.0, 0, 0.02))
    drawn = render(Scene(CAMERA, [ball], Lamp(0.3, 1.0)), table())
    assert not drawn.full_mask()[:, :100].any() and (drawn.picture[:, :100] == 200).all()


@pytest.mark.parametrize("kind", list(catalogue.THINGS))
def test_every_thing_rests_on_the_table_and_can_be_grasped(kind):
    random = np.random.default_rng(3)
    camera = Camera(0.9, 0.5, 525.0, (240, 320))
    search = grasp.Search(tries=60, longest=110, gap=(3.0, 9.0), jaw=(9.0, 12.0))
    for turn in (0.3, 2.0):
        thing = catalogue.place(catalogue.make(kind, random), turn=turn, at=(0, 0))
        assert min(part.corners[:, 2].min() for part in thing) > -0.025
        assert max(np.abs(part.corners[:, :2]).max() for part in thing) < 0.16
        mask = render(Scene(camera, thing, Lamp(0.3, 1.0)), table(camera)).full_mask()
        assert any(grasp.fits(mask, found.corners()) for found in grasp.find(mask, random, search=search))


# grasps: the angle oracle


@settings(max_examples=40, deadline=None)
@given(st.floats(-90, 90), st.integers(0, 99))
def test_a_bar_is_grasped_across(degrees, seed):
    mask = bar(degrees)
    found = [g for g in grasp.find(mask, np.random.default_rng(seed), search=SEARCH) if grasp.fits(mask, g.corners())]
    turns = [math.degrees(g.angle) - (degrees + 90) for g in found if np.hypot(g.x - 100, g.y - 100) < 30]
    assert turns
    assert all(abs((turn + 90) % 180 - 90) < 32 for turn in turns)
    assert all(-math.pi / 2 < g.angle <= math.pi / 2 for g in found)


def test_misses_have_both_ends_on_the_thing():
    mask = bar(30)
    missed = grasp.find_misses(mask, np.random.default_rng(0), search=SEARCH)
    assert missed
    for g in missed:
        p = g.corners()
        x, y = np.rint([(p[0] + p[3]) / 2, (p[1] + p[2]) / 2]).astype(int).T
        assert mask[y, x].all() and not grasp.fits(mask, p)


def test_an_empty_mask_has_no_grasps():
    empty = np.zeros((20, 20), np.uint8)
    assert grasp.find(empty, np.random.default_rng(0), search=SEARCH) == []
    assert grasp.find_misses(empty, np.random.default_rng(0), search=SEARCH) == []


def test_a_grasp_outside_the_picture_does_not_fit():
    assert not grasp.fits(np.full((20, 20), 255, np.uint8), grasp.Grasp(5, 5, 0.3, 30, 4).corners())


# rectangles


@given(COORDINATE, COORDINATE, st.floats(-1.57, 1.57), st.floats(13, 100), st.floats(0, 60), st.booleans())
def test_a_marked_rectangle_is_a_parallelogram_near_its_grasp(x, y, angle, opening, jaw, mirrored):
    made = grasp.Grasp(x, y, angle, opening, jaw)
    p = rectangle.snapped(made, mirrored=mirrored)
    assert p[0] + p[2] == pytest.approx(p[1] + p[3], abs=1e-9)
    assert (p[1:3] == np.rint(p[1:3])).all() and p[0, 0] == np.rint(p[0, 0])
    across, along = p[2] - p[1], p[0] - p[1]
    if np.hypot(*across) > 0:
        assert abs(across @ along) / np.hypot(*across) / np.hypot(*along) <= 0.041
        assert np.hypot(*along) == pytest.approx(opening, abs=0.55)


@given(st.lists(st.lists(st.tuples(COORDINATE, COORDINATE), min_size=4, max_size=4), max_size=4))
def test_lines_are_read_back(rectangles):
    text = rectangle.lines([np.array(corners) for corners in rectangles]).decode()
    values = [[float(value) for value in line.split()] for line in text.splitlines()]
    assert np.array(values).ravel() == pytest.approx(np.array(rectangles).ravel(), abs=6e-4)


def test_lines_write_nan_as_the_real_set_does():
    corners = np.array([[np.nan, np.nan], [253, 319.7], [1.5, 2], [100, 0.125]])
    assert rectangle.lines([corners]) == b"NaN NaN \n253 319.7 \n1.5 2 \n100 0.125\n"


# textures and files


@pytest.mark.parametrize("texture", [*TABLES.values(), carpet])
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
    for data in (image.png(red), image.jpeg(red, quality=90)):
        blue, _, back = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[4, 4]
        assert blue < 10 and back > 240
    depth = np.random.default_rng(0).random((9, 7), np.float32)
    for data in (image.tiff(depth), image.tiff_lzw(depth)):
        assert np.array_equal(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED), depth)
