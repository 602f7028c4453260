"""--max-pixels: a limit that is documented, goes with the pack, and is bounded whatever a pack says."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from packer import images
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import BadInputs, DamagedImage, InvalidRequest, OutOfMemory
from packer.pack import manifest
from packer.schema import MOST_PIXELS, Field, Schema
from packer.system.machine_limits import Limit
from tests.support import image_files
from tests.support.command_line import called, run, run_with_torch
from tests.support.source_trees import photos


def test_the_limit_is_that_of_the_option_and_the_error_names_it(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 3, height=30, width=40)
    refused = called("convert", root, tmp_path / "a.pack", "--max-pixels", "1k")
    assert isinstance(refused.exception, BadInputs)
    assert "40x30 px = 0.0 MP, the limit is 0.001 MP" in str(refused.exception)
    assert "convert --max-pixels N" in str(refused.exception)
    assert called("convert", root, tmp_path / "a.pack", "--max-pixels", "1200").exit_code == 0
    assert called("convert", tmp_path / "a.pack", tmp_path / "b.pack", "--codec", "image=png").exit_code == 0
    for name in ("a.pack", "b.pack"):
        assert manifest.read(tmp_path / name).schema["image"].max_pixels == 1200
        assert LMDBDataset(tmp_path / name)[0]["image"].shape == (3, 30, 40)
        assert called("verify", tmp_path / name, "--level", "full", "--source", root).exit_code == 0
    small = called("convert", tmp_path / "a.pack", tmp_path / "c.pack", "--resize", "20")
    assert small.exit_code == 0
    assert manifest.read(tmp_path / "c.pack").schema["image"].max_pixels is None


def test_nothing_of_it_stands_in_a_pack_where_it_was_not_asked_for(tmp_path: Path) -> None:
    called("convert", photos(tmp_path / "in", 3), tmp_path / "a.pack")
    assert b"max_pixels" not in (tmp_path / "a.pack/packer.json").read_bytes()


@pytest.mark.parametrize("text", ["0", "1001M", "1e9", "-5", "", "2G"])
def test_what_is_no_limit_is_one_line(tmp_path: Path, text: str) -> None:
    done = run("convert", photos(tmp_path / "in", 3), tmp_path / "a.pack", "--max-pixels", text)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_header_beyond_100_mp_is_read_where_that_is_allowed() -> None:
    large = image_files.bomb(10_001, 10_000)
    with pytest.raises(DamagedImage, match="100 MP"):
        images.sniff(large)
    assert images.sniff(large, 200_000_000).height == 10_001
    with pytest.raises(DamagedImage, match="1000 MP"):
        images.sniff(image_files.bomb(2**31 - 1, 2**31 - 1), MOST_PIXELS)


def test_a_large_image_is_refused_where_memory_has_no_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "packer.system.machine_limits.Machine.memory", lambda self: Limit("memory", 1 << 34, 250_000_000)
    )
    with pytest.raises(OutOfMemory, match="300,030,000 .*memory: 250,000,000"):
        images.sniff(image_files.bomb(10_001, 10_000), 200_000_000)
    assert images.sniff(image_files.bomb(1000, 1000), 200_000_000).height == 1000


@pytest.mark.parametrize("limit", [0, -1, MOST_PIXELS + 1, True, "5", 1.5, 1 << 62])
def test_a_pack_cannot_raise_it_beyond_the_bound(limit: object) -> None:
    field = Field("image", "image", "encoded", "uint8", (None, None, 3)).to_json()
    assert Schema.from_json([{**field, "max_pixels": MOST_PIXELS}])["image"].pixel_limit == MOST_PIXELS
    with pytest.raises(InvalidRequest, match="max_pixels"):
        Schema.from_json([json.loads(json.dumps({**field, "max_pixels": limit}))])


@pytest.mark.full
def test_a_image_of_more_than_100_mp_is_packed_and_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    gray = np.zeros((10_001, 10_000), np.uint8)
    gray[-1, -1] = 200
    cv2.imwrite(str(tmp_path / "in/a.png"), gray)
    assert isinstance(called("convert", tmp_path / "in", tmp_path / "a.pack").exception, BadInputs)
    assert called("convert", tmp_path / "in", tmp_path / "a.pack", "--max-pixels", "101M").exit_code == 0
    assert LMDBDataset(tmp_path / "a.pack")[0]["image"][:, -1, -1].tolist() == [200, 200, 200]
    assert (
        called("convert", tmp_path / "in", tmp_path / "b.pack", "--max-pixels", "101M", "--resize", "64").exit_code == 0
    )
    assert LMDBDataset(tmp_path / "b.pack")[0]["image"].shape == (3, 64, 64)


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ("advise", "--seconds", "1"),
        ("bench", "--workers", "0", "--epochs", "1", "--geometry", "Resize((8, 8))", "--loader", "DataLoader"),
        ("tune", "--workers", "0", "--epochs", "1", "--rounds", "1", "--batch-size", "1", "--loader", "DataLoader"),
    ],
    ids=lambda words: words[0],
)
def test_what_measures_a_folder_keeps_to_the_limit(
    tmp_path: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    photos(tmp_path / "in", 3, height=30, width=40)
    refused = run_with_torch(words[0], tmp_path / "in", *words[1:], "--max-pixels", "1k")
    assert refused.returncode == 3
    assert "the limit is 0.001 MP" in refused.stderr
    done = run_with_torch(words[0], tmp_path / "in", *words[1:], "--max-pixels", "1200")
    assert done.returncode == 0, done.stderr
    if words[0] == "advise":
        assert done.stdout.splitlines()[-1].endswith(" --max-pixels 1200")
