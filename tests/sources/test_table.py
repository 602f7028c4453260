"""Tables: their rows are what csv, json and pyarrow read; column roles; faults; and paths that lead out."""

import csv
import datetime
import io
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer import registry
from packer.conversion.convert import convert, convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import BadInput, BadInputs, InvalidRequest, MissingPackage
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.sources._recognition import detect
from packer.sources.annotations import table
from packer.sources.annotations._table_cell_kinds import ColumnCells, checked_path
from tests.support import image_files
from tests.support.counted_steps import at_most
from tests.support.foreign_environments import said_by
from tests.support.layout_trees.table import build
from tests.support.source_trees import depth, image, mask, photos, tree, write

RACCOON = """filename,width,height,class,xmin,ymin,xmax,ymax
raccoon-1.jpg,64,48,raccoon,8,8,40,35
raccoon-12.jpg,64,48,raccoon,1,1,14,30
raccoon-12.jpg,64,48,cub,20.5,2,30,30
raccoon-3.jpg,64,48,raccoon,2,3,40,44
raccoon-12.jpg,64,48,raccoon,40,1,60,30
"""


def images(root: Path, *names: str) -> Path:
    """Files of these names, each another image."""
    return write(root, {name: image(at, suffix=Path(name).suffix) for at, name in enumerate(names)})


def listed(root: Path, text: str | bytes, *names: str, name: str = "metadata.csv", **options: Any) -> table.Source:
    write(images(root, *names), {name: text})
    return table.Source(root, **options)


def column(source: table.Source, name: str) -> list[Any]:
    return [source[row][name] for row in range(len(source))]


def raccoons(root: Path) -> Path:
    write(images(root, "raccoon-1.jpg", "raccoon-12.jpg", "raccoon-3.jpg"), {"labels.csv": RACCOON})
    return root / "labels.csv"


# ---- what stands in the table


def test_every_row_is_what_the_csv_module_reads(tmp_path: Path) -> None:
    root = build(tmp_path / "in")
    source = table.Source(root)
    rows = []
    for split in ("test", "train"):
        with open(root / split / "metadata.csv", encoding="utf-8-sig", newline="") as file:
            rows += [(split, row) for row in csv.DictReader(file)]
    assert len(source) == len(rows) == 4
    for index, (split, row) in enumerate(rows):
        sample = source[index]
        assert sample["key"] == f"{split}/{row['file_name']}"
        assert sample["image"] == (root / split / row["file_name"]).read_bytes()
        assert sample["mask"] == (root / split / row["mask_file_name"]).read_bytes()
        assert source.schema["label"].classes == ("cat", "dog")
        assert ("cat", "dog")[sample["label"]] == row["label"]
        assert (sample["caption"], sample["id"]) == (row["caption"], row["id"])
        assert np.array_equal(sample["age"], float(row["age"] or "nan"), equal_nan=True)
        assert source.schema["split"].classes is not None
        assert source.schema["split"].classes[sample["split"]] == split
    assert source.schema["split"].classes == ("train", "test")
    kinds = {field.name: (field.kind, field.dtype) for field in source.schema}
    assert kinds["id"] == kinds["caption"] == ("text", None) and kinds["age"] == ("number", "float64")
    assert kinds["mask"][0] == "mask"


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("last", [True, False])
def test_a_table_is_the_same_however_it_is_written(
    tmp_path: Path, ending: str, bom: str, separator: str, last: bool
) -> None:
    rows = [["file_name", "text", "n"], ["a.png", f'x{separator} "y"{ending}z', "1"], ["b.png", "", "-2"]]
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=separator, lineterminator=ending).writerows(rows)
    text = bom + (file.getvalue() if last else file.getvalue()[: -len(ending)])
    source = listed(tmp_path, text.encode(), "a.png", "b.png")
    assert column(source, "text") == [row[1] for row in rows[1:]]
    assert column(source, "n") == [1, -2]
    assert source.schema["n"].dtype == "int64"


@pytest.mark.parametrize("name", ["metadata.tsv", "metadata.jsonl"])
def test_other_kinds_give_what_csv_gives(tmp_path: Path, name: str) -> None:
    rows: list[dict[str, Any]] = [
        {"file_name": "a.png", "label": "dog", "n": 5, "x": 0.25, "t": "p, q"},
        {"file_name": "b.png", "label": "cat", "n": -1, "x": 1e-9, "t": "ü\u2028v"},
    ]
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")
    writer.writeheader()
    writer.writerows(rows)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    found = listed(tmp_path, lines if name.endswith("jsonl") else file.getvalue(), "a.png", "b.png", name=name)
    assert [column(found, field) for field in ("label", "n", "x", "t")] == [
        [1, 0],
        [5, -1],
        [0.25, 1e-9],
        [row["t"] for row in rows],
    ]
    assert found.schema["label"].classes == ("cat", "dog")


