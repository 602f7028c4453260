"""Values from anywhere gathered into one array, and batches of raw images through every format."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer import formats
from packer.errors import CorruptPack, CorruptRecord
from packer.pack.reader import Pack
from packer.schema import Field, Schema
from packer.system import buffer_stacking
from packer.system.buffer_stacking import gather
from tests.support import built_packs

SCHEMA = Schema(
    (
        Field("key", "text", "text"),
        Field("image", "image", "raw", dtype="uint8", shape=(5, 7, 3)),
        Field("blob", "bytes", "encoded"),
    )
)
SIZE = 5 * 7 * 3


@given(data=st.binary(min_size=1, max_size=3000), count=st.integers(1, 40), seed=st.integers(0, 99))
def test_values_at_any_place_arrive_in_order(data: bytes, count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    size = int(random.integers(1, len(data) + 1))
    starts = random.integers(0, len(data) - size + 1, count).tolist()
    frame = np.full((count + 2, size), 0xEE, np.uint8)
    gather([memoryview(data)[start : start + size] for start in starts], frame[1:-1])
    assert [bytes(row) for row in frame[1:-1]] == [data[start : start + size] for start in starts]
    assert (frame[[0, -1]] == 0xEE).all()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_nothing_is_gathered_from_nothing(shape: tuple[int, int]) -> None:
    gather([b""] * shape[0], np.empty(shape, np.uint8))


def test_values_longer_than_a_matrix_of_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffer_stacking, "_MOST_COLUMNS", 3)
    out = np.zeros((2, 4), np.uint8)
    gather([b"abcd", bytearray(b"efgh")], out)
    assert out.tobytes() == b"abcdefgh"


def record(number: int, *, size: int = SIZE) -> built_packs.Record:
    """A sample of SCHEMA."""
    image = np.random.default_rng(number).bytes(size)
    return {"key": b"%03d" % number, "image": image, "blob": bytes(number % 5)}


@pytest.mark.one_in(9)
@pytest.mark.parametrize("verify", ["first", "always", "never", "open"])
@pytest.mark.parametrize("format", formats.names())
def test_a_batch_over_many_parts_has_each_row_in_its_place(tmp_path: Path, format: str, verify: str) -> None:
    samples = [record(number) for number in range(50)]
    built_packs.make_pack(tmp_path / "pack", samples, format=format, schema=SCHEMA, parts=6)
    pack = Pack(tmp_path / "pack", verify=verify)
    indices = np.random.default_rng(1).integers(0, 50, 200)  # some twice
    out = np.empty((200, SIZE), np.uint8)
    pack.gather(indices, "image", out)
    assert [bytes(row) for row in out] == [samples[index]["image"] for index in indices]
    pack.close()


@pytest.mark.parametrize("format", formats.names())
def test_a_value_of_another_size_is_refused_by_its_key(tmp_path: Path, format: str) -> None:
    schema = Schema((SCHEMA["key"], Field("image", "bytes", "encoded")))
    samples = [{"key": b"%d" % at, "image": b"x" * (SIZE - (at == 3))} for at in range(5)]
    built_packs.make_pack(tmp_path / "pack", samples, format=format, schema=schema, parts=2)
    pack = Pack(tmp_path / "pack")
    with pytest.raises(CorruptPack, match=f"'3'.*{SIZE} bytes, .* {SIZE - 1}"):
        pack.gather(np.arange(5), "image", np.empty((5, SIZE), np.uint8))
    pack.close()


@pytest.mark.parametrize("format", formats.names())
def test_a_damaged_row_of_a_batch_is_named(tmp_path: Path, format: str) -> None:
    samples = [record(number) for number in range(6)]
    built_packs.make_pack(tmp_path / "pack", samples, format=format, schema=SCHEMA, parts=1)
    for part in sorted((tmp_path / "pack").glob("part-00000*")):
        for path in sorted(part.rglob("*")) if part.is_dir() else [part]:
            content = path.read_bytes() if path.is_file() else b""
            if samples[4]["image"] in content:
                built_packs.flip(path, content.index(samples[4]["image"]) + 9)
    pack = Pack(tmp_path / "pack")
    out = np.empty((4, SIZE), np.uint8)
    pack.gather(np.arange(4), "image", out)
    with pytest.raises(CorruptRecord, match="'004'.*crc32"):
        pack.gather(np.array([5, 4, 0, 1]), "image", out)
    pack.close()
