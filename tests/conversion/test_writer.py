"""Writer: samples that a program writes, as `convert` packs them; continued, in shards, and refused with the key."""

import signal
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import packer
from packer import formats
from packer.conversion.publication import FolderPublication
from packer.errors import BadInput, InvalidRequest, Locked, PackExists
from packer.pack.verification import problems
from tests.support.child_processes import child
from tests.support.command_runs import load_everything, write_samples
from tests.support.conversions import digest
from tests.support.fault_injection import Run
from tests.support.source_trees import image

_FIELDS = {"image": "png", "label": "number", "name": "text"}
_SIDE = 16
_SIZE = _SIDE * _SIDE * 3


def pixels(number: int) -> npt.NDArray[np.uint8]:
    """An image of its own for each number."""
    return np.random.default_rng(number).integers(0, 256, (_SIDE, _SIDE, 3), np.uint8)


def sample(number: int) -> dict[str, Any]:
    """Values of all fields."""
    return {"image": pixels(number), "label": number % 3, "name": f"n{number}"}


def write(target: Path, numbers: range, **options: Any) -> None:
    """The samples, without those that are there."""
    with packer.Writer(target, fields=_FIELDS, part_bytes=3 * _SIZE + 100, **options) as writer:
        for number in numbers:
            if f"k{number}" not in writer:
                writer.write(sample(number), key=f"k{number}")


def samples_of(target: Path) -> list[dict[str, Any]]:
    """All samples of a pack."""
    data = packer.open(target)
    return [data[row] for row in range(len(data))]


def check(target: Path, numbers: list[int]) -> None:
    """The pack is whole, and its samples are those, in this order."""
    assert list(problems(target, level="full")) == []
    data = samples_of(target)
    assert [found["key"] for found in data] == [f"k{number}" for number in numbers]
    for found, number in zip(data, numbers, strict=True):
        assert np.array_equal(np.moveaxis(found["image"].numpy(), 0, 2), pixels(number))
        assert (found["label"], found["name"]) == (number % 3, f"n{number}")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("format", ["lmdb", "hdf5", "bmp", "webdataset"])
def test_samples_come_back_in_the_order_of_the_calls(tmp_path: Path, format: str) -> None:
    assert format in formats.names()
    target = tmp_path / "out"
    with packer.Writer(
        target, fields={"image": "image", "label": "number"}, to=format, classes=["a", "b", "c"]
    ) as writer:
        for number in (3, 1, 2):
            writer.write({"image": pixels(number), "label": "abc"[number % 3]}, key=f"k{number}")
        assert writer.written == ["k3", "k1", "k2"]
    assert list(problems(target, level="full")) == []
    data = samples_of(target)
    assert [(found["key"], int(found["label"])) for found in data] == [("k3", 0), ("k1", 1), ("k2", 2)]
    for found, number in zip(data, (3, 1, 2), strict=True):
        assert np.array_equal(np.moveaxis(found["image"].numpy(), 0, 2), pixels(number))


