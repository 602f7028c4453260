"""Masks of 16 bit in every kind of source where the user can ask for them: files beside samples, records, arrays."""

import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import packer
from packer import sources
from packer.errors import BadInput, InvalidRequest
from packer.schema import Field
from packer.sources._extend.sidecars import Sidecar
from packer.sources.records._record_fields import RecordField
from tests.sources.test_webdataset import shards
from tests.support.foreign_files import lmdb_environment
from tests.support.id_masks import ID, SIZE, ids, mask_of
from tests.support.source_trees import encoded, image, write

COUNT = 3
PHOTOS = [image(number, height=SIZE[0], width=SIZE[1]) for number in range(COUNT)]
MASKS = [mask_of(number) for number in range(COUNT)]  # the last one of 8 bit
FILES = [encoded(".png", mask) for mask in MASKS]


def check(root: Path, pack: Path, features: str, **options: Any) -> None:
    """The features give masks of 16 bit, whole and resized, and the source compares equal."""
    packer.convert(root, pack / "whole", features=features.split(","), order="stored", **options)
    found = packer.open(pack / "whole", output="numpy")
    assert found.schema["mask"].dtype == "uint16"
    for sample, mask in zip(found, MASKS, strict=True):
        assert sample["mask"].dtype == np.int32 and np.array_equal(sample["mask"], mask)
    assert packer.verify(pack / "whole", source=root).problems == ()
    packer.convert(root, pack / "small", features=features.split(","), order="stored", resize=(24, 32), **options)
    assert (packer.open(pack / "small", output="numpy")[0]["mask"] == ID).any()
    assert packer.verify(pack / "small", source=root).problems == ()


# ---- what is typed


def test_a_sidecar_says_16_bit_behind_its_kind() -> None:
    assert Sidecar.parse("mask=_i.png:mask:uint16") == Sidecar("mask", "_i.png", "mask", dtype="uint16")
    assert Sidecar.parse("mask={folder}/{stem}.png:mask:uint16").field == Field(
        "mask", "mask", "encoded", dtype="uint16"
    )
    assert Sidecar.parse("mask=_i.png:mask:uint8").field.dtype == "uint8"
    assert Sidecar.parse("mask=_i.png:mask").field.dtype is None
    for text in ("mask=_i.png:mask:uint32", "mask=_i.png:mask:0", "mask=_i.png:mask:", "image=_i.png:image:uint16"):
        with pytest.raises(InvalidRequest, match="NAME=PATTERN:mask:DTYPE"):
            Sidecar.parse(text)


def test_a_record_field_says_16_bit_behind_its_kind() -> None:
    field = RecordField.parse("mask=seg.png:mask:uint16")
    assert (field.kind, field.entries, field.dtype) == ("mask", ("seg.png",), "uint16")
    assert field.shown() == "mask=seg.png:mask:uint16"
    assert field.field == Field("mask", "mask", "encoded", dtype="uint16")
    assert RecordField.parse("mask=seg.png:mask").field.dtype is None
    for text in ("mask=seg.png:mask:float32", "mask=seg.png:depth:uint16"):
        assert RecordField.parse(text).kind is None  # the entry is called so


# ---- files beside samples


def test_a_file_that_is_no_mask_is_named(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a.jpg": image(1, suffix=".jpg"), "a_i.tiff": encoded(".tiff", np.zeros(SIZE, np.float32))})
    with pytest.raises(BadInput, match=r"a_i\.tiff: .*float32.*16 bit"):
        packer.convert(tmp_path / "in", tmp_path / "pack", sidecars={"mask": "_i.tiff:mask:uint16"})


# ---- records


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "tensorpack-lmdb"])
def test_files_in_records(tmp_path: Path, kind: str) -> None:
    samples = [{"png": photo, "seg.png": file} for photo, file in zip(PHOTOS, FILES, strict=True)]
    root = write(tmp_path / "in", shards(kind, samples))
    check(root, tmp_path, "image=png:image,mask=seg.png:mask:uint16", kind=kind)


def test_pixels_in_records(tmp_path: Path) -> None:
    values = [[np.frombuffer(photo, np.uint8), mask] for photo, mask in zip(PHOTOS, MASKS, strict=True)]
    entries = {b"%08d" % at: pickle.dumps(value) for at, value in enumerate(values)}
    root = lmdb_environment(tmp_path / "a.lmdb", {**entries, b"__keys__": pickle.dumps(list(entries))}, is_folder=False)
    check(root, tmp_path, "image=0:image,mask=1:mask:uint16")
    with pytest.raises(BadInput, match="pixels of a mask|mask:uint16"):
        packer.convert(root, tmp_path / "narrow", features=["image=0:image", "mask=1:mask"])


def test_basicsr(tmp_path: Path) -> None:
    meta = {"name": "set", "resolution": ["1_{}_{}".format(*SIZE)], "keys": [str(number) for number in range(COUNT)]}
    pixels = {b"%d" % number: ids(number).tobytes() for number in range(COUNT)}
    root = write(lmdb_environment(tmp_path / "in", pixels), {"meta_info.pkl": pickle.dumps(meta)})
    packer.convert(root, tmp_path / "pack", kind="basicsr-lmdb", features=["mask=value:mask:uint16"])
    found = packer.open(tmp_path / "pack", output="numpy")
    assert all(np.array_equal(sample["mask"], ids(number)) for number, sample in enumerate(found))
    assert packer.verify(tmp_path / "pack", source=root).problems == ()


# ---- arrays


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_arrays(tmp_path: Path, kind: str) -> None:
    arrays = {
        "images": np.zeros((COUNT, *SIZE, 3), np.uint8),
        "masks": np.stack([ids(number) for number in range(COUNT)]),
        "small": np.stack(MASKS).astype(np.uint8),
    }
    file = tmp_path / f"a.{'npz' if kind == 'npz' else 'h5'}"
    if kind == "npz":
        np.savez(file, **arrays)  # type: ignore[arg-type]
    else:
        with h5py.File(file, "w") as opened:
            opened.update(arrays)
    features = ["image=images:image", "mask=masks:mask:uint16", "classes=small:mask:uint16"]
    source = sources.load(kind).Source(file, features=features)
    (note,) = (note for note in source.notes if note.startswith("--feature"))
    assert "mask=masks:mask:uint16" in note
    packer.convert(file, tmp_path / "pack", features=features)
    for number, sample in enumerate(packer.open(tmp_path / "pack", output="numpy")):
        assert np.array_equal(sample["mask"], ids(number)) and sample["mask"].dtype == np.int32
        assert np.array_equal(sample["classes"], arrays["small"][number]) and sample["classes"].dtype == np.int32
    assert packer.verify(tmp_path / "pack", source=file).problems == ()
    with pytest.raises(InvalidRequest, match="mask=masks:mask:uint16"):
        sources.load(kind).Source(file, features=["mask=masks:mask"])
