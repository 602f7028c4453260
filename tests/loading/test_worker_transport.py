"""Packed batches: a batch of any form arrives as it was sent, through a buffer, by value, or some of both."""

import pickle
from collections import namedtuple
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from packer.loading.process_engine import BatchLayout
from packer.loading.tensor_pytree import tensors
from packer.system.buffer_pool import BufferPool
from packer.system.shared_memory import MappedBuffers, shared
from tests.support.descriptors import open_files

Pair = namedtuple("Pair", "one other")
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "bfloat16", "complex64")
LARGE, SMALL = 9000, 3


class Ours(torch.Tensor):
    """A tensor with a class of its own."""


def values() -> dict[str, torch.Tensor]:
    """A tensor of every kind: numbers, layouts, sizes on both sides of what is sent by value."""
    random = torch.Generator().manual_seed(0)
    image = torch.randint(0, 255, (2, 40, 50, 3), dtype=torch.uint8, generator=random)
    found = {
        f"{name} {size}": torch.arange(size).to(getattr(torch, name)) for name in DTYPES for size in (SMALL, LARGE)
    }
    return found | {
        "nothing": torch.empty(0, 5),
        "one": torch.tensor(7),
        "channels_last": image.movedim(-1, 1),
        "turned": image.permute(2, 1, 3, 0),
        "a part": image[:, 5:30, ::2],
        "spread": torch.tensor([5.0]).expand(70, 90),
        "with gradient": torch.arange(2000.0, requires_grad=True),
        "of a class": torch.arange(2000.0).as_subclass(Ours),
        "negative view": torch.full((2000,), 1 + 2j).conj().imag,
    }


def sent(batch: Any, size: int) -> tuple[Any, int]:
    """What arrives through a buffer of that size, 0 for none, and what size was wanted."""
    buffers = BufferPool(2, new=lambda wanted: shared(wanted, 0))
    buffer = buffers.reserve(size) if size else None
    table = BatchLayout(MappedBuffers().get(buffer.address) if buffer is not None else None)
    packed = pickle.loads(ForkingPickler.dumps(table.packed(batch)))  # noqa: S301
    return packed.unpacked(buffers.give(buffer, size) if buffer is not None else None), packed.wanted


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", [0, 1 << 12, 1 << 16, 1 << 20])
@pytest.mark.parametrize("name", values())
def test_a_tensor_arrives(name: str, size: int) -> None:
    tensor = values()[name]
    found, wanted = sent([tensor], size)
    assert type(found[0]) is type(tensor) and found[0].dtype == tensor.dtype
    assert torch.equal(found[0], tensor.detach())
    ours = type(tensor) is torch.Tensor and tensor.dtype not in (torch.bfloat16, torch.complex64)
    assert (wanted > 0) == (ours and tensor.nbytes > 4096)
    assert not found[0].requires_grad
    found[0].zero_()  # it is the receiver's


def test_a_batch_of_any_form_arrives_and_channels_last_stays() -> None:
    many = torch.arange(5000.0)
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    batch = {"a": [many, (many + 1, "text")], "b": Pair(many[:2], None), "c": packed, "d": np.arange(3)}
    found, _ = sent(batch, 1 << 20)
    assert list(found) == list(batch) and type(found["b"]) is Pair and isinstance(found["c"], PackedSequence)
    assert all(torch.equal(*pair) for pair in zip(tensors(found), tensors(batch), strict=True))
    assert (found["a"][1][1], found["b"].other, found["d"].tolist()) == ("text", None, [0, 1, 2])
    found, _ = sent(values()["channels_last"], 1 << 20)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_what_was_made_in_the_buffer_is_not_copied() -> None:
    buffers = BufferPool(1, new=lambda size: shared(size, 0))
    reserved = buffers.reserve(20_000)
    buffer = MappedBuffers().get(reserved.address)
    table = BatchLayout(buffer)
    (first, one), (second, other) = table.take(6000), table.take(6001)
    one[:], other[:] = 1, 2
    packed = table.packed({"x": first.view(torch.int16).view(30, 100), "y": (second[:3], second[3:])})
    assert packed.wanted == 6016 + 6016
    held = buffers.give(reserved, 20_000)
    found = packed.unpacked(held)
    buffer[:6000] = 3
    assert found["x"].shape == (30, 100) and (found["x"] == 0x0303).all()
    assert found["y"][0].tolist() == [2, 2, 2] and len(found["y"][1]) == 5998
    del held
    assert len(buffers) == 1
    del found
    assert len(buffers) == 0


def test_what_does_not_fit_is_wanted_for_the_next() -> None:
    large = torch.arange(100_000, dtype=torch.uint8)
    found, wanted = sent({"a": large, "b": large}, 100_100)
    assert all(torch.equal(each, large) for each in found.values())
    assert wanted == 2 * 100_032


@pytest.mark.parametrize("size", [0, 5000, 6016, 12_032])
def test_the_size_of_a_batch_is_learnt_from_one_that_had_no_room(size: int) -> None:
    table = BatchLayout(np.zeros(size, np.uint8) if size else None)
    one, other = table.take(6000)[0], table.take(6001)[0]
    assert table.packed([one, other]).wanted == 6016 + 6016


def test_a_worker_maps_a_buffer_once_and_not_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.system.shared_memory._MOST_MAPPED", 3)
    held = [shared(1 << 12, number) for number in range(5)]
    addresses = [each.address for each in held]
    mappings = MappedBuffers()
    first = mappings.get(addresses[0])
    assert mappings.get(addresses[0]) is first
    for address in addresses:
        mappings.get(address)
    assert mappings.numbers() == [2, 3, 4]
    held[0].memory[:] = 9
    assert (mappings.get(addresses[0]) == 9).all() and (first == 9).all()
    del held, first, mappings
    assert not [name for name in open_files().values() if "memfd:packer" in name]
