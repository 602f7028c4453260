"""Routes: rows, histograms, samples and images of packs, against plain Python and the pixels of the dataset."""

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

import packer
from packer.errors import CorruptPack
from packer.geometry import RandomResizedCrop
from packer.inspect.value_drawing import mask_colors
from packer.schema import Field
from tests.support.array_packs import BOXES, DEPTH, DOTS, GRASPS, IMAGE, LABEL, MASK, NOTE, SCORE, displayed, plain
from tests.support.built_packs import flip
from tests.support.view_clients import View, view_of

BOX_LABELS = Field("box_labels", "number", "raw:int64", "int64", (None,), classes=("ball", "cup"), of="boxes")
TAGS = Field("tags", "json", "json")
FIELDS = (IMAGE, DEPTH, MASK, GRASPS, BOXES, BOX_LABELS, DOTS, LABEL, SCORE, NOTE, TAGS)
COUNT = 60
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title>",
    "\u202e\x1b[2J",
    "k\udcff",
    "'; --",
)


def sample(number: int) -> dict[str, Any]:
    random = np.random.default_rng(number)
    size = 20 + number, 40
    return {
        "key": HOSTILE[number] if number < len(HOSTILE) else f"{number % 7}/{number}",
        "image": random.integers(0, 256, (*size, 3), dtype=np.uint8),
        "depth": random.uniform(0.5, 2, size).astype(np.float32),
        "mask": random.integers(0, 3, size, dtype=np.uint8),
        "grasps": random.uniform(0, 20, (number % 3, 4, 2)).astype(np.float32),
        "boxes": np.sort(random.uniform(0, 20, (number % 4, 4)), axis=1).astype(np.float32),
        "box_labels": random.integers(0, 2, number % 4),
        "dots": random.uniform(0, 20, (2, 2)).astype(np.float32),
        "label": number % 2,
        "score": float("nan") if number == 5 else number / 8,
        "note": HOSTILE[number % len(HOSTILE)].encode("utf-8", "replace").decode(),
        "tags": {"<b>": [number]},
    }


SAMPLES = [sample(number) for number in range(COUNT)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return displayed(tmp_path_factory.mktemp("routes") / "<b>a.pack", FIELDS, SAMPLES)


@pytest.fixture(scope="module")
def view(folder: Path) -> Iterator[View]:
    with view_of(folder) as made:
        yield made


def pixels(data: bytes) -> npt.NDArray[Any]:
    found: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    return np.asarray(cv2.cvtColor(found, cv2.COLOR_BGRA2RGBA if found.shape[2] == 4 else cv2.COLOR_BGR2RGB))


# ---- packs and rows


def test_the_description_of_a_pack_is_data(view: View, folder: Path) -> None:
    answer = view.client.get("/api/packs")
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    (pack,) = found["packs"]
    assert (pack["name"], pack["samples"], pack["format"]) == ("<b>a.pack", COUNT, "lmdb")
    assert pack["pack_id"] == view.packs[0].manifest.pack_id
    assert [field["name"] for field in pack["fields"]] == ["key", *(field.name for field in FIELDS)]
    columns = {column["name"]: column for column in pack["columns"]}
    assert columns["label"]["classes"] == ["cat", "dog"]
    assert (columns["score"]["low"], columns["score"]["high"]) == (0, (COUNT - 1) / 8)
    assert columns["key"]["type"] == "text"
    assert [(each["name"], each["of"]) for each in pack["row_columns"]] == [
        *((name, "boxes") for name in ("boxes.width", "boxes.height", "boxes.area", "box_labels")),
    ]
    assert {"image.width", "depth.area", "mask.height"} <= columns.keys()


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("", lambda _: True),
        ("label == 'dog'", lambda each: each["label"] == 1),
        ("score >= 1.5 and label == 'cat'", lambda each: each["score"] >= 1.5 and each["label"] == 0),
        ("not (score < 3) or label != 'cat'", lambda each: not each["score"] < 3 or each["label"] == 1),
        ("'3/' in key", lambda each: "3/" in each["key"]),
        ("score > 1000", lambda _: False),
    ],
)
def test_rows_of_a_filter(where: str, chosen: Any, view: View) -> None:
    expected = [row for row, each in enumerate(SAMPLES) if chosen(each)]
    found = view.json("rows", where=where)
    assert found == {"total": len(expected), "rows": expected}
    window = view.json("rows", where=where, offset=3, count=4, keys=1)
    keys = [SAMPLES[row]["key"] for row in expected[3:7]]
    assert window == {"total": len(expected), "rows": expected[3:7], "keys": keys}
    assert view.json("rows", where=where, desc=1)["rows"] == expected[::-1]


