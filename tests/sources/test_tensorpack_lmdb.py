"""tensorpack's LMDBs: components of datapoints become fields, whichever serializer wrote them."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.errors import BadInput, InvalidRequest
from packer.sources._recognition import detect
from packer.sources.records.tensorpack_lmdb import Source
from tests.sources.test_pickled import Evil
from tests.support.arrow_payloads import VERSIONS, built, recorded
from tests.support.counted_steps import at_most
from tests.support.foreign_files import lmdb_environment
from tests.support.source_trees import encoded, image, tensorpack_lmdb

# [np.frombuffer(b"\xff\xd8jpeg", np.uint8), 7] of msgpack 0.6.2 with msgpack-numpy 0.4.4.3
MSGPACK = "9285c4026e64c3c40474797065a37c7531c4046b696e64c400c40573686170659106c40464617461c406ffd86a70656707"


def written(path: Path, values: list[Any], dumps: Callable[[Any], bytes] = pickle.dumps) -> Path:
    """As LMDBSerializer.save writes it."""
    entries = {b"%08d" % at: value if isinstance(value, bytes) else dumps(value) for at, value in enumerate(values)}
    keys = dumps(list(entries))
    return lmdb_environment(path, {**entries, b"__keys__": keys}, is_folder=False)


def pixels(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_image_files_and_labels_of_pickles(tmp_path: Path, protocol: int) -> None:
    values = [[np.frombuffer(image(at), np.uint8), at - 1] for at in range(3)]
    root = written(tmp_path / "a.lmdb", values, lambda value: pickle.dumps(value, protocol=protocol))
    assert detect(root)[0] == "tensorpack-lmdb"
    source = Source(root)
    assert source.schema.names == ("key", "image", "label", "files")
    assert [source[row]["image"] for row in range(3)] == [image(row) for row in range(3)]
    assert [int(source[row]["label"]) for row in range(3)] == [-1, 0, 1]
    assert any(note.startswith("--feature image=0:image --feature label=1:number (guessed") for note in source.notes)
    assert not source.decodes


def test_messagepack_is_read(tmp_path: Path) -> None:
    keys = bytes.fromhex("92c4083030303030303030c4083030303030303031")
    entries = {b"%08d" % at: bytes.fromhex(MSGPACK) for at in range(2)} | {b"__keys__": keys}
    root = lmdb_environment(tmp_path / "in", entries)
    assert detect(root)[0] == "tensorpack-lmdb"
    assert Source(root, features=("image=0:bytes", "label=1"))[1]["label"] == 7


def test_pyarrow_is_read_where_it_holds_no_arrays(tmp_path: Path) -> None:
    entries = {b"%08d" % at: built((image(at), at)) for at in range(2)}
    root = lmdb_environment(tmp_path / "a", {**entries, b"__keys__": built(list(entries))})
    assert detect(root)[0] == "tensorpack-lmdb"
    assert Source(root)[1]["image"] == image(1)


@pytest.mark.parametrize("version", VERSIONS)
def test_arrays_of_pyarrow_are_refused_by_name(tmp_path: Path, version: str) -> None:
    entries = {b"00000000": recorded(version)["array"], b"__keys__": built([b"00000000"])}
    root = lmdb_environment(tmp_path / "a", entries)
    assert detect(root)[0] == "tensorpack-lmdb"
    with pytest.raises(InvalidRequest, match="tensorpack.*arrays or tensors"):
        Source(root)


@pytest.mark.parametrize("order", ["bgr", "rgb"])
def test_pixels_are_of_the_order_that_is_said(tmp_path: Path, order: str) -> None:
    values = [[pixels(1, 5, 7, 3), 0], [pixels(2, 4, 6), 1], [pixels(3, 4, 6, 1), 2]]
    root = written(tmp_path / "a.lmdb", values)
    source = Source(root, pixel_order=order)
    assert np.array_equal(source[0]["image"], values[0][0][:, :, :: -1 if order == "bgr" else 1])
    assert np.array_equal(source[1]["image"], np.repeat(values[1][0][:, :, None], 3, axis=2))
    assert np.array_equal(source[2]["image"], np.repeat(values[2][0], 3, axis=2))
    assert source.decodes
    assert packer.convert(root, tmp_path / "a.pack", pixel_order=order).samples == 3
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    assert all(np.array_equal(dataset[row]["image"], source[row]["image"]) for row in range(3))
    assert packer.verify(tmp_path / "a.pack", source=root).problems == ()


@pytest.mark.parametrize("is_file", [False, True])
def test_labels_beside_a_image_are_a_mask(tmp_path: Path, is_file: bool) -> None:
    mask = np.repeat(np.array([[0, 60, 120]], np.uint8), 12, axis=0).repeat(4, axis=1)
    labels = np.frombuffer(encoded(".png", mask), np.uint8) if is_file else mask
    values = [{"image": pixels(at, 12, 12, 3), "mask": labels} for at in range(3)]
    root = written(tmp_path / "a.lmdb", values)
    packer.convert(root, tmp_path / "a.pack", resize=5)
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert {value for sample in dataset for value in np.unique(sample["mask"])} == {0, 60, 120}


def test_every_component_becomes_a_field(tmp_path: Path) -> None:
    values = [
        {
            "img": np.frombuffer(image(at), np.uint8),
            "boxes": np.full((at, 4), 0.5, np.float32),
            "score": 0.25 * at,
            "name": f"ünï {at}",
            "meta": {"a": [1, None]},
            "seg": pixels(at, 4, 5),
            "crowd": np.bool_(at),
        }
        for at in range(3)
    ]
    root = written(tmp_path / "a.lmdb", values)
    features = ("image=img", "boxes=boxes", "score=score", "name=name", "meta=meta", "mask=seg:mask", "crowd=crowd")
    packer.convert(root, tmp_path / "a.pack", features=features)
    dataset = packer.open(tmp_path / "a.pack", output="numpy")
    for at, value in enumerate(values):
        sample = dataset[at]
        assert np.array_equal(sample["boxes"], value["boxes"])
        assert np.array_equal(sample["mask"], value["seg"])
        assert (sample["score"], sample["name"], sample["meta"]) == (value["score"], value["name"], value["meta"])
        assert int(sample["crowd"]) == int(value["crowd"])
    source = Source(root, features=("image=seg",))
    assert source[1]["image"].shape == (4, 5, 3)


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    root = written(tmp_path / "a.lmdb", [[image(at), at, np.zeros((2,) * (at + 1))] for at in range(2)])
    with pytest.raises(InvalidRequest, match="component '9'.*0, 1, 2"):
        Source(root, features=("image=9",))
    with pytest.raises(InvalidRequest, match="dimensions"):
        Source(root)
    with pytest.raises(InvalidRequest, match="contain no numbers"):
        Source(root, features=("image=0:number",))
    with pytest.raises(InvalidRequest, match="option pixel_order: .*'xyz'"):
        Source(root, pixel_order="xyz")
    mixed = written(tmp_path / "b.lmdb", [[image(1), 1], [image(1), "a"]])
    with pytest.raises(InvalidRequest, match="component '1'.*text"):
        Source(mixed)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Evil(), "a pickle that names"),
        (5, "expected a list of components, found int"),
        ([image(1)], "component '1' is not there"),
        ([image(1), "a"], "component '1': expected .*found str"),
        ([image(1), np.arange(2)], "expected int64 of 0 dimensions, found int64"),
        ([image(1), 2**80], "component '1': "),
        (["a", 1], "component '0': expected image, found str"),
        ([pixels(1, 2, 2, 2), 1], "expected the pixels of a image, found uint8"),
    ],
)
def test_a_record_that_is_none_is_bad_and_named(tmp_path: Path, value: Any, said: str) -> None:
    root = written(tmp_path / "a.lmdb", [[image(1), 1], [image(1), 1], value])
    with pytest.raises(BadInput, match=rf"a.lmdb: .*\(00000002\): .*{said}"):
        Source(root, features=("image=0:image", "label=1:number"))[2]


@pytest.mark.parametrize("whole", [2**53 + 1, -(2**53) - 1, 2**63 - 1])
def test_a_whole_number_that_a_float_does_not_hold_is_bad(tmp_path: Path, whole: int) -> None:
    source = Source(written(tmp_path / "a.lmdb", [(image(0), 0.5), (image(1), 7), (image(2), whole)]))
    assert source.schema["1" if "1" in source.schema else "x_1"].dtype == "float64"
    assert source[1][next(name for name in source.schema.names if name.endswith("1"))] == 7
    with pytest.raises(BadInput, match="fit float64"):
        source[2]


def test_the_work_on_wide_records_is_linear_in_their_components(tmp_path: Path) -> None:
    root = written(tmp_path / "a.lmdb", [[None] * 12_000] * 2)
    with at_most(200 * 12_000), pytest.raises(InvalidRequest, match="fields"):
        Source(root)


def test_keys_of_dicts_that_are_no_texts_are_bad(tmp_path: Path) -> None:
    source = Source(written(tmp_path / "a.lmdb", [(image(0), {"a": [{"b": 1}]}), (image(1), {"a": [{2: 1}]})]))
    (name,) = (field.name for field in source.schema if field.kind == "json" and not field.hidden)
    assert source[0][name] == {"a": [{"b": 1}]}
    with pytest.raises(BadInput, match="not texts"):
        source[1]


def test_components_that_some_records_looked_at_lack_are_told(tmp_path: Path) -> None:
    source = Source(written(tmp_path / "a.lmdb", [{"n": 1}, {"n": 2, "x": 3}]))
    assert "components skipped, because not every record has them: x; --feature takes some" in source.notes


def test_numbers_that_sort_otherwise_keep_their_order(tmp_path: Path) -> None:
    source = Source(tensorpack_lmdb(tmp_path))
    assert [source[row]["x_2"] for row in (0, 11)] == ["n 0", "n 11"]
    assert [source.key(row) for row in (0, 11)] == ["00000000", "00000011"]
