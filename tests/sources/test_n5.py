"""N5: what tensorstore wrote is read as it was; short and whole edges, missing blocks, damage."""

import base64
import gzip
import json
import struct
import zlib
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
# written by tensorstore 0.1.86: JSON of path -> hex; GOLDEN_PIXELS as images (gzip), labels (raw), the first channel as
# depth / 7 (bzip2) and as x16 * 200 (xz)
GOLDEN = (
    "eNrVmOuOHLcRhV/F0O8gIYssspi3Kd4SB84FkQIEMPzu+dgzK+1aHmkVr3+4pZnuYbPZxbqcOmd/fDfXvz789U/+4cO/v+//+bDe//Fv7//5"
    "j3d//u5d7SJFyii7pNI1lVa9qEhy7anKSIWP6pTBvMSsWUOVojVV5vJ7nbmPV0nxPFlzbTXcRs5M7vI7CXduK+cSKx99Oa9cK3InpTP3PrOV"
    "WbSsp/fX9Lm1db77w3f3TYfz72w13I50P9f7udzPmkW9WIop5qiNPSZttWSTPfP9kc3Bl6q4Vj4qfet1vq7PuTKhTu21lK29LxyGaWXqTuWM"
    "s1T0XMpqwYprys1Tjry42M4WPh3Rwxm+TLQQG98pJ+EiTO4x5t5WxACN+Tbp05MPjty22z4byNdXeNVx2amEK+Vjw7y58X6+v/CYdrMg3VYt"
    "k99bY5OeYx55uMwslgsuqCxIuIf3PYVwtRzmTjLalFnVZvdZdq/Tty0dOKtqzs2I3AhiloUzP0zzVMkezILIqi35GmVabkuaB68+K8v0MQhm"
    "0DbGislq09G79rVzCgQFZ6buMbBsxCa8wsWaqhrMU1MLOLiby3AfPYW+NIWR4rTh2o7xXc6Ge+jWnsePxI3y0Kkk85LjqvM4b7ze/5Wv0XBy"
    "PUlw/fa0F+WTd942sElbSmXsXHte7uazuYVRx5hxljlLDzZ3l1jHXH1ZKVg8bCyxmUJWYdEYMSgHImShiC2p0upKsa5Bgs5CdLfuUms1LTtx"
    "jT995ZmtjGm1Dko16To7t2YYymr3RWMsFltsnTSUGlo6GZBGmju05j77XOWccuh1uaXFDbUd155p9WZ1BV0n16/g8/hTGoRU57AVJxkwNVka"
    "y7vrqOq95rVCH2fLgNTYtgn99tUTC8xExXOEdq1CYemxOEQ2H2IC1HAoxvK/zDTbttRq9nZQam5ZimVVd+5xjrDnXsLrqX/yj7eBTmox691G"
    "65fBcpI47R1rlYyxysufUOaA1vd/97+s998M1VTPBYCZj7wKrgejBSAdF0yXX4DpeoPpG/BW1iiKvwbryJmB42IZZ/RLIF6V+Yukta8C+NMe"
    "XoD43R/hMxzPD/D8aVziNjL+RdEloIoRBcNPhRIMEj8o0a7MbMGp4hFmWGFH8jXKrRlcpXxy12OPI8644hZecNwgtI3T0cSkiQs5JpPK3inQ"
    "ScgfgJFQ4X5yBz/3k/BppU2RxSw55Zw1l1wzsJU9d6By5kWVBY0qmuqq24JFE0uWTSnDakZtuZ3qnbZst0BZSUstN22ErFmjolpvIGpbYH7w"
    "6OLJsxNAcNGcgqNGhk9fvoGu2KWnnimOAmJab91776PPvvoeYcRBUEBxHYQc0GgDMBxAy1hjTzrS2uBqle13j38Wu/iGsftdRI46+F1EbtJJ"
    "htBM48PYya+NHVgkF15oSQsgXxmILCsuPc2FiGUiVoibRiAWrwC5+CPilaQVj9KetOBX1QQwhJmhCrTuqTMRoYt+8JJIxBJeCPhD8EfshxdW"
    "MDBXqaXGg2IAdKBlyi470sAgAVg7yKAVWlE/uHC2kWbWWtsDn8Q3wKJO3k568CYrBlmxyI1Jm4AHkktOLjUyqo9N1AZRW8Ruji6bjB1kLCyH"
    "jO1OzZEPTj5gv1AmEByvA99613XY56Lhe6UFrtWhANTIIgy+B3FonUvZTDwj9OA1e9817hOofeZwi45Mt+eL/jFXPv0x0ABmIyQPPRTfwENv"
    "7B+IZbp76No0FBNyh4f2pF5ObkzoBtaRGiTaIksyfZ8cZfLu83IDXOry4fEITX+fdW4eI7XIwRClbMFDiJ+aJkT9kYfkDTz0xv7xTpnASs6x"
    "rAs1+sL+H7yvH96/yP74M0s/Wrd/dvwiEY6fLp+tH1+xvoZvPJ6t/638Kr+GU73kT8w5JO/LEvfGjQq87Wvs6CMj+m8s/7eSfxU1fBrnky9y"
    "GD4nh9Wqf3lrH4lfTOXbtfvZ5GuVuxwaXl1Nb8I3I7pLz7kcsg2hRzjdhexuSJw2Tkb5bRVB3+UebiyCBXu3sM4jaBVhosIe6B88ZDTSEFc1"
    "AZRgD3YexQMml4PMBKXBZi2lFpBAp+mH5MjWsSkFahKZnNM+EjhkyvW8FgFrGTA54gsyEbR00xYDzdwUUYEMMShKKBn9VSUQVCt9BoJlx+Qq"
    "iC70KHoMIbYC+gud1LizDKnOoo0bNDjPYARKeW1rEc2R3M52G7SkOY1oItd2gW2gdHM82I6FNMUe0ZE10AbAAqGvVusFUG5ix1V9IoMJDPwB"
    "jEAJYqUXIRmgZ+vU7ggXb7vVcIb4hEJfRtQjzcMneZyR0v488PG3DPxAj8nhknhwMiR2hsKaFg98J7OoC9cni97Yw7II7ZOIok07yJFr5kF8"
    "G4ovHNJ7lgMkjNILxN9SRyvPTgogKKVYzgNVHaGKFS8Mg/+AX6homUEV9oUp2qYpQp7csQIbKSlZ0RZKxa2eQxnNytqhxmw1eahHfQPVFbF/"
    "tlHRmxbpEcT9qHuDZ1qPqP5iBhVsEg3tSp4PaKaE1qu1OWE+7AYXeJ7mkCly1kDJ4AvRCkehCVjXI8sb9HIjp7P15Tj3/N1BL8evkcnIUqCb"
    "0fOvCbz8FoE/qXgCD0hdf7Ziq3PWSJk5RTegNZmePvJCGdiCa1PccATbu429c0tx7KpdHY5orRfaZW+T9j8dkh7pbEf/CDgW02DlXSX1pd2k"
    "OtZEO9JoNaLjsO6F1xAPkFYwMylgWmS1i6YdAhZ9y9C0Z4YsQ73GXOkCi+EUcfJnHICoonPaMZ1s0eOvWOdHt0NtIdNi46Hjf/ofeb+AMg=="
)
GOLDEN_PIXELS = (np.arange(5 * 6 * 7 * 3) % 251).astype(np.uint8).reshape(5, 6, 7, 3)