@settings(max_examples=settings().max_examples // 4, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(0, 5000), min_size=1, max_size=40), part=st.integers(1, 8000), stop=st.integers(0, 40)
)
def test_a_continued_writer_makes_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], part: int, stop: int
) -> None:
    folder = tmp_path_factory.mktemp("packs")

    def packed(name: str, *, stops: tuple[int, ...] = ()) -> str:
        for end in (*stops, len(sizes)):
            writer = packer.Writer(folder / name, fields={"data": "bytes"}, part_bytes=part, to="lmdb")
            for number, size in enumerate(sizes[:end]):
                if str(number) not in writer:
                    writer.write({"data": bytes(size)}, key=str(number))
            writer.close() if end == len(sizes) else writer.abandon()
            if end == len(sizes):
                break
        return digest(folder / name)

    assert packed("one") == packed("two", stops=(stop, stop // 2))
    assert [len(found["data"]) for found in samples_of(folder / "one")] == sizes


def test_many_threads_write(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with packer.Writer(target, fields=_FIELDS, part_bytes=5 * _SIZE) as writer, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(writer.write, sample(number), key=f"k{number}") for number in range(100)]:
            done.result()
        order = writer.written
    assert sorted(order) == sorted(f"k{number}" for number in range(100))
    check(target, [int(key[1:]) for key in order])


def test_values_may_change_after_the_call(tmp_path: Path) -> None:
    buffer = pixels(1).copy()
    with packer.Writer(tmp_path / "out", fields={"image": "png"}) as writer:
        writer.write({"image": buffer})
        buffer[:] = 0
    [found] = samples_of(tmp_path / "out")
    assert np.array_equal(np.moveaxis(found["image"].numpy(), 0, 2), pixels(1))
    assert found["key"] == "00000000"


# ---- errors


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"image": np.zeros((4, 4, 3), np.float32), "label": 1, "name": "a"}, "image"),
        ({"image": pixels(0), "label": "x", "name": "a"}, "label"),
        ({"image": pixels(0), "label": 1}, "name"),
        ({"image": pixels(0), "label": 1, "name": "a", "more": 1}, "more"),
        (5, "dict"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_at_once(tmp_path: Path, bad: Any, text: str) -> None:
    with packer.Writer(tmp_path / "out", fields=_FIELDS) as writer:
        writer.write(sample(0), key="k0")
        with pytest.raises(BadInput, match=f"wrong.*{text}"):
            writer.write(bad, key="wrong")
        with pytest.raises(BadInput, match="'k0'"):
            writer.write(sample(0), key="k0")
        writer.write(sample(1), key="k1")
    check(tmp_path / "out", [0, 1])


def test_a_file_that_cannot_be_decoded_is_named_at_the_end(tmp_path: Path) -> None:
    whole = image(0, suffix=".jpg")
    writer = packer.Writer(tmp_path / "out", fields={"image": "image"})
    with pytest.raises(BadInput, match="broken"), writer:
        writer.write({"image": whole}, key="whole")
        writer.write({"image": whole[: len(whole) // 2]}, key="broken")
    assert not (tmp_path / "out").exists()
    with packer.Writer(tmp_path / "out", fields={"image": "image"}) as writer:  # nothing stands in its way
        writer.write({"image": whole}, key="whole")


def test_a_later_write_raises_the_error_of_an_earlier_sample(tmp_path: Path) -> None:
    def writes() -> Iterator[int]:
        with packer.Writer(tmp_path / "out", fields={"image": "image"}, part_bytes=1) as writer:
            for number in range(100_000):
                data = b"no image" if number == 5 else image(number % 3, suffix=".jpg")
                writer.write({"image": data}, key=f"k{number}")
                yield number

    with pytest.raises(BadInput, match="k5"):
        list(writes())
    with packer.Writer(tmp_path / "out", fields={"image": "image"}, part_bytes=1) as writer:
        assert writer.written == [f"k{number}" for number in range(len(writer.written))]
        assert 1 <= len(writer.written) <= 5
        writer.write({"image": image(0, suffix=".jpg")}, key="k5")
    assert list(problems(tmp_path / "out", level="full")) == []


def test_requests_that_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write(target, range(2))
    with pytest.raises(PackExists):
        packer.Writer(target, fields=_FIELDS)
    for options in (
        {"shard": 1},
        {"shard": 2, "shards": 2},
        {"shards": 2},
        {"classes": ["a"], "shard": -1, "shards": 1},
    ):
        with pytest.raises(InvalidRequest, match="shard"):
            packer.Writer(tmp_path / "new", fields=_FIELDS, **options)
    with pytest.raises(InvalidRequest, match="nosuch"):
        packer.Writer(tmp_path / "new", fields={"image": "nosuch:1"})
    with pytest.raises(InvalidRequest, match="URL"):
        packer.Writer("s3://bucket/new", fields=_FIELDS)
    with pytest.raises(InvalidRequest, match="at least one"), packer.Writer(tmp_path / "new", fields=_FIELDS):
        pass
    with (
        pytest.raises(InvalidRequest, match="split"),
        packer.Writer(tmp_path / "new", fields={"split": "text"}) as writer,
    ):
        writer.write({"split": "train"})
    writer = packer.Writer(target, fields=_FIELDS, overwrite=True)
    writer.write(sample(5), key="k5")
    check(target, [0, 1])  # until it is closed
    writer.close()
    check(target, [5])
    with pytest.raises(InvalidRequest, match="closed"):
        writer.write(sample(5), key="k6")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_one_writer_at_a_time_and_in_one_process(tmp_path: Path) -> None:
    with packer.Writer(tmp_path / "out", fields=_FIELDS) as writer:
        writer.write(sample(0), key="k0")
        with pytest.raises(Locked):
            packer.Writer(tmp_path / "out", fields=_FIELDS)
        with pytest.raises(Locked):
            packer.convert([{"a": 1}], tmp_path / "out")
        ended = child(lambda: writer.write(sample(1), key="k1"))
        assert (ended.error, "shard" in ended.message) == ("InvalidRequest", True)
    check(tmp_path / "out", [0])


def test_other_arguments_do_not_continue(tmp_path: Path) -> None:
    writer = packer.Writer(tmp_path / "out", fields=_FIELDS, part_bytes=1)
    finished = threading.Event()
    finish = FolderPublication.finish

    def tell(self: FolderPublication, done: Any) -> None:
        finish(self, done)
        finished.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderPublication, "finish", tell)
        for number in range(64):
            writer.write(sample(number), key=f"k{number}")
        assert finished.wait(60)
        writer.abandon()
    with pytest.raises(InvalidRequest, match="part-size"):
        packer.Writer(tmp_path / "out", fields=_FIELDS, part_bytes=2)
    with packer.Writer(tmp_path / "out", fields=_FIELDS, part_bytes=2, restart=True) as writer:
        assert writer.written == []
        writer.write(sample(1), key="k1")
    check(tmp_path / "out", [1])


# ---- kills


def killed(target: Path, *, writes: int = -1, parts: int = -1) -> None:
    """Run `write_samples` in a child that is killed after so many calls of `write`, or finished parts."""
    load_everything()

    def prepare() -> None:
        for owner, name, left in ((packer.Writer, "write", writes), (FolderPublication, "finish", parts)):
            _kill_after(owner, name, left)

    begun = Run(["write", target, "lmdb"], prepare)
    begun.go()
    ended = begun.wait()
    assert ended.signal == signal.SIGKILL, ended


def _kill_after(owner: Any, name: str, left: int) -> None:
    inner = getattr(owner, name)

    def counted(*args: Any, **options: Any) -> None:
        nonlocal left
        inner(*args, **options)
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGKILL)

    setattr(owner, name, counted)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "kill", [{"writes": count} for count in range(1, 7)] + [{"parts": count} for count in range(1, 4)]
)
def test_a_killed_writer_is_continued(tmp_path: Path, kill: Mapping[str, int]) -> None:
    write_samples(tmp_path / "clean", "lmdb")
    target = tmp_path / "out"
    killed(target, **kill)
    assert not target.exists()
    if "parts" in kill:
        with packer.Writer(target, fields={"image": "image", "label": "number"}, to="lmdb", part_bytes=4708) as writer:
            assert len(writer.written) >= 2 * kill["parts"] - 2 * (kill["parts"] > 1)
            writer.abandon()
    write_samples(target, "lmdb")
    assert digest(target) == digest(tmp_path / "clean")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "out"]