TEXT_COLUMNS: list[tuple[Sequence[str], str, str]] = [
    (["1", "-2", " 3 "], "int", "int"),
    (["1", ""], "float", "int"),
    (["1", "2.5", "1e3", "nan", "-inf", ".5", "5."], "float", "float"),
    (["007", "1"], "text", "text"),
    (["1", "+2"], "text", "text"),
    (["1_000"], "text", "text"),
    (["1e999"], "text", "text"),
    (["NA", "1"], "text", "text"),
    (["", ""], "text", "text"),
    (["9223372036854775807"], "int", "int"),
    (["9223372036854775808"], "text", "text"),
    (["12345678901234567890123"], "text", "text"),
    (["9007199254740993", ""], "text", "int"),
    (["9007199254740993", "0.5"], "text", "text"),
    (["٣"], "text", "text"),
    (["True", "False"], "text", "text"),
]


JSON_COLUMNS: list[tuple[Sequence[Any], str, str]] = [
    ([1, 2], "int", "int"),
    ([1, None], "float", "int"),
    ([1, 2.5], "float", "float"),
    ([float("nan"), 1.0], "float", "float"),
    ([1, True], "json", "json"),
    ([True, False], "bool", "bool"),
    ([True, None], "json", "bool"),
    (["a", "b"], "text", "text"),
    (["a", None], "json", "text"),
    (["a", 1], "json", "json"),
    ([[1], {"a": 2}], "json", "json"),
    ([None, None], "json", "json"),
    ([1 << 63], "json", "json"),
    ([(1 << 53) + 1, None], "json", "int"),
    ([(1 << 53) + 1, 0.5], "json", "json"),
]


@pytest.mark.parametrize(("is_csv", "columns"), [(True, TEXT_COLUMNS), (False, JSON_COLUMNS)])
def test_the_kind_of_a_column(is_csv: bool, columns: list[tuple[Sequence[Any], str, str]]) -> None:
    for cells, kind, filled in columns:
        for cut in range(len(cells) + 1):  # in whatever pieces it is looked at
            found = ColumnCells(is_csv=is_csv)
            found.add(cells[:cut])
            found.add(cells[cut:])
            column = found.column("x", rows=len(cells))
            assert (column.kind, column.filled) == (kind, filled), cells


def test_json_keeps_what_it_has(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {
            "file_name": "a.png",
            "objects": {"bbox": [[1, 2, 3, 4]], "categories": [0]},
            "ok": True,
            "note": None,
            "n": 1,
        },
        {"file_name": "b.png", "objects": {"bbox": [], "categories": []}, "ok": False, "note": "x", "mixed": [1]},
    ]
    source = listed(tmp_path / "in", "\n".join(map(json.dumps, rows)), "a.png", "b.png", name="metadata.jsonl")
    assert column(source, "objects") == [row["objects"] for row in rows]
    assert column(source, "note") == [None, "x"]
    assert column(source, "mixed") == [None, [1]]
    assert column(source, "ok") == [True, False] and source.schema["ok"].dtype == "bool"
    assert np.array_equal(column(source, "n"), [1, np.nan], equal_nan=True)
    convert_source(source, tmp_path / "out.pack", ConversionOptions())
    with LMDBDataset(tmp_path / "out.pack") as dataset:
        assert dataset[0]["objects"] == rows[0]["objects"] and dataset[1]["note"] == "x"


# ---- paths are data


PATHS_OUT = (
    *(
        "/etc/passwd",
        "C:\\photos\\a.png",
        "\\\\host\\share\\a.png",
        "../a.png",
        "x/../../a.png",
        "..\\a.png",
        "a\0.png",
        "",
        "./",
    ),
    *("https://example.com/a.png", "s3://bucket/a.png", "file:///etc/passwd", "file:a.png", "data:image/png;base64,AA"),
)


@pytest.mark.parametrize("path", PATHS_OUT)
def test_a_path_that_leads_elsewhere_is_refused(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_, **__: pytest.fail("a socket was opened"))
    write(tmp_path, {"a.png": image(9), "in/b.png": image(1)})
    rows = [{"file_name": "b.png"}, {"file_name": path}]
    write(tmp_path / "in", {"metadata.jsonl": "\n".join(map(json.dumps, rows))})
    with pytest.raises(BadInput, match=r"metadata\.jsonl: line 2:"):
        table.Source(tmp_path / "in", missing="skip")


def test_all_faults_are_counted_and_the_first_are_listed(tmp_path: Path) -> None:
    text = "file_name\n" + "".join(f"/x/{number}.png\n" for number in range(50))
    with pytest.raises(BadInput, match="line 2: /x/0.png.*line 21: .*30 more"):
        listed(tmp_path, text)


def test_paths_with_other_separators_are_read(tmp_path: Path) -> None:
    source = listed(tmp_path, "file_name\n./a/b.png\na\\c.png\na//d.png\n12:30.png\n", *PATHS)
    assert [source.key(row) for row in range(4)] == list(PATHS)
    assert checked_path("a.png", "train/x") == "train/x/a.png"


