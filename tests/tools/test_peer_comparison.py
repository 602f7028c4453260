"""benchmarks/compare.py: every peer keeps to the protocol, and the harness counts, compares and prints rightly."""

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from benchmarks import compare
from benchmarks.harness import contestant, environments, headline_image, native, plot, results, sets, size_image
from benchmarks.harness.environments import Environment
from benchmarks.harness.images import RAW, Copy, Decode, cropped, random_crop
from benchmarks.harness.job import TASKS, Job
from benchmarks.harness.results import Absent, Line
from benchmarks.harness.running import Contestant, Failed
from benchmarks.harness.turns import Turns
from packer.system import resource_usage
from tests.support.image_files import colors

ROOT = Path(__file__).parents[2]
MACHINE = {"cpu": "a", "cores": 2, "python": "3"}


def photos(folder: Path, count: int = 6) -> Path:
    (folder / "class").mkdir(parents=True)
    for index in range(count):
        cv2.imwrite(str(folder / "class" / f"{index}.jpg"), colors(index, height=48, width=64))
    return folder


def epoch(images: int = 10, seconds: float = 1.0, **other: Any) -> dict[str, Any]:
    return {
        "images": images,
        "seconds": seconds,
        "cpu_seconds": 2 * seconds,
        "first_batch_seconds": 0.1,
        "sizes": ["64x48"],
        "mean": [100.0, 110.0, 120.0],
        "idle_cpu_seconds": 0.0,
        "memory_mb": {"own": 50.0, "mapped": 10.0},
        "versions": {"python": "3"},
        **other,
    }


def line(name: str, *seconds: float, warm: dict[str, Any] | None = None, **other: Any) -> Line:
    """A contestant at task full with one epoch per number."""
    answers = [epoch(seconds=one, **other) for one in seconds]
    return Line(name, "", "full", "does", {"seconds": 1.0, "bytes": 2e6}, warm or epoch(), answers)


# ---- the peers


@pytest.mark.parametrize("name", compare.names())
def test_every_peer_keeps_to_the_protocol(name: str) -> None:
    peer = importlib.import_module(f"benchmarks.peers.{name}")  # without its library: that is imported by functions
    assert set(peer.TASKS) | set(peer.WITHOUT) == set(TASKS)
    assert not set(peer.TASKS) & set(peer.WITHOUT)
    assert all(variants and len(set(variants)) == len(variants) for variants in peer.TASKS.values())
    assert peer.DOES and peer.PACKAGES and isinstance(peer.SYSTEM, tuple)
    assert list(inspect.signature(peer.prepare).parameters) == ["job"]
    assert list(inspect.signature(peer.epochs).parameters) == ["job"]


def test_the_peers_of_the_comparison_are_all_there_and_documented() -> None:
    wanted = {"dali", "ffcv", "limit", "litdata", "opencv", "packer", "pil", "plain_lmdb", "spdl", "streaming"}
    assert compare.names()[:2] == ["limit", "packer"]
    assert set(compare.names()) == wanted | {"raw_pixels", "tfrecord", "webdataset", "ycc420"}
    text = (ROOT / "docs/dev/benchmarks.md").read_text()
    assert [name for name in compare.names() if f"| `{name}` |" not in text] == []


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks/peers").glob("*.txt")), ids=lambda path: path.stem)
def test_versions_are_pinned_and_torch_is_the_one_of_packer(path: Path) -> None:
    assert path.with_suffix(".py").exists()
    pins = [text for text in path.read_text().splitlines() if not text.startswith("#")]
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pins), pins
    torch = [pin for pin in pins if pin.startswith("torch==")]
    assert all(pin in (ROOT / "constraints.txt").read_text() for pin in torch)


# ---- one contestant


def test_a_job_survives_the_way_to_the_other_process() -> None:
    job = Job("rrc", Path("/a b"), Path("w"), "fast dct", 3, 16)
    assert Job.from_text(job.to_text()) == job
    assert job.crops and not Job("full", Path(), Path()).crops


@pytest.mark.parametrize("size", [(375, 500), (2000, 3000), (10, 400), (400, 10), (1, 1)])
def test_a_random_crop_lies_in_the_image(size: tuple[int, int]) -> None:
    for _ in range(200):
        top, left, height, width = random_crop(*size)
        assert 0 <= top <= top + height <= size[0] and height > 0
        assert 0 <= left <= left + width <= size[1] and width > 0


def test_images_come_out_as_rgb_and_in_place() -> None:
    pixels = np.zeros((48, 64, 3), np.uint8)
    pixels[..., 2] = 255  # red, as cv2 has it
    data = cv2.imencode(".jpg", pixels)[1].tobytes()
    assert Decode(Job("full", Path(), Path()))(data)[..., 0].min() > 250
    assert Decode(Job("rrc", Path(), Path(), side=20))(data).shape == (20, 20, 3)
    out = np.zeros((20, 20, 3), np.uint8)
    cropped(pixels, 20, out)
    assert out[..., 2].min() == 255
    assert np.array_equal(Copy(4)(bytes(range(48))).ravel(), np.arange(48))


