"""Masks of 16 bit: id 26001 survives every format, codec, geometry and output, and packing what was packed."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

import packer
from packer import formats
from packer.codecs import make
from packer.conversion.source_verification import Comparison
from packer.errors import BadInput, InvalidRequest
from packer.formats.bmp import Writer
from packer.geometry import CenterCrop, RandomHorizontalFlip, RandomRotation, Resize
from packer.inspect.extraction import extract
from packer.pack.manifest import Manifest
from packer.pack.reader import Pack
from packer.pack.verification import problems
from packer.schema import Field, Schema
from tests.support import built_packs, id_masks, image_files
from tests.support.id_masks import ID, SIDECAR, SIZE, MaskSource, mask_of
from tests.support.source_trees import encoded, write

COUNT = 4
Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return id_masks.tree(tmp_path_factory.mktemp("ids") / "set", COUNT)


def convert(root: Path, pack: Path, **options: Any) -> Path:
    packer.convert(root, pack, **{"sidecars": SIDECAR, "order": "stored", **options})
    return pack


def masks(pack: Path, **options: Any) -> list[Array]:
    return [sample["mask"] for sample in packer.open(pack, **{"output": "numpy", **options})]


def are(found: Sequence[Array], wanted: Sequence[Array]) -> bool:
    """Whether users get int32, with every value as it was."""
    return [mask.dtype.name for mask in found] == ["int32"] * len(wanted) and all(
        np.array_equal(mask, other) for mask, other in zip(found, wanted, strict=True)
    )


def halved(mask: Array) -> Array:
    """What nearest neighbor makes of a half: of two pixels the later one."""
    return mask[1::2, 1::2]


WHOLE = [mask_of(number) for number in range(COUNT)]
HALF = (SIZE[0] // 2, SIZE[1] // 2)


# ---- formats and codecs


@pytest.mark.one_in(3)
@pytest.mark.parametrize("resize", [None, HALF])
@pytest.mark.parametrize("format", formats.names())
def test_every_format_keeps_every_value(
    root: Path, tmp_path: Path, format: str, resize: tuple[int, int] | None
) -> None:
    pack = convert(root, tmp_path / "pack", to=format, resize=resize)
    wanted = list(map(halved, WHOLE)) if resize else WHOLE
    assert packer.open(pack).schema["mask"].dtype == "uint16"
    assert are(masks(pack), wanted)
    assert list(problems(pack, level="full")) == []
    comparison = Comparison(pack, root)
    assert list(comparison.problems()) == [] and comparison.compared and not comparison.worst
    with packer.Loader(packer.open(pack), 3) as loader:
        first, last = loader
    found = torch.cat([first["mask"], last["mask"]])
    assert found.dtype == torch.int32 and torch.equal(found, torch.tensor(np.stack(wanted)).int())


@pytest.mark.parametrize("codec", ["encoded", "png", "raw", "raw:uint16", "npy"])
def test_every_codec_that_holds_16_bit(root: Path, tmp_path: Path, codec: str) -> None:
    pack = convert(root, tmp_path / "pack", codecs={"mask": codec})
    assert are(masks(pack), WHOLE)
    moved = convert(root, tmp_path / "small", codecs={"mask": codec}, resize=HALF)
    assert are(masks(moved), list(map(halved, WHOLE)))


def test_bmp_folders_hold_them_as_numpy_arrays(root: Path, tmp_path: Path) -> None:
    pack = convert(root, tmp_path / "pack", to="bmp")
    for number, wanted in enumerate(WHOLE):
        found = np.load(pack / f"part-00000/mask/{number}.jpg.npy", allow_pickle=False)
        assert found.dtype == np.uint16 and np.array_equal(found, wanted)
    assert Writer.codec_of(Field("mask", "mask", "encoded")) == "bmp"


def test_what_was_encoded_anew_is_extracted_as_16_bit(root: Path, tmp_path: Path) -> None:
    for codec, suffix in (("png", "png"), ("raw", "npy")):
        pack = convert(root, tmp_path / codec, codecs={"mask": codec})
        extract(pack, tmp_path / f"{codec}.out")
        for number, wanted in enumerate(WHOLE):
            data = (tmp_path / f"{codec}.out/{number}_ids.{suffix}").read_bytes()
            found = np.load(io.BytesIO(data)) if suffix == "npy" else np.asarray(Image.open(io.BytesIO(data)))
            assert found.dtype == np.uint16 and np.array_equal(found, wanted)


# ---- what samples have


def test_every_output_is_widened_and_exact_geometries_are_numpys(root: Path, tmp_path: Path) -> None:
    pack = convert(root, tmp_path / "pack")
    for number, sample in enumerate(packer.open(pack)):
        assert sample["mask"].dtype == torch.int32
        assert torch.equal(sample["mask"], torch.tensor(WHOLE[number].astype(np.int32)))
    for number, sample in enumerate(packer.open(pack, output="pil")):
        assert sample["mask"].mode == "I" and np.array_equal(np.asarray(sample["mask"]), WHOLE[number])
    assert int(packer.open(pack)[0]["mask"].max()) == 33_000
    assert bool((packer.open(pack)[0]["mask"] == ID).any())
    assert are(masks(pack, geometry=RandomHorizontalFlip(1.0)), [mask[:, ::-1] for mask in WHOLE])
    assert are(masks(pack, geometry=Resize((24, 32))), list(map(halved, WHOLE)))


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "geometry", [Resize((24, 32)), CenterCrop(20), RandomHorizontalFlip(1.0), RandomRotation(choices=(30,))]
)
@pytest.mark.parametrize("codec", ["encoded", "raw", "png", "npy"])
def test_no_geometry_makes_another_value(root: Path, tmp_path: Path, geometry: Any, codec: str) -> None:
    pack = convert(root, tmp_path / "pack", codecs={"mask": codec})
    found = masks(pack, geometry=geometry)
    assert {mask.dtype.name for mask in found} == {"int32"}
    for mask, whole in zip(found, WHOLE, strict=True):
        assert set(np.unique(mask).tolist()) <= {0, *np.unique(whole).tolist()}
    assert (found[0] == ID).any()
    with packer.Loader(packer.open(pack, geometry=geometry), COUNT) as loader:
        (batch,) = loader
    assert batch["mask"].dtype == torch.int32 and torch.equal(batch["mask"], torch.tensor(np.stack(found)))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_of_a_data_loader_and_those_that_a_transform_makes(
    root: Path, tmp_path: Path, num_workers: int
) -> None:
    pack = convert(root, tmp_path / "pack")
    wanted = torch.tensor(np.stack(WHOLE)).int()
    for options in ({}, {"transform": dict}):
        loader = torch.utils.data.DataLoader(packer.open(pack, **options), COUNT, num_workers=num_workers)
        (batch,) = loader
        assert batch["mask"].dtype == torch.int32 and torch.equal(batch["mask"], wanted)


def test_masks_of_several_sizes_in_a_batch_say_what_to_do(tmp_path: Path) -> None:
    sizes = {0: (48, 64), 1: (40, 64)}  # of one width: as lists of numbers of different lengths would be
    for number, (height, width) in sizes.items():
        photo = image_files.jpeg(image_files.colors(number, height=48, width=64))
        ids = np.full((height, width), ID + number, np.uint16)
        write(tmp_path / "set", {f"{number}.jpg": photo, f"{number}_ids.png": encoded(".png", ids)})
    pack = convert(tmp_path / "set", tmp_path / "pack")
    assert [mask.shape for mask in masks(pack)] == list(sizes.values())
    for options in ({}, {"transform": dict}):
        with (
            packer.Loader(packer.open(pack, fields=("mask",), **options), 2) as loader,
            pytest.raises(packer.errors.MixedShapes, match="field 'mask'.*2 shapes"),
        ):
            next(iter(loader))


# ---- EXIF


@pytest.mark.parametrize("codec", ["encoded", "raw"])
def test_masks_are_turned_with_their_images(tmp_path: Path, codec: str) -> None:
    root = id_masks.tree(tmp_path / "set", 3, orientation=6)
    pack = convert(root, tmp_path / "pack", exif="rotate", labels_orientation="stored", codecs={"mask": codec})
    assert are(masks(pack), [np.rot90(mask_of(number), -1) for number in range(3)])
    upright = tmp_path / "upright"
    for number in range(3):
        photo = (root / f"{number}.jpg").read_bytes()
        turned = encoded(".png", np.ascontiguousarray(np.rot90(mask_of(number), -1)))
        write(upright, {f"{number}.jpg": photo, f"{number}_ids.png": turned})
    pack = convert(upright, tmp_path / "shown", exif="rotate", labels_orientation="upright", codecs={"mask": codec})
    assert are(masks(pack), [np.rot90(mask_of(number), -1) for number in range(3)])


# ---- 8 bit and 16


def test_what_holds_8_bit_is_refused_before_anything_is_written(root: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"0_ids\.png: .*mask:uint16.*--sidecar"):
        convert(root, tmp_path / "pack", sidecars={"mask": "_ids.png:mask"})
    with pytest.raises(InvalidRequest, match="codec 'bmp'.*uint16; .*npy"):
        convert(root, tmp_path / "pack", codecs={"mask": "bmp"})
    with pytest.raises(InvalidRequest, match="codec 'jpeg'.*kind 'mask'"):
        convert(root, tmp_path / "pack", codecs={"mask": "jpeg:95"})
    assert not (tmp_path / "pack").exists()


def test_a_mask_of_8_bit_becomes_one_of_16_where_that_is_asked_for(tmp_path: Path) -> None:
    source = MaskSource(tmp_path / "in", [encoded(".png", id_masks.of_8_bit(0))], Field("mask", "mask", "encoded"))
    packer.convert(source, tmp_path / "narrow")
    assert packer.open(tmp_path / "narrow", output="numpy")[0]["mask"].dtype == np.uint8
    packer.convert(source, tmp_path / "wide", codecs={"mask": "raw:uint16"})
    assert are(masks(tmp_path / "wide"), [id_masks.of_8_bit(0)])


@pytest.mark.parametrize("codec", ["encoded", "png", "raw", "npy"])
def test_a_source_may_give_pixels(tmp_path: Path, codec: str) -> None:
    packer.convert(MaskSource(tmp_path / "in", WHOLE), tmp_path / "pack", codecs={"mask": codec})
    assert are(masks(tmp_path / "pack"), WHOLE)


@pytest.mark.parametrize("codec", ["encoded", "png", "raw", "npy"])
def test_pixels_of_16_bit_in_a_field_of_8_are_refused(tmp_path: Path, codec: str) -> None:
    source = MaskSource(tmp_path / "in", WHOLE[:2], Field("mask", "mask", "encoded"))
    with pytest.raises((BadInput, InvalidRequest), match="uint16"):
        packer.convert(source, tmp_path / "pack", codecs={"mask": codec})


def test_a_source_cannot_declare_another_dtype(tmp_path: Path) -> None:
    for dtype in ("int32", "uint32", "float32", "bool"):
        source = MaskSource(tmp_path / "in", WHOLE, Field("mask", "mask", "encoded", dtype=dtype))
        with pytest.raises(InvalidRequest, match=f"mask is .* {dtype}"):
            packer.convert(source, tmp_path / "pack")


# ---- packs of packs, hostile packs


@pytest.mark.one_in(2)
@pytest.mark.parametrize("first", ["encoded", "raw"])
def test_a_pack_of_a_pack(root: Path, tmp_path: Path, first: str) -> None:
    pack = convert(root, tmp_path / "pack", codecs={"mask": first})
    for number, options in enumerate(({}, {"codecs": {"mask": "png"}}, {"codecs": {"mask": "npy"}}, {"to": "bmp"})):
        packer.convert(pack, tmp_path / f"{number}.pack", **options)
        assert are(masks(tmp_path / f"{number}.pack"), WHOLE)
    packer.convert(pack, tmp_path / "small.pack", resize=HALF)
    assert are(masks(tmp_path / "small.pack"), list(map(halved, WHOLE)))
    with pytest.raises((InvalidRequest, BadInput)):
        packer.convert(pack, tmp_path / "narrowed", codecs={"mask": "raw:uint8"})


@pytest.mark.parametrize("dtype", ["int64", "float32", "uint32", "bool", "int8"])
@pytest.mark.parametrize("codec", ["encoded", "raw", "png", "npy"])
def test_a_manifest_that_says_another_dtype_is_refused(tmp_path: Path, codec: str, dtype: str) -> None:
    field = Field("mask", "mask", codec, dtype, (None, None))
    with pytest.raises(InvalidRequest, match=f"'mask': .*mask is .* {dtype}"):
        make(field)
    records = [{"key": b"0", "mask": encoded(".png", mask_of(0))}]
    schema = Schema((Field("key", "text", "text"), field))
    built_packs.make_pack(tmp_path / "pack", records, schema=schema, parts=1, version=1)  # without a column of sizes
    with pytest.raises(InvalidRequest, match=f"'mask': .*mask is .* {dtype}"):
        packer.open(tmp_path / "pack")[0]


def test_a_mask_that_says_8_bit_and_holds_16_is_damaged(root: Path, tmp_path: Path) -> None:
    pack = convert(root, tmp_path / "pack", codecs={"mask": "npy"})
    manifest = Pack(pack).manifest
    assert isinstance(manifest, Manifest)
    value = make(manifest.schema["mask"]).encode(WHOLE[0])
    narrow = make(Field("mask", "mask", "npy", "uint8", (None, None)))
    with pytest.raises(packer.errors.CorruptRecord, match="npy of uint16"):
        narrow.decode(value)
    for codec in ("encoded", "png"):
        narrow = make(Field("mask", "mask", codec, "uint8", (None, None)))
        with pytest.raises(BadInput, match="expected 8 bit"):
            narrow.decode(cv2.imencode(".png", WHOLE[0])[1].tobytes())
