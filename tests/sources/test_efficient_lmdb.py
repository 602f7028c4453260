"""Efficient-PyTorch LMDB: every layout of its kin, in the order of the numbers; what is another's is named."""

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer import registry
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, BadInputs, InvalidRequest, MissingPackage
from packer.pack import manifest
from packer.sources._recognition import detect
from packer.sources.records.efficient_lmdb import Source
from tests.sources.test_pickled import Evil
from tests.support.arrow_payloads import VERSIONS, of_image, recorded
from tests.support.foreign_files import lmdb_environment
from tests.support.source_trees import efficient_lmdb, image


def written(path: Path, values: list[Any], *, protocol: int = 3, keys: list[bytes] | None = None) -> Path:
    """One file, as folder2lmdb writes it."""
    entries = {str(at).encode(): pickle.dumps(value, protocol=protocol) for at, value in enumerate(values)}
    entries[b"__keys__"] = pickle.dumps(list(entries) if keys is None else keys)
    entries[b"__len__"] = pickle.dumps(len(values))
    return lmdb_environment(path, entries, is_folder=False)


# what each tool stores for an image and a label
LAYOUTS = {
    "xunge": lambda data, label: (data, label),
    "thecml": lambda data, label: ([data], np.array([label])),
    "tfpack2lmdb": lambda data, label: [np.frombuffer(data, np.uint8), label],
    "numpy label": lambda data, label: (data, np.int64(label)),
}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_bytes_and_the_labels(tmp_path: Path, layout: str, protocol: int) -> None:
    values = [LAYOUTS[layout](image(at), at - 2) for at in range(3)]
    source = Source(written(tmp_path / "a.lmdb", values, protocol=protocol))
    assert [source[row]["image"] for row in range(3)] == [image(row) for row in range(3)]
    assert [int(source[row]["label"]) for row in range(3)] == [-2, -1, 0]
    assert source.schema.names == ("key", "image", "label", "files")


def test_the_order_is_that_of_the_numbers_and_metadata_are_no_samples(tmp_path: Path) -> None:
    source = Source(efficient_lmdb(tmp_path))
    assert [source.key(row) for row in range(len(source))] == [f"{at:08d}" for at in range(12)]
    assert [source[row]["image"] for row in (2, 10)] == [image(2), image(10)]
    assert source.left_out == []


def test_what_keys_do_not_name_is_left_out_and_listed(tmp_path: Path) -> None:
    values = [(image(at), at) for at in range(3)]
    source = Source(written(tmp_path / "a.lmdb", values, keys=[b"0", b"2", b"9"]))
    assert [int(source[row]["label"]) for row in range(len(source))] == [0, 2]
    assert source.left_out == [("__keys__", "1 entry that __keys__ does not name")]
    assert any("names 1 more records than there are" in note for note in source.notes)


def test_a_malicious_pickle_is_refused_wherever_it_lies(tmp_path: Path) -> None:
    root = written(tmp_path / "a.lmdb", [(image(1), 1), (image(2), 2), Evil()])
    assert detect(root)[0] == "efficient-lmdb"
    with pytest.raises(BadInputs, match="1 of 3") as caught:
        packer.convert(root, tmp_path / "a.pack")
    assert "a pickle that names" in caught.value.reasons[0]
    assert "system" in caught.value.reasons[0]
    assert packer.convert(root, tmp_path / "a.pack", on_error="skip").samples == 2
    assert len(manifest.read(tmp_path / "a.pack").skipped) == 1
    keys = {b"0": pickle.dumps((image(1), 1)), b"__keys__": pickle.dumps(Evil())}
    with pytest.raises(BadInput, match="__keys__: .*pickle"):
        Source(lmdb_environment(tmp_path / "b.lmdb", keys, is_folder=False))


@pytest.mark.parametrize("value", [(image(1),), (1, 2), (image(1), "a"), (image(1), True), {"a": 1}, (b"", 2**70)])
def test_a_value_that_is_no_pair_is_bad_and_named(tmp_path: Path, value: Any) -> None:
    source = Source(written(tmp_path / "a.lmdb", [(image(1), 1), (image(1), 1), value]))
    with pytest.raises(BadInput, match=r"a.lmdb: .*\(00000002\): expected"):
        source[2]


@pytest.mark.parametrize("version", VERSIONS)
def test_values_of_pyarrow_are_read(tmp_path: Path, version: str) -> None:
    entries = {str(at).encode(): of_image(version, b"picture %02d" % at, at - 1) for at in range(3)}
    found = recorded(version)
    root = lmdb_environment(tmp_path / "a.lmdb", {**entries, b"__len__": found["length"]}, is_folder=False)
    assert detect(root)[0] == "efficient-lmdb"
    source = Source(root)
    assert [source[row]["image"] for row in range(3)] == [b"picture %02d" % row for row in range(3)]
    assert [int(source[row]["label"]) for row in range(3)] == [-1, 0, 1]
    root = lmdb_environment(tmp_path / "b.lmdb", {**entries, b"__keys__": found["keys"]}, is_folder=False)
    source = Source(root)  # 0, 1, 10
    assert [int(source[row]["label"]) for row in range(len(source))] == [-1, 0]
    assert source.left_out == [("__keys__", "1 entry that __keys__ does not name")]


def test_values_of_pyarrow_without_it_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = lmdb_environment(tmp_path / "a.lmdb", {b"0": recorded("0.14.1")["pair"]}, is_folder=False)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setattr(registry.importlib.util, "find_spec", lambda name: None)
    assert detect(root)[0] == "efficient-lmdb"
    with pytest.raises(MissingPackage, match='pip install "pyarrow>='):
        SourceSpec().open(root)


def test_one_number_under_two_keys_is_refused(tmp_path: Path) -> None:
    value = pickle.dumps((image(1), 1))
    with pytest.raises(BadInput, match="two keys"):
        Source(lmdb_environment(tmp_path / "a.lmdb", {b"1": value, b"01": value}, is_folder=False))


@pytest.mark.parametrize("label", [0.5, "cat", True])
def test_a_label_that_is_no_whole_number_is_named(tmp_path: Path, label: object) -> None:
    root = written(tmp_path / "a.lmdb", [(image(number), label) for number in range(2)])
    found = f"a whole number as its label, found bytes and {type(label).__name__}"
    with pytest.raises(InvalidRequest, match=found):
        SourceSpec("efficient-lmdb").open(root)
