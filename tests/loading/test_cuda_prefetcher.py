"""CUDAPrefetcher on the CPU: the same batches, normalized as torchvision does it, in loops as people have them."""

from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader, TensorDataset

import packer
from packer.errors import InvalidRequest
from packer.loading import CUDAPrefetcher, Loader
from packer.loading.tensor_pytree import mapped, tensors
from tests.support import marked_packs
from tests.support.sample_digests import digest_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COUNT = 23


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", COUNT)


def levels() -> torch.Tensor:
    """Every level in every channel, (2, 3, 8, 16)."""
    return torch.arange(256).repeat(3, 1).view(3, 2, 8, 16).transpose(0, 1).to(torch.uint8).contiguous()


def normalized(images: torch.Tensor) -> np.ndarray[Any, Any]:
    """torchvision's ToTensor and Normalize in NumPy, float32, one operation after the other."""
    given = images.numpy().astype(np.float32) / np.float32(255)
    mean, std = (np.asarray(each, np.float32).reshape(3, 1, 1) for each in (MEAN, STD))
    return (given - mean) / std


# ---- values


def test_only_images_of_bytes_are_normalized() -> None:
    given = {
        "image": levels(),
        "mask": torch.full((2, 8, 16), 7, dtype=torch.uint8),
        "thermal": torch.full((2, 1, 8, 16), 7, dtype=torch.uint8),
        "depth": torch.ones(2, 1, 8, 16),
        "label": torch.tensor([1, 2]),
        "meta": {"image": levels()},
    }
    (batch,) = CUDAPrefetcher([given], "cpu", normalize=(MEAN, STD))
    assert np.array_equal(batch["image"].numpy(), normalized(levels()))
    assert all(batch[name] is given[name] for name in ("mask", "thermal", "depth", "label", "meta"))
    assert given["image"].dtype == torch.uint8, "the loader's batch was changed"
    (batch,) = CUDAPrefetcher([given], "cpu")
    assert batch == given and batch is not given, "its containers are its own"


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ({"image": torch.zeros(2, 3, 8, 8)}, r"float32 \(2, 3, 8, 8\)"),
        ([torch.zeros(2, 1, 8, 8, dtype=torch.uint8), torch.tensor([1])], r"uint8 \(2, 1, 8, 8\), int64 \(1,\)"),
        ("text", "no tensor"),
    ],
)
def test_what_cannot_be_normalized_is_refused(batch: Any, found: str) -> None:
    with pytest.raises(InvalidRequest, match=f"uint8 image.*{found}.*normalize"):
        list(CUDAPrefetcher([batch], "cpu", normalize=(MEAN, STD)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalize": (tuple(255 * each for each in MEAN), STD)}, "units of 0 to 1"),
        ({"normalize": (MEAN, (0, 1, 1))}, "units of 0 to 1"),
        ({"normalize": (MEAN, (1, 1))}, "3 and 2"),
        ({"normalize": ((), ())}, "0 and 0"),
        ({"normalize": (0.5, 0.5)}, "a number per channel"),
        ({"normalize": MEAN}, "expected \\(mean, std\\)"),
        ({"dtype": torch.int32}, "floating-point"),
        ({"depth": 0}, "depth=0"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        iter(CUDAPrefetcher([], "cpu", **options))


def test_dtype_and_layout() -> None:
    given = [levels(), torch.ones(2, 4, dtype=torch.float64), torch.tensor([300])]
    options: dict[str, Any] = {"dtype": torch.bfloat16, "channels_last": True}
    ((image, number, label),) = CUDAPrefetcher([given], "cpu", normalize=(MEAN, STD), **options)
    assert torch.equal(image, torch.from_numpy(normalized(levels())).to(torch.bfloat16))
    assert image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous()
    assert number.dtype == torch.bfloat16 and label.dtype == torch.int64
    ((image, _, _),) = CUDAPrefetcher([given], "cpu", **options)
    assert torch.equal(image, levels()) and image.is_contiguous(memory_format=torch.channels_last)
    ((image,),) = CUDAPrefetcher([[levels()]], "cpu", normalize=(MEAN, STD))
    assert image.is_contiguous()


# ---- forms

Pair = namedtuple("Pair", ["image", "meta"])


class Strings(list[Any]):
    """A list of one's own."""


def test_any_form_is_kept() -> None:
    one = torch.zeros(1)
    given = {
        "pair": Pair(one, one),
        "tuple": (one, [one, "x", None, 3]),
        "ordered": OrderedDict(a=one, meta=one),
        "default": defaultdict(list, a=[one]),
        "user": UserDict(a=one),
        "list": Strings([one, b"y"]),
        "size": torch.Size([2, 3]),
        "largest": torch.max(torch.zeros(2, 2), 0),
        "packed": pack_sequence([torch.zeros(3), torch.zeros(2)]),
        "array": np.zeros(2),
    }
    (batch,) = CUDAPrefetcher([given], "cpu", channels_last=True)
    assert list(batch) == list(given)
    assert {name: type(value) for name, value in batch.items()} == {name: type(value) for name, value in given.items()}
    changed = mapped(given, lambda tensor: tensor + 1, ("meta",))
    assert changed["pair"].image == 1 and changed["pair"].meta is one
    assert changed["tuple"][1][0] == 1 and changed["tuple"][1][1:] == ["x", None, 3]
    assert changed["ordered"]["a"] == 1 and changed["ordered"]["meta"] is one
    assert changed["default"]["a"] == [torch.ones(1)] and changed["default"].default_factory is list
    assert changed["user"]["a"] == 1 and changed["list"] == [torch.ones(1), b"y"]
    assert changed["size"] == given["size"] and changed["array"] is given["array"]
    assert changed["largest"].values.tolist() == [1, 1]
    assert isinstance(changed["packed"], PackedSequence) and changed["packed"].data.tolist() == [1.0] * 5
    assert changed["packed"].batch_sizes is given["packed"].batch_sizes
    assert one == 0 and not any(each.any() for each in tensors(given)), "the given batch was changed"
    assert len(list(tensors(given, ("meta", "packed")))) == 9


def test_len_and_passes() -> None:
    loader = DataLoader(TensorDataset(torch.arange(10)), 4)
    prefetcher = CUDAPrefetcher(loader, "cpu")
    assert len(prefetcher) == 3
    for _ in range(2):
        assert [batch[0].tolist() for batch in prefetcher] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert list(CUDAPrefetcher([], "cpu")) == []
    with pytest.raises(TypeError, match="len"):
        len(CUDAPrefetcher(iter([]), "cpu"))
    assert CUDAPrefetcher([], "cpu").next() is None


# ---- the loops of the posts


def pairs() -> Iterator[Any]:
    return ([torch.full((2,), number), torch.tensor([number])] for number in range(5))


def test_a_loop_with_pairs_runs_unchanged() -> None:
    found = []
    prefetcher = CUDAPrefetcher(pairs(), "cpu")
    images, labels = prefetcher.next()
    while images is not None:
        found.append((images.tolist(), labels.tolist()))
        images, labels = prefetcher.next()
    assert found == [([number] * 2, [number]) for number in range(5)]
    assert prefetcher.next() == (None, None)


def test_a_loop_with_dicts_runs_unchanged() -> None:
    found = []
    prefetcher = CUDAPrefetcher([{"x": torch.tensor(number), "meta": "m"} for number in range(5)], "cpu")
    batch = prefetcher.next()
    step = 0
    while batch is not None:
        step += 1
        found.append(batch["x"].item())
        batch = prefetcher.next()
    assert found == list(range(5)) and step == 5
    assert prefetcher.next() is None
    assert [batch["x"].item() for batch in prefetcher] == list(range(5))
    assert prefetcher.next()["x"] == 0, "after a `for` loop, next begins a pass of its own"
    prefetcher.close()


# ---- Loader(device=...)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("steps", [None, 7])
def test_a_loader_gives_the_same_batches_on_a_device(path: Path, steps: int | None) -> None:
    dataset = packer.open(path)
    options: dict[str, Any] = {"shuffle": True, "steps_per_epoch": steps}
    host, there = Loader(dataset, 4, **options), Loader(dataset, 4, device="cpu", normalize=(MEAN, STD), **options)
    for _ in range(3):
        for one, other in zip(host, there, strict=True):
            image = other.pop("image")
            assert np.array_equal(image.numpy(), normalized(one.pop("image")))
            assert image.is_contiguous(memory_format=torch.channels_last)
            assert digest_of([one]) == digest_of([other])
    host.close(), there.close()


def test_a_break_of_a_stream_loses_nothing_that_is_on_its_way(path: Path) -> None:
    options: dict[str, Any] = {"steps_per_epoch": 6, "normalize": (MEAN, STD)}
    stream = Loader(packer.open(path), 2, **options)
    found = []
    for _ in range(3):
        for at, batch in enumerate(stream):
            if at == 2:
                break
            found += batch["key"]
    assert found == [f"scene {number:04d}" for number in range(18) if number % 6 < 4]
    stream.close()