PATHS = ("a/b.png", "a/c.png", "a/d.png", "12:30.png")


# ---- files that are not there


def test_samples_without_a_file_are_an_error_or_skipped(tmp_path: Path) -> None:
    names = [f"raccoon-{number}.jpg" for number in range(1, 218)]
    text = "filename,class\n" + "".join(f"{name},raccoon\n" for name in names)
    write(images(tmp_path, *names[:140]), {"labels.csv": text})
    with pytest.raises(BadInput, match="line 142: .*raccoon-141.jpg.*57 more"):
        table.Source(tmp_path / "labels.csv")
    source = table.Source(tmp_path / "labels.csv", missing="skip")
    assert len(source) == 140
    assert source.left_out[0] == ("raccoon-141.jpg", "no such file: raccoon-141.jpg") and len(source.left_out) == 77
    convert(tmp_path / "labels.csv", tmp_path / "out.pack", missing="skip")
    assert len(manifests.read(tmp_path / "out.pack").skipped) == 77
    lost = write(tmp_path / "lost", {"a.csv": "filename,class\nx.jpg,1\ny.jpg,2\n"})
    with pytest.raises(BadInput, match="no samples"):
        convert(lost / "a.csv", tmp_path / "lost.pack", missing="skip")


def test_samples_without_a_label_or_a_mask_are_incomplete(tmp_path: Path) -> None:
    text = "file_name,mask_file_name,label\na.png,m.png,0.5\nb.png,,1\nc.png,m.png,\nd.png,m.png,nan\n"
    with pytest.raises(BadInput, match="line 3:.*mask.*line 4:.*label.*line 5:"):
        listed(tmp_path, text, "a.png", "b.png", "c.png", "d.png", "m.png")
    source = table.Source(tmp_path, missing="skip")
    assert [key for key, _ in source.left_out] == ["b.png", "c.png", "d.png"]
    assert source.extras == ["b.png", "c.png", "d.png", "metadata.csv"]
    assert column(source, "label") == [0.5]


# ---- many rows of one image


def test_rows_of_one_image_need_group_by(tmp_path: Path) -> None:
    path = raccoons(tmp_path)
    with pytest.raises(BadInput, match="line 4.*line 3.*raccoon-12.jpg; --group-by"):
        table.Source(path)


def test_rows_of_one_image_are_its_boxes(tmp_path: Path) -> None:
    path = raccoons(tmp_path)
    source = table.Source(path, group_by="filename")
    rows = list(csv.DictReader(io.StringIO(RACCOON)))
    assert [source.key(row) for row in range(3)] == ["raccoon-1.jpg", "raccoon-12.jpg", "raccoon-3.jpg"]
    for index in range(3):
        mine = [row for row in rows if row["filename"] == source.key(index)]
        sample = source[index]
        boxes = [[float(row[name]) for name in ("xmin", "ymin", "xmax", "ymax")] for row in mine]
        assert sample["boxes"].dtype == np.float32 and sample["boxes"].tolist() == boxes
        classes = source.schema["box_labels"].classes
        assert classes == ("cub", "raccoon")
        assert [classes[label] for label in sample["box_labels"]] == [row["class"] for row in mine]
        assert sample["width"] == 64 and source.stated_size(index) == (48, 64)
    assert source.schema["box_labels"].of == "boxes"
    convert(path, tmp_path / "out.pack", group_by="filename", label_column="class")
    with LMDBDataset(tmp_path / "out.pack") as dataset:
        assert dataset[1]["boxes"].shape == (3, 4)
        assert np.asarray(dataset[1]["box_labels"]).tolist() == [1, 0, 1]


def test_columns_that_differ_have_a_value_per_row(tmp_path: Path) -> None:
    text = (
        "image,city,x1,y1,x2,y2,score,crowd,text\n"
        "a.png,Bonn,1,2,3,4,0.5,0,p\nb.png,Köln,,,,,,,\na.png,Bonn,5,6,7,8,,1,q\nc.png,Trier,1,1,2,2,1,0,\n"
    )
    source = listed(tmp_path / "in", text, "a.png", "b.png", "c.png", group_by="image", image_column="image")
    assert column(source, "city") == ["Bonn", "Köln", "Trier"]
    assert [sample.tolist() for sample in column(source, "boxes")] == [[[1, 2, 3, 4], [5, 6, 7, 8]], [], [[1, 1, 2, 2]]]
    assert source[1]["boxes"].shape == (0, 4)
    assert np.array_equal(source[0]["score"], [0.5, np.nan], equal_nan=True)
    assert column(source, "text") == [["p", "q"], [], [""]]
    assert source.schema["score"].of == "boxes" and source.schema["text"].kind == "json"
    assert [len(sample) for sample in column(source, "crowd")] == [2, 0, 1]
    convert_source(source, tmp_path / "out.pack", ConversionOptions())


