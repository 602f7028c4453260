"""Data sets: what samples look like, in batches, in workers, after damage."""

import gc
import hashlib
import os
import pickle
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Subset

import packer
from packer.datasets.pack_dataset import LMDBDataset, PackDataset
from packer.errors import BadIndex, CorruptPack, CorruptRecord, InvalidRequest, UnknownKey, WrongType
from packer.pack import part_readers
from packer.pack.sample_index import Index
from tests.support import source_trees
from tests.support.conversions import packed
from tests.support.sample_digests import same
from tests.support.source_trees import photos

pytestmark = pytest.mark.jpeg


@pytest.fixture
def cornell(tmp_path: Path) -> Path:
    packed(source_trees.cornell(tmp_path / "in"), tmp_path / "cornell.pack", resize="32x24", part_bytes=60_000)
    return tmp_path / "cornell.pack"


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    packed(photos(tmp_path / "in", 40), tmp_path / "photos.pack", part_bytes=20_000)
    return tmp_path / "photos.pack"


def test_samples_are_what_the_table_says(cornell: Path) -> None:
    sample = LMDBDataset(cornell)[0]
    assert list(sample) == ["key", "rgb", "depth", "grasps", "grasps_negative", "object_id", "category"]
    assert (sample["rgb"].dtype, tuple(sample["rgb"].shape)) == (torch.uint8, (3, 24, 32))
    assert (sample["depth"].dtype, tuple(sample["depth"].shape)) == (torch.float32, (1, 24, 32))
    assert (sample["grasps"].dtype, tuple(sample["grasps"].shape)) == (torch.float32, (2, 4, 2))
    assert (sample["key"], sample["object_id"], sample["category"]) == ("0100", 26, "Plastic_Cup")
    arrays = LMDBDataset(cornell, output="numpy")[0]
    assert arrays["rgb"].shape == (24, 32, 3)
    assert arrays["depth"].shape == (24, 32)
    images = LMDBDataset(cornell, output="pil")[0]
    assert (images["rgb"].mode, images["rgb"].size, images["depth"].mode) == ("RGB", (32, 24), "F")
    assert np.array_equal(np.asarray(images["rgb"]), arrays["rgb"])
    assert np.array_equal(sample["rgb"].permute(1, 2, 0).numpy(), arrays["rgb"])


def test_hidden_fields_come_when_asked_for(cornell: Path) -> None:
    sample = LMDBDataset(cornell, ["files", "matrix", "rgb"])[0]
    assert list(sample) == ["files", "matrix", "rgb"]
    assert sample["files"]["rgb"] == "01/pcd0100r.png"
    assert sample["matrix"].tolist() == [[0.5, 0.0, -0.25], [0.0, 0.5, -0.25]]


def test_tuples_transforms_and_pil_as_torchvision_has_them(pack: Path) -> None:
    dataset = LMDBDataset(pack, as_tuple=("image", "label"), output="pil", transform=lambda image: image.size)
    assert dataset[3] == ((32, 24), 0)
    assert dataset.classes == ["class0", "class1", "class2"]
    whole = LMDBDataset(pack, ["label", "key"], transform=lambda sample: sample["key"])
    assert whole[0] == "class0/0000.jpg"


def test_pixels_equal_pillow_in_imagefolder_order(tmp_path: Path, pack: Path) -> None:
    paths = sorted((tmp_path / "in").rglob("*.jpg"))
    dataset = LMDBDataset(pack, output="numpy")
    for sample, path in zip(dataset, paths, strict=True):
        with Image.open(path) as image:
            assert np.array_equal(sample["image"], np.asarray(image.convert("RGB")))


