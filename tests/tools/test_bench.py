"""packer bench: what it loads, how often, and what it says of it."""

import json
from multiprocessing import get_all_start_methods, get_start_method
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.errors import InvalidRequest, PackerError
from packer.geometry import Resize
from packer.tools import bench
from packer.tools.measured_workload import LOADERS, LoaderSetting, Subject, evenly, settings, subjects
from packer.tools.sweep import RunnerProcess
from tests.support import source_trees
from tests.support.command_line import run_with_torch
from tests.support.conversions import packed
from tests.support.measurements import line
from tests.support.slow_datasets import Dying, Failing, Sleeping
from tests.support.source_trees import photos

# ---- what it says


def test_medians_and_the_fastest_are_told() -> None:
    lines = [
        line("photos", "DataLoader", 0, 100, 120, 110),
        line("photos", "DataLoader", 2, 200, 210, 190),
        line("photos.pack", "Loader", 2, 500, 420.4, 380),
    ]
    text = bench.text(lines)
    assert "samples/s" in text[0]
    assert text[1].split() == ["photos,", "DataLoader", "0", "110", "(100", "-", "120)", "55.0", "5.00", "20", "ms"] + [
        "12",
        "MB",
    ]
    factor = 420 / 200  # of what the table shows
    assert text[-1] == (
        f"Fastest: photos.pack through Loader, 2 threads: 420 samples/s, {factor:.1f} times "
        "photos through DataLoader, 2 workers (200)."
    )


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ([0.0, 0.01], "a: cold (at most 1.0%"),
        ([0.0, 0.4], "a: NOT cold: up to 40%"),
        ([0.0, None], "a: this system does not report"),
    ],
)
def test_it_says_whether_the_cache_was_cold(shares: list[float | None], wanted: str) -> None:
    assert bench.text([line("a", "Loader", 1, 10.0, 11.0, warm_shares=shares)])[-1].startswith(wanted)


# ---- what it loads


@pytest.mark.parametrize(
    ("named", "loaders"), [("Loader", ("Loader",)), pytest.param("all", LOADERS, marks=pytest.mark.full)]
)
def test_a_command_loads_folder_and_pack_through_loaders(tmp_path: Path, named: str, loaders: tuple[str, ...]) -> None:
    packed(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    figures = tmp_path / "figures.json"
    words = ("--workers", "1", "--batch-size", "5", "--epochs", "2", "--output", figures)
    done = run_with_torch("bench", tmp_path / "photos", tmp_path / "photos.pack", "--loader", named, *words)
    assert done.returncode == 0, done.stderr
    assert "Fastest: " in done.stdout
    found = json.loads(figures.read_text())
    keys = [(row["source"], row["loader"], row["workers"]) for row in found["lines"]]
    assert keys == [(name, loader, 1) for name in ("photos", "photos.pack") for loader in loaders]
    for row in found["lines"]:
        assert len(row["turns"]) == 2
        assert all(turn["samples"] % 12 == 0 and turn["seconds"] > 0 for turn in row["turns"])
        assert row["memory_mb"] > 0


def test_a_setting_makes_the_loader_that_it_names(tmp_path: Path) -> None:
    packed(photos(tmp_path / "photos", 12), tmp_path / "photos.pack")
    dataset = packer.open(tmp_path / "photos.pack")
    asked = [(name, setting) for name in ("Loader", "Loader-workers") for setting in settings([name], [0, 1], 4)]
    texts = {"Loader": "threads=1", "Loader-workers": "num_workers=1"}
    nouns = {"Loader": "1 thread", "Loader-workers": "1 worker"}
    assert [name for name, _ in asked] == list(texts)
    for name, setting in asked:
        assert setting.text == f"packer.Loader(dataset, 4, {texts[name]})"
        assert setting.short == f"Loader, {nouns[name]}"
        with setting.make(dataset) as loader:
            assert (loader.threads, loader.num_workers) == ((1, 0) if name == "Loader" else (0, 1))


@pytest.mark.full
def test_a_cold_run_says_what_was_left_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed(photos(tmp_path / "photos", 6), tmp_path / "photos.pack")
    monkeypatch.chdir(tmp_path)
    done = run_with_torch(
        "bench",
        tmp_path / "photos.pack",
        *("--json", "--cold", "--workers", "1", "--epochs", "1", "--loader", "Loader"),
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [turn["samples"] for row in found["lines"] for turn in row["turns"]] == [6]
    assert all(len(row["resident_share"]) == 1 for row in found["lines"])
    assert found["options"]["cold"] is True
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "photos.pack"]  # --json takes no file
    assert len(done.stdout.splitlines()) == 1
    assert "cold" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize(("words", "is_said"), [((), True), (("--geometry", "Resize((16, 16))"), False)])
def test_images_of_many_sizes_get_a_geometry(tmp_path: Path, words: tuple[str, ...], is_said: bool) -> None:
    root = source_trees.image_folder(tmp_path / "in")
    done = run_with_torch("bench", root, "--workers", "0", "--epochs", "1", "--loader", "DataLoader", *words)
    assert done.returncode == 0, done.stderr
    said = "measured with --geometry 'RandomResizedCrop(224), RandomHorizontalFlip()'"
    assert (said in done.stderr) == is_said


def test_sources_are_checked_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="absent: .*exist"):
        subjects([tmp_path / "absent"], None, Subject(tmp_path))
    with pytest.raises(InvalidRequest, match="named twice"):
        subjects([tmp_path, tmp_path / "."], None, Subject(tmp_path))
    root = photos(tmp_path / "photos", 2)
    assert run_with_torch("bench", root, "--workers", "4-2").returncode == 2
    assert run_with_torch("bench", root, "--geometry", "Foo()").stderr.startswith("packer: geometry 'Foo()'")