def test_labels_of_several_rows_without_boxes(tmp_path: Path) -> None:
    source = listed(tmp_path, "file_name,label\na.png,x\na.png,y\nb.png,y\n", "a.png", "b.png", group_by="file_name")
    assert [sample.tolist() for sample in column(source, "labels")] == [[0, 1], [1]]
    assert source.schema["labels"].classes == ("x", "y")


@pytest.mark.parametrize(
    ("text", "options", "keyword"),
    [
        ("file_name,g\na.png,1\nb.png,1\n", {"group_by": "g"}, "line 3: another image"),
        ("file_name,g\na.png,1\nb.png,\n", {"group_by": "g"}, "line 3: .*column g"),
        ("file_name,g,k\na.png,1,x\na.png,1,y\n", {"group_by": "g", "key_column": "k"}, "line 3: .*key"),
        ("file_name,k\na.png,x\nb.png,x\n", {"key_column": "k"}, "line 3: the same key .*line 2: x"),
        ("file_name,k\na.png,x\nb.png,\n", {"key_column": "k"}, "line 3: .*column k"),
        ("file_name,xmin,ymin,xmax,ymax\na.png,1,2,3,\nb.png,1,2,3,4\n", {}, "line 2: 3 of the four"),
        ("file_name,xmin,ymin,xmax,ymax\na.png,1,2,3,x\n", {}, "column ymax"),
    ],
)
def test_rows_that_contradict_each_other(tmp_path: Path, text: str, options: dict[str, str], keyword: str) -> None:
    with pytest.raises(BadInput, match=keyword):
        listed(tmp_path, text, "a.png", "b.png", **options)


def test_the_work_on_a_table_is_bounded_by_the_cells_that_it_has(tmp_path: Path) -> None:
    write(tmp_path / "json", {"0.jpg": image(0)})
    wide = json.dumps({"file_name": "0.jpg", **{f"c{number}": 1 for number in range(500)}})
    with at_most(100 * 6500), pytest.raises(BadInput, match="rows"):
        listed(tmp_path / "json", f"{wide}\n" + '{"file_name":"0.jpg"}\n' * 6000, name="metadata.jsonl")


def test_a_key_column(tmp_path: Path) -> None:
    source = listed(tmp_path, "file_name,id\na.png,007\nb.png,7\n", "a.png", "b.png", key_column="id")
    assert [source.key(row) for row in range(2)] == ["007", "7"]
    assert source.entry(1).files == ("b.png",) and "id" not in source.schema


def test_shares_are_not_boxes(tmp_path: Path) -> None:
    source = listed(tmp_path, "file_name,XMin,XMax,YMin,YMax\na.png,0.1,0.5,0,1\n", "a.png")
    assert "boxes" not in source.schema and source[0]["XMax"] == 0.5
    assert any("shares" in note for note in source.notes)


# ---- which column is what


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.csv", "a.png,1,2,3,4,cat\nb.png,1,2,3,4,dog\n"),  # no line with the names of the columns
        ("metadata.jsonl", '{"file_names": ["a.png", "b.png"]}'),
        ("metadata.csv", "left,right\na.png,b.png\n"),
        ("metadata.csv", "id,breed\na,boxer\n"),
    ],
)
def test_the_column_of_the_images_must_be_clear(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match="--image-column COLUMN"):
        listed(tmp_path, text, "a.png", "b.png", name=name)


def test_the_option_image_column_names_a_column_or_a_pattern(tmp_path: Path) -> None:
    text = "id,breed,left,right\n00a,boxer,a.png,b.png\n00b,pug,b.png,a.png\n"
    write(images(tmp_path, "a.png", "b.png", "train/00a.jpg", "train/00b.jpg"), {"labels.csv": text})
    assert table.Source(tmp_path / "labels.csv", image_column="left")[0]["right"] == "b.png"
    source = table.Source(tmp_path / "labels.csv", image_column="train/{id}.jpg", label_column="breed")
    assert [source.key(row) for row in range(2)] == ["train/00a.jpg", "train/00b.jpg"]
    assert source.schema["label"].classes == ("boxer", "pug")
    assert source.schema.names == ("key", "image", "label", "left", "right", "files")
    with pytest.raises(InvalidRequest, match="option image_column: .*'idd'"):
        table.Source(tmp_path / "labels.csv", image_column="train/{idd}.jpg")


def test_columns_of_other_images(tmp_path: Path) -> None:
    write(tmp_path, {"a.png": image(1), "m.png": mask(1), "d.tiff": depth(1), "n.png": image(2)})
    write(tmp_path, {"metadata.csv": "image,mask,depth_file_name,night_file_name\na.png,m.png,d.tiff,n.png\n"})
    source = table.Source(tmp_path)
    sample = source[0]
    kinds = {field.name: field.kind for field in source.schema}
    assert (kinds["mask"], kinds["depth"], kinds["night"]) == ("mask", "depth", "image")
    assert sample["files"] == {"image": "a.png", "mask": "m.png", "depth": "d.tiff", "night": "n.png"}
    assert source.companions == ["mask", "depth", "night"]


