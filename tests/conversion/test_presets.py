"""packer convert --preset: what is stored, which options win, and what it is the same as."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from packer import formats
from packer.cli import main
from packer.conversion.options import PresetName
from packer.errors import InvalidRequest
from packer.grasp import GraspDataset
from packer.pack import manifest as manifests
from tests.support import grasp_folders
from tests.support.layout_trees import graspnet_rect
from tests.support.source_trees import photos


def convert(*words: object) -> Any:
    """What the command says as JSON; raises as it does."""
    result = CliRunner().invoke(main, ["convert", *map(str, words), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def stored(pack: Path) -> dict[str, str]:
    return {field.name: field.codec for field in manifests.read(pack).schema}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("preset", ["ggcnn", "grconvnet"])
def test_jacquard_is_stored_at_twice_the_output_lossless_and_labeled(preset: str, tmp_path: Path) -> None:
    root = grasp_folders.jacquard(tmp_path / "set")
    next(root.rglob("1_aa01_grasps.txt")).unlink()
    assert convert(root, tmp_path / "pack", "--preset", preset)["skipped"] == [["1_aa01", "no _grasps.txt"]]
    schema = manifests.read(tmp_path / "pack").schema
    assert schema["rgb"].shape == (600, 600, 3)
    assert schema["depth"].shape == (600, 600)
    bookkeeping = {"orientation": "number", "matrix": "number", "source_size": "number"}
    labels = {"grasps": "raw:float32", "grasp_rows": "raw:float64", "object_id": "text"}
    assert stored(tmp_path / "pack") == {"key": "text", "rgb": "raw", "depth": "raw", **labels, **bookkeeping}
    words = ("--fields", "rgb,depth,grasps,grasp_rows,object_id", "--resize", "600x600", "--missing", "skip")
    convert(root, tmp_path / "other", *words, "--from", "jacquard")
    made = [[part.sha256 for part in manifests.read(tmp_path / name).parts] for name in ("pack", "other")]
    assert made[0] == made[1]
    assert len(GraspDataset(tmp_path / "pack", 300)) == 5


@pytest.mark.one_in(12)
@pytest.mark.parametrize("format", formats.names())
def test_cornell_is_stored_whole(format: str, tmp_path: Path) -> None:
    root = grasp_folders.cornell(tmp_path / "set")
    convert(root, tmp_path / "pack", "--preset", "ggcnn", "--to", format)
    codecs = stored(tmp_path / "pack")
    assert "matrix" not in codecs
    pixels = ("bmp", "npy") if format == "bmp" else ("raw", "raw")
    assert (codecs["rgb"], codecs["depth"]) == pixels
    item = GraspDataset(tmp_path / "pack", 40, seed=1)[0]
    convert(root, tmp_path / "plain", "--to", "lmdb")
    other = GraspDataset(tmp_path / "plain", 40, seed=1)[0]
    assert all((a == b).all() for a, b in zip((item[0], *item[1]), (other[0], *other[1]), strict=True))


def test_what_the_user_says_wins(tmp_path: Path) -> None:
    root = grasp_folders.jacquard(tmp_path / "set", 2)
    small = ("--codec", "rgb=jpeg:95", "--codec", "depth=raw:float16", "--resize", "64x64", "--missing", "keep")
    convert(root, tmp_path / "pack", "--preset", "ggcnn", *small)
    assert {name: stored(tmp_path / "pack")[name] for name in ("rgb", "depth")} == {
        "rgb": "jpeg:95",
        "depth": "raw:float16",
    }
    assert manifests.read(tmp_path / "pack").schema["rgb"].shape == (64, 64, 3)
    scenes = grasp_folders.cornell(tmp_path / "scenes", 2)
    convert(scenes, tmp_path / "color", "--preset", "grconvnet", "--fields", "rgb,grasps", "--codec", "rgb=png")
    assert stored(tmp_path / "color") == {
        "key": "text",
        "rgb": "png",
        "grasps": "raw:float32",
        "orientation": "number",
    }


def test_a_pack_is_packed_again_with_a_preset(tmp_path: Path) -> None:
    root = grasp_folders.jacquard(tmp_path / "set", 2)
    convert(root, tmp_path / "whole")
    convert(tmp_path / "whole", tmp_path / "pack", "--preset", "ggcnn")
    convert(root, tmp_path / "other", "--preset", "ggcnn")
    one, other = (GraspDataset(tmp_path / name, 300, seed=2)[1] for name in ("pack", "other"))
    assert all((a == b).all() for a, b in zip((one[0], *one[1]), (other[0], *other[1]), strict=True))


def test_other_grasp_sets_are_stored_whole_without_depth_that_has_holes(tmp_path: Path) -> None:
    """Rows of GraspNet's are no rows of Jacquard's: its images are no squares, and stay what they are."""
    convert(graspnet_rect.build(tmp_path / "set"), tmp_path / "pack", "--preset", "grconvnet")
    schema = manifests.read(tmp_path / "pack").schema
    assert schema["rgb"].codec == "raw"
    assert "matrix" not in schema
    assert "depth" not in schema
    assert len(GraspDataset(tmp_path / "pack", 20, include_depth=False)[4]) == 5


def test_a_preset_is_for_grasp_sets(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="no field grasps"):
        convert(photos(tmp_path / "photos", 3), tmp_path / "pack", "--preset", "ggcnn")
    assert not (tmp_path / "pack").exists()


def test_the_command_offers_every_preset() -> None:
    (option,) = (option for option in main.get_command(None, "convert").params if option.name == "preset")
    assert set(option.type.choices) == set(get_args(PresetName))