def test_rows_in_the_order_of_a_column(view: View) -> None:
    by_label = sorted(range(COUNT), key=lambda row: SAMPLES[row]["label"])
    assert view.json("rows", sort="label")["rows"] == by_label
    assert view.json("rows", sort="label", desc=1)["rows"] == sorted(by_label, key=lambda row: -SAMPLES[row]["label"])
    by_key = sorted(range(COUNT), key=lambda row: SAMPLES[row]["key"].encode("utf-8", "surrogateescape"))
    assert view.json("rows", sort="key")["rows"] == by_key
    by_note = sorted(range(COUNT), key=lambda row: SAMPLES[row]["note"].encode())
    assert view.json("rows", sort="note")["rows"] == by_note
    dogs = [row for row in by_key[::-1] if SAMPLES[row]["label"]]
    assert view.json("rows", sort="key", desc=1, where="label == 'dog'")["rows"] == dogs


def test_a_histogram_counts_all_rows_and_the_chosen_ones(view: View) -> None:
    found = view.json("histogram", column="score", where="label == 'dog'")
    scores = [each["score"] for each in SAMPLES if each["score"] == each["score"]]
    dogs = [each["score"] for each in SAMPLES if each["label"]]
    for values, counts in ((scores, found["all"]), (dogs[:2] + dogs[3:], found["chosen"])):
        within = np.histogram(values, np.asarray(found["edges"]))[0]
        assert counts == within.tolist()
    assert sum(found["all"]) == COUNT - 1
    found = view.json("histogram", column="label", where="score < 1")
    few = [each["label"] for each in SAMPLES if each["score"] < 1]
    assert dict(zip(found["names"], found["all"], strict=True)) == {"cat": 30, "dog": 30}
    assert dict(zip(found["names"], found["chosen"], strict=True)) == {"cat": few.count(0), "dog": few.count(1)}


@pytest.mark.parametrize(
    ("where", "is_chosen", "is_met"),
    [
        ("label == 'dog'", lambda each: each["label"], lambda box, label: True),
        ("any(box_labels == 'cup')", lambda each: True, lambda box, label: label == 1),
        (
            "any(box_labels == 'cup' and boxes.width < 4) and score < 5",
            lambda each: each["score"] < 5,
            lambda box, label: label == 1 and box[2] - box[0] < 4,
        ),
        ("not any(box_labels == 'cup')", lambda each: 1 not in each["box_labels"], lambda box, label: True),
    ],
)
def test_a_histogram_counts_boxes(view: View, where: str, is_chosen: Any, is_met: Any) -> None:
    rows = [[*zip(each["boxes"], each["box_labels"].tolist(), strict=True)] for each in SAMPLES]
    chosen = [row for each, some in zip(SAMPLES, rows, strict=True) if is_chosen(each) for row in some if is_met(*row)]
    found = view.json("histogram", column="boxes.width", where=where)
    for boxes, counts in ((sum(rows, []), found["all"]), (chosen, found["chosen"])):
        widths = [box[2] - box[0] for box, _ in boxes]
        assert counts == np.histogram(widths, len(counts), (found["low"], found["high"]))[0].tolist()
    found = view.json("histogram", column="box_labels", where=where)
    for boxes, counts in ((sum(rows, []), found["all"]), (chosen, found["chosen"])):
        labels = [label for _, label in boxes]
        assert dict(zip(found["names"], counts, strict=True)) == {"ball": labels.count(0), "cup": labels.count(1)}
    samples = [
        row
        for row, (each, some) in enumerate(zip(SAMPLES, rows, strict=True))
        if is_chosen(each) and ("any" not in where or where.startswith("not") or any(is_met(*row) for row in some))
    ]
    assert view.json("rows", where=where)["rows"] == samples


