"""Geometries: where the pixels go, there go depth, mask, points and boxes; random numbers are what they are for."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer.errors import BadInput, InvalidRequest
from packer.geometry import (
    CenterCrop,
    Compose,
    Geometry,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomRotation,
    RandomZoom,
    Resize,
    View,
    draw,
)
from tests.support import marked_packs, source_trees
from tests.support.conversions import packed

GEOMETRIES: dict[str, Geometry] = {
    "resize": Resize(100),
    "shrink": Resize(40),
    "stretch": Resize((90, 70)),
    "bilinear": Resize(45, antialias=False),
    "center": CenterCrop(50),
    "center, padded": CenterCrop((70, 100)),
    "crop": RandomCrop((45, 60)),
    "padded crop": RandomCrop((60, 80), padding=10),
    "resized crop": RandomResizedCrop(64, scale=(0.5, 1)),
    "resized crop, bilinear": RandomResizedCrop((50, 70), scale=(0.5, 1), antialias=False),
    "resized crop, on a grid": RandomResizedCrop(20, scale=(0.6, 1)),
    "flip": RandomHorizontalFlip(1.0),
    "rotate": RandomRotation(40),
    "quarters": RandomRotation(choices=(90, 180, 270)),
    "zoom in": RandomZoom(0.6, 1.0),
    "zoom out": RandomZoom(1.0, 1.5),
    "all": Compose(
        *(Resize(70), RandomRotation((-20, 20)), RandomZoom(0.8, 1.1)),
        *(RandomCrop((60, 60), padding=4), RandomHorizontalFlip(), Resize(48)),
    ),
}


def numbers(geometry: Geometry, index: int, *, seed: int = 0) -> list[float]:
    return draw(seed, 0, np.asarray([index]), geometry.draws)[0].tolist()  # type: ignore[no-any-return]


def check(sample: dict[str, Any], tolerance_px: float) -> bool:
    """Whether the spot is well inside; if so, all fields must agree on where it is."""
    height, width = sample["depth"].shape
    x, y = sample["spots"][0]
    margin = min(12.5, min(height, width) * 0.3)
    if not (margin < x < width - margin and margin < y < height - margin):
        return False
    for name, (px, py) in marked_packs.places(sample).items():
        assert math.hypot(px - x, py - y) < tolerance_px, f"{name} is at {px}, {py}, the point at {x}, {y}"
    assert len(marked_packs.places(sample)) == 6
    return True


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", 40)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_everything_moves_together(pack: Path, name: str) -> None:
    geometry = GEOMETRIES[name]
    dataset = packer.open(pack, output="numpy")
    seen = [check(dataset.sample_at(at, geometry, numbers(geometry, at)), 0.75) for at in range(40)]
    assert sum(seen) >= 5


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_resized_pack_moves_its_points_through_the_stored_matrix(tmp_path: Path, name: str) -> None:
    x, y, height, width = 90.0, 66.0, 150, 200
    bright = marked_packs.spot(height, width, x, y, wide=5)
    key = f"0_{source_trees.HASH_32}"
    files = {
        f"{key}_RGB.png": source_trees.encoded(
            ".png", np.repeat(np.rint(250 * bright).astype(np.uint8)[..., None], 3, axis=2)
        ),
        f"{key}_mask.png": source_trees.encoded(".png", (255 * (bright > 0.4)).astype(np.uint8)),
        f"{key}_perfect_depth.tiff": source_trees.encoded(".tiff", (2 - bright).astype(np.float32)),
        f"{key}_grasps.txt": f"{x};{y};30;20;10\r\n",
    }
    packed(source_trees.write(tmp_path / "in", files), tmp_path / "out.pack", kind="jacquard", resize="96x60")
    geometry = GEOMETRIES[name]
    dataset = packer.open(tmp_path / "out.pack", output="numpy")
    seen = []
    for number in range(12):
        sample = dataset.sample_at(0, geometry, numbers(geometry, number))
        spots = sample["grasps"].mean(axis=1)
        boxes = np.concatenate([spots - 1, spots + 1], axis=1) + 0.5
        seen.append(check({**sample, "image": sample["rgb"], "spots": spots, "boxes": boxes}, 1.0))
    assert any(seen)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("fields", [None, ("mask", "depth", "image", "spots", "grasps", "boxes")])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_mask_of_half_the_size_shows_the_same_part(tmp_path: Path, name: str, fields: Sequence[str] | None) -> None:
    """Points are in px of the first image of the pack, in whatever order the fields are asked for."""
    samples = [marked_packs.scene(number) for number in range(9)]
    for sample in samples:
        x, y = sample["spots"][0]
        sample["mask"] = (marked_packs.spot(30, 40, (x + 0.5) / 2 - 0.5, (y + 0.5) / 2 - 0.5, wide=1.25) > 0.4).astype(
            np.uint8
        )
    marked_packs.write(tmp_path / "half.pack", samples, marked_packs.schema(size=(60, 80), mask=(30, 40)))
    dataset = packer.open(tmp_path / "half.pack", fields=fields, output="numpy")
    geometry = GEOMETRIES[name]
    found = [dataset.sample_at(at, geometry, numbers(geometry, at)) for at in range(9)]
    assert all(sample["mask"].shape == sample["depth"].shape for sample in found)
    assert any([check(sample, 1.5) for sample in found])


# ---- RandomResizedCrop


def box_of(view: View, width: int, height: int) -> tuple[float, float, float, float]:
    """Left, top, right, bottom edge of the stored part that a view without rotation shows, in px from the corner."""
    a, _, c, _, e, f = view.matrix
    left, top = (-0.5 - c) / a + 0.5, (-0.5 - f) / e + 0.5
    return left, top, left + view.size[1] / a, top + view.size[0] / e


def documented_box(h: int, w: int, scale: tuple[float, float], ratio: tuple[float, float], r: list[float]) -> list[int]:
    """Top, left, height, width as torchvision documents it: area and log ratio uniform, ten tries, else the middle."""
    for at in range(10):
        area = (scale[0] + (scale[1] - scale[0]) * r[2 * at]) * h * w
        log_ratio = math.log(ratio[0]) + (math.log(ratio[1]) - math.log(ratio[0])) * r[2 * at + 1]
        bw, bh = round(math.sqrt(area * math.exp(log_ratio))), round(math.sqrt(area / math.exp(log_ratio)))
        if 0 < bw <= w and 0 < bh <= h:
            return [math.floor(r[20] * (h - bh + 1)), math.floor(r[21] * (w - bw + 1)), bh, bw]
    bh, bw = h, w
    if w / h < ratio[0]:
        bh = round(w / ratio[0])
    elif w / h > ratio[1]:
        bw = round(h * ratio[1])
    return [(h - bh) // 2, (w - bw) // 2, bh, bw]


sizes_px = st.integers(2, 900)
RATIOS = ((3 / 4, 4 / 3), (0.5, 0.5), (2.0, 3.0), (0.2, 5.0))


@given(sizes_px, sizes_px, st.integers(1, 300), st.sampled_from(RATIOS), st.integers(0, 1000))
def test_without_antialias_the_box_is_torchvisions(h: int, w: int, size: int, ratio: Any, index: int) -> None:
    geometry = RandomResizedCrop(size, ratio=ratio, antialias=False)
    r = numbers(geometry, index)
    top, left, height, width = documented_box(h, w, (0.08, 1.0), ratio, r)
    found = box_of(geometry.view(h, w, r), w, h)
    assert found == pytest.approx((left, top, left + width, top + height), abs=1e-6)
    assert geometry.view(h, w, r).size == (size, size)


@given(sizes_px, sizes_px, st.integers(1, 300), st.integers(1, 300), st.integers(0, 1000))
def test_a_box_lies_inside_and_on_whole_scaled_pixels(h: int, w: int, out_h: int, out_w: int, index: int) -> None:
    plain = RandomResizedCrop((out_h, out_w), antialias=False)
    r = numbers(plain, index)
    x0, y0, x1, y1 = box_of(plain.view(h, w, r), w, h)
    left, top, right, bottom = box_of(RandomResizedCrop((out_h, out_w)).view(h, w, r), w, h)
    shrink = min((x1 - x0) / out_w, (y1 - y0) / out_h)
    grid = next(each for each in (8, 4, 2, 1) if shrink >= each or each == 1)
    for edge in (left, top, right, bottom):
        assert abs(edge - round(edge)) < 1e-5
        assert round(edge) % grid == 0
    assert min(left, top) > -1e-5 and right < w + 1e-5 and bottom < h + 1e-5
    assert abs(right - left - (x1 - x0)) < grid + 1e-5 and abs(bottom - top - (y1 - y0)) < grid + 1e-5
    assert abs(left - x0) < 2 * grid and abs(top - y0) < 2 * grid


def test_boxes_are_spread_as_the_rule_says() -> None:
    count, h, w = 4000, 400, 500
    geometry = RandomResizedCrop(224, antialias=False)
    rows = draw(3, 1, np.arange(count), geometry.draws).tolist()
    boxes = np.asarray([box_of(geometry.view(h, w, row), w, h) for row in rows])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (h * w)
    ratios = np.log((boxes[:, 2] - boxes[:, 0]) / (boxes[:, 3] - boxes[:, 1]))
    assert areas.min() > 0.079 and areas.max() <= 1
    small = areas[areas < 0.6]  # all of these fit in at once, so that they are uniform
    assert np.histogram(small, 4, (0.08, 0.6))[0] / len(small) == pytest.approx(0.25, abs=0.03)
    spread = np.histogram(ratios[areas < 0.6], 4, (-math.log(4 / 3), math.log(4 / 3)))[0]
    assert spread / len(small) == pytest.approx(0.25, abs=0.03)
    place = boxes[:, 0] / np.maximum(w - (boxes[:, 2] - boxes[:, 0]), 1)
    wide = (boxes[:, 2] - boxes[:, 0]) < 0.8 * w
    assert np.histogram(place[wide], 4, (0, 1))[0] / wide.sum() == pytest.approx(0.25, abs=0.03)


# ---- the other geometries


def test_what_the_random_numbers_decide() -> None:
    count = 2000
    flips = Counter(
        RandomHorizontalFlip(0.3).view(9, 9, [r]).matrix[0] for (r,) in draw(0, 0, np.arange(count), 1).tolist()
    )
    assert flips[-1.0] / count == pytest.approx(0.3, abs=0.03)
    crop = RandomCrop(7)
    tops = Counter(-crop.view(10, 9, row).matrix[5] for row in draw(0, 0, np.arange(count), 2).tolist())
    assert set(tops) == {0, 1, 2, 3}
    assert all(times / count == pytest.approx(0.25, abs=0.04) for times in tops.values())
    turn = RandomRotation(choices=(0, 90, 180, 270))
    angles = Counter(turn.view(8, 8, row).matrix[:2] for row in draw(0, 0, np.arange(count), 1).tolist())
    assert set(angles) == {(1, 0), (0, 1), (-1, 0), (0, -1)}
    zooms = [1 / RandomZoom(0.5, 2).view(8, 8, row).matrix[0] for row in draw(0, 0, np.arange(count), 1).tolist()]
    assert 0.5 <= min(zooms) < 0.51 and 1.99 < max(zooms) <= 2


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60))
def test_a_center_crop_lies_where_torchvision_puts_it(h: int, w: int, to_h: int, to_w: int) -> None:
    pad_left, pad_top = max(0, (to_w - w) // 2), max(0, (to_h - h) // 2)
    top, left = round(max(0, h - to_h) / 2), round(max(0, w - to_w) / 2)
    a, _, c, _, e, f = CenterCrop((to_h, to_w)).view(h, w).matrix
    assert (a, c, e, f) == (1, pad_left - left, 1, pad_top - top)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_a_geometry_is_a_value(name: str) -> None:
    geometry = GEOMETRIES[name]
    twin = eval(repr(geometry), {**vars(packer.geometry)})  # noqa: S307  what it prints makes it again
    assert twin == geometry and hash(twin) == hash(geometry)
    assert twin.view(60, 80, numbers(geometry, 5)) == geometry.view(60, 80, numbers(geometry, 5))
    assert geometry != Compose(geometry)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda: RandomResizedCrop(0), lambda: RandomResizedCrop(9, scale=(0.5, 0.2)), lambda: CenterCrop((3, 4, 5))),
        *(
            lambda: RandomResizedCrop(9, ratio=(0, 1)),
            lambda: RandomCrop(9, padding=-1),
            lambda: RandomHorizontalFlip(1.5),
        ),
        *(lambda: RandomRotation((20, 10)), lambda: RandomRotation(choices=(math.nan,)), lambda: RandomZoom(0, 1)),
        *(lambda: Resize(0), lambda: Compose("flip"), lambda: RandomCrop(2.5), lambda: CenterCrop("9")),
        *(lambda: Resize(2.5), lambda: Resize(224, 224), lambda: Resize((224,)), lambda: Resize("224")),
        *(lambda: RandomResizedCrop(9, scale=0.5), lambda: RandomResizedCrop(9, ratio="1"), lambda: RandomZoom("a", 1)),
        *(lambda: RandomRotation("9"), lambda: RandomRotation(choices=90), lambda: RandomRotation((1, 2, 3))),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any) -> None:
    with pytest.raises(InvalidRequest):
        make()


def test_a_image_too_small_for_a_crop_names_what_to_do(pack: Path) -> None:
    with pytest.raises(BadInput, match=r"scene 0002.*80x60.*Resize\(100\)"):
        packer.open(pack).sample_at(2, RandomCrop(100), [0.5, 0.5])


# ---- draws


@given(st.integers(-3, 1 << 66), st.integers(0, 1 << 40), st.lists(st.integers(0, 1 << 50), min_size=1, max_size=9))
def test_numbers_do_not_depend_on_who_else_draws(seed: int, epoch: int, indices: list[int]) -> None:
    together = draw(seed, epoch, np.asarray(indices), 5)
    assert together.shape == (len(indices), 5) and together.dtype == np.float64
    assert ((together >= 0) & (together < 1)).all()
    for row, index in zip(together, indices, strict=True):
        assert np.array_equal(draw(seed, np.asarray([epoch]), np.asarray([index]), 5)[0], row)
        assert np.array_equal(draw(seed, epoch, np.asarray([index]), 3)[0], row[:3])


def uniform(values: Any) -> float:
    """chi-square of 16 equal classes, 15 degrees of freedom: below 37.7 with p = 0.999."""
    values = np.asarray(values).ravel()
    times = np.histogram(values, 16, (0, 1))[0]
    return float(((times - len(values) / 16) ** 2 / (len(values) / 16)).sum())


def test_numbers_are_uniform_and_independent() -> None:
    count = 4000
    by_index = draw(0, 0, np.arange(count), 2)
    by_epoch = np.concatenate([draw(0, epoch, np.asarray([7]), 2) for epoch in range(count)])
    by_seed = np.concatenate([draw(seed, 0, np.asarray([7]), 2) for seed in range(count)])
    for values in (by_index, by_epoch, by_seed):
        assert uniform(values[:, 0]) < 37.7 and uniform(values[:, 1]) < 37.7
        assert uniform((values[:, 0] + values[:, 1]) % 1) < 37.7, "the two draws of a sample hang together"
        assert uniform((values[1:, 0] - values[:-1, 0]) % 1) < 37.7, "neighbors hang together"
    across = [(one[:, 0] - other[:, 0]) % 1 for one, other in ((by_index, by_epoch), (by_index, by_seed))]
    assert all(uniform(each) < 37.7 for each in across)
    next_epoch, next_seed = draw(0, 1, np.arange(count), 1), draw(1, 0, np.arange(count), 1)
    assert uniform((by_index[:, :1] - next_epoch) % 1) < 37.7
    assert uniform((by_index[:, :1] - next_seed) % 1) < 37.7
    assert len(np.unique(np.concatenate([by_index, by_epoch[1:], by_seed[1:]]))) > 6 * count - 20


def test_no_global_generator_is_touched() -> None:
    before = np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[union-attr,index]
    assert all(geometry.view(60, 80, numbers(geometry, 1)) for geometry in GEOMETRIES.values())
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # type: ignore[union-attr,index]
