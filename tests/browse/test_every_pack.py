"""Packs of every format and version, and at URLs: all of their samples can be browsed."""

from pathlib import Path

import numpy as np
import pytest

import packer
from packer.schema import PIXEL_KINDS
from packer.stores.url import path_or_url
from scripts.make_golden import GOLDEN
from tests.support import source_trees
from tests.support.conversions import packed
from tests.support.object_server import ObjectServer
from tests.support.view_clients import View, view_of


def browsed(view: View) -> int:
    """Ask for everything of every sample; returns the number of answers."""
    (pack,) = view.json("packs")["packs"]
    answers = 1
    for column in pack["columns"]:
        if column["type"] == "text":
            assert view.json("rows", where=f"'' in {column['name']}")["total"] == pack["samples"]
            continue
        found = view.json("histogram", column=column["name"])
        assert sum(found["all"]) == sum(found["chosen"]) <= pack["samples"]
        assert sorted(view.json("rows", sort=column["name"])["rows"]) == list(range(pack["samples"]))
    for column in pack["row_columns"]:
        found = view.json("histogram", column=column["name"])
        assert found["all"] == found["chosen"]
    rows = view.json("rows", keys=1)
    for row, key in zip(rows["rows"], rows["keys"], strict=True):
        found = view.json("sample", row=row)
        assert found["key"] == key
        (shapes,) = view.json("overlays", rows=row)["samples"]
        assert shapes["overlays"] == found["overlays"]
        for field in pack["fields"]:
            if field["kind"] in PIXEL_KINDS:
                place = {"row": row, "field": field["name"]}
                for route, more in (("image", {"width": 20}), ("image", {}), ("trained", {"geometry": "Resize(16)"})):
                    answer = view.client.get(f"/api/{route}", params={**place, **more})
                    assert answer.status_code == 200, answer.text
                    answers += 1
                assert view.client.get("/api/original", params=place).status_code in (200, 404)
    return answers


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir() if (path / "pack").is_dir()))
def test_a_pack_of_each_format_and_version(name: str) -> None:
    with view_of(GOLDEN / name / "pack") as view:
        assert browsed(view)


def test_a_collection(tmp_path: Path) -> None:
    for name in "ab":
        packed(source_trees.photos(tmp_path / name, 4), tmp_path / f"{name}.pack")
    both = packer.concat(*(packer.open(tmp_path / f"{name}.pack") for name in "ab"), prefixes=["a/", "b/"])
    both.where(np.arange(8) % 3 > 0).save(tmp_path / "c.pack")
    with view_of(tmp_path / "c.pack") as view:
        assert browsed(view) == 1 + 5 * 3


def test_a_pack_behind_a_url(tmp_path: Path, object_server: ObjectServer) -> None:
    files = {f"{'ab'[number % 2]}/{number:02d}.png": source_trees.image(number) for number in range(6)}
    packed(source_trees.write(tmp_path / "photos", files), tmp_path / "x.pack", to="lmdb")
    object_server.put_folder(tmp_path / "x.pack", "set/x.pack/")
    with view_of(path_or_url("s3://b/set/x.pack")) as view:
        assert browsed(view) == 1 + 6 * 3
