"""packer profile: time goes to the stage that it was spent in."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import packer
from packer.errors import CorruptRecord, InvalidRequest
from packer.formats import lmdb
from packer.geometry import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize
from packer.geometry.warp import image
from packer.images.backends import opencv, strict_jpeg
from packer.pack.reader import Pack
from packer.tools import profile as profile_tool
from packer.tools.profile import LASTING, STAGES, Profile, profile
from tests.support import source_trees
from tests.support.built_packs import flip
from tests.support.command_line import run_with_torch
from tests.support.conversions import packed
from tests.support.jpeg_libraries import EACH_LIBRARY, LIBRARIES, Noted
from tests.support.source_trees import photos
from tests.support.step_clock import Clock

GEOMETRIES = [None, CenterCrop(16), RandomResizedCrop(16), RandomHorizontalFlip(1.0)]


def slowed(monkeypatch: pytest.MonkeyPatch, clock: Clock, owner: Any, name: str, seconds: float) -> None:
    """Let the clock go on whenever that function is called."""
    real: Callable[..., Any] = getattr(owner, name)

    def slow(*given: Any, **named: Any) -> Any:
        clock.sleep(seconds)
        return real(*given, **named)

    monkeypatch.setattr(owner, name, slow)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    packed(photos(tmp_path / "photos", 10), tmp_path / "photos.pack")
    return tmp_path / "photos.pack"


# ---- the stages


@pytest.mark.jpeg
@pytest.mark.parametrize("library", EACH_LIBRARY)
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_delays_are_attributed(pack: Path, monkeypatch: pytest.MonkeyPatch, geometry: Any, library: str) -> None:
    """The clock moves by what is injected and by nothing else: every stage is exact."""
    clock = Clock()
    slowed(monkeypatch, clock, lmdb.Reader, "read", 0.003)
    slowed(monkeypatch, clock, Pack, "compare", 0.0005)
    decoding = Noted(LIBRARIES[library], lambda call, how: clock.sleep(0.007))  # at once, or in two steps
    monkeypatch.setattr(strict_jpeg, "library", lambda: decoding)
    slowed(monkeypatch, clock, image, "apply_steps", 0.002)
    slowed(monkeypatch, clock, image, "warp", 0.002)
    dataset = packer.open(
        pack, fields=("image", "label"), geometry=geometry, transform=lambda sample: clock.sleep(0.011) or sample
    )
    found = profile(dataset, range(10), batch_size=4, clock=clock)
    assert found.of("read") == pytest.approx(3.0)
    assert found.of("crc") == pytest.approx(0.5)
    assert found.of("decode") == pytest.approx(7.0)
    assert found.of("warp") == pytest.approx(0.0 if geometry is None else 2.0)
    assert found.of("transform") == pytest.approx(11.0)
    assert (found.of("collate"), found.of("copy")) == (0.0, 0.0)
    assert found.total == pytest.approx(sum(map(found.of, LASTING)))
    assert found.limit == "transform"
    assert found.seconds["decode", "image"] == pytest.approx(0.07)


@pytest.mark.jpeg
def test_a_codec_that_is_slow_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "out.pack")
    clock = Clock()
    slowed(monkeypatch, clock, opencv, "color", 0.02)
    slowed(monkeypatch, clock, opencv, "stored", 0.03)
    dataset = packer.open(tmp_path / "out.pack", fields=("rgb", "depth", "grasps"), geometry=Resize((20, 20)))
    found = profile(dataset, range(4), clock=clock)
    assert found.of("decode") == pytest.approx(50.0)
    assert found.seconds["decode", "depth"] == pytest.approx(0.12)
    assert found.limit == "decode"


def test_raw_pixels_under_a_geometry_are_all_warping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(photos(tmp_path / "in", 4), tmp_path / "out.pack", codecs=(("image", "raw"),))
    clock = Clock()
    slowed(monkeypatch, clock, image, "warp", 0.004)
    found = profile(packer.open(tmp_path / "out.pack", geometry=Resize((8, 8))), range(4), clock=clock)
    assert {stage: found.of(stage) for stage in STAGES if found.of(stage)} == {"warp": pytest.approx(4.0)}


def test_collating_and_copying_are_told_apart(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    slowed(monkeypatch, clock, torch, "stack", 0.008)
    slowed(monkeypatch, clock, torch.Tensor, "to", 0.006)
    dataset = packer.open(pack, fields=("image", "label"), transform=lambda sample: sample)
    found = profile(dataset, range(10), batch_size=5, device="cpu", clock=clock)
    assert found.of("collate") == pytest.approx(2 * 8 / 10)
    assert found.of("copy") == pytest.approx(2 * 2 * 6 / 10)


@pytest.mark.jpeg
@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["cornell", "jacquard"])
@pytest.mark.parametrize("geometry", [None, CenterCrop(20)])
@pytest.mark.parametrize("transform", [None, dict])
def test_what_is_loaded_is_what_a_data_set_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, geometry: Any, transform: Any
) -> None:
    """The batch that the profile puts together, against the data set's samples."""
    packed(source_trees.BUILDERS[kind](tmp_path / "in"), tmp_path / "out.pack")
    dataset = packer.open(tmp_path / "out.pack", geometry=geometry, transform=transform)
    batches: list[Any] = []
    monkeypatch.setattr("packer.tools.profile._copy", lambda batch, device: batches.append(batch))
    profile(dataset, range(len(dataset)), batch_size=len(dataset), device="cpu")
    (batch,) = batches
    for index in range(len(dataset)):
        for name, value in dataset[index].items():
            assert np.array_equal(np.asarray(batch[name][index]), np.asarray(value), equal_nan=name == "depth"), name