def test_a_loader_without_threads_is_left_out_and_alone_refused() -> None:
    found = settings(("DataLoader", "Loader"), (0, 2), 8)
    assert [(setting.loader, setting.workers) for setting in found] == [("DataLoader", 0), ("DataLoader", 2)] + [
        ("Loader", 2)
    ]
    assert [setting.text for setting in found] == [
        "DataLoader(dataset, 8, num_workers=0)",
        "DataLoader(dataset, 8, num_workers=2, persistent_workers=True)",
        "packer.Loader(dataset, 8, threads=2)",
    ]
    with pytest.raises(InvalidRequest, match="--workers 0"):
        settings(("Loader",), (0,), 8)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["cornell", "jacquard"])
@pytest.mark.parametrize("loader", ["DataLoader", "Loader"])
def test_every_sample_is_counted_whatever_a_batch_holds(tmp_path: Path, kind: str, loader: str) -> None:
    root = source_trees.BUILDERS[kind](tmp_path / "in")
    packed(root, tmp_path / "out.pack")
    for path in (root, tmp_path / "out.pack"):
        dataset: Any = Subject(path, geometry=Resize((20, 20))).open()
        found = bench.epochs(LoaderSetting(loader, 1 if loader == "Loader" else 0, 3).make(dataset), 2, len(dataset))
        assert found["samples"] == 2 * len(dataset)


def test_a_subset_is_spread_over_the_data_set() -> None:
    found: Any = evenly(Sleeping(101, 0), 5)
    assert list(found.indices) == [0, 25, 50, 75, 100]
    whole = Sleeping(3, 0)
    assert evenly(whole, 3) is whole


def test_a_loader_that_loses_samples_is_an_error() -> None:
    with pytest.raises(PackerError, match="2 samples, .* 3"):
        bench.epochs([{"key": ["a", "b"]}], 1, 3)


# ---- its processes


def _answers(dataset: Any) -> Any:
    return lambda question: {"value": dataset[question]["key"]}


def test_errors_of_another_process_come_back_in_one_line() -> None:
    with RunnerProcess("one", _answers, Failing(9, 0)) as player:
        assert player.ask(1, watch=True) == {"value": "sample-1"}
        assert player.peak_mb >= 0
        with pytest.raises(PackerError, match=r"slow_datasets.py:\d+: .*ValueError: two"):
            player.ask(2)
    with RunnerProcess("two", _answers, Dying(9, 0)) as player:
        with pytest.raises(PackerError, match="two: .*SIGKILL"):
            player.ask(2)
        player.close()


def _refuses() -> Any:
    raise InvalidRequest("not like this")


def test_an_error_of_ours_keeps_its_class() -> None:
    with RunnerProcess("one", _refuses) as player, pytest.raises(InvalidRequest, match="^not like this$"):
        player.ask(None)


def test_workers_start_as_they_would_without_us() -> None:
    """Not from the server that the contestant was forked from: its workers would import torch anew."""
    with RunnerProcess("one", _method) as player:
        assert player.ask(None) == {"method": get_all_start_methods()[0]}


def _method() -> Any:
    return lambda _: {"method": get_start_method()}
