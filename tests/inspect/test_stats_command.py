"""packer stats: the command and its report."""

import json
from pathlib import Path

import numpy as np
import pytest

from packer.inspect.statistics_report import lines
from packer.inspect.statistics_scan import StatisticsScan
from packer.schema import Field
from tests.support.array_packs import DEPTH, GRASPS, IMAGE, LABEL, MASK, NOTE, RECTANGLE, displayed, plain
from tests.support.command_line import called, run_here
from tests.support.statistics_samples import FIELDS


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """Four samples, two of which are the same."""
    depth = np.float32([[1.0, 2.0], [-1.0, 3.0]])
    mask = np.uint8([[0, 255], [255, 255]])
    grasps = np.float32([RECTANGLE])
    samples = [
        {"image": plain(2, 2 + number % 2), "depth": depth * (1 + number), "mask": mask, "grasps": grasps[: number % 2]}
        | {"label": number // 3, "note": "\x1b[31m"}
        for number in range(4)
    ]
    return displayed(tmp_path / "set.pack", [IMAGE, DEPTH, MASK, GRASPS, LABEL, NOTE], samples)


def test_the_report_says_it_all(pack: Path) -> None:
    done = run_here("stats", pack)
    assert done.returncode == 0, done.stderr
    said = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        f"{pack}: 4 samples, format lmdb",
        "image (image, raw)",
        "size width 2 to 3 (median 2), height 2 to 2 (median 2); 2 sizes, most often 2x2 (2), 3x2 (2)",
        "mode raw color uint8 (4)",
        "mean 0.5098 0.5137 0.5176 red, green, blue as fractions of 255",
        "std 0.0000 0.0000 0.0000",
        "size 2x2 px, every sample",
        "range -4 to 12, mean 3.4, std 4.286, in the unit that is stored",
        "invalid 6.25% of 16 pixels",
        "values 0: 25.00%, 255: 75.00%",
        "per sample 0 to 1, mean 0.50, median 0",
        "in all 2, 2 samples have none",
        "opening 40 to 40, mean 40, std 0 px of the stored image",
        "jaw 20 to 20, mean 20, std 0 px of the stored image",
        "classes 2, 0 of them without a sample",
        "balance 1 to 3 samples, 3.00 to 1",
        "largest cat (3), dog (1)",
        r"values 1: \x1b[31m (4)",
        "duplicates in image: 2",
        "0 = 2",
        "1 = 3",
        "duplicates in depth: none",
    ):
        assert line in said, (line, done.stdout)
    assert "\x1b" not in done.stdout


def test_json_has_everything_and_is_the_only_output_on_request(pack: Path, tmp_path: Path) -> None:
    to_file = called("stats", pack, "--output", tmp_path / "a.json", "--threads", 1)
    to_stdout = run_here("stats", pack, "--json")
    wanted = StatisticsScan(pack).result | {"subset": "1/1"}
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(to_stdout.stdout) == wanted
    assert "4 samples" in to_file.output
    subset = run_here("stats", pack, "--json", "--subset", "2/2")
    assert json.loads(subset.stdout)["fields"]["label"]["classes"] == [["cat", 1], ["dog", 1]]
    assert "4 samples, 2 of them measured" in called("stats", pack, "--subset", "2/2").output


def test_usage_errors_say_what_to_do(pack: Path, tmp_path: Path) -> None:
    for words, code, text in (
        ((pack, "--subset", "3/2"), 2, "expected N/M with N from 1 to M"),
        ((pack, "--threads", 0), 2, "at least 1"),
        ((tmp_path,), 2, "not a pack"),
    ):
        done = run_here("stats", *words)
        assert (done.returncode, done.stdout) == (code, ""), (words, done.stderr)
        assert text in done.stderr


def test_an_empty_pack_is_told_in_one_line(tmp_path: Path) -> None:
    pack = displayed(tmp_path / "pack", FIELDS, [])
    assert list(lines(StatisticsScan(pack).result)) == [f"{pack}: 0 samples, format lmdb"]


def test_long_lists_are_cut_and_say_so(tmp_path: Path) -> None:
    names = tuple(f"class {number}" for number in range(30))
    label = Field("label", "number", "number", "int64", (), classes=names)
    samples = [{"image": plain(1, 1, (number // 2, 0, 0)), "label": number % 30} for number in range(60)]
    said = list(lines(StatisticsScan(displayed(tmp_path / "pack", [IMAGE, label], samples)).result))
    assert any("class 9 (2), and 20 more" in line for line in said)
    assert "duplicates in image: 30" in said
    assert said[-1] == "  and 20 more groups; --json lists all"