@pytest.mark.parametrize(
    ("low", "high"), [(0, 0), (-3, 5), (0, 39), (0, 40), (-(2**40), 2**40), (2**53, 2**53 + 80), (-(2**63), 2**63 - 1)]
)
def test_whole_numbers_have_bins_of_whole_width(low: int, high: int, tmp_path: Path) -> None:
    number = Field("count", "number", "number", "int64", ())
    values = [low, high, low]
    with view_of(displayed(tmp_path / "a.pack", [number], [{"count": value} for value in values])) as view:
        found = view.json("histogram", column="count")
    assert len(found["edges"]) == len(found["all"]) + 1 <= 41
    assert sum(found["all"]) == sum(found["chosen"]) == 3
    if high - low < 40:
        assert found["edges"] == list(range(low, high + 2))
        assert found["all"] == [values.count(value) for value in range(low, high + 1)]


def test_the_size_of_an_image_is_listed_once(tmp_path: Path) -> None:
    with view_of(displayed(tmp_path / "a.pack", [IMAGE], [{"image": SAMPLES[0]["image"]}])) as view:
        (pack,) = view.json("packs")["packs"]
        names = [column["name"] for column in pack["columns"]]
        assert names == ["key", "image.width", "image.height", "image.area", "incomplete"]
        assert view.json("rows", where="width == image.width")["total"] == 1


def test_a_column_without_a_number_has_no_histogram(tmp_path: Path) -> None:
    with view_of(displayed(tmp_path / "a.pack", [SCORE], [{"score": float("nan")}])) as view:
        assert view.json("histogram", column="score")["edges"] == []
        assert view.json("packs")["packs"][0]["columns"][1]["low"] is None


def test_an_empty_pack_has_no_rows(tmp_path: Path) -> None:
    folder = displayed(tmp_path / "a.pack", [IMAGE, LABEL, SCORE, BOXES, BOX_LABELS], [])
    with view_of(folder, folder) as view:
        for sort in ("", "key", "label"):
            assert view.json("rows", sort=sort, where="score > 1") == {"total": 0, "rows": []}
        assert view.json("histogram", column="label")["all"] == []
        assert view.json("histogram", column="score")["all"] == []
        assert view.json("histogram", column="boxes.width")["all"] == []
        assert view.json("histogram", column="box_labels")["all"] == []
        assert view.json("rows", where="any(boxes.width > 1)")["rows"] == []
        assert view.json("differences")["rows"] == []
        assert view.client.get("/api/sample?row=0").status_code == 404


def test_incomplete_samples_are_chosen(tmp_path: Path) -> None:
    folder = displayed(
        tmp_path / "a.pack", [SCORE], [{"score": 1.0}] * 4, incomplete=(("2", "no depth"),), skipped=(("x", "cut"),)
    )
    with view_of(folder) as view:
        assert view.json("rows", where="incomplete == 1")["rows"] == [2]
        assert view.json("rows", where="incomplete == 1 and score > 1")["rows"] == []
        assert view.json("histogram", column="incomplete")["all"] == [3, 1]
        assert view.json("sample", row=2)["incomplete"] == "no depth"
        assert view.json("sample", row=1)["incomplete"] is None
        (pack,) = view.json("packs")["packs"]
        assert (pack["skipped"], pack["skipped_count"]) == ([["x", "cut"]], 1)


def test_an_export_says_the_same_as_the_filter(view: View, folder: Path) -> None:
    found = view.json("export", where="label=='dog'   and score<2")
    keys = [each["key"] for each in SAMPLES if each["label"] and each["score"] < 2]
    assert found["keys"] == keys
    assert view.json("export", where="label == 'dog' and score < 2", sort="score", desc=1)["keys"] == keys[::-1]
    assert found["python"] == f"packer.open({str(folder)!r}).where(\"label == 'dog' and score < 2\")"
    condition = ["--where", "label == 'dog' and score < 2"]
    collect, listing = (shlex.split(line) for line in found["command"].splitlines())
    assert collect == ["packer", "collect", "OUT", str(folder), *condition]
    assert listing == ["packer", "ls", str(folder), *condition, "-n", "0"]
    sorted_command = view.json("export", sort="score", desc=1)["command"].splitlines()[1]
    assert sorted_command.endswith(" --sort score --desc -n 0")


