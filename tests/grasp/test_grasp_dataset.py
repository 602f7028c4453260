"""Items of GraspDataset: maps to the bit, images against a slow look, what scripts of the reference call."""

import pickle
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch

import packer
from packer import formats
from packer.errors import BadInput, CorruptPack, InvalidRequest, UnknownKey
from packer.geometry import RandomHorizontalFlip
from packer.grasp import GraspDataset, TurnAndZoom, as_input
from packer.pack import manifest
from packer.schema import Field, Schema
from packer.sources.grasp import cornell, jacquard
from tests.support import built_packs, grasp_folders, slow_grasps, source_trees
from tests.support.conversions import packed
from tests.support.grasp_folders import equal, flat

SIZE = 40
TURNS = (0.0, np.pi / 2, np.pi, 3 * np.pi / 2)
SETS = tuple(grasp_folders.FOLDERS)
SOURCES: dict[str, Any] = {"cornell": cornell.Source, "jacquard": jacquard.Source}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return grasp_folders.packs(tmp_path_factory.mktemp("grasps"))


@pytest.fixture(scope="module")
def resized(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Stored at three quarters of their sizes."""
    root = tmp_path_factory.mktemp("resized")
    return {
        "cornell": _resized(grasp_folders.cornell(root / "cornell"), "96x72"),
        "jacquard": _resized(grasp_folders.jacquard(root / "jacquard"), "72x72"),
    }


def _resized(root: Path, size: str) -> Path:
    packed(root, root.with_suffix(".pack"), resize=size)
    return root.with_suffix(".pack")


def truth(name: str, made: dict[str, Path], index: int) -> Any:
    """The sample of the original folder, its images decoded."""
    sample = SOURCES[name](made[name].with_suffix(""))[index]
    for field in ("rgb", "depth"):
        sample[field] = cv2.imdecode(np.frombuffer(sample[field], np.uint8), cv2.IMREAD_UNCHANGED)
    return {**sample, "rgb": sample["rgb"][..., ::-1]}


def slow_rectangles(name: str, sample: Any, rot: float, zoom: float) -> list[Any]:
    if name == "cornell":
        return slow_grasps.cornell(sample["grasps"], SIZE, rot, zoom, (grasp_folders.HEIGHT, grasp_folders.WIDTH))
    return slow_grasps.jacquard(sample["grasp_rows"], SIZE, rot, zoom, grasp_folders.SIDE)


def slow_frame(name: str, sample: Any) -> tuple[Any, Any]:
    """What is turned about, and the window."""
    height, width = sample["rgb"].shape[:2]
    if name == "jacquard":
        return ((height - 1) / 2, (width - 1) / 2), (0, 0, height, width)
    every = [point for each in slow_grasps.loaded_cornell(sample["grasps"]) for point in each]
    row, column = (int(value) for value in np.asarray(every).mean(axis=0))
    return (row, column), (
        max(0, min(row - SIZE // 2, height - SIZE)),
        max(0, min(column - SIZE // 2, width - SIZE)),
        SIZE,
        SIZE,
    )


@pytest.mark.parametrize("style", ["ggcnn", "grconvnet"])
@pytest.mark.parametrize("name", SETS)
def test_maps_and_true_rectangles_are_those_of_the_slow_rule(name: str, style: str, made: dict[str, Path]) -> None:
    dataset = GraspDataset(made[name], SIZE, style=style)
    for index in range(len(dataset)):
        sample = truth(name, made, index)
        x, maps, at, rot, zoom = dataset[index]
        expected = slow_rectangles(name, sample, rot, zoom)
        drawn, _ = slow_grasps.maps(expected, SIZE, 150 if style == "ggcnn" else SIZE / 2)
        assert [each.numpy().tobytes() for each in maps] == [each.tobytes() for each in drawn]
        assert [tuple(each.shape) for each in (x, *maps)] == [(4, SIZE, SIZE)] + 4 * [(1, SIZE, SIZE)]
        assert at == index
        found = dataset.get_gtbb(*torch.utils.data.default_collate([(index, rot, zoom)]))
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == np.int64


@pytest.mark.one_in(6)
@pytest.mark.parametrize("zoom", [1.0, 0.8, 0.5])
@pytest.mark.parametrize("rot", TURNS)
@pytest.mark.parametrize("name", SETS)
def test_images_are_those_of_a_slow_look(name: str, rot: float, zoom: float, made: dict[str, Path]) -> None:
    dataset = GraspDataset(made[name], SIZE)
    for index in range(len(dataset)):
        sample = truth(name, made, index)
        frame = slow_frame(name, sample)
        rgb = dataset.get_rgb(index, rot, zoom, normalise=False)
        difference = np.abs(rgb - grasp_folders.slow_look(sample["rgb"], frame[0], rot, frame[1], zoom, SIZE))
        inner = slice(1, -1)  # at the border of a window it matters whether it is cut before it is zoomed
        assert difference[inner, inner].max() <= 1.5
        depth = dataset.get_depth(index, rot, zoom)
        window = frame[1][2:]
        whole = grasp_folders.slow_look(sample["depth"], frame[0], rot, frame[1], 1.0, window[0])
        expected = grasp_folders.slow_look(sample["depth"], frame[0], rot, frame[1], zoom, SIZE) - whole.mean()
        assert np.abs(depth - expected)[inner, inner].max() < 1e-3  # OpenCV's weights have 5 bits


@pytest.mark.parametrize("rot", TURNS)
def test_quarter_turns_move_whole_pixels_also_beyond_the_border(rot: float, made: dict[str, Path]) -> None:
    overhanging = 0
    for index in range(6):
        sample = truth("cornell", made, index)
        (row, column), (top, left, *_) = slow_frame("cornell", sample)
        padded = np.pad(sample["rgb"], ((99, 99), (99, 99), (0, 0)), mode="symmetric")
        around = padded[row : row + 199, column : column + 199]  # the center in the middle of an odd square
        turned = np.rot90(around, round(rot / (np.pi / 2)))
        at = 99 + top - row, 99 + left - column
        expected = turned[at[0] : at[0] + SIZE, at[1] : at[1] + SIZE]
        found = GraspDataset(made["cornell"], SIZE).get_rgb(index, rot, normalise=False)
        np.testing.assert_array_equal(found, expected)
        overhanging += row + SIZE // 2 > grasp_folders.HEIGHT
    assert overhanging == 2


def test_quarter_turns_of_a_whole_image_are_exact_at_every_zoom(
    made: dict[str, Path], resized: dict[str, Path]
) -> None:
    for path in (made["jacquard"], resized["jacquard"]):
        dataset = GraspDataset(path, SIZE)
        for turns, rot in enumerate(TURNS):
            for zoom in (1.0, 0.77, 0.5):
                upright = dataset.get_rgb(1, 0, zoom, normalise=False), dataset.get_depth(1, 0, zoom)
                turned = dataset.get_rgb(1, rot, zoom, normalise=False), dataset.get_depth(1, rot, zoom)
                np.testing.assert_array_equal(turned[0], np.rot90(upright[0], turns))
                np.testing.assert_array_equal(turned[1], np.rot90(upright[1], turns))


def test_any_other_turn_is_a_warp_of_the_image(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["jacquard"], grasp_folders.SIDE)
    found = dataset.get_rgb(0, np.radians(20), 1.0, normalise=False)
    upright = dataset.get_rgb(0, 0, 1.0, normalise=False)
    matrix = cv2.getRotationMatrix2D(((grasp_folders.SIDE - 1) / 2,) * 2, 20, 1)
    expected = cv2.warpAffine(upright, matrix, (grasp_folders.SIDE,) * 2, borderMode=cv2.BORDER_REFLECT)
    assert np.abs(found.astype(int) - expected).max() <= 2
    middle = grasp_folders.SIDE // 2
    assert np.abs(dataset.get_depth(0, np.radians(20)) - dataset.get_depth(0))[middle, middle] < 0.02


@pytest.mark.parametrize("name", SETS)
def test_a_resized_pack_has_the_same_labels_and_shows_the_same(
    name: str, made: dict[str, Path], resized: dict[str, Path]
) -> None:
    one, other = GraspDataset(made[name], SIZE), GraspDataset(resized[name], SIZE)
    for index in range(len(one)):
        for rot, zoom in zip(TURNS, (1.0, 0.8, 0.65, 0.5), strict=True):
            np.testing.assert_array_equal(one.get_gtbb(index, rot, zoom), other.get_gtbb(index, rot, zoom))
            a, b = (each.get_rgb(index, rot, zoom, normalise=False).astype(int) for each in (one, other))
            assert np.abs(a - b).mean() < 2
            assert np.abs(one.get_depth(index, rot, zoom) - other.get_depth(index, rot, zoom)).mean() < 0.005


@pytest.mark.one_in(8)
@pytest.mark.parametrize("format", formats.names())
@pytest.mark.parametrize("name", SETS)
def test_every_format_gives_the_same_items(name: str, format: str, made: dict[str, Path], tmp_path: Path) -> None:
    packed(made[name].with_suffix(""), tmp_path / "pack", to=format)
    one, other = (GraspDataset(path, SIZE, seed=5) for path in (made[name], tmp_path / "pack"))
    for index in range(len(one)):
        for a, b in zip(flat(one[index]), flat(other[index]), strict=True):
            assert equal(a, b)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("codec", ["raw", "raw:float16", "npy"])
@pytest.mark.parametrize("name", SETS)
def test_depth_is_that_of_its_codec_at_every_look(name: str, codec: str, made: dict[str, Path], tmp_path: Path) -> None:
    packed(made[name].with_suffix(""), tmp_path / "pack", codecs=(("depth", codec), ("rgb", "raw")))
    one, other = GraspDataset(made[name], SIZE), GraspDataset(tmp_path / "pack", SIZE)
    for index in range(len(one)):
        for rot in TURNS:
            for zoom in (0.7, 1.0):  # the first look at a depth reads all of it, for its mean
                wanted, found = one.get_depth(index, rot, zoom), other.get_depth(index, rot, zoom)
                np.testing.assert_allclose(found, wanted, atol=1e-3 if codec == "raw:float16" else 0)
                rgb = [each.get_rgb(index, rot, zoom, normalise=False) for each in (one, other)]
                np.testing.assert_array_equal(*rgb)


def test_x_is_depth_first_and_each_image_has_mean_zero(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], SIZE)
    x, _, _, rot, zoom = dataset[2]
    np.testing.assert_array_equal(x[0], dataset.get_depth(2, rot, zoom))
    np.testing.assert_array_equal(x[1:], dataset.get_rgb(2, rot, zoom))
    pixels = dataset.get_rgb(2, rot, zoom, normalise=False).astype(np.float64) / 255
    np.testing.assert_allclose(x[1:], (pixels - pixels.mean()).transpose(2, 0, 1), atol=1e-6)


def test_depth_or_image_alone(made: dict[str, Path]) -> None:
    both = GraspDataset(made["cornell"], SIZE, seed=1)[3][0]
    for options, planes in (({"include_rgb": False}, slice(0, 1)), ({"include_depth": False}, slice(1, 4))):
        assert torch.equal(GraspDataset(made["cornell"], SIZE, seed=1, **options)[3][0], both[planes])


def test_images_as_bytes_become_the_same_input(made: dict[str, Path]) -> None:
    options: dict[str, Any] = {"seed": 1}
    floats = GraspDataset(made["jacquard"], SIZE, **options).__getitems__([0, 1, 2]).collated()
    as_bytes = GraspDataset(made["jacquard"], SIZE, pixels="uint8", **options).__getitems__([0, 1, 2]).collated()
    pixels, depth = as_bytes[0]
    assert (pixels.dtype, pixels.shape) == (torch.uint8, (3, 3, SIZE, SIZE))
    assert torch.equal(depth, floats[0][:, :1])
    torch.testing.assert_close(as_input(as_bytes[0]), floats[0], atol=1e-6, rtol=0)
    assert as_input(floats[0]) is floats[0]
    alone = GraspDataset(made["jacquard"], SIZE, pixels="uint8", include_depth=False, **options)
    assert torch.equal(alone.__getitems__([0, 1, 2]).collated()[0][0], pixels)
    torch.testing.assert_close(as_input(alone[1][0]), floats[0][1, 1:], atol=1e-6, rtol=0)


def test_without_augmentation_items_are_upright_and_whole(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], SIZE, random_rotate=False, random_zoom=False)
    assert [dataset[index][3:] for index in range(3)] == 3 * [(0.0, 1.0)]


def test_turns_and_zooms_are_drawn_from_all_four_and_the_whole_range() -> None:
    random = np.random.default_rng(0).random((400, 2))
    chosen = np.asarray([TurnAndZoom().chosen(numbers) for numbers in random])
    assert set(chosen[:, 0]) == {0, np.pi / 2, 2 * np.pi / 2, 3 * np.pi / 2}
    assert 0.5 <= chosen[:, 1].min() < 0.51
    assert 0.99 < chosen[:, 1].max() < 1.0


def test_the_augmentation_is_a_geometry_for_any_data_set(made: dict[str, Path]) -> None:
    plain = packer.open(made["jacquard"], fields=("rgb", "grasps"))
    turned = packer.open(made["jacquard"], fields=("rgb", "grasps"), geometry=TurnAndZoom(zoom=False))
    sample = turned.sample_at(1, turned.geometry, (0.3, 0.0))
    assert torch.equal(sample["rgb"], torch.rot90(plain[1]["rgb"], 1, (1, 2)))


def test_a_transform_gets_the_item(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], SIZE, seed=1, transform=lambda item: item[0].shape)
    assert dataset[0] == (4, SIZE, SIZE)
    assert list(dataset.__getitems__([0, 1])) == 2 * [(4, SIZE, SIZE)]


def test_names_and_length_are_those_that_scripts_ask_for(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["jacquard"], SIZE)
    assert (dataset.length, dataset.get_jname(1)) == (6, "1_aa01")
    assert GraspDataset(made["cornell"]).get_jname(torch.tensor([2])) == "0102"


def test_a_data_set_pickles_small_after_use(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], SIZE, seed=3)
    first = dataset[1]
    data = pickle.dumps(dataset)
    assert len(data) < 5000
    assert all(equal(a, b) for a, b in zip(flat(first), flat(pickle.loads(data)[1]), strict=True))


def test_a_sample_without_grasps_is_background(tmp_path: Path) -> None:
    root = grasp_folders.jacquard(tmp_path / "set", 2)
    (root / "aa01/1_aa01_grasps.txt").write_bytes(b"")
    packed(root, tmp_path / "pack")
    dataset = GraspDataset(tmp_path / "pack", SIZE)
    _, maps, *_ = dataset[1]
    assert [(float(each.min()), float(each.max())) for each in maps] == [(0, 0), (1, 1), (0, 0), (0, 0)]
    assert dataset.get_gtbb(1).shape == (0, 4, 2)
    quality = dataset.__getitems__([1, 0, 1]).collated()[1][0]
    assert quality.flatten(1).max(dim=1).values.tolist() == [0, 1, 0]


def test_damage_is_an_error_that_names_the_sample(made: dict[str, Path], tmp_path: Path) -> None:
    packed(made["cornell"].with_suffix(""), tmp_path / "pack", to="bmp")
    path = next((tmp_path / "pack").rglob("rgb/**/*0101*"))
    data = bytearray(path.read_bytes())
    data[-50] ^= 1
    path.write_bytes(data)
    dataset = GraspDataset(tmp_path / "pack", SIZE)
    assert len(dataset[0]) == 5
    with pytest.raises(packer.errors.CorruptRecord, match="'0101', field 'rgb'"):
        dataset[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"include_depth": False, "include_rgb": False}, "at least one"),
        ({"pixels": "float16"}, "'float32', 'uint8'"),
        ({"output_size": 0}, "whole number"),
        ({"style": "yolo"}, "'ggcnn', 'grconvnet'"),
        ({"decoder": "best"}, "'auto', 'turbojpeg', 'opencv'"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str, made: dict[str, Path]) -> None:
    with pytest.raises(InvalidRequest, match=message):
        GraspDataset(made["cornell"], **options)


def test_another_geometry_is_refused(made: dict[str, Path]) -> None:
    with pytest.raises(InvalidRequest, match="TurnAndZoom only"):
        GraspDataset(made["cornell"]).sample_at(0, RandomHorizontalFlip(), (0.0,))


def test_a_pack_without_grasps_or_depth_is_refused(tmp_path: Path) -> None:
    root = grasp_folders.cornell(tmp_path / "set", 2)
    packed(root, tmp_path / "bare", fields=("rgb", "depth"))
    packed(root, tmp_path / "color", fields=("rgb", "grasps"))
    with pytest.raises(InvalidRequest, match="'grasp_rows' or 'grasps'"):
        GraspDataset(tmp_path / "bare")
    with pytest.raises(UnknownKey, match="no field 'depth'"):
        GraspDataset(tmp_path / "color")
    assert len(GraspDataset(tmp_path / "color", include_depth=False)) == 2


def test_stereo_depth_in_the_place_of_depth_is_refused(tmp_path: Path) -> None:
    fields = (Field("key", "text", "text"), Field("depth", "depth", "encoded", dtype="float32", invalid=-1.0))
    built_packs.make_pack(tmp_path / "pack", [], schema=Schema(fields), parts=1)
    with pytest.raises(InvalidRequest, match="missing pixels"):
        GraspDataset(tmp_path / "pack", include_rgb=False)


def test_a_jacquard_image_that_is_not_square_is_refused(tmp_path: Path) -> None:
    packed(source_trees.write(tmp_path / "set/abc", source_trees.view("0_abc", 1)).parent, tmp_path / "pack")
    with pytest.raises(BadInput, match="64x48 px.*square"):
        GraspDataset(tmp_path / "pack")[0]


def test_a_pack_that_is_replaced_while_it_is_opened_is_an_error(
    made: dict[str, Path], resized: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule for labels comes from the manifest: it must be that of the pack that is opened."""
    replaced = manifest.read(resized["cornell"])
    monkeypatch.setattr("packer.grasp.dataset.manifest_at", lambda path, **options: replaced)
    with pytest.raises(CorruptPack, match="replaced"):
        GraspDataset(made["cornell"], style="ggcnn", output_size=48)


def test_the_preset_of_the_pack_is_the_style(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packer.convert(root, tmp_path / "a.pack", preset="grconvnet")
    packer.convert(tmp_path / "a.pack", tmp_path / "b.pack", to="hdf5")
    packer.convert(root, tmp_path / "c.pack")
    assert [GraspDataset(tmp_path / f"{name}.pack").style for name in "ab"] == ["grconvnet", "grconvnet"]
    assert GraspDataset(tmp_path / "a.pack", style="ggcnn").style == "ggcnn"
    with pytest.warns(UserWarning, match="--preset ggcnn"):
        assert GraspDataset(tmp_path / "c.pack").style == "ggcnn"


def test_items_of_a_collection_are_those_of_its_pack(made: dict[str, Path], tmp_path: Path) -> None:
    for name, pack in made.items():
        chosen = [3, 1, 2]
        packer.open(pack).select(chosen).save(tmp_path / name)
        whole, some = (
            GraspDataset(path, 96, random_rotate=False, random_zoom=False) for path in (pack, tmp_path / name)
        )
        for at, row in enumerate(chosen):
            assert torch.equal(some[at][0], whole[row][0])
            assert all(map(torch.equal, some[at][1], whole[row][1]))
    with pytest.raises(InvalidRequest, match="save it"):
        whole.select([0])
