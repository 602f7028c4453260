"""Statistics: equal to what NumPy computes of all values at once, whatever the format, the threads or the subset."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer import formats
from packer.errors import CorruptRecord
from packer.inspect import field_statistics
from packer.inspect.field_statistics import Moments
from packer.inspect.statistics_report import lines
from packer.inspect.statistics_scan import StatisticsScan, duplicates
from packer.pack.verification import Subset
from packer.schema import Field
from packer.system.progress_callback import Progress
from tests.support import annotated_source
from tests.support.annotated_source import AnnotatedSource
from tests.support.array_packs import IDS, IMAGE, NOTE, displayed, plain, sheet_of
from tests.support.conversions import packed
from tests.support.source_trees import encoded, write
from tests.support.statistics_samples import FIELDS, SAMPLES


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    pack = displayed(tmp_path_factory.mktemp("statistics") / "pack", FIELDS, SAMPLES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field_statistics, "_MOST_BLOCK", 100)  # larger images are counted in pieces
        return StatisticsScan(pack, threads=2).result


def of(name: str, chosen: list[dict[str, Any]] = SAMPLES) -> list[Any]:
    return [sample[name] for sample in chosen]


# ---- equal to NumPy


def test_mean_and_std_of_channels_are_exact(result: dict[str, Any]) -> None:
    pixels = np.concatenate([image.reshape(-1, 3) for image in of("image")])
    found = result["fields"]["image"]
    assert found["pixels"] == len(pixels)
    for channel in range(3):
        values = pixels[:, channel].tolist()
        mean = Fraction(sum(values), len(values))
        variance = Fraction(sum(value * value for value in values), len(values)) - mean * mean
        assert found["mean"][channel] == float(mean) / 255
        assert found["std"][channel] == math.sqrt(variance) / 255
    np.testing.assert_allclose(found["mean"], pixels.mean(axis=0) / 255, rtol=1e-12)
    np.testing.assert_allclose(found["std"], pixels.std(axis=0) / 255, rtol=1e-12)


def test_range_and_gaps_of_depth_values_of_a_mask_and_stored_bytes(result: dict[str, Any]) -> None:
    every = np.concatenate([depth.ravel() for depth in of("depth")])
    valid = every[np.isfinite(every) & (every != -1)].astype(np.float64)
    found = result["fields"]["depth"]
    assert (found["pixels"], found["invalid"]) == (len(every), len(every) - len(valid))
    assert (found["range"]["min"], found["range"]["max"]) == (valid.min(), valid.max())
    np.testing.assert_allclose([found["range"]["mean"], found["range"]["std"]], [valid.mean(), valid.std()], rtol=1e-12)
    assert found["samples_all_invalid"] == 0
    every = np.concatenate([mask.ravel() for mask in of("mask")])
    values, counts = np.unique(every, return_counts=True)
    found = result["fields"]["mask"]
    assert found["values"] == {str(value): int(count) for value, count in zip(values, counts, strict=True)}
    assert found["pixels"] == len(every)
    sizes = [image.size + 12 for image in of("image")]  # three lengths stand before the numbers
    found = result["fields"]["image"]["bytes"]
    assert (found["total"], found["min"], found["max"]) == (sum(sizes), min(sizes), max(sizes))
    assert result["fields"]["key"]["bytes"]["total"] == sum(len(f"k{number}") for number in range(23))


def test_values_of_a_mask_of_16_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    masks = [random.integers(26_000, 26_400, (20, 30)).astype(np.uint16), np.full((20, 30), 65_535, np.uint16)]
    pack = displayed(tmp_path / "pack", [IDS], [{"ids": mask} for mask in masks])
    monkeypatch.setattr(field_statistics, "_MOST_BLOCK", 251)  # masks of more pixels are counted in pieces
    result = StatisticsScan(pack).result
    found = result["fields"]["ids"]
    values, counts = np.unique(np.stack(masks), return_counts=True)
    every = dict(zip(values.tolist(), counts.tolist(), strict=True))
    assert (found["pixels"], found["distinct_values"]) == (1200, len(every))
    assert len(found["values"]) == 256 and {int(value): count for value, count in found["values"].items()}.items() <= (
        every.items()
    )
    listed = list(found["values"].values())
    assert listed == sorted(every.values(), reverse=True)[:256] and next(iter(found["values"])) == "65535"
    assert found["others"] == 1200 - sum(listed)
    assert any(f"{len(every)} distinct, the most frequent: 65535: 50.00%, " in line for line in lines(result))


def test_sizes_and_modes(result: dict[str, Any]) -> None:
    heights, widths = (np.array([image.shape[axis] for image in of("image")]) for axis in (0, 1))
    sizes = result["fields"]["image"]["sizes"]
    for side, lengths in (("height", heights), ("width", widths)):
        middle = int(np.sort(lengths)[(len(lengths) - 1) // 2])
        assert sizes[side] == {
            "min": lengths.min(),
            "median": middle,
            "mean": float(Fraction(int(lengths.sum()), len(lengths))),
            "max": lengths.max(),
        }
    assert sizes["distinct"] == len({image.shape for image in of("image")})
    assert result["fields"]["image"]["modes"] == {"raw color uint8": 23}
    assert result["fields"]["depth"]["modes"] == {"raw gray float32": 23}


def test_grasps_boxes_and_points_per_sample(result: dict[str, Any]) -> None:
    found = result["fields"]["grasps"]
    counts = [len(grasps) for grasps in of("grasps")]
    assert (found["total"], found["samples"]["0"]) == (sum(counts), counts.count(0))
    assert found["per_sample"] == {"min": 0, "median": 2, "mean": float(Fraction(sum(counts), 23)), "max": 4}
    corners = np.concatenate(of("grasps")).astype(np.float64)
    boxes = np.concatenate(of("boxes")).astype(np.float64)
    for name, sides in {
        "opening": np.sqrt(((corners[:, 1] - corners[:, 0]) ** 2).sum(axis=1)),
        "jaw": np.sqrt(((corners[:, 2] - corners[:, 1]) ** 2).sum(axis=1)),
        "width": boxes[:, 2] - boxes[:, 0],
        "height": boxes[:, 3] - boxes[:, 1],
    }.items():
        side = result["fields"]["grasps" if name in ("opening", "jaw") else "boxes"][name]
        wanted = [sides.min(), sides.mean(), sides.std(), sides.max()]
        np.testing.assert_allclose([side[key] for key in ("min", "mean", "std", "max")], wanted, rtol=1e-12)
    assert result["fields"]["dots"]["samples"] == {"0": 12, "1": 11}
    assert "opening" not in result["fields"]["dots"]


def test_classes_numbers_and_texts(result: dict[str, Any]) -> None:
    fields = result["fields"]
    assert fields["label"]["classes"] == [["cat", 10], ["dog", 10]]
    assert fields["label"]["no_class"] == 3
    assert fields["note"]["values"] == {"text 0": 8, "text 1": 8, "text 2": 7}
    ids = fields["object_id"]
    assert (ids["distinct"], ids["range"]["min"], ids["range"]["max"]) == (6, 2**62, 2**62 + 5)  # no float holds them
    scores = np.delete(np.arange(23) / 4, 7)
    assert fields["score"]["not_finite"] == 1
    assert fields["score"]["range"]["max"] == 5.5
    np.testing.assert_allclose(fields["score"]["range"]["mean"], scores.mean(), rtol=1e-15)


# ---- whatever the circumstances


@pytest.mark.one_in(8)
@pytest.mark.parametrize("format", formats.names())
@pytest.mark.parametrize("threads", [1, 4])
def test_formats_and_threads_change_nothing(tmp_path: Path, result: dict[str, Any], format: str, threads: int) -> None:
    pack = displayed(tmp_path / "pack", FIELDS, SAMPLES, format=format)
    found = StatisticsScan(pack, threads=threads).result
    assert found | {"pack": "", "format": ""} == result | {"pack": "", "format": ""}


def test_a_subset_is_every_mth_sample_and_all_together_are_everything(tmp_path: Path, result: dict[str, Any]) -> None:
    pack = displayed(tmp_path / "pack", FIELDS, SAMPLES)
    parts = [StatisticsScan(pack, subset=Subset(number, 3)).result for number in (1, 2, 3)]
    alone = displayed(tmp_path / "alone", FIELDS, SAMPLES[1::3])
    wanted = StatisticsScan(alone).result
    assert parts[1]["fields"] == wanted["fields"]
    assert (parts[1]["samples"], parts[1]["measured"]) == (23, 8)
    assert sum(part["fields"]["image"]["pixels"] for part in parts) == result["fields"]["image"]["pixels"]


def test_an_empty_pack_and_an_empty_subset(tmp_path: Path) -> None:
    empty = StatisticsScan(displayed(tmp_path / "empty", FIELDS, []), threads=2).result
    none = StatisticsScan(displayed(tmp_path / "one", FIELDS, SAMPLES[:1]), subset=Subset(2, 2)).result
    assert (empty["measured"], none["measured"], none["samples"]) == (0, 0, 1)
    assert empty["fields"] == none["fields"]
    assert empty["duplicates"] == {"image": [], "depth": []}


def test_progress_tells_every_sample_and_its_bytes(tmp_path: Path) -> None:
    told: list[Progress] = []
    result = StatisticsScan(displayed(tmp_path / "pack", FIELDS, SAMPLES), threads=2, progress=told.append).result
    assert [(now.samples, now.total) for now in told] == [(count, 23) for count in range(24)]
    assert told[-1].bytes == sum(field["bytes"]["total"] for field in result["fields"].values())


def test_a_damaged_value_ends_it(tmp_path: Path) -> None:
    pack = displayed(tmp_path / "pack", [NOTE], [{"note": "sound"}, {"note": "to be damaged"}], format="pth")
    part = pack / "part-00000.pth"
    part.write_bytes(part.read_bytes().replace(b"to be damaged", b"it is damaged"))
    with pytest.raises(CorruptRecord, match="'1', field 'note'"):
        StatisticsScan(pack, threads=4)


# ---- files of every form


def test_modes_of_files(tmp_path: Path) -> None:
    palette = cv2.imencode(".png", plain(8, 8), [cv2.IMWRITE_PNG_BILEVEL, 0])[1].tobytes()
    files = {
        "a.png": encoded(".png", np.full((30, 40), 77, np.uint8)),
        "b.jpg": encoded(".jpg", np.full((50, 20, 3), 77, np.uint8)),
        "c.jpg": encoded(".jpg", np.full((50, 20), 77, np.uint8)),
        "d.png": encoded(".png", np.full((64, 64, 4), 77, np.uint8)),
        "e.png": palette,
    }
    packed(write(tmp_path / "in", files), tmp_path / "pack")
    found = StatisticsScan(tmp_path / "pack").result["fields"]["image"]
    assert found["modes"] == {
        "jpeg color uint8": 1,
        "jpeg gray uint8": 1,
        "png color uint8": 1,
        "png color with alpha uint8": 1,
        "png gray uint8": 1,
    }
    assert found["sizes"]["common"][0] == {"width": 20, "height": 50, "count": 2}


def test_a_16_bit_depth_keeps_every_value(tmp_path: Path) -> None:
    field = Field("depth", "depth", "raw:uint16", "uint16", (None, None), invalid=0)
    depth = np.uint16([[0, 1, 65535], [0, 300, 301]])
    found = StatisticsScan(displayed(tmp_path / "pack", [field], [{"depth": depth}])).result["fields"]["depth"]
    assert (found["invalid"], found["range"]["min"], found["range"]["max"]) == (2, 1, 65535)
    assert found["modes"] == {"raw gray uint16": 1}


@pytest.mark.parametrize("invalid", [1e300, -1e300, 0.1])
def test_an_invalid_value_that_the_dtype_cannot_hold(tmp_path: Path, invalid: float) -> None:
    field = Field("depth", "depth", "raw:float32", "float32", (None, None), invalid=invalid)
    depth = np.float32([[0.1, 1.0, np.inf]])
    found = StatisticsScan(displayed(tmp_path / "pack", [field], [{"depth": depth}])).result["fields"]["depth"]
    assert found["invalid"] == (2 if invalid == 0.1 else 1)
    (tile,) = sheet_of(tmp_path / "pack").tiles
    assert tile.items == (("depth missing", "66.7%" if invalid == 0.1 else "33.3%"),)


def test_texts_beyond_a_number_or_very_long_are_only_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(field_statistics, "_MOST_TEXTS", 2)
    samples = [{"note": text} for text in ("x" * 5000, "a", "b", "c", "a", "d", "b")]
    found = StatisticsScan(displayed(tmp_path / "pack", [NOTE], samples)).result["fields"]["note"]
    assert (found["values"], found["others"]) == ({"a": 2, "b": 2}, 3)


# ---- duplicates


def test_equal_bytes_are_duplicates_and_equal_checksums_are_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [plain(5, 5, (number, 0, 0)) for number in (1, 2, 1, 3, 2, 1)]
    pack = displayed(tmp_path / "pack", [IMAGE], [{"image": image} for image in images])
    assert StatisticsScan(pack).result["duplicates"] == {"image": [["0", "2", "5"], ["1", "4"]]}
    survey = StatisticsScan(pack, subset=Subset(1, 2))
    assert survey.result["duplicates"] == {"image": [["0", "2"]]}  # of samples 0, 2, 4

    from packer.pack.reader import Pack

    opened = Pack(pack, verify="never")
    monkeypatch.setattr(opened.index, "crc32", lambda index, name: 1)  # as if all collided
    assert duplicates(opened, "image", np.arange(6)) == [[0, 2, 5], [1, 4]]
    opened.close()


# ---- sums


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=9), max_size=9))
def test_joined_moments_are_those_of_all(chunks: list[list[float]]) -> None:
    joined = Moments()
    for chunk in chunks:
        joined = joined.joined(Moments.of(np.array(chunk)))
    every = np.array([number for chunk in chunks for number in chunk])
    assert joined.count == len(every)
    if len(every):
        assert (joined.least, joined.most) == (every.min(), every.max())
        np.testing.assert_allclose([joined.mean, joined.squares], [every.mean(), every.var() * len(every)], atol=1e-3)
        assert joined.result()["max"] == every.max()
    else:
        assert joined.result() == {}


def test_moments_of_numbers_far_from_zero_do_not_cancel() -> None:
    numbers = 1e9 + np.array([1.0, 2.0, 3.0, 4.0])
    joined = Moments.of(numbers[:1]).joined(Moments.of(numbers[1:]))
    assert joined.result()["std"] == math.sqrt(1.25)


def test_labels_of_boxes_are_counted_box_by_box(tmp_path: Path) -> None:
    packer.convert(AnnotatedSource(annotated_source.small_set(tmp_path / "set")), tmp_path / "pack")
    found = StatisticsScan(tmp_path / "pack").result
    labels = found["fields"]["box_labels"]
    assert labels["classes"] == [["cat", 4], ["dog", 3], ["cup", 2]]  # 3, 0, 1 and 5 boxes
    assert (labels["of"], labels["total"], labels["no_class"]) == ("boxes", 9, 0)
    assert found["fields"]["polygons"]["total"] == 27 + 4 + 45
    text = "\n".join(lines(found))
    assert "3, 0 of them without a row of boxes" in text
    assert "2 to 4 rows of boxes, 2.00 to 1" in text
