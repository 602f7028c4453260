"""examples/train_ggcnn.py on small synthetic packs of every format: it learns, and goes on after a stop."""

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from packer import formats, synthetic
from tests.support.conversions import packed
from tests.support.repository import loaded


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded("examples/train_ggcnn.py")


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("example") / "scenes"
    synthetic.load("cornell")(root, samples=10, seed=1, threads=2)
    return root


@pytest.mark.parametrize(
    "format", ["lmdb", *(pytest.param(name, marks=pytest.mark.full) for name in formats.names() if name != "lmdb")]
)
def test_the_loss_falls_and_a_stopped_run_goes_on_with_the_same_batches(
    format: str, example: ModuleType, scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed(scenes, tmp_path / "pack", to=format, fields=("rgb", "depth", "grasps"))
    words = [str(tmp_path / "pack"), "--size", "72", "--batch-size", "2", "--epochs", "6"]

    def run(log: str, *more: object) -> list[Any]:
        example.train(example.parsed([*words, "--log", str(tmp_path / log), *map(str, more)]))
        return [json.loads(line) for line in (tmp_path / log).read_text().splitlines()]

    whole = run("whole.jsonl")
    losses = [float(text) for text in re.findall(r"loss ([\d.]+)", capsys.readouterr().out)]
    assert len(losses) == 6
    assert losses[-1] < 0.9 * losses[0]
    stopped = run("parts.jsonl", "--checkpoint", tmp_path / "state.pth", "--stop-after", 6)  # in the second epoch
    assert len(stopped) == 6
    both = run("parts.jsonl", "--checkpoint", tmp_path / "state.pth")
    assert [(line["epoch"], line["items"]) for line in both] == [(line["epoch"], line["items"]) for line in whole]
    torch.testing.assert_close([line["loss"] for line in both], [line["loss"] for line in whole], rtol=0.05, atol=0.05)
    printed = capsys.readouterr().out
    assert "goes on in epoch 1" in printed
    assert re.search(r"success rate [\d.]+ % of 2 images", printed)


def test_the_network_has_the_size_of_gg_cnn(example: ModuleType) -> None:
    assert 50_000 < sum(each.numel() for each in example.GraspNet().parameters()) < 70_000


def test_stopping_without_a_checkpoint_is_refused(example: ModuleType) -> None:
    with pytest.raises(SystemExit):
        example.parsed(["a.pack", "--stop-after", "3"])