@pytest.mark.parametrize("step", [1, 4])
def test_what_was_delivered_is_counted_alike_in_both_orders_of_axes(step: int) -> None:
    batch = np.stack([colors(seed, height=48, width=64) for seed in range(3)])
    last, first = contestant.Check(step), contestant.Check(step)
    last.add(batch)
    first.add(np.ascontiguousarray(batch.transpose(0, 3, 1, 2)))
    assert last.report() == first.report()
    wanted = batch[:, ::step, ::step].mean(axis=(0, 1, 2))
    assert last.report()["mean"] == pytest.approx(wanted, abs=1e-3)
    assert (last.report()["images"], last.report()["sizes"]) == (3, ["64x48"])
    with pytest.raises(ValueError, match="expected uint8"):
        last.add(batch.astype(np.float32))  # type: ignore[arg-type]


def test_memory_and_cpu_time_of_a_process_tree_are_read() -> None:
    assert resource_usage.tree(os.getpid())[0] == os.getpid()
    before = resource_usage.cpu_seconds(os.getpid())
    assert before > 0
    with resource_usage.MemoryWatch() as watch:
        pass
    assert watch.peak["own"] > 1


# ---- a whole turn


def test_contestants_take_turns_and_a_failing_one_says_why(tmp_path: Path) -> None:
    images = photos(tmp_path / "photos")
    (tmp_path / "none").mkdir()
    here = Environment(Path(sys.executable), {})
    peer = importlib.import_module("benchmarks.peers.limit")
    turns = Turns("full", images, tmp_path / "work", timeout=60)
    broken = Turns("full", tmp_path / "none", tmp_path / "work", timeout=60)
    try:
        turns.enter("limit", peer, Job("full", images, tmp_path, "accurate", 2, 4), here)
        broken.enter("limit", peer, Job("full", tmp_path / "none", tmp_path, "accurate", 2, 4), here)
        turns.play(2)
    finally:
        turns.close()
    (row,) = turns.found()["contestants"]
    assert [one["images"] for one in row["epochs"]] == [6, 6]
    doubts = [text for text in row["doubts"] if "outside its turns" not in text]  # of milliseconds, on a busy machine
    assert (row["size"], doubts, row["of_limit"], row["packer_is"]) == ("64x48", [], 1.0, None)
    wanted = np.mean([cv2.imread(name)[..., ::-1].mean(axis=(0, 1)) for name in sets.files(images)], axis=0)
    assert row["mean"] == pytest.approx(wanted, abs=0.01)
    assert not broken.playing
    assert "IndexError" in broken.absent[0].reason
    assert "full" in results.table("full", turns.found())


def test_who_does_not_answer_in_time_is_ended(tmp_path: Path) -> None:
    here = Environment(Path(sys.executable), {})
    late = Contestant("limit", Job("full", tmp_path, tmp_path), here, tmp_path / "log")
    with pytest.raises(Failed, match="warm: no answer"):
        late.ask("warm", timeout=0.01)
    late.close()


def test_a_raw_set_is_made_once_and_counted(tmp_path: Path) -> None:
    images = photos(tmp_path / "photos", 3)
    place = sets.raw(images, tmp_path / "sets")
    assert np.load(place / RAW).shape == (3, 224, 224, 3)
    assert sets.raw(images, tmp_path / "sets") == place
    assert (sets.count(place), sets.count(images)) == (3, 3)
    (images / "class/0.jpg").unlink()
    assert sets.raw(images, tmp_path / "sets") != place


# ---- figures


def test_ratios_are_medians_over_the_rounds() -> None:
    rows = results.summary([line("limit", 1, 2, 4), line("packer", 2, 2, 8), line("other", 4, 8, 32)], 10)
    assert [row["name"] for row in rows] == ["limit", "packer", "other"]
    assert [row["of_limit"] for row in rows] == [1, 0.5, 0.25]
    assert [row["packer_is"] for row in rows] == [0.5, 1, 4]
    assert rows[0]["images_per_second"] == {"median": 5, "all": [10, 5, 2.5]}
    assert rows[0]["cpu_seconds_per_1000"] == 400


def test_work_that_differs_is_in_doubt() -> None:
    found = {
        "few": results.doubts(line("a", 1, images=9), 10, None),
        "color": results.doubts(line("a", 1, warm=epoch(mean=[120.0, 110.0, 100.0])), 10, [100, 110, 120]),
        "sizes": results.doubts(line("a", 1, warm=epoch(sizes=["1x1", "2x2"])), 10, None),
        "idle": results.doubts(line("a", 1, idle_cpu_seconds=0.5), 10, None),
        "right": results.doubts(line("a", 1), 10, [100, 111, 120]),
    }
    assert "delivered 9, 10 images, not 10" in found["few"][0]
    assert "mean color differs by 20.0" in found["color"][0]
    assert "sizes 1x1, 2x2" in found["sizes"][0]
    assert "outside its turns" in found["idle"][0]
    assert found["right"] == []