def test_an_export_of_the_first_rows(view: View, folder: Path) -> None:
    found = view.json("export", where="label == 'dog'", sort="score", desc=1, count=2)
    chosen = [each for each in SAMPLES if each["label"]][-2:][::-1]
    assert found["keys"] == [each["key"] for each in chosen]
    collect, listing = (shlex.split(line) for line in found["command"].splitlines())
    assert collect == ["packer", "collect", "OUT", str(folder), "--keys", "KEYS.txt"]
    assert listing[-5:] == ["--sort", "score", "--desc", "-n", "2"]
    rows = view.json("rows", where="label == 'dog'", sort="score", desc=1)["rows"]
    assert found["python"].endswith(f".select({rows[:2]})")
    assert SAMPLES[rows[-1]]["key"] == "'; --"  # NaN is last, in any order


def test_boxes_that_meet_the_filter_are_marked(view: View) -> None:
    where = "any(box_labels == 'cup' and boxes.width < 4)"
    rows = view.json("rows", where=where)["rows"]
    for row, found in zip(
        rows, view.json("overlays", rows=",".join(map(str, rows)), where=where)["samples"], strict=True
    ):
        boxes, labels = SAMPLES[row]["boxes"], SAMPLES[row]["box_labels"].tolist()
        expected = [label == 1 and box[2] - box[0] < 4 for box, label in zip(boxes, labels, strict=True)]
        marked = {shapes["field"]: shapes.get("chosen") for shapes in found["overlays"]}
        assert marked["boxes"] == expected
        assert [each for field, each in marked.items() if field != "boxes" and each is not None] == []
        assert found["overlays"] == view.json("sample", row=row, where=where)["overlays"]
    (unmarked,) = view.json("overlays", rows="1", where=f"not {where}")["samples"]
    assert all("chosen" not in shapes for shapes in unmarked["overlays"])


def test_a_key_of_one_pack_has_no_partner(view: View) -> None:
    assert view.json("same", row=0)["row"] is None


@pytest.mark.parametrize(
    ("route", "status", "text"),
    [
        ("rows?where=label", 400, "comparison"),
        ("rows?where=nothing == 1", 400, "nothing"),
        ("rows?sort=key2", 400, "key2"),
        ("rows?count=2001", 400, "count"),
        ("rows?offset=-1", 400, "offset"),
        ("rows?offset=²", 400, "offset"),
        ("rows?p=1", 400, "p="),
        ("histogram?column=key", 400, "key"),
        ("histogram", 400, "no column"),
        ("rows?sort=boxes.width", 400, "no column"),
        ("sample?row=60", 404, "row 60"),
        ("sample?row=1e3", 400, "row"),
        ("overlays?rows=1,60", 404, "row 60"),
        ("overlays?rows=1,x", 400, "rows"),
        ("overlays?rows=" + ",".join(["1"] * 101), 400, "rows"),
        ("overlays", 400, "rows"),
        ("image?row=0&field=nothing", 404, "nothing"),
        ("image?row=0&field=boxes", 404, "boxes"),
        ("image?row=0&field=image&width=2049", 400, "width"),
        ("depth?row=0&field=image", 400, "depth"),
        ("trained?row=0&field=image&geometry=__import__('os')", 400, "geometry"),
        ("trained?row=0&field=image&geometry=Resize((9000,9000))", 400, "2048"),
        ("trained?row=0&field=image&geometry=" + "(" * 600, 400, "geometry"),
        ("original?row=0&field=image", 404, "keep"),
        ("differences", 400, "PACK2"),
        ("only", 400, "PACK2"),
    ],
)
def test_a_wrong_request_is_an_error_with_a_reason(route: str, status: int, text: str, view: View) -> None:
    answer = view.client.get(f"/api/{route}")
    assert answer.status_code == status, answer.text
    assert text in answer.json()["error"]


