"""docs/understand/format.md: its examples read packs without packer, and its names are those of the code."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer import codecs, formats
from packer.datasets.pack_dataset import PackDataset
from packer.pack import extra_files
from packer.pack.manifest import VERSION
from packer.pack.sample_index import file_forms
from packer.schema import KINDS, Schema
from scripts import make_golden
from tests.support.conversions import packed
from tests.support.repository import blocks
from tests.support.source_trees import photos

TEXT = (Path(__file__).parent.parent / "docs/understand/format.md").read_text()


def section(title: str, *, level: str = "##") -> str:
    """The text under a heading."""
    found = re.search(rf"^{level} {title}\n(.*?)(?=^#{{1,{len(level)}}} |\Z)", TEXT, re.DOTALL | re.MULTILINE)
    assert found, f"docs/understand/format.md has no heading {level} {title}"
    return found[1]


def rows(title: str) -> set[str]:
    """The first column of the first table under a heading."""
    table = section(title).partition("|---|---|\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def run(code: str) -> dict[str, Any]:
    """The names that an example leaves behind."""
    names: dict[str, Any] = {}
    exec(compile(code, "docs/understand/format.md", "exec"), names)
    return names


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pack of each format, where examples run."""
    photos(tmp_path / "photos")
    for name in formats.names():
        packed(tmp_path / "photos", tmp_path / f"photos.{name}.pack", to=name, part_bytes=0)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.one_in(6)
@pytest.mark.parametrize("name", formats.names())
def test_the_example_of_a_format_reads_a_sample_without_packer(root: Path, name: str) -> None:
    text = section(name, level="###")
    codes = blocks(text)
    if not codes:  # the text names the file that replaces the one of webdataset
        (code,) = blocks(section("webdataset", level="###"))
        ((folder, file),) = re.findall(r"reads `([\w.-]+)/([\w.]+)`, too", text)
        codes = [code.replace("webdataset", name).replace("part-00000", folder).replace("data.tar", file)]
    (code,) = codes
    assert "packer." not in code.replace(f"photos.{name}.pack", "").replace('"packer.json"', "")
    assert len(code.splitlines()) <= 10
    found = run(code)
    dataset = PackDataset(root / f"photos.{name}.pack")
    assert found["key"] == dataset.key(3)
    assert found["label"] == dataset[3]["label"]
    if isinstance(found["image"], Image.Image):
        assert np.array_equal(np.asarray(found["image"]), PackDataset(dataset.path, output="numpy")[3]["image"])
        found["image"].close()
    elif isinstance(found["image"], np.ndarray):
        assert np.array_equal(found["image"], PackDataset(dataset.path, output="numpy")[3]["image"])
    else:
        assert bytes(found["image"]) == (root / "photos" / found["key"]).read_bytes()


def test_the_examples_of_manifest_and_index(root: Path) -> None:
    manifest, index = (run(code) for code in blocks(section("packer.json")))
    dataset = PackDataset(root / "photos.lmdb.pack")
    assert (manifest["genuine"], manifest["count"]) == (True, len(dataset))
    assert (index["key"], index["label"]) == (dataset.key(3), dataset[3]["label"])


def golden_manifest() -> dict[str, Any]:
    """One that has all members."""
    found: dict[str, Any] = json.loads((make_golden.GOLDEN / "lmdb/pack/packer.json").read_text())
    return found


def test_the_members_of_the_manifest_are_all_there() -> None:
    assert rows("packer.json") == set(golden_manifest())
    assert TEXT.count(f"Version {VERSION}.") == 1
    described = re.findall(r"`(\w+)`", next(line for line in TEXT.splitlines() if line.startswith("| `schema`")))
    members = {name for field in golden_manifest()["schema"] for name in field}
    assert members <= set(described)
    for member in ("parts", "index", "extras"):
        line = next(line for line in TEXT.splitlines() if line.startswith(f"| `{member}`"))
        if member != "extras":
            assert set(golden_manifest()[member][0]) <= set(re.findall(r"`(\w+)`", line)), member


def test_the_files_of_index_and_extras_are_all_there() -> None:
    drawn = set(re.findall(r"([\w<>-]+)\.npy  ", section("A pack")))
    columns = {re.sub("-.*", "-<field>", name) for name in file_forms(Schema.from_json(FIELDS))}
    assert drawn == {"key_order", *columns, *extra_files._DTYPES}


FIELDS = [
    {"name": "a", "kind": "number", "codec": "number", "dtype": "int64", "shape": []},
    {"name": "b", "kind": "text", "codec": "text"},
    {"name": "c", "kind": "image", "codec": "encoded"},
    {"name": "d", "kind": "boxes", "codec": "raw", "shape": [None, 4]},
    {"name": "e", "kind": "number", "codec": "raw", "dtype": "int64", "shape": [None], "of": "d"},
]


def test_the_codecs_formats_and_kinds_are_all_there() -> None:
    assert rows("Codecs") == set(codecs.names())
    assert set(re.findall(r"^### ([\w-]+)$", section("Formats"), re.MULTILINE)) == set(formats.names())
    last = section("Codecs").rpartition("Kinds of field")[2]
    assert set(re.findall(r"`(\w+)`", last)) == set(KINDS)