def document() -> dict[str, Any]:
    about = {"images": 10, "bytes": 1_000_000, "digest": "0"}
    absent = [vars(Absent("ffcv", "full", "cannot be installed here: no compiler"))]
    rows = results.summary([line("limit", 1, 2), line("packer", 2, 2)], 10)
    return results.document(MACHINE, {"epochs": 2}, {"full": {"set": about, "contestants": rows, "absent": absent}})


def test_the_document_is_json_and_the_table_leaves_nobody_out() -> None:
    found = json.loads(json.dumps(document()))
    assert found == document()
    assert set(found) == {"title", "machine", "settings", "tasks"}
    text = results.table("full", found["tasks"]["full"])
    assert "| packer | 5 (5 - 5) | 0.75 | 1.00x | 400.00 | 0.10 | 50 | 2 |" in text.splitlines()
    assert "* ffcv: no figures: cannot be installed here: no compiler" in text
    assert len({row.count("|") for row in text.splitlines() if row.startswith("|")}) == 1


def test_the_plot_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    plot.draw(document(), tmp_path / "plot.png")
    plot.draw_sizes(document(), tmp_path / "sizes.png")
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.glob("*.png"))
    assert len(list(tmp_path.glob("*.png"))) == 2


def test_the_image_of_sizes_shows_what_the_page_says() -> None:
    found = size_image.rows((Path(__file__).parents[2] / "docs/dev/benchmarks.md").read_text())
    assert {*size_image.OURS, "limit", "FFCV"} <= {row.stored for row in found}
    assert {row.stored for row in size_image.fastest(found)} == {row.stored for row in found}
    for row in found:
        assert row.lowest <= row.rate <= row.highest


def test_of_rows_that_read_the_same_the_fastest_is_drawn(tmp_path: Path) -> None:
    table = "| **`ycc420`, workers** | 20 (10 - 30) | 3.1; 3.2 | 7 |\n| `ycc420`, Loader | 15 (9 - 16) | 2.0 | 7 |\n"
    found = size_image.rows(f"{size_image.SECTION}\n\n{table}| folder, OpenCV | 4 (1 - 5) | 1.0 | 2 |\n")
    assert found[0] == ("ycc420, workers", 20, 10, 30, 7)
    assert [row.name for row in size_image.fastest(found)] == ["folder, OpenCV", "ycc420, workers"]
    with pytest.raises(ValueError, match="expected a table"):
        size_image.rows(table)


def test_of_contestants_nobody_beats_those_on_the_line() -> None:
    assert plot._nobody_beats([(3, 5), (1, 2), (2, 1), (3, 6), (4, 6)]) == [(1, 2), (3, 6)]


# ---- environments


def test_a_peer_without_pins_runs_in_the_environment_of_packer(tmp_path: Path) -> None:
    assert environments.make("limit", None, tmp_path).python == Path(sys.executable)
    assert list(tmp_path.iterdir()) == []


def test_a_compiler_finds_what_was_unpacked(tmp_path: Path) -> None:
    assert environments._for_compilers(tmp_path) == {}
    for name in ("usr/include/opencv4/x", "usr/lib/machine/libopencv_core.so"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    folder = Path(environments._for_compilers(tmp_path)["PKG_CONFIG_PATH"])
    assert f"-L{tmp_path}/usr/lib/machine -lopencv_imgproc" in (folder / "opencv4.pc").read_text()
    assert "-lturbojpeg" in (folder / "libturbojpeg.pc").read_text()


def test_a_tool_that_is_missing_is_named() -> None:
    with pytest.raises(native.NotAvailable, match="no-such-tool"):
        native._run(["no-such-tool"])
    with pytest.raises(native.NotAvailable, match="No such file"):
        native._run(["ls", "no-such-file"])


@pytest.mark.parametrize("words", [["nobody"], ["--tasks", "nothing"]])
def test_an_unknown_name_is_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.arguments(words)
    assert f"unknown name '{words[-1]}'" in capsys.readouterr().err


@pytest.mark.full
def test_a_benchmark_prints_its_figures_as_json_and_writes_them_into_a_file(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "benchmarks/opening.py"), "--samples", "200", "--json"]
    done = subprocess.run(
        [*words, "--output", "figures.json"], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    (line,) = done.stdout.splitlines()
    assert json.loads(line) == json.loads((tmp_path / "figures.json").read_text())
    assert set(json.loads(line)) == {"figures", "machine", "title"}
    assert "a pack of 200 samples" in done.stderr


def test_the_headline_is_drawn_from_the_table() -> None:
    docs = Path(__file__).parents[2] / "docs"
    rows = headline_image.rates((docs / "understand/benchmarks.md").read_text())
    assert [row.rate for row in rows] == sorted((row.rate for row in rows), reverse=True)
    assert (docs / "images/headline.svg").read_text() == headline_image.drawing(rows)
    with pytest.raises(ValueError, match="expected a table"):
        headline_image.rates("| packer | 3 (1 - 5) |")
