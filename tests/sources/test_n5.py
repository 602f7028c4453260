"""N5: what tensorstore wrote is read as it was; short and whole edges, missing blocks, damage."""

import gzip
import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import packer
from packer.errors import BadInput, InvalidRequest, PackerError
from packer.sources import base
from packer.sources._recognition import detect
from packer.sources.arrays.n5 import Source
from tests.support.foreign_files import n5_dataset
from tests.support.source_trees import write

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 10, 12, 3), np.uint8)
# written by tensorstore 0.1.86: path -> hex; GOLDEN_PIXELS as images (gzip), labels (raw), the first channel as depth
# divided by 7 (bzip2) and as x16 * 200 (xz)
GOLDEN = Path(__file__).parent / "payloads/tensorstore-0.1.86.json"
GOLDEN_PIXELS = (np.arange(5 * 6 * 7 * 3) % 251).astype(np.uint8).reshape(5, 6, 7, 3)


def made(root: Path, **arrays: npt.NDArray[Any]) -> Path:
    write(root, {"attributes.json": '{"n5": "4.0.0"}'})
    for name, array in arrays.items():
        n5_dataset(root / name.replace("__", "/"), array, block=(2, *array.shape[1:]))
    return root


def test_what_tensorstore_wrote_is_read_as_it_was(tmp_path: Path) -> None:
    files = json.loads(GOLDEN.read_text())
    root = write(tmp_path, {name: bytes.fromhex(text) for name, text in files.items()})
    features = ("image=images:image", "label=labels", "depth=depth:depth", "x16=x16:numbers")
    source = Source(root, features=features)
    for row in range(5):
        sample = source[row]
        assert np.array_equal(sample["image"], GOLDEN_PIXELS[row])
        assert int(sample["label"]) == (3, -1, 0, 1 << 40, 5)[row]
        assert np.array_equal(sample["depth"], GOLDEN_PIXELS[row, ..., 0].astype(np.float32) / 7)
        assert np.array_equal(sample["x16"], GOLDEN_PIXELS[row, ..., 0].astype(np.uint16) * 200)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("compression", ["raw", "gzip", "bzip2", "xz"])