# ---- one sample


def test_a_sample_has_all_values_but_pixels(view: View, folder: Path) -> None:
    with packer.open(folder, output="numpy") as data:
        for row in range(8):
            expected, found = data[row], view.json("sample", row=row)
            assert found["key"] == SAMPLES[row]["key"]
            fields = {field["name"]: field for field in found["fields"]}
            for name in ("boxes", "grasps", "dots"):
                assert np.allclose(np.asarray(fields[name]["value"]).reshape(expected[name].shape), expected[name])
            assert fields["image"]["size"] == [20 + row, 40]
            assert fields["note"]["value"] == expected["note"]
            assert fields["label"]["value"] == expected["label"]
            assert fields["score"]["value"] == (None if row == 5 else expected["score"])
            assert json.loads(fields["tags"]["value"]) == {"<b>": [row]}
            with view.packs[0].record(row, ["image", "depth"]) as record:
                assert fields["image"]["bytes"] == len(record["image"])
            assert fields["image"]["crc32"] == f"{view.packs[0].index.crc32(row, 'image'):08x}"


def test_overlays_have_the_corner_of_the_first_pixel_as_origin(view: View) -> None:
    found = view.json("overlays", rows="7,11")["samples"]
    assert [each["row"] for each in found] == [7, 11]
    for each in found:
        given = SAMPLES[each["row"]]
        assert each["size"] == [20 + each["row"], 40]
        assert each["overlays"] == view.json("sample", row=each["row"])["overlays"]
        grasps, boxes, dots = each["overlays"]
        assert [boxes["field"], boxes["form"], boxes["total"]] == ["boxes", "boxes", len(given["boxes"])]
        assert np.allclose(np.reshape(boxes["shapes"], (-1, 8))[:, [0, 1, 4, 5]], given["boxes"], atol=0.01)
        assert boxes["labels"] == [("ball", "cup")[value] for value in given["box_labels"]]
        assert np.allclose(np.reshape(grasps["shapes"], (-1, 4, 2)), given["grasps"] + 0.5, atol=0.01)
        assert [grasps["form"], len(grasps["colors"]), grasps["labels"]] == ["grasps", 2, None]
        assert np.allclose(np.reshape(dots["shapes"], (-1, 2)), given["dots"] + 0.5, atol=0.01)


def test_a_shape_that_is_not_finite_is_null_and_many_are_cut(tmp_path: Path) -> None:
    boxes = np.zeros((2500, 4), np.float32)
    boxes[1] = np.nan
    dots = np.full((1, 2), np.inf, np.float32)
    with view_of(displayed(tmp_path / "a.pack", [BOXES, DOTS], [{"boxes": boxes, "dots": dots}])) as view:
        (found,) = view.json("overlays", rows="0")["samples"]
        assert found["size"] is None
        assert [(each["total"], len(each["shapes"])) for each in found["overlays"]] == [(2500, 2000), (1, 1)]
        assert found["overlays"][0]["shapes"][1] is None
        assert found["overlays"][1]["shapes"] == [None]
        assert view.json("sample", row=0)["fields"][1]["value"][1] == [None] * 4


@pytest.mark.parametrize("row", [0, 9])
def test_an_image_in_the_stored_size_has_the_pixels_of_the_dataset(row: int, view: View) -> None:
    answer = view.client.get("/api/image", params={"row": row, "field": "image", "width": 0})
    assert answer.headers["content-type"] == "image/bmp"
    assert np.array_equal(pixels(answer.content), SAMPLES[row]["image"])
    mask = pixels(view.client.get("/api/image", params={"row": row, "field": "mask", "width": 0}).content)
    colors, opacity = mask_colors(SAMPLES[row]["mask"])
    assert np.array_equal(mask[..., 3], np.rint(opacity * 255))
    assert np.array_equal(mask[..., :3][opacity > 0], colors[opacity > 0])
    answer = view.client.get("/api/depth", params={"row": row, "field": "depth"})
    size = SAMPLES[row]["depth"].shape
    assert np.array_equal(np.frombuffer(answer.content, "<f4").reshape(size), SAMPLES[row]["depth"])