# ---- several processes


def render(target: Path, shard: int) -> None:
    """What each of two processes does."""
    write(target, range(shard, 20, 2), shard=shard, shards=2)


def test_two_processes_write_one_pack(tmp_path: Path) -> None:
    target = tmp_path / "out"
    for shard in (1, 0):
        assert child(partial(render, target, shard)).kind == "value"
    render(target, 0)  # complete: it has all samples, and nothing is written
    found = packer.finish(target)
    assert (found.samples, found.parts) == (20, 8)
    check(target, [*range(0, 20, 2), *range(1, 20, 2)])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(InvalidRequest, match="no shards"):
        packer.finish(target)


def test_shards_that_do_not_fit_are_named(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write(target, range(3), shard=0, shards=2)
    with pytest.raises(InvalidRequest, match="shard-00001"):
        packer.finish(target)
    write(target, range(2, 4), shard=1, shards=2)
    with pytest.raises(BadInput, match="k2"):
        packer.finish(target)
    write(target, range(3, 5), shard=1, shards=2, validate="header", overwrite=True)
    with pytest.raises(InvalidRequest, match="arguments"):
        packer.finish(target)
    write(target, range(3, 5), shard=1, shards=2, overwrite=True)
    writer = packer.Writer(target, fields=_FIELDS, shard=1, shards=2, overwrite=True)
    with pytest.raises(Locked):
        packer.finish(target)
    writer.abandon()
    strange = target.with_name("out.shard-00000-of-00002") / "mine.txt"
    strange.write_text("mine")
    with pytest.raises(InvalidRequest, match="mine.txt"):
        packer.finish(target)
    strange.unlink()
    packer.finish(target)
    check(target, [0, 1, 2, 3, 4])
