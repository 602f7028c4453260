"""Files of torch.save: tensors equal to those that torch loads, and nothing is unpickled, whatever the bytes say."""

import io
import os
import pickle
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from packer.errors import BadInput
from packer.layouts.pickled import loads
from packer.layouts.torch_file_reader import read_tensor

TENSOR = torch.arange(72, dtype=torch.float32).reshape(12, 6) / 7


def saved(value: Any, **options: Any) -> bytes:
    """What torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def changed(data: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """The zip file with other contents of its entries; None leaves one out."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(name, content)
    return file.getvalue()


def pickle_of(change: Callable[[bytes], bytes]) -> bytes:
    """A file of torch.save whose pickle is another."""
    return changed(saved(TENSOR), lambda name, data: change(data) if name.endswith("data.pkl") else data)


@pytest.mark.parametrize(
    "tensor",
    [
        TENSOR,
        TENSOR[3:5],  # torch saves the whole storage of a view
        TENSOR.T,
        TENSOR[::2, 1:4],
        TENSOR.double(),
        TENSOR.half(),
        TENSOR.to(torch.int16),
        torch.zeros(0, 6),
        torch.tensor([]),
        torch.tensor(3.5),
        torch.nn.Parameter(TENSOR),
    ],
)
def test_tensors_are_those_that_torch_loads(tensor: torch.Tensor) -> None:
    data = saved(tensor)
    found, expected = read_tensor(data), torch.load(io.BytesIO(data), weights_only=True).detach().numpy()
    assert found.dtype == expected.dtype and found.shape == expected.shape and np.array_equal(found, expected)


def test_big_endian_numbers_are_the_same() -> None:
    big = TENSOR.numpy().astype(">f4").tobytes()
    data = changed(
        saved(TENSOR),
        lambda name, content: big if "/data/" in name else b"big" if name.endswith("byteorder") else content,
    )
    assert np.array_equal(read_tensor(data), TENSOR.numpy())
    strange = changed(saved(TENSOR), lambda name, content: b"middle" if name.endswith("byteorder") else content)
    with pytest.raises(BadInput, match="little nor big"):
        read_tensor(strange)


def test_files_of_older_versions_have_no_byteorder() -> None:
    kept = ("data.pkl", "data/0", "version")
    data = changed(saved(TENSOR), lambda name, content: content if name.partition("/")[2] in kept else None)
    assert np.array_equal(read_tensor(data), TENSOR.numpy())


class Evil:
    """Unpickled by pickle, it would make a folder."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


def test_code_is_refused_and_not_run(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"posix\.mkdir.*refused"):
        read_tensor(saved(Evil()))
    with pytest.raises(BadInput, match=r"posix\.mkdir.*refused"):
        read_tensor(pickle_of(lambda _: pickle.dumps(Evil(), protocol=2)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (saved([TENSOR]), "holds a list, expected a tensor"),
        (saved({"a": TENSOR}), "holds a dict"),
        (saved(torch.nn.Linear(2, 2)), r"names torch\.nn\.modules\.linear\.Linear"),
        (saved(TENSOR > 3), r"names torch\.BoolStorage"),
        (saved(TENSOR, _use_new_zipfile_serialization=False), "before 1.6, or in its old form"),
        (saved(TENSOR)[:-30], "damaged: it does not end"),
        (b"", "does not begin like a file of torch.save"),
        (changed(saved(TENSOR), lambda name, data: None if name.endswith("data.pkl") else data), "no data.pkl"),
        (changed(saved(TENSOR), lambda name, data: None if name.endswith("data/0") else data), "no entry 'data/0'"),
        (changed(saved(TENSOR), lambda name, data: data[:-4] if name.endswith("data/0") else data), "71 numbers"),
        (pickle_of(lambda data: data + bytes(1 << 20)), "expected at most 1048576"),
        (pickle_of(lambda data: data.replace(b"FloatStorage", b"Tensor")), r"names torch\.Tensor"),
    ],
    ids=lambda value: value if isinstance(value, str) else "file",  # the files hold times and addresses
)
def test_what_is_no_tensor_is_an_error_of_one_line(data: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=said) as caught:
        read_tensor(data)
    assert str(caught.value).isprintable()


def test_a_changed_number_is_damage() -> None:
    data = bytearray(saved(TENSOR))
    data[data.index(TENSOR[1].numpy().tobytes())] ^= 1
    with pytest.raises(BadInput, match="crc32.*'data/0'"):
        read_tensor(bytes(data))


@pytest.mark.parametrize(
    ("offset", "shape", "strides"),
    [
        (1, (12, 6), (6, 1)),  # ends behind the storage
        (0, (12, 6), (6, 2)),
        (0, (1 << 40, 6), (0, 0)),  # one number again and again
        (-1, (2, 6), (6, 1)),
        (0, (-2, 6), (6, 1)),
        (0, (12, 6), (-6, 1)),
        (0, (12, 6), (6,)),
        (0, (True, 6), (6, 1)),
        (0, (1,) * 9, (1,) * 9),
    ],
)
def test_a_tensor_lies_in_its_storage(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    data = _pickled_tensor(offset, shape, strides)
    with pytest.raises(BadInput):
        read_tensor(pickle_of(lambda _: data))


def test_a_tensor_by_hand_is_read() -> None:
    """As the ones above are made, so that it is not their making that is refused."""
    found = read_tensor(pickle_of(lambda _: _pickled_tensor(2, (3, 2), (6, 1))))
    assert np.array_equal(found, TENSOR[:3, 2:4].numpy())


def _pickled_tensor(offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
    def plain(value: Any) -> bytes:
        return pickle.dumps(value, protocol=2)[2:-1]  # without PROTO and STOP

    identity = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuKHtQ"
    called = b"ctorch._utils\n_rebuild_tensor_v2\n("
    return b"\x80\x02" + called + identity + plain(offset) + plain(shape) + plain(strides) + b"\x89}tR."


def test_names_of_torch_are_known_of_its_files_alone() -> None:
    with zipfile.ZipFile(io.BytesIO(saved(TENSOR))) as archive:
        data = archive.read("archive/data.pkl")
    with pytest.raises(BadInput, match=r"names torch\._utils\._rebuild_tensor_v2"):
        loads(data)
    with pytest.raises(BadInput, match="opcode BINPERSID"):
        loads(b"\x80\x02K\x01Q.")
