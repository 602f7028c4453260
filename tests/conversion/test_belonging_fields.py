"""Fields that belong together, from a source into packs of every format and back out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer import formats
from packer.errors import BadInput
from packer.pack import manifest as manifests
from packer.schema import Schema
from tests.support import annotated_source
from tests.support.annotated_source import AnnotatedSource

ONE_SHAPE = [name for name in formats.names() if formats.load(name).Writer.one_shape]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return annotated_source.small_set(tmp_path_factory.mktemp("annotated") / "set")


def assert_same(found: Any, wanted: Any, name: str) -> None:
    assert found.dtype == wanted.dtype, name
    assert np.array_equal(found, wanted), name


@pytest.mark.parametrize("to", formats.names())
def test_every_format_holds_them(folder: Path, tmp_path: Path, to: str) -> None:
    source = AnnotatedSource(folder)
    resize = (30, 30) if to in ONE_SHAPE else None
    packer.convert(source, tmp_path / "pack", to=to, order="stored", resize=resize)
    dataset = packer.open(tmp_path / "pack", output="numpy")
    described = {field.name: field for field in dataset.schema}
    for field in annotated_source.FIELDS:
        if field.relations or field.edges:
            assert described[field.name].relations == field.relations
            assert described[field.name].edges == field.edges
    for index in range(len(source)):
        sample, wanted = dataset[dataset.index_of(source.key(index))], source[index]
        for name in annotated_source.ROWS:
            if resize is None or described[name].kind == "number":
                assert_same(sample[name], wanted[name], name)


def test_a_repacked_pack_keeps_relations_and_values(folder: Path, tmp_path: Path) -> None:
    packer.convert(AnnotatedSource(folder), tmp_path / "one")
    packer.convert(tmp_path / "one", tmp_path / "two", to="tfrecord", order="stored", codecs={"image": "png"})
    one, two = packer.open(tmp_path / "one", output="numpy"), packer.open(tmp_path / "two", output="numpy")
    assert [field.to_json() for field in two.schema if field.name in annotated_source.ROWS] == [
        field.to_json() for field in one.schema if field.name in annotated_source.ROWS
    ]
    for index in range(len(one)):
        for name in annotated_source.ROWS:
            assert_same(two[index][name], one[index][name], name)


def test_a_manifest_says_nothing_of_what_is_not_there(folder: Path, tmp_path: Path) -> None:
    packer.convert(AnnotatedSource(folder), tmp_path / "pack", fields=["image", "boxes"])
    described = manifests.read(tmp_path / "pack").schema.to_json()
    assert not [name for field in described for name in ("of", "starts", "into", "edges") if name in field]
    assert Schema.from_json(described).names == ("key", "image", "boxes", "orientation")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"box_labels": np.int64([0])}, r"a\.png: cannot pack .*box_labels has 1 rows, boxes 3"),
        ({"polygon_starts": np.int64([0, 2, 1])}, "polygon_starts begins with 0, ends with 1"),
        ({"polygon_box": np.int64([7] * 6)}, "polygon_box points to rows 7 to 7 of boxes, which has 3"),
    ],
)
def test_rows_that_do_not_fit_together_are_refused(
    folder: Path, tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        packer.convert(AnnotatedSource(folder, changed=changed), tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_rows_of_fields_that_are_not_packed_are_not_compared(folder: Path, tmp_path: Path) -> None:
    source = AnnotatedSource(folder, changed={"box_labels": np.int64([0])})
    packer.convert(source, tmp_path / "pack", fields=["image", "box_labels"])
    assert packer.open(tmp_path / "pack")[0]["box_labels"].tolist() == [0]
    packer.convert(source, tmp_path / "boxes", fields=["image", "boxes", "box_crowd"])
    assert len(packer.open(tmp_path / "boxes")[0]["boxes"]) == 3


def test_verify_and_extract(folder: Path, tmp_path: Path) -> None:
    from packer.inspect.extraction import extract  # noqa: PLC0415
    from packer.inspect.verify import verify  # noqa: PLC0415

    packer.convert(AnnotatedSource(folder), tmp_path / "pack")
    assert verify(tmp_path / "pack")
    extract(tmp_path / "pack", tmp_path / "out")
    for key in ("a", "b", "c", "d"):
        assert (tmp_path / "out" / f"{key}.png").read_bytes() == (folder / f"{key}.png").read_bytes()
