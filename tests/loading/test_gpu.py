"""What only a CUDA device can show: values under allocator stress, memory that stays flat, copies beside steps."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from packer.loading import CUDAPrefetcher, Loader
from tests.support import marked_packs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: torch sees none here"),
]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STEPS = 1000


def batches(count: int, size: tuple[int, ...] = (16, 3, 128, 128)) -> Iterator[dict[str, Any]]:
    """Random images, told apart by their seed."""
    for number in range(count):
        generator = torch.Generator().manual_seed(number)
        image = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
        yield {"image": image, "label": torch.tensor([number]), "meta": image[:1]}


def normalized(image: torch.Tensor) -> torch.Tensor:
    """Plain `.to()` and the same operations, on the host."""
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    return ((image.float() / torch.tensor(255.0) - mean) / std).cuda()


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_values_equal_plain_copies_under_allocator_stress(depth: int) -> None:
    prefetcher = CUDAPrefetcher(List(STEPS), depth=depth, normalize=(MEAN, STD))
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for batch, given in zip(prefetcher, batches(STEPS), strict=True):
        size = int(torch.randint(1, 1 << 24, ()))
        noise = torch.full((size,), 7.0, device="cuda")  # takes what the allocator thinks is free
        torch.cuda._sleep(200_000)  # the device falls behind the host
        wrong += (batch["image"] != normalized(given["image"])).sum() + (batch["label"] != given["label"].cuda()).sum()
        assert batch["meta"].device.type == "cpu"
        del noise, batch
    assert wrong.item() == 0


class List:
    """A loader that begins anew."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        return batches(self._count)


@pytest.mark.parametrize("stop", [None, 3])
def test_reserved_memory_is_flat_over_40_epochs(stop: int | None) -> None:
    prefetcher = CUDAPrefetcher(List(8), normalize=(MEAN, STD))
    reserved = []
    for _ in range(40):
        for at, batch in enumerate(prefetcher):
            batch["image"].mul_(2)
            if at == stop:
                break
        torch.cuda.synchronize()
        reserved.append(torch.cuda.memory_reserved())
    assert max(reserved[20:]) <= max(reserved[:20]), reserved


@pytest.mark.parametrize("steps", [None, 20])
def test_a_loader_gives_on_the_device_what_it_gives_on_the_host(tmp_path: Path, steps: int | None) -> None:
    dataset = packer.open(marked_packs.pack(tmp_path / "posed.pack", 60))
    options: dict[str, Any] = {"shuffle": True, "steps_per_epoch": steps}
    host, there = Loader(dataset, 4, **options), Loader(dataset, 4, device="cuda", **options)
    for _ in range(20):
        for one, other in zip(host, there, strict=True):
            torch.cuda._sleep(200_000)
            for name in ("image", "depth", "mask", "label"):
                assert other[name].device.type == "cuda"
                assert torch.equal(one[name], other[name].cpu()), name
            assert other["image"].is_contiguous(memory_format=torch.channels_last)
    host.close(), there.close()


def test_a_copy_runs_beside_the_step_before() -> None:
    """The one test that looks at a clock, the device's: a step takes less than copy and compute one after the other."""
    count, size = 30, (64, 3, 512, 512)
    given = [torch.zeros(size, dtype=torch.uint8).pin_memory() for _ in range(3)]
    weights = torch.randn(6000, 6000, device="cuda")

    def elapsed(loader: Any) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for batch in loader:
            for _ in range(8 if batch is not None else 0):
                weights @ weights
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))

    copies = [given[at % 3] for at in range(count)]
    for _ in range(2):  # the first warms up
        compute = elapsed(range(count))
        copy = elapsed(None for _ in map(lambda each: each.to("cuda", non_blocking=True), copies))
        both = elapsed(CUDAPrefetcher(copies))
    assert both < 0.9 * (compute + copy), (both, compute, copy)