def made(root: Path, **arrays: npt.NDArray[Any]) -> Path:
    write(root, {"attributes.json": '{"n5": "4.0.0"}'})
    for name, array in arrays.items():
        n5_dataset(root / name.replace("__", "/"), array, block=(2, *array.shape[1:]))
    return root


def test_what_tensorstore_wrote_is_read_as_it_was(tmp_path: Path) -> None:
    files = json.loads(zlib.decompress(base64.b64decode(GOLDEN)))
    root = write(tmp_path, {name: bytes.fromhex(text) for name, text in files.items()})
    features = ("image=images:image", "label=labels", "depth=depth:depth", "x16=x16:numbers")
    source = Source(root, features=features)
    for row in range(5):
        sample = source[row]
        assert np.array_equal(sample["image"], GOLDEN_PIXELS[row])
        assert int(sample["label"]) == (3, -1, 0, 1 << 40, 5)[row]
        assert np.array_equal(sample["depth"], GOLDEN_PIXELS[row, ..., 0].astype(np.float32) / 7)
        assert np.array_equal(sample["x16"], GOLDEN_PIXELS[row, ..., 0].astype(np.uint16) * 200)


def test_our_writer_of_tests_writes_headers_as_the_specification_has_them(tmp_path: Path) -> None:
    n5_dataset(tmp_path, np.zeros((2, 6, 7, 3), np.uint8), block=(2, 6, 7, 3))
    assert (tmp_path / "0/0/0/0").read_bytes()[:20].hex() == "0000000400000003000000070000000600000002"
    said = json.loads((tmp_path / "attributes.json").read_text())
    assert said["dimensions"] == [3, 7, 6, 2]


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


@pytest.mark.parametrize("dtype", ["uint16", "float32", "float64"])
def test_numbers_are_big_endian(dtype: str, tmp_path: Path) -> None:
    depth = (np.random.default_rng(1).random((3, 9, 11)) * 60000).astype(dtype)
    source = Source(made(tmp_path, depth=depth))
    assert source[2]["depth"].dtype == depth.dtype
    assert all(np.array_equal(source[row]["depth"], depth[row]) for row in range(3))


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
    with pytest.raises(BadInput, match="3 of 3 blocks were never written"):
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
    with pytest.raises(BadInput, match=f"images/0/0/0/1: is damaged: .*{message}"):
        source[2]


def test_a_file_is_no_container(tmp_path: Path) -> None:
    root = made(tmp_path, images=PIXELS)
    with pytest.raises(InvalidRequest, match="an N5 container is a folder"):
        Source(root / "images/attributes.json")
    write(tmp_path / "other", {"attributes.json": '{"a": 1}', "b": b""})
    with pytest.raises(InvalidRequest, match="found 2 files"):
        Source(tmp_path / "other")
