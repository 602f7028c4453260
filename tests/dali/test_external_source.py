"""External source: the callable as DALI calls it, without DALI; tests/dali/test_dali.py has DALI itself call it."""

import itertools
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

import packer
from packer.dali import ExternalSource, external_source, source
from packer.errors import InvalidRequest, MissingPackage, UnknownKey, WrongType
from packer.geometry import CenterCrop, RandomResizedCrop
from tests.support import id_masks, source_trees
from tests.support.conversions import packed
from tests.support.source_trees import image, photos, write


@dataclass(frozen=True)
class BatchInfo:
    """As nvidia.dali.types.BatchInfo."""

    iteration: int
    epoch_idx: int = 0


@dataclass(frozen=True)
class SampleInfo:
    """As nvidia.dali.types.SampleInfo."""

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int = 0


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """22 photos of three classes."""
    packed(photos(tmp_path / "photos", 22), tmp_path / "photos.pack")
    return tmp_path / "photos.pack"


def batches(made: ExternalSource, epoch: int = 0) -> list[Any]:
    """All batches of an epoch, as DALI asks for them."""
    found = []
    for number in itertools.count():
        try:
            found.append(made(BatchInfo(number, epoch)))
        except StopIteration:
            return found
    raise AssertionError


def samples(made: ExternalSource, size: int, epoch: int = 0) -> list[Any]:
    """All samples of an epoch, as DALI asks for them."""
    found = []
    for number in itertools.count():
        try:
            found.append(made(SampleInfo(number, number % size, number // size, epoch)))
        except StopIteration:
            return found
    raise AssertionError


def texts(values: Any) -> list[str]:
    return [bytes(value).decode() for value in values]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (0, 3), (2, 3)])
def test_the_order_is_the_loaders(pack: Path, shuffle: bool, drop: bool, rank: int, world_size: int) -> None:
    dataset = packer.open(pack, fields=("key",))
    place: dict[str, Any] = {"shuffle": shuffle, "seed": 7, "rank": rank, "world_size": world_size}
    made = source(dataset, 3, fields=("key",), last_batch="drop" if drop else "partial", **place)
    with packer.Loader(dataset, 3, drop_last=drop, **place) as loader:
        for epoch in range(3):
            expected = [batch["key"] for batch in loader]
            assert [texts(keys) for (keys,) in batches(made, epoch)] == expected
            assert len(made) == len(expected)
            assert made.samples == sum(map(len, expected))


def test_samples_one_by_one_are_those_of_the_batches(pack: Path) -> None:
    place: dict[str, Any] = {"fields": ("key", "label", "image"), "shuffle": True, "seed": 2, "last_batch": "drop"}
    whole, single = source(pack, 4, **place), source(pack, 4, batch=False, **place)
    one_by_one = samples(single, 4, epoch=1)
    keys, labels, files = (
        list(itertools.chain.from_iterable(values)) for values in zip(*batches(whole, 1), strict=True)
    )
    assert len(one_by_one) == 20
    for at, (key, label, file) in enumerate(one_by_one):
        assert (bytes(key), label, bytes(file)) == (bytes(keys[at]), labels[at], bytes(files[at]))
        assert (label.dtype, label.shape) == (np.int64, ())


def test_fill_goes_on_with_the_first_samples_of_the_rank(pack: Path) -> None:
    place: dict[str, Any] = {"fields": ("key",), "shuffle": True, "rank": 1, "world_size": 2}
    filled = source(pack, 4, last_batch="fill", **place)
    mine = [key for (keys,) in batches(source(pack, 4, **place)) for key in texts(keys)]
    found = [key for (keys,) in batches(filled) for key in texts(keys)]
    assert len(filled) == 3
    assert filled.samples == len(mine) == 11
    assert found == [*mine, mine[0]]
    single = source(pack, 4, last_batch="fill", batch=False, **place)
    assert [texts([key])[0] for (key,) in samples(single, 4)] == found


def test_any_call_beyond_the_end_stops_and_any_other_answers_as_before(pack: Path) -> None:
    made = source(pack, 8, fields=("key",), shuffle=True)
    first = texts(made(BatchInfo(2, epoch_idx=5))[0])
    for iteration in (3, 4, 90):
        with pytest.raises(StopIteration):
            made(BatchInfo(iteration))
    made(BatchInfo(0, epoch_idx=1))
    assert texts(made(BatchInfo(2, epoch_idx=5))[0]) == first
    assert texts(source(pack, 8, fields=("key",), shuffle=True, first_epoch=4)(BatchInfo(2, 1))[0]) == first


def test_files_are_the_packed_bytes(pack: Path, tmp_path: Path) -> None:
    (files, labels, keys), *_ = batches(source(pack, 22, fields=("image", "label", "key")))
    for file, label, key in zip(files, labels, texts(keys), strict=True):
        assert file.tobytes() == (tmp_path / "photos" / key).read_bytes()
        assert (file.dtype, file.ndim, file.flags.owndata) == (np.uint8, 1, True)
        assert key.startswith(f"class{label}/")
    assert (labels.dtype, labels.shape) == (np.int64, (22,))


def test_pixels_points_and_depth_are_the_loaders(tmp_path: Path) -> None:
    packed(source_trees.cornell(tmp_path / "cornell"), tmp_path / "cornell.pack")
    fields = ("rgb", "depth", "grasps", "object_id")
    geometry = RandomResizedCrop(20)
    made = source(tmp_path / "cornell.pack", 2, fields=fields, encoded=False, geometry=geometry, shuffle=True, seed=4)
    dataset = packer.open(tmp_path / "cornell.pack", fields=fields)
    with packer.Loader(dataset, 2, geometry=geometry, shuffle=True, seed=4) as loader:
        for epoch in range(2):
            for (rgb, depth, grasps, numbers), batch in zip(batches(made, epoch), loader, strict=True):
                assert np.array_equal(rgb, batch["rgb"].permute(0, 2, 3, 1).numpy())
                assert np.array_equal(depth, batch["depth"].permute(0, 2, 3, 1).numpy(), equal_nan=True)
                assert all(map(np.array_equal, grasps, batch["grasps"]))
                assert np.array_equal(numbers, batch["object_id"])
                assert rgb.flags.c_contiguous and depth.flags.c_contiguous
    assert made.names == fields
    assert made.dtypes == ("uint8", "float32", "float32", "int64")
    assert made.ndims == (3, 3, 3, 0)
    assert made.layouts == ("HWC", "HWC", "", "")


def test_masks_and_points_beside_files_are_decoded(tmp_path: Path) -> None:
    write(tmp_path / "jacquard/abc", source_trees.view("0_abc", 1) | source_trees.view("1_abc", 2))
    packed(tmp_path / "jacquard", tmp_path / "jacquard.pack")
    made = source(tmp_path / "jacquard.pack", 2, fields=("rgb", "mask", "grasps"))
    (files, masks, grasps), *_ = batches(made)
    dataset = packer.open(tmp_path / "jacquard.pack", output="numpy")
    for at, sample in enumerate(dataset[number] for number in range(2)):
        assert bytes(files[at][:4]) == b"\x89PNG"
        assert np.array_equal(masks[at], sample["mask"][..., None])
        assert np.array_equal(grasps[at], sample["grasps"])
    assert (made.dtypes, made.ndims, made.layouts) == (("uint8", "uint8", "float32"), (1, 3, 3), ("", "HWC", ""))


def test_images_of_many_sizes_are_a_list(tmp_path: Path) -> None:
    files = {f"{size}.png": image(size, height=size, width=2 * size) for size in (8, 12, 16)}
    packed(write(tmp_path / "sizes", files), tmp_path / "sizes.pack")
    ((pixels, keys),) = batches(source(tmp_path / "sizes.pack", 3, fields=("image", "key"), encoded=False))
    assert [array.shape for array in pixels] == [
        (int(key.split(".")[0]), 2 * int(key.split(".")[0]), 3) for key in texts(keys)
    ]
    (one, _) = source(
        tmp_path / "sizes.pack", 3, fields=("image", "key"), encoded=False, batch=False, last_batch="drop"
    )(SampleInfo(1, 1, 0))
    assert np.array_equal(one, pixels[1])


def test_bytes_are_arrays_of_uint8(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", 4)
    for number, path in enumerate(sorted(root.rglob("*.jpg"))):
        path.with_suffix(".bin").write_bytes(bytes([number] * number))
    packer.convert(root, tmp_path / "blobs.pack", sidecars={"blob": ".bin:bytes"})
    made = source(tmp_path / "blobs.pack", 4, fields=("blob",))
    ((blobs,),) = batches(made)
    assert [bytes(blob) for blob in blobs] == [bytes([number] * number) for number in range(4)]
    assert (made.dtypes, made.ndims) == (("uint8",), (1,))


def test_a_subset_of_a_split_has_its_own_samples(pack: Path) -> None:
    dataset = packer.open(pack)
    made = source(Subset(Subset(dataset, range(4, 20)), [3, 1, 9]), 2, fields=("key",), encoded=False)
    assert [key for (keys,) in batches(made) for key in texts(keys)] == [dataset.key(at) for at in (7, 5, 13)]
    assert dataset.fields is None
    assert dataset.with_(fields=("label",), as_tuple=None)[3] == {"label": dataset[3]["label"]}


def test_random_numbers_of_a_subset_are_the_loaders(pack: Path) -> None:
    chosen = Subset(packer.open(pack, geometry=RandomResizedCrop(9)), [8, 2, 5, 11])
    made = source(chosen, 2, fields=("image",), encoded=False, shuffle=True, seed=9)
    with packer.Loader(chosen, 2, shuffle=True, seed=9) as loader:
        for (images,), batch in zip(batches(made), loader, strict=True):
            assert np.array_equal(images, batch["image"].permute(0, 2, 3, 1).numpy())


def test_a_source_pickles_to_a_few_kilobytes_and_goes_on_in_another_place(pack: Path) -> None:
    made = source(pack, 8, shuffle=True)
    expected = made(BatchInfo(1))
    data = pickle.dumps(made)
    assert len(data) < 4096
    found = pickle.loads(data)(BatchInfo(1))
    assert all(map(np.array_equal, found[0], expected[0]))
    assert np.array_equal(found[1], expected[1])


def test_opencv_has_no_threads_of_its_own_in_dalis_workers(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = source(pack, 4, encoded=False)
    threads: list[int] = []
    monkeypatch.setattr(cv2, "setNumThreads", threads.append)
    made(BatchInfo(0))
    assert threads == []
    monkeypatch.setattr(external_source, "getpid", lambda: -1)
    pickle.loads(pickle.dumps(made))(BatchInfo(0))
    assert threads == [0]


def test_an_empty_pack_ends_at_once(pack: Path) -> None:
    made = source(Subset(packer.open(pack), []), 4, last_batch="fill")
    assert (len(made), made.samples, batches(made)) == (0, 0, [])


# ---- what DALI is told


class _Types(SimpleNamespace):
    """As nvidia.dali.types, as far as it is asked."""


def test_arguments_are_those_of_external_source(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    types = _Types(UINT8="u8", INT64="i64", FLOAT="f32", NO_TYPE="any")
    monkeypatch.setitem(sys.modules, "nvidia", SimpleNamespace(dali=SimpleNamespace(types=types)))
    monkeypatch.setitem(sys.modules, "nvidia.dali", SimpleNamespace(types=types))
    monkeypatch.setitem(sys.modules, "nvidia.dali.types", types)
    made = source(pack, 8)
    told = made.arguments()
    assert told.pop("source") is made
    shared = {"num_outputs": 2, "dtype": ["u8", "i64"], "ndim": [1, 0], "layout": ["", ""]}
    assert told == {**shared, "batch": True, "batch_info": True}
    single = source(pack, 8, fields=("image",), encoded=False, batch=False, last_batch="drop").arguments()
    assert (single["batch"], single["batch_info"], single["layout"], single["ndim"]) == (False, False, ["HWC"], [3])


def test_without_dali_arguments_says_what_to_install(
    pack: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where other packages of NVIDIA's are installed, which share the name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "nvidia"]:
        monkeypatch.delitem(sys.modules, name)
    write(tmp_path / "site/nvidia", {"__init__.py": ""})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    with pytest.raises(MissingPackage, match="'nvidia-dali': pip install nvidia-dali-cuda120"):
        source(pack, 8).arguments()
    monkeypatch.delitem(sys.modules, "nvidia")


# ---- what is refused


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch": False}, InvalidRequest, "batch=False"),
        ({"last_batch": "pad"}, InvalidRequest, "last_batch='pad'"),
        ({"first_epoch": -1}, InvalidRequest, "first_epoch=-1"),
        ({"fields": "image"}, WrongType, "fields='image'"),
        ({"fields": ()}, WrongType, "expected field names"),
        ({"fields": ("photo",)}, UnknownKey, "photo"),
        ({"batch_size": 0}, InvalidRequest, "batch_size=0"),
        ({"rank": 1}, InvalidRequest, "pass both or neither"),
        ({"encoded": "no"}, WrongType, "encoded='no'"),
        ({"geometry": CenterCrop(8)}, InvalidRequest, "pass encoded=False"),
    ],
)
def test_what_does_not_go_together_is_refused(
    pack: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        source(pack, **{"batch_size": 4, **options})


def double(sample: Any) -> Any:
    return sample


class Own(packer.datasets.PackDataset):
    """Samples that a batch decoder does not make."""

    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)["label"]


@pytest.mark.parametrize(
    ("dataset", "options", "message"),
    [
        (lambda _: TensorDataset(torch.zeros(3)), {}, "dataset=.*TensorDataset"),
        (lambda pack: packer.open(pack, transform=double), {}, "it has a transform"),
        (Own, {}, "Own makes its own samples"),
        (lambda pack: packer.open(pack, fields=("label",)), {}, "'image' is not in the data set; it has label"),
        (packer.open, {"geometry": "crop"}, "expected Geometry"),
    ],
)
def test_a_data_set_that_is_no_plain_pack_is_refused(
    pack: Path, dataset: Callable[[Path], Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises((InvalidRequest, UnknownKey), match=message):
        source(dataset(pack), 4, **options)


def test_pixels_that_are_no_files_and_json_are_refused(tmp_path: Path) -> None:
    root = photos(tmp_path / "photos", 4)
    for path in root.rglob("*.jpg"):
        path.with_suffix(".json").write_text('{"a": 1}')
    packer.convert(root, tmp_path / "raw.pack", codecs={"image": "raw"}, sidecars={"note": ".json:json"}, resize=(8, 8))
    with pytest.raises(InvalidRequest, match="codec raw.*encoded=False"):
        source(tmp_path / "raw.pack", 4, fields=("image",))
    with pytest.raises(InvalidRequest, match="'note' is JSON"):
        source(tmp_path / "raw.pack", 4, fields=("note",))
    ((pixels,),) = batches(source(tmp_path / "raw.pack", 4, fields=("image",), encoded=False))
    assert pixels.shape == (4, 8, 8, 3)


@pytest.mark.parametrize(("batch", "info"), [(True, 0), (True, SampleInfo(0, 0, 0)), (False, BatchInfo(0)), (False, 0)])
def test_another_way_of_calling_is_refused(pack: Path, batch: bool, info: Any) -> None:
    wanted = "batch=True, batch_info=True" if batch else "batch=False"
    with pytest.raises(InvalidRequest, match=f"{wanted}, or"):
        source(pack, 4, batch=batch, last_batch="drop")(info)


@pytest.mark.parametrize("info", [SampleInfo(4, 4, 0), SampleInfo(3, 0, 1), SampleInfo(5, 0, 1)])
def test_another_batch_size_of_the_pipeline_is_refused(pack: Path, info: SampleInfo) -> None:
    with pytest.raises(InvalidRequest, match="batch_size"):
        source(pack, 4, batch=False, last_batch="drop")(info)


def test_masks_of_16_bit_are_int32(tmp_path: Path) -> None:
    root = id_masks.tree(tmp_path / "in", 4)
    packer.convert(root, tmp_path / "ids.pack", sidecars=id_masks.SIDECAR)
    made = source(tmp_path / "ids.pack", 4, fields=("image", "mask"))
    assert (made.dtypes, made.ndims, made.layouts) == (("uint8", "int32"), (1, 3), ("", "HWC"))
    ((_, masks),) = batches(made)
    for number, mask in enumerate(masks):
        assert mask.dtype == np.int32 and np.array_equal(mask[..., 0], id_masks.mask_of(number))
    cropped = source(tmp_path / "ids.pack", 4, fields=("mask",), geometry=CenterCrop(20))
    ((masks,),) = batches(cropped)
    assert masks.dtype == np.int32 and (masks == id_masks.ID).any()
