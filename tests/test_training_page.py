"""docs/migrate/dataloader.md and the example of a classifier: what they show runs, learns, and goes on after a stop."""

import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from packer.loading import Loader
from packer.synthetic import load
from tests.support import warm_python
from tests.support.conversions import packed
from tests.support.repository import ROOT, blocks, loaded
from tests.support.source_trees import photos


def test_the_page_on_training_runs(tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos", 24), tmp_path / "photos.pack")
    found = blocks((ROOT / "docs/migrate/dataloader.md").read_text())
    assert len(found) == 5
    warm_python.run("\n".join(found), strict=True, folder=tmp_path)


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return loaded("examples/train_classifier.py")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    load("folder")(folder / "photos", samples=60, seed=0, threads=2, size=(96, 72), classes=3)
    packed(folder / "photos", folder / "photos.pack")
    return folder / "photos.pack"


def losses(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"loss ([\d.]+), right [\d.]+%, waited for data [\d.]+%", text)]


@pytest.mark.usefixtures("one_thread")
def test_the_loss_of_the_example_falls(
    example: ModuleType, pack: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = [str(pack), "--batch-size", "8", "--size", "32", "--device", "cpu"]
    example.main([*small, "--epochs", "6"])
    found = losses(capsys.readouterr().out)
    assert len(found) == 6 and min(found[3:]) < found[0]

    checkpoint = ["--checkpoint", str(tmp_path / "run.pt"), "--save-every", "2"]
    example.main([*small, *checkpoint, "--epochs", "1"])
    capsys.readouterr()
    example.main([*small, *checkpoint, "--epochs", "3"])
    text = capsys.readouterr().out
    assert [line.split(":")[0] for line in text.splitlines()] == ["epoch 1", "epoch 2"]
    state = torch.load(tmp_path / "run.pt", weights_only=True)
    assert (state["loader"]["epoch"], state["loader"]["step"]) == (3, 0)


@pytest.mark.usefixtures("one_thread")
def test_the_example_goes_on_in_the_middle_of_an_epoch(example: ModuleType, pack: Path, tmp_path: Path) -> None:
    class Stopped(Exception):
        """Pulled out."""

    def stop(trainer: object) -> None:
        saved(trainer)
        raise Stopped

    saved, checkpoint = example.Trainer.save, tmp_path / "run.pt"
    small = [str(pack), "--batch-size", "8", "--size", "32", "--device", "cpu", "--checkpoint", str(checkpoint)]
    example.Trainer.save = stop
    try:
        with pytest.raises(Stopped):
            example.main([*small, "--save-every", "2"])
    finally:
        example.Trainer.save = saved
    assert torch.load(checkpoint, weights_only=True)["loader"]["step"] == 2
    steps: list[Loader] = []
    own = example.Trainer.epoch

    def counted(trainer: object) -> object:
        before = trainer.train.state_dict()["step"]  # type: ignore[attr-defined]
        steps.append(before)
        return own(trainer)

    example.Trainer.epoch = counted
    try:
        example.main([*small, "--epochs", "2"])
    finally:
        example.Trainer.epoch = own
    assert steps == [2, 0]