def test_the_slowest_samples_are_named(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    dataset = packer.open(pack, transform=lambda sample: clock.sleep(0.5 if "0007" in sample["key"] else 0.01))
    monkeypatch.setattr("packer.tools.profile.Collator.samples", lambda self, samples: samples)
    found = profile(dataset, range(10), clock=clock)
    assert found.worst[0] == (pytest.approx(0.5), dataset.key([*dataset.keys()].index("class1/0007.jpg")))
    assert len(found.worst) == 5


@pytest.mark.jpeg
def test_damage_is_found(pack: Path) -> None:
    with packer.open(pack).sample_decoder().pack.record(0, ["image"]) as record:
        place = (pack / "part-00000.lmdb").read_bytes().index(bytes(record["image"]))
    flip(pack / "part-00000.lmdb", place + 60)
    with pytest.raises(CorruptRecord, match=r"'image'.*crc32"):
        profile(packer.open(pack), range(10))


def test_nothing_to_profile_is_refused(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="profile needs"):
        profile(packer.open(pack), [])
    with pytest.raises(InvalidRequest, match="output='torch'"):
        profile(packer.open(pack, output="numpy"), [0])
    done = run_with_torch("profile", tmp_path / "photos")
    assert done.returncode == 2
    assert "not a pack" in done.stderr


# ---- what it says


def made(**milliseconds: float) -> Profile:
    """A profile of ten samples."""
    seconds = {(stage, "image" if stage == "decode" else ""): value / 100 for stage, value in milliseconds.items()}
    return Profile(10, seconds, [(0.02, "a<b>.jpg")])


def test_the_verdict_names_the_stage_the_rate_and_what_helps() -> None:
    found = made(read=0.1, crc=9.0, decode=0.6, warp=0.2, collate=0.1)  # crc is gone after the first epoch
    assert profile_tool.verdict(found, cores=4) == (
        "Decode limits: 0.60 of 1.00 ms per sample, 60%; 1000 samples/s in one thread, at most 4000 on 4 cores. "
        "To go faster: store less to decode: packer convert --resize, or --codec image=raw."
    )
    text = "\n".join(profile_tool.text(found, cores=4))
    assert re.search(r"^crc +9\.000 +1st epoch", text, re.MULTILINE)
    assert re.search(r"^total +1\.000$", text, re.MULTILINE)
    assert "Copy to device: not measured" in text
    assert "'a<b>.jpg' 20.0 ms" in text


def test_the_command_profiles(pack: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    done = run_with_torch("profile", pack, "--cold", "--output", figures, "--geometry", "RandomResizedCrop(16)")
    assert done.returncode == 0, done.stderr
    assert "limits:" in done.stdout
    assert "cold" in done.stdout
    found = json.loads(figures.read_text())
    assert found["samples"] == 10
    assert set(found["ms_per_sample"]) == set(STAGES)