def test_a_batch_is_one_tensor_and_its_rows_are_the_samples(cornell: Path) -> None:
    dataset = LMDBDataset(cornell)
    batch = dataset.__getitems__([2, 0, 2])
    assert len(batch) == 3
    for row, index in zip(batch, [2, 0, 2], strict=True):
        assert same(dict(row), dataset[index])
    collated = next(iter(DataLoader(dataset, batch_size=4)))
    assert tuple(collated["rgb"].shape) == (4, 3, 24, 32)
    assert collated["rgb"].is_contiguous(memory_format=torch.channels_last)
    assert tuple(collated["depth"].shape) == (4, 1, 24, 32)
    assert [tuple(grasps.shape) for grasps in collated["grasps"]] == [(2, 4, 2)] * 4
    assert collated["key"] == ["0100", "0101", "0200", "1034"]
    assert collated["object_id"].tolist() == [26, 26, 27, 281]


def test_the_batch_tensor_is_not_copied_by_torch(pack: Path) -> None:
    batch = LMDBDataset(pack).__getitems__(range(8))
    collated = torch.utils.data.default_collate(batch)
    assert collated["image"].data_ptr() == batch.fields["image"].data_ptr()
    own = torch.utils.data.default_collate(list(batch))  # a collate function that made a list of its own
    assert torch.equal(own["image"], collated["image"])


def test_a_worker_decodes_into_shared_memory(pack: Path) -> None:
    loader = DataLoader(LMDBDataset(pack), batch_size=8, num_workers=1, multiprocessing_context="fork")
    images = [batch["image"] for batch in loader]
    assert all(image.is_shared() for image in images)
    assert torch.equal(torch.cat(images), torch.stack([sample["image"] for sample in LMDBDataset(pack)]))


def test_tuples_collate_as_torch_does(pack: Path) -> None:
    dataset = LMDBDataset(pack, as_tuple=("image", "label"))
    images, labels = next(iter(DataLoader(dataset, batch_size=5)))
    assert (tuple(images.shape), labels.tolist()) == ((5, 3, 24, 32), [dataset[at][1] for at in range(5)])


def test_images_of_different_sizes_say_what_to_do(tmp_path: Path) -> None:
    root = source_trees.write(
        tmp_path / "in",
        {
            "a.png": source_trees.image(1),
            "b.png": source_trees.image(2, height=20),
            "c.png": source_trees.image(3),
        },
    )
    packed(root, tmp_path / "out.pack")
    dataset = LMDBDataset(tmp_path / "out.pack")
    with pytest.raises(InvalidRequest, match="--resize"):
        next(iter(DataLoader(dataset, batch_size=3)))
    rows = next(iter(DataLoader(dataset, batch_size=3, collate_fn=list)))
    assert [tuple(row["image"].shape) for row in rows] == [(3, 48, 64), (3, 20, 64), (3, 48, 64)]
    assert all(same(dict(row), dataset[at]) for at, row in enumerate(rows))


def test_what_is_returned_is_the_callers_own(pack: Path) -> None:
    dataset = LMDBDataset(pack, output="numpy")
    before = hashlib.sha256((pack / "part-00000.lmdb").read_bytes()).digest()
    sample = dataset[0]
    kept = sample["image"].copy()
    sample["image"][:] = 0
    dataset.column("label")[:] = 7
    assert np.array_equal(dataset[0]["image"], kept)
    assert dataset.column("label")[0] == 0
    assert hashlib.sha256((pack / "part-00000.lmdb").read_bytes()).digest() == before


def test_columns_keys_and_lookups(pack: Path) -> None:
    dataset = LMDBDataset(pack)
    keys = list(dataset.keys())
    assert keys == sorted(keys)
    assert dataset.keys()[-1] == keys[-1]
    assert dataset.keys()[2:4] == keys[2:4]
    assert [dataset.index_of(key) for key in keys] == list(range(40))
    assert keys[7] in dataset
    assert "nothing" not in dataset
    with pytest.raises(WrongType, match="LMDBDataset: .*key"):
        3 in dataset  # noqa: B015
    assert dataset.column("label").tolist() == [sample["label"] for sample in dataset]
    for wrong in (
        lambda: dataset.index_of("nothing"),
        lambda: dataset.column("image"),
        lambda: LMDBDataset(pack, ["x"]),
    ):
        with pytest.raises(UnknownKey):
            wrong()
    assert same(dataset[-1], dataset[39])
    for index in (40, -41):
        with pytest.raises(BadIndex):
            dataset[index]
    assert len(list(dataset)) == 40  # iteration ends by IndexError