def test_masks_of_16_bit(tmp_path: Path) -> None:
    wide = image_files.with_opencv(np.full((48, 64), 26001, np.uint16), ".png")
    write(tmp_path / "in", {"a.png": image(1), "b.png": image(2), "x.png": mask(1), "y.png": wide, "z.png": b"none"})
    write(tmp_path / "in", {"metadata.csv": "file_name,mask_file_name\na.png,x.png\nb.png,y.png\n"})
    source = table.Source(tmp_path / "in")
    assert source.schema["mask"].dtype == "uint16"
    convert_source(source, tmp_path / "out.pack", ConversionOptions())
    with LMDBDataset(tmp_path / "out.pack") as dataset:
        assert np.asarray(dataset[1]["mask"]).max() == 26001


def test_names_of_columns_become_names_of_fields(tmp_path: Path) -> None:
    text = "file_name,Image Name,key,1st,größe,größe!,split\na.png,1,2,3,4,5,6\n"
    source = listed(tmp_path, text, "a.png")
    assert source.schema.names == (
        *("key", "image", "Image_Name", "key_2", "column_1st", "gr_e", "gr_e_2", "split_2", "files"),
    )
    assert "key_2: column key" in source.notes


@pytest.mark.parametrize("name", ["split", "Split"])
def test_a_column_of_splits(tmp_path: Path, name: str) -> None:
    source = listed(tmp_path, f"file_name,{name}\na.png,val\nb.png,train\n", "a.png", "b.png")
    assert source.schema["split"].classes == ("train", "val") and column(source, "split") == [1, 0]
    assert [int(source.value(row, "split")) for row in range(2)] == [1, 0]
    assert (f"split: column {name}" in source.notes) == (name == "Split")


def test_labels_are_numbers_or_positions_of_texts(tmp_path: Path) -> None:
    numbers = listed(tmp_path / "a", "file_name,label\na.png,10\nb.png,9\n", "a.png", "b.png")
    assert column(numbers, "label") == [10, 9] and numbers.schema["label"].classes is None
    texts = listed(tmp_path / "b", "file_name,label\na.png,010\nb.png,9\n", "a.png", "b.png")
    assert column(texts, "label") == [0, 1] and texts.schema["label"].classes == ("010", "9")


# ---- where the table lies


def test_folders_with_a_table_are_not_classes(tmp_path: Path) -> None:
    write(photos(tmp_path, 6), {"metadata.csv": "file_name,n\nclass0/0000.jpg,1\nclass1/0001.jpg,2\n"})
    assert detect(tmp_path)[0] == "table"
    source, _ = SourceSpec().open(tmp_path)
    assert source.kind == "table" and "label" not in source.schema and len(source) == 2
    assert any("4 other files (.jpg 4) that no row names" in note for note in source.notes)


def test_metadata_without_paths_is_not_this_source(tmp_path: Path) -> None:
    write(photos(tmp_path, 6), {"metadata.csv": "camera,lens\na,b\n"})
    assert detect(tmp_path)[0] == "folder"


def test_tables_in_folders_that_are_not_splits(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write(images(tmp_path / name, "a.png"), {"metadata.csv": "file_name,n\na.png,1\n"})
    source = table.Source(tmp_path)
    assert "split" not in source.schema and [source.key(row) for row in range(2)] == ["cat/a.png", "dog/a.png"]


@pytest.mark.parametrize("tables", [
    {"a/metadata.csv": "file_name,n,m\n", "b/metadata.csv": "file_name,m,n\n"},
    {"a/metadata.csv": "file_name,n\n", "b/metadata.csv": "file_name,m\n"},
    {"a/metadata.csv": "file_name\n", "b/metadata.tsv": "file_name\n"},
    {"a/metadata.jsonl": '{"file_name": "a.png"}', "b/metadata.jsonl": '{"file_name": "a.png", "n": 1}'},
    {"metadata.csv": "file_name\na.png\n", "metadata.jsonl": '{"file_name": "a.png"}\n'},
])  # fmt: skip
def test_tables_that_are_not_of_one_kind_are_refused(tmp_path: Path, tables: dict[str, str]) -> None:
    first, second = tables
    said = f"{second}: columns .*{first}" if "/" in first else f"several tables.*{first}, {second}"
    with pytest.raises(BadInput, match=said):
        table.Source(write(tmp_path, tables))


def test_json_lines_with_members_in_another_order_have_the_same_columns(tmp_path: Path) -> None:
    for split, row in (("train", {"file_name": "a.png", "n": 1}), ("val", {"n": 2, "file_name": "a.png"})):
        write(images(tmp_path / split, "a.png"), {"metadata.jsonl": json.dumps(row)})
    assert column(table.Source(tmp_path), "n") == [1, 2]


@pytest.mark.parametrize("options", [{}, {"group_by": "filename"}])
def test_a_table_is_a_root(tmp_path: Path, options: dict[str, str]) -> None:
    path = raccoons(tmp_path / "in")
    if not options:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:3]))
    assert detect(path)[0] == "table"
    pack = path.with_name("out.pack")  # beside the table, where nothing else is looked at
    convert(path, pack, **options)
    read = manifests.read(pack)
    assert read.source["kind"] == "table" and read.samples == (3 if options else 2)
    comparison = Comparison(pack, path)
    assert list(comparison.problems()) == [] and comparison.compared
    extract(pack, tmp_path / "again")
    assert tree(tmp_path / "again").items() <= tree(tmp_path / "in").items()
    assert (tmp_path / "again/labels.csv").exists()
    path.write_text(path.read_text().replace("cub", "dog").replace(",8,8,", ",8,9,"))
    assert any("labels.csv: differs" in problem for problem in Comparison(pack, path).problems())
    convert_source(table.Source(path, **options), path.with_name("b.pack"), ConversionOptions())
    convert(table.Source(path, **options), path.with_name("c.pack"))