@pytest.mark.parametrize("block", [(2, 10, 12, 3), (5, 10, 12, 3), (3, 4, 5, 2), (1, 10, 12, 1)])
@pytest.mark.parametrize("is_short", [True, False])
def test_blocks_of_every_kind(compression: str, block: tuple[int, ...], is_short: bool, tmp_path: Path) -> None:
    n5_dataset(tmp_path / "images", PIXELS, block=block, compression=compression, is_short=is_short)
    source = Source(tmp_path)
    for row in (4, 0, 1, 2, 3):
        assert np.array_equal(source[row]["image"], PIXELS[row])
        assert len(base.file_paths(source, row)) == np.prod([-(-10 // block[1]), -(-12 // block[2]), -(-3 // block[3])])


def test_missing_blocks_are_zeros_and_counted(tmp_path: Path) -> None:
    root = made(tmp_path, images=PIXELS, labels=np.arange(5) + 1)
    (root / "images/0/0/0/1").unlink()
    (root / "labels/2").unlink()
    source = Source(root)
    assert "images: 1 block never written: zeros" in source.notes
    assert "labels: 1 block never written: zeros" in source.notes
    assert [int(source[row]["image"].max()) > 0 for row in range(5)] == [True, True, False, False, True]
    assert [int(source[row]["label"]) for row in range(5)] == [1, 2, 3, 4, 0]
    packer.convert(root, tmp_path.with_suffix(".pack"))
    assert packer.verify(tmp_path.with_suffix(".pack"), source=root).problems == ()
    for path in (root / "images").glob("0/0/0/*"):
        path.unlink()
    with pytest.raises(BadInput, match="3 of 3.*never"):
        Source(root)


def test_groups_are_splits_and_a_data_set_may_stand_alone(tmp_path: Path) -> None:
    root = made(
        tmp_path, train__images=PIXELS, train__labels=np.arange(5), val__images=PIXELS[:2], val__labels=np.arange(2)
    )
    with pytest.raises(InvalidRequest, match="--named-splits"):
        Source(root)
    source = Source(root, named_splits=True)
    assert [source.key(row) for row in (0, 5)] == ["train/00000000", "val/00000000"]
    assert detect(root / "train") == ("n5", "N5: 2 data sets")
    assert len(Source(root / "train/images")) == 5
    assert len(Source(root, features=("image=val/images",))) == 2


def attributes(**changes: Any) -> str:
    said = {
        "dimensions": [3, 12, 10, 5],
        "blockSize": [3, 12, 10, 2],
        "dataType": "uint8",
        "compression": {"type": "raw"},
    }
    return json.dumps({**said, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compression": {"type": "blosc"}}, "'blosc'.*raw, gzip, bzip2, xz"),
        ({"compression": {"type": "lz4"}}, "compressed with 'lz4'"),
        ({"compression": 3}, "compressed with None"),
        *(({"compression": {"type": kind}}, "compressed with") for kind in ([1], {"a": 1}, None, 7)),
        ({"dataType": "string"}, "is of type 'string'"),
        ({"dimensions": [3, 12, 10]}, r"has dimensions \(3, 12, 10\) and blocks"),
        ({"dimensions": [3, 12, 10, -5]}, "has lengths"),
        ({"dimensions": [3, 12, 10, True]}, "has lengths"),
        ({"dimensions": "3"}, "has lengths"),
        ({"dimensions": [3, 12, 10, 0]}, "empty"),
        ({"blockSize": [3, 12, 10, 0]}, "has lengths"),
        ({"dimensions": [1 << 40] * 4, "blockSize": [1] * 4}, "expected at most"),
        ({"dimensions": [1 << 30] * 4, "blockSize": [1 << 30] * 4}, "expected at most"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    root = made(tmp_path, images=PIXELS)
    write(root, {"images/attributes.json": attributes(**changes)})
    with pytest.raises(PackerError, match=message):
        Source(root)


DAMAGE: Mapping[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda data: b"", "0 bytes, expected a header of 20"),
    "mode": (lambda data: b"\0\1" + data[2:], "mode 1 and 4 dimensions"),
    "object": (lambda data: b"\0\2" + data[2:], "mode 2"),
    "dimensions": (lambda data: data[:3] + b"\5" + data[4:], "5 dimensions"),
    "too long": (lambda data: data[:4] + struct.pack(">I", 4) + data[8:], "a block of"),
    "too short": (lambda data: data[:4] + struct.pack(">I", 2) + data[8:], "a block of"),
    "a bomb": (lambda data: data[:20] + gzip.compress(bytes(1 << 22)), "do not end where they should"),
    "cut": (lambda data: data[:-9], "do not end where they should"),
    "fewer": (lambda data: data[:20] + gzip.compress(bytes(9)), "9 bytes of numbers, expected 720"),
    "no gzip": (lambda data: data[:20] + b"no gzip", "incorrect header check"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_block_is_named(damage: str, tmp_path: Path) -> None:
    change, message = DAMAGE[damage]
    root = made(tmp_path, images=PIXELS)
    path = root / "images/0/0/0/1"
    path.write_bytes(change(path.read_bytes()))
    source = Source(root)
    assert np.array_equal(source[1]["image"], PIXELS[1])
    with pytest.raises(BadInput, match=f"images/0/0/0/1: .*damaged: .*{message}"):
        source[2]


def test_a_file_is_no_container(tmp_path: Path) -> None:
    root = made(tmp_path, images=PIXELS)
    with pytest.raises(InvalidRequest, match="N5.*folder"):
        Source(root / "images/attributes.json")
    write(tmp_path / "other", {"attributes.json": '{"a": 1}', "b": b""})
    with pytest.raises(InvalidRequest, match="found 2 files"):
        Source(tmp_path / "other")