def test_only_an_error_looks_for_a_key_that_is_alike(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(Index, "_like", lambda index, text: looked.append(text) or "")
    dataset = packer.open(pack)
    assert "nothing" not in dataset
    assert not looked
    with pytest.raises(UnknownKey):
        dataset.index_of("nothing")
    assert looked == ["nothing"]


def test_two_data_sets_over_one_pack_share_its_files(pack: Path) -> None:
    gc.collect()  # of earlier tests a data set in a cycle may be left
    before = len(part_readers.open_readers)
    one, other = LMDBDataset(pack), packer.open(pack, output="numpy")
    assert isinstance(other, LMDBDataset)
    assert one[0]["key"] == other[0]["key"]
    assert len(part_readers.open_readers) == before + 1
    del one
    assert other[1]["key"] == "class0/0003.jpg"
    copy = pickle.loads(pickle.dumps(other))  # noqa: S301
    assert same(copy[5], other[5])


def test_it_pickles_small_and_refuses_another_pack_in_its_place(tmp_path: Path, pack: Path) -> None:
    dataset = LMDBDataset(pack, as_tuple=("image", "label"))
    dataset[0]
    data = pickle.dumps(dataset)
    assert len(data) < 4096
    os.rename(pack, tmp_path / "aside")
    packed(photos(tmp_path / "other", 41), pack)
    with pytest.raises(CorruptPack, match="replaced"):
        pickle.loads(data)[0]  # noqa: S301


def test_a_wrong_format_no_pack_and_an_unknown_decoder_are_refused(tmp_path: Path, pack: Path) -> None:
    class Other(PackDataset):
        format = "hdf5"

    with pytest.raises(InvalidRequest, match="'lmdb'"):
        Other(pack)
    with pytest.raises(InvalidRequest, match="not a pack"):
        LMDBDataset(tmp_path)
    with pytest.raises(InvalidRequest, match="decoder"):
        LMDBDataset(pack, decoder="libpng")
    del Other


def test_a_flipped_value_raises_with_part_key_and_field(tmp_path: Path, pack: Path) -> None:
    path = sorted((tmp_path / "in").rglob("*.jpg"))[7]
    part = pack / "part-00000.lmdb"
    data = bytearray(part.read_bytes())
    at = data.find(path.read_bytes()[-300:-240])
    assert at > 0
    data[at] ^= 1
    part.write_bytes(data)
    for options in ({}, {"verify": "always"}, {"decoder": "opencv"}):
        dataset = LMDBDataset(pack, **options)
        with pytest.raises(CorruptRecord, match=rf"part-00000\.lmdb.*{path.name}.*'image'"):
            dataset[7]
        with pytest.raises(CorruptRecord):
            dataset.__getitems__([6, 7])
        assert dataset[6]["key"]


def test_subsets_and_splits(tmp_path: Path, pack: Path) -> None:
    subset = Subset(LMDBDataset(pack), [5, 1, 9])
    batch = next(iter(DataLoader(subset, batch_size=3)))
    assert batch["key"] == [LMDBDataset(pack).key(at) for at in (5, 1, 9)]
    with pytest.raises(UnknownKey, match="no split"):
        LMDBDataset(pack, split="train")


def test_opencv_threads_are_off_in_workers_only(pack: Path) -> None:
    before = cv2.getNumThreads()
    dataset = LMDBDataset(pack, transform=lambda sample: cv2.getNumThreads())
    loader = DataLoader(dataset, num_workers=1, multiprocessing_context="fork")
    assert {int(value) for value in loader} <= {0, 1}
    assert cv2.getNumThreads() == before
