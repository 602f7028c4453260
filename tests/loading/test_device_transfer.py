"""The way to a GPU, without one: order of calls, and values under streams that run late, in any order allowed."""

import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import packer
from packer.errors import InvalidRequest
from packer.loading import CUDAPrefetcher, device_transfer
from packer.loading.device_transfer import CUDATransfer
from tests.support import fake_cuda, marked_packs
from tests.support.fake_cuda import FakeCUDA

COUNT = 40
BATCHES = 12


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return marked_packs.pack(tmp_path_factory.mktemp("posed") / "posed.pack", COUNT)


@pytest.fixture(params=range(3))
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> FakeCUDA:
    return fake_cuda.install(monkeypatch, request.param)


def numbered() -> Iterator[dict[str, Any]]:
    """Batches that are told apart, in one piece of memory that is written again as soon as it may be."""
    for number in range(BATCHES):
        yield {"image": torch.full((2, 3, 160, 160), number, dtype=torch.uint8), "label": torch.tensor([number])}


def trained(batches: Any, cuda: FakeCUDA) -> dict[str, list[Any]]:
    """What the steps of a training loop read on the device, which runs behind."""
    read: dict[str, list[Any]] = {"image": [], "label": []}
    for batch in batches:
        for name in read:
            cuda.read(batch[name], read[name])
        del batch
        cuda.step(cuda.random.randrange(12))
    cuda.finish()
    return read


def are_right(read: dict[str, list[Any]]) -> bool:
    """Whether each step has read its own batch of `numbered`."""
    assert len(read["image"]) == len(read["label"]) == BATCHES
    images = all((image == number).all() for number, image in enumerate(read["image"]))
    return images and [label.tolist() for label in read["label"]] == [[number] for number in range(BATCHES)]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_every_step_reads_its_own_batch(cuda: FakeCUDA, depth: int) -> None:
    prefetcher = CUDAPrefetcher(List(), depth=depth)
    for _ in range(3):
        assert are_right(trained(prefetcher, cuda))
    assert len(cuda.streams) == 2, "one side stream for each prefetcher, however many passes"


class List:
    """A loader without a length."""

    def __iter__(self) -> Iterator[Any]:
        return numbered()


def test_the_calls_of_one_batch_come_in_order(cuda: FakeCUDA) -> None:
    """One batch: the side stream waits for the consumer, copies, records; the consumer waits and is recorded."""
    batch = {"a": torch.zeros(3), "b": [torch.ones(2), (torch.ones(1), "x")], "meta": torch.zeros(9)}
    (moved,) = CUDAPrefetcher([batch])
    begun = [("record", "consumer"), ("wait", "side 1", "consumer")]
    carried = [("copy", "side 1")] * 3 + [("record", "side 1")]
    received = [("record", "consumer"), ("wait", "consumer", "side 1")] + [("record_stream", "consumer")] * 3
    calls = [call for call in cuda.calls if call[0] != "synchronize"]
    asked = calls.count(("wait", "side 1", "consumer"))
    assert asked == 2, "before the batch, and before the one that did not come"
    calls.reverse()  # the one that did not come may be asked for while the first is received: in another thread
    calls.remove(("wait", "side 1", "consumer"))
    assert calls[::-1] == begun + carried + received
    assert moved["meta"] is batch["meta"] and moved["b"][1][1] == "x"
    assert batch["a"].tolist() == [0, 0, 0], "the loader's batch was changed"


def test_large_tensors_leave_from_pinned_memory(cuda: FakeCUDA) -> None:
    large, small = torch.zeros(1 << 17, dtype=torch.uint8), torch.zeros(1 << 16, dtype=torch.uint8)
    scattered = torch.zeros(2, 1 << 17, dtype=torch.uint8).T
    list(CUDAPrefetcher([[large, small, scattered, cuda.pinned(large.clone())]]))
    assert cuda.staged == 1
    assert cuda.calls.count(("copy", "side 1")) == 4


# ---- that the model sees what it is there for

FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the consumer does not wait": lambda patch: patch.setattr(
        fake_cuda.Stream,
        "wait_event",
        lambda stream, event: "side" in stream.name and stream.add(fake_cuda.Wait(event)),
    ),
    "no record_stream": lambda patch: patch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen_in_the_values(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = False
    for seed in range(20):
        with monkeypatch.context() as patch:
            cuda = fake_cuda.install(patch, seed)
            FAULTS[fault](patch)
            seen = seen or not are_right(trained(CUDAPrefetcher(List()), cuda))
    assert seen


# ---- the Loader, whose memory is used again


def wanted(path: Path) -> list[Any]:
    return [batch["image"].numpy().copy() for _ in range(2) for batch in packer.Loader(packer.open(path), 4)]


def read_through_a_loader(path: Path, cuda: FakeCUDA, **options: Any) -> list[Any]:
    dataset = packer.open(path, fields=("image", "label"))
    loader = packer.Loader(dataset, 4, device="cuda", threads=2, **options)
    read = [image for _ in range(2) for image in trained(loader, cuda)["image"]]
    loader.close()
    gc.collect()
    assert loader.stats().held_buffers == 0, "memory of batches is still held"
    assert cuda.staged == 0, "batches are decoded into pinned memory"
    assert len(cuda.streams) == 2
    return read


@pytest.mark.one_in(6)
@pytest.mark.parametrize("steps", [None, 10])
def test_a_loader_uses_no_memory_again_that_is_still_copied_from(path: Path, cuda: FakeCUDA, steps: int | None) -> None:
    read = read_through_a_loader(path, cuda, steps_per_epoch=steps)
    assert all(np.array_equal(one, other) for one, other in zip(read, wanted(path), strict=True))


def test_memory_that_is_given_back_too_early_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a transfer that lets go of the host's batch when the copy was merely begun."""

    class Early(CUDATransfer):
        def send(self, batches: Iterator[Any]) -> Iterator[Any]:
            with torch.cuda.stream(self._stream):
                for batch in batches:
                    sent = device_transfer.mapped(batch, self._moved)
                    del batch
                    yield device_transfer.SentBatch(sent, self._stream.record_event())

    right, seen = wanted(path), False
    for seed in range(10):
        with monkeypatch.context() as patch:
            cuda = fake_cuda.install(patch, seed)
            patch.setattr(device_transfer, "CUDATransfer", Early)
            read = read_through_a_loader(path, cuda)
            seen = seen or not all(np.array_equal(one, other) for one, other in zip(read, right, strict=True))
    assert seen


@pytest.mark.one_in(3)
def test_early_breaks_wait_for_what_is_in_flight(path: Path, cuda: FakeCUDA) -> None:
    loader = packer.Loader(packer.open(path, fields=("image",)), 4, device="cuda:0", threads=2)
    for _ in range(8):
        for _batch in loader:
            break
        del _batch
        gc.collect()
        assert loader.stats().held_buffers == 0
    assert len(cuda.streams) == 2


# ---- devices that are not there


@pytest.mark.parametrize(
    ("device", "message"),
    [("cuda", "no CUDA device.*device='cpu'"), ("mps", "no MPS"), ("meta", "expected 'cuda'"), ("gpu", "device='gpu'")],
)
def test_a_device_that_is_not_there_is_refused(path: Path, device: str, message: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(InvalidRequest, match=message):
        CUDAPrefetcher([], device)
    with pytest.raises(InvalidRequest, match=message):
        packer.Loader(packer.open(path), device=device)


def test_a_number_beyond_the_devices_is_refused(cuda: FakeCUDA) -> None:
    with pytest.raises(InvalidRequest, match="1 CUDA devices"):
        CUDAPrefetcher([], "cuda:1")


def test_batches_reach_mps_in_the_consumers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    went = []
    own = torch.Tensor.to

    def to(tensor: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
        if given == ("mps",):
            went.append(threading.current_thread())
            return tensor.clone()
        return own(tensor, *given, **options)

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "to", to, raising=False)
    images = torch.full((2, 1, 4, 4), 255, dtype=torch.uint8)
    (batch,) = CUDAPrefetcher([{"image": images, "meta": images}], "mps", normalize=((0.5,), (0.25,)))
    assert (batch["image"] == 2).all() and batch["meta"] is images
    assert went == [threading.main_thread()]