def test_a_thumbnail_is_small_and_kept_by_the_browser(view: View) -> None:
    where = {"row": 9, "field": "image", "width": 20, "v": view.packs[0].manifest.pack_id[:12]}
    answer = view.client.get("/api/image", params=where)
    assert answer.headers["content-type"] == "image/jpeg"
    assert pixels(answer.content).shape == (14, 20, 3)
    assert "immutable" in answer.headers["cache-control"]
    again = view.client.get("/api/image", params=where, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    stale = view.client.get("/api/image", params=where, headers={"If-None-Match": '"another"'})
    assert (stale.status_code, stale.content) == (200, answer.content)
    other = view.client.get("/api/image", params={**where, "width": 21, "v": "another"})
    assert other.headers["etag"] != answer.headers["etag"]
    assert other.headers["cache-control"] == "no-cache"
    assert pixels(view.client.get("/api/image", params={**where, "width": 2000}).content).shape == (29, 40, 3)
    assert pixels(view.client.get("/api/image", params={**where, "field": "depth"}).content).shape == (14, 20, 3)


def test_a_thumbnail_is_decoded_once(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    small, stored = ({"row": 3, "field": "image", "width": width} for width in (10, 0))
    assert view.client.get("/api/image", params=small).status_code == 200
    assert view.client.get("/api/image", params=stored).status_code == 200

    def fail(*_: object) -> None:
        raise CorruptPack("read again")

    monkeypatch.setattr(view.packs[0], "record", fail)
    assert view.client.get("/api/image", params=small).status_code == 200
    assert view.client.get("/api/image", params=stored).status_code == 422  # too large to keep


@pytest.mark.parametrize("seed", [0, 5])
def test_a_sample_as_trained_is_that_of_the_dataset(seed: int, view: View, folder: Path) -> None:
    geometry = RandomResizedCrop(32)
    parameters = {"row": 11, "geometry": "RandomResizedCrop(32)", "seed": seed}
    answer = view.client.get("/api/trained", params={**parameters, "field": "mask"})
    numbers = packer.geometry.draw(seed, 0, np.asarray([11]), geometry.draws)[0].tolist()
    with packer.open(folder, output="numpy") as data:
        expected = data.sample_at(11, geometry, numbers)
    _, opacity = mask_colors(expected["mask"])
    assert np.array_equal(pixels(answer.content)[..., 3], np.rint(opacity * 255))
    grasps, boxes, dots = (each["shapes"] for each in view.json("sample", **parameters)["overlays"])
    assert np.allclose(np.asarray(boxes)[:, [0, 2]].reshape(-1, 4), expected["boxes"], atol=0.01)
    assert np.allclose(grasps, expected["grasps"] + 0.5, atol=0.01)
    assert np.allclose(np.reshape(dots, (-1, 2)), expected["dots"] + 0.5, atol=0.01)


def test_an_original_is_the_kept_file(tmp_path: Path) -> None:
    kept = Field("image", "image", "encoded", "uint8", (None, None, 3))
    file = cv2.imencode(".jpg", np.full((30, 40, 3), 90, np.uint8))[1].tobytes()
    with view_of(displayed(tmp_path / "a.pack", [kept], [{"image": file}])) as view:
        answer = view.client.get("/api/original", params={"row": 0, "field": "image"})
        assert (answer.content, answer.headers["content-type"]) == (file, "image/jpeg")
        assert pixels(view.client.get("/api/image?row=0&field=image&width=10").content).shape == (8, 10, 3)


def test_a_damaged_value_is_an_error_of_its_own(tmp_path: Path) -> None:
    given = [{"image": SAMPLES[row]["image"], "boxes": SAMPLES[row]["boxes"]} for row in range(2)]
    folder = displayed(tmp_path / "a.pack", [IMAGE, BOXES], given, format="bmp")
    flip(next(folder.rglob("0.bin")), 30)
    with view_of(folder) as view:
        answer = view.client.get("/api/image", params={"row": 0, "field": "image"})
        assert answer.status_code == 422
        assert "crc32" in answer.json()["error"]
        assert view.client.get("/api/sample?row=0").status_code == 422
        damaged, intact = view.json("overlays", rows="0,1")["samples"]
        assert ("error" in damaged, "error" in intact) == (True, False)


def test_an_unexpected_error_says_where_to_look(
    view: View, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("\x1b[2J")

    monkeypatch.setattr(type(view.packs[0].index), "key", fail)
    with pytest.raises(ZeroDivisionError):  # starlette raises it again, for the log of the server
        view.client.get("/api/sample?row=0")
    assert r"\x1b[2J" in capsys.readouterr().err


# ---- two packs


def test_two_packs_are_compared_by_key(tmp_path: Path) -> None:
    ones = [{"key": f"k{number}", "score": number, "label": 0} for number in range(50)]
    others = [{"key": f"k{number}", "score": number + (number % 10 == 3)} for number in (*range(60, 19, -1), 5, 3)]
    folders = displayed(tmp_path / "a", [SCORE, LABEL], ones), displayed(tmp_path / "b", [SCORE], others)
    with view_of(*folders) as view:
        rows = {each["key"]: row for row, each in enumerate(others)}
        for row in range(50):
            assert view.json("same", row=row)["row"] == rows.get(f"k{row}")
        assert view.json("same", row=rows["k5"], p=1)["row"] == 5
        expected = [[row, rows[f"k{row}"]] for row in (3, 23, 33, 43)]
        keys = ["k3", "k23", "k33", "k43"]
        counts = {"differing": {"": 4, "key": 0, "score": 4}, "resized": {"": 0, "key": 0, "score": 0}}
        counts |= {"fields": [["score"]] * 4}
        assert view.json("differences") == {"total": 4, "rows": expected, "keys": keys, "only": [18, 11], **counts}
        for p, (mine, theirs) in enumerate(((ones, others), (others, ones))):
            known = {each["key"] for each in theirs}
            alone = [row for row, each in enumerate(mine) if each["key"] not in known]
            window = {"rows": alone[2:7], "keys": [mine[row]["key"] for row in alone[2:7]]}
            assert view.json("only", p=p, offset=2, count=5) == {"total": len(alone), **window}
        assert view.json("differences", offset=1, count=2)["rows"] == expected[1:3]


def test_differences_are_counted_for_each_field(tmp_path: Path) -> None:
    ones = [{"image": plain(8, 8, (row, 0, 0)), "mask": plain(8, 8, (0, 0, 0))[..., 0]} for row in range(6)]
    others = [{**each, "image": plain(8 + (row == 1), 8, (row, row // 2, 0))} for row, each in enumerate(ones)]
    others[0] = {**others[0], "mask": others[0]["mask"] + np.uint8(1)}
    folders = displayed(tmp_path / "a", [IMAGE, MASK], ones), displayed(tmp_path / "b", [IMAGE, MASK], others)
    with view_of(*folders) as view:
        found = view.json("differences")
        assert (found["total"], found["rows"]) == (6, [[row, row] for row in range(6)])
        assert found["differing"] == {"": 6, "key": 0, "image": 5, "mask": 1}
        assert found["resized"] == {"": 0, "key": 0, "image": 1, "mask": 0}
        assert found["fields"][:2] == [["mask"], ["image"]]
        assert view.json("differences", field="mask")["rows"] == [[0, 0]]
        assert view.json("differences", field="image", offset=3)["rows"] == [[4, 4], [5, 5]]
        assert view.client.get("/api/differences?field=x").status_code == 404


def test_keys_that_differ_in_zeros_are_different(tmp_path: Path) -> None:
    folders = [
        displayed(tmp_path / name, [SCORE], [{"key": key, "score": 1.0} for key in keys])
        for name, keys in (("a", ("k", "m\0", "")), ("b", ("k\0\0", "m\0", "\0")))
    ]
    with view_of(*folders) as view:
        assert view.json("differences")["only"] == [2, 2]