def test_a_table_as_root_lists_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = raccoons(tmp_path)
    (tmp_path / "others").mkdir()
    (tmp_path / "others").chmod(0)
    monkeypatch.setattr(os, "scandir", lambda *_: pytest.fail("the folder was listed"))
    assert len(table.Source(path, group_by="filename")) == 3


def test_sidecars_and_splits_of_a_table(tmp_path: Path) -> None:
    path = raccoons(tmp_path)
    write(tmp_path, {f"raccoon-{number}_mask.png": mask(number) for number in (1, 12, 3)})
    write(tmp_path, {"val.txt": "raccoon-3.jpg\n"})
    convert(
        path,
        tmp_path / "out.pack",
        group_by="filename",
        sidecars={"mask": "_mask.png:mask"},
        splits={"val": tmp_path / "val.txt"},
    )
    assert manifests.read(tmp_path / "out.pack").samples == 1
    assert list(Comparison(tmp_path / "out.pack", path).problems())[1:] == []


@pytest.mark.parametrize("name", ["metadata.csv", "metadata.jsonl"])
def test_lines_are_counted_for_messages_alone(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted for each row, they would take hours for a million of them."""
    monkeypatch.setattr("packer.sources.annotations._table_rows._line", lambda *_: pytest.fail("a line was counted"))
    text = "file_name\na.png\n" if name.endswith("csv") else '{"file_name": "a.png"}\n'
    assert listed(tmp_path, text, "a.png", name=name)[0]["key"] == "a.png"


def test_a_table_with_other_labels_of_the_same_size_is_another_plan(tmp_path: Path) -> None:
    root = build(tmp_path / "in")
    before = make_plan(table.Source(root), ConversionOptions()).digest
    (root / "test/metadata.csv").write_bytes((root / "test/metadata.csv").read_bytes().replace(b"cat", b"dog"))
    assert make_plan(table.Source(root), ConversionOptions()).digest != before


# ---- tables that cannot be read


DAMAGED: list[tuple[str, bytes, str]] = [
    ("csv", b"", "empty"),
    ("csv", b"file_name,a\n", "no rows"),
    ("csv", b"file_name,a,a\nx.png,1,2\n", "two columns.*'a'"),
    ("csv", b"file_name,a\nx.png,1,2\n", "line 2: 3 cells"),
    ("csv", b'file_name,a\nx.png,"1\n2"\ny.png\n', "line 4: 1 cells"),
    ("csv", b'file_name,a\nx.png,"1\ny.png,2\n', "line 2: .*end of data"),
    ("csv", b'file_name,a\nx.png,"1"2\n', "line 2: is not CSV"),
    ("csv", b"file_name,a\rx.png,1\ry.png,2\r", "is not CSV: .*new-line"),
    ("csv", "file_name,a\nx.png,ü\n".encode("latin-1"), "line 2: .*UTF-8"),
    ("csv", "file_name,a\nx.png,1\n".encode("utf-16"), "UTF-16"),
    ("csv", b"file_name,a\nx.png," + b"y" * 200_000 + b"\n", "field limit"),
    ("jsonl", b"\n\n", "is empty"),
    ("jsonl", b'{"file_name": "x.png"}\n[1]\n', "line 2: .*object"),
    ("jsonl", b'{"file_name": "x.png"}\n\n{"a"\n', "line 3: is not JSON"),
    ("jsonl", b'{"file_name": "x.png", "a": 1, "a": 2}\n', "line 1: .*twice"),
    ("jsonl", b'{"file_name": "\xff.png"}\n', "line 1: .*UTF-8"),
    ("jsonl", b'{"a": ' + b"[" * 100_000 + b"\n", "line 1: is not JSON"),
]


@pytest.mark.parametrize(("suffix", "text", "keyword"), DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_table_names_the_line(tmp_path: Path, suffix: str, text: bytes, keyword: str) -> None:
    with pytest.raises(BadInput, match=f"metadata.{suffix}.*{keyword}"):
        listed(tmp_path, text, "x.png", "y.png", name=f"metadata.{suffix}")


def test_a_text_that_is_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="not a table"):
        table.Source(write(tmp_path, {"z.txt": "a"}) / "z.txt")


# ---- EXIF


@pytest.mark.parametrize("has_size", [True, False])
def test_the_size_that_a_table_states_tells_the_frame_of_its_boxes(tmp_path: Path, has_size: bool) -> None:
    data = image_files.oriented(6, pixels=image_files.colors(height=40, width=60))  # shown as 40 wide, 60 high
    size = "width,height," if has_size else ""
    text = f"file_name,{size}xmin,ymin,xmax,ymax\na.jpg,{'40,60,' if has_size else ''}1,2,11,22\n"
    root = write(tmp_path / "in", {"a.jpg": data, "metadata.csv": text})
    assert [table.Source(root, labels_orientation=frame).frame for frame in ("stored", "upright")] == [
        *("stored", "upright"),
    ]
    if not has_size:
        with pytest.raises(BadInputs, match="EXIF orientation 6"):
            convert_source(table.Source(root), tmp_path / "out.pack", ConversionOptions())
        return
    convert_source(table.Source(root), tmp_path / "out.pack", ConversionOptions())
    with LMDBDataset(tmp_path / "out.pack") as dataset:
        # upright (x, y) is stored (y, height - x): the image is turned by 90 degrees to the right when it is shown
        assert np.asarray(dataset[0]["boxes"]).tolist() == [[2, 29, 22, 39]]


# ---- Parquet, whose tests need pyarrow


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(images(tmp_path, "a.png"), {"metadata.parquet": b"PAR1"})
    assert detect(tmp_path)[0] == "table"

    def absent(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(registry.importlib, "import_module", absent)
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match='Parquet file needs .*: pip install "pyarrow>='):
        table.Source(tmp_path)


def parquet_file(path: Path, columns: dict[str, Any]) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pyarrow.table(columns), path, row_group_size=2)


def test_every_row_is_what_pyarrow_reads(tmp_path: Path) -> None:
    columns: dict[str, Any] = {
        "file_name": ["a.png", "b.png", "c.png"],
        "label": ["dog", "cat", "dog"],
        "n": [1, -(1 << 62), 3],
        "gap": [1, None, 3],
        "x": [0.1, float("nan"), -2.5],
        "ok": [True, False, True],
        "box": [[1.5, 2.0], [], [3.0]],
        "objects": [{"id": 1, "name": "ü"}, {"id": 2, "name": None}, None],
        "day": [datetime.date(2026, 11, 22)] * 3,
        "raw": [b"\xff", b"", None],
    }
    parquet_file(tmp_path / "in/metadata.parquet", columns)
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    expected = parquet.read_table(tmp_path / "in/metadata.parquet").to_pylist()
    images(tmp_path / "in", "a.png", "b.png", "c.png")
    source = table.Source(tmp_path / "in")
    assert len(source) == 3
    for index, row in enumerate(expected):
        sample = source[index]
        assert ("cat", "dog")[sample["label"]] == row["label"]
        assert (sample["n"], sample["ok"], sample["box"], sample["objects"]) == (
            *(row["n"], row["ok"], row["box"], row["objects"]),
        )
        assert sample["day"] == "2026-11-22" and "raw" not in sample
        wanted = [float("nan") if row["gap"] is None else row["gap"], row["x"]]
        assert np.array_equal([sample["gap"], sample["x"]], wanted, equal_nan=True)
    assert source.schema["n"].dtype == "int64" and source.schema["gap"].dtype == "float64"
    assert any("bytes" in note and "raw" in note for note in source.notes)
    convert(tmp_path / "in", tmp_path / "out.pack")


def test_images_in_a_parquet_file_are_not_read(tmp_path: Path) -> None:
    parquet_file(tmp_path / "train.parquet", {"image": [{"bytes": b"\x89PNG", "path": None}], "label": [1]})
    parquet_file(tmp_path / "bytes.parquet", {"image": [b"\x89PNG"]})
    for name in ("train", "bytes"):
        with pytest.raises(InvalidRequest, match="not read: image"):
            table.Source(tmp_path / f"{name}.parquet")


def test_a_damaged_parquet_file_is_an_error(tmp_path: Path) -> None:
    parquet_file(tmp_path / "x.parquet", {"file_name": ["a.png"] * 3, "n": [1, 2, 3]})
    data = (tmp_path / "x.parquet").read_bytes()
    for cut in (0, 4, len(data) // 2, len(data) - 5):
        (tmp_path / "x.parquet").write_bytes(data[:cut])
        with pytest.raises(BadInput, match="x.parquet: pyarrow"):
            table.Source(tmp_path / "x.parquet")


# ---- Hugging Face's own reader

IMAGEFOLDER = """
import os, sys
os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
import datasets, json
datasets.disable_progress_bars()
splits = datasets.load_dataset("imagefolder", data_dir=sys.argv[1], cache_dir=sys.argv[2])
for split, rows in splits.items():
    for name, feature in rows.features.items():
        if isinstance(feature, datasets.Image):
            rows = rows.cast_column(name, datasets.Image(decode=False))
    for row in rows:
        print(json.dumps([split, {k: v["path"] if isinstance(v, dict) and "path" in v else v for k, v in row.items()}]))
"""


@pytest.mark.foreign
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_imagefolder_of_hugging_face_has_the_same_samples(tmp_path: Path, kind: str) -> None:
    root = build(tmp_path / "in")
    if kind == "jsonl":
        for split in ("train", "test"):
            with open(root / split / "metadata.csv", encoding="utf-8-sig", newline="") as file:
                lines = [json.dumps({**row, "age": float(row["age"] or "nan")}) for row in csv.DictReader(file)]
            (root / split / "metadata.csv").unlink()
            write(root, {f"{split}/metadata.jsonl": "\n".join(lines)})
    said = [json.loads(line) for line in said_by("datasets", IMAGEFOLDER, root, tmp_path / "cache").splitlines()]
    source = table.Source(root)
    found = [source[row] for row in range(len(source))]
    splits, classes = source.schema["split"].classes, source.schema["label"].classes
    assert splits is not None and classes is not None and len(said) == len(found) == 4
    theirs = sorted((split, os.path.relpath(row["image"], root), row["caption"], row["label"]) for split, row in said)
    ours = sorted((splits[each["split"]], each["key"], each["caption"], classes[each["label"]]) for each in found)
    assert [row[:2] + row[3:] for row in ours] == [row[:2] + row[3:] for row in theirs]
    masks = {os.path.relpath(row["image"], root): os.path.relpath(row["mask"], root) for _, row in said}
    assert {each["key"]: each["files"]["mask"] for each in found} == masks
    # pandas takes NA for nothing, where packer keeps what stands there
    assert [text if text != "NA" or kind == "jsonl" else None for *_, text, _ in ours] == [row[2] for row in theirs]


def test_classes_of_rows_without_a_box_are_classes(tmp_path: Path) -> None:
    rows = "file_name,class,xmin,ymin,xmax,ymax\na.png,cat,1,2,3,4\nb.png,No finding,,,,\nc.png,No finding,,,,\n"
    write(tmp_path, {f"{name}.png": image(1) for name in "abc"} | {"t.csv": rows})
    source = table.Source(tmp_path / "t.csv")
    assert source.schema["box_labels"].classes == ("No finding", "cat")
    assert [sample.tolist() for sample in column(source, "box_labels")] == [[1], [], []]


@pytest.mark.parametrize("box", ["nan,2,3,4", "1,2,inf,4", "1,2,1e39,4", "30,20,3,4"])
def test_a_box_that_is_not_valid_names_its_line(tmp_path: Path, box: str) -> None:
    header = "file_name,xmin,ymin,xmax,ymax\n"
    write(tmp_path, {"a.png": image(1), "t.csv": f"{header}a.png,1,2,30,4\na.png,{box}\n"})
    source = table.Source(tmp_path / "t.csv", group_by="file_name")
    with pytest.raises(BadInput, match=r"t\.csv: line 3: .*x0.*y1"):
        source[0]


@pytest.mark.parametrize("cells", [("train", ""), ("0", "1")])
def test_a_column_split_with_other_cells_is_a_field(tmp_path: Path, cells: Sequence[str]) -> None:
    source = listed(tmp_path, f"file_name,split\na.png,{cells[0]}\nb.png,{cells[1]}\n", "a.png", "b.png")
    assert "split" not in source.schema and "split_2" in source.schema
    assert any("column split" in note for note in source.notes)


@pytest.mark.parametrize(("rows", "place"), [(",file_name\n0,a.png\n", 1), ("file_name,\na.png,\n", 2)])
def test_a_note_has_the_position_of_a_column_without_a_name(tmp_path: Path, rows: str, place: int) -> None:
    assert f"column: column {place}" in listed(tmp_path, rows, "a.png").notes


def test_classes_are_numbered_as_in_another_pack(tmp_path: Path) -> None:
    root = write(images(tmp_path / "a", "a.png", "b.png"), {"metadata.csv": "file_name,label\na.png,x\nb.png,z\n"})
    convert(root, tmp_path / "a.pack")
    other = write(images(tmp_path / "b", "a.png"), {"metadata.csv": "file_name,label\na.png,z\n"})
    convert(other, tmp_path / "b.pack", classes_from=tmp_path / "a.pack")
    assert manifests.read(tmp_path / "b.pack").schema["label"].classes == ("x", "z")
    write(other, {"metadata.csv": "file_name,label\na.png,new\n"})
    with pytest.raises(BadInput, match="--classes-from .*new"):
        convert(other, tmp_path / "c.pack", classes_from=tmp_path / "a.pack")
