"""One digest per sample, whichever way it came: format, codec, decoder, thread, process; and through the back door.

Kept bytes, PNG and raw numbers lose nothing, so they give the same samples; JPEG gives others, the same everywhere.
"""

import gc
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from packer import formats
from packer.datasets.pack_dataset import PackDataset
from packer.images.backends import simplejpeg, strict_jpeg
from packer.pack.reader import Pack
from packer.schema import Schema
from tests.support import source_trees
from tests.support.conversions import packed
from tests.support.sample_digests import sample_digest

FORMATS = formats.names()
CODECS: dict[str, Mapping[str, str]] = {
    "encoded": {},
    "png": {"rgb": "png", "mask": "png", "depth": "raw", "depth_stereo": "raw"},
    "raw": {"rgb": "raw", "mask": "raw", "depth": "raw:float32", "depth_stereo": "raw"},
    "jpeg": {"rgb": "jpeg:90"},
}
METHODS = ("fork", "spawn", "forkserver")
DECODERS = ("turbojpeg", "opencv", "auto")

Packs = Mapping[tuple[str, str], Path]


class PacksOfOneTree(dict[tuple[str, str], Path]):
    """The same views in every format and codec: PNG and JPEG images, depth, mask, grasps; two parts each.

    A pack is made when a test first asks for it: by default few of them do.
    """

    def __init__(self, place: Path) -> None:
        super().__init__()
        self.place = place
        self.root = source_trees.jacquard(place / "in")
        for number, path in enumerate(sorted(self.root.rglob("*_RGB.png"))):
            if number % 2:  # the bytes count, not the name
                path.write_bytes(source_trees.image(number, suffix=".jpg"))

    def __missing__(self, key: tuple[str, str]) -> Path:
        format, codecs = key
        path = self.place / f"{format}-{codecs}.pack"
        packed(self.root, path, to=format, codecs=tuple(CODECS[codecs].items()), part_bytes=60_000)
        self[key] = path
        return path


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> Packs:
    return PacksOfOneTree(tmp_path_factory.mktemp("equal"))


@pytest.fixture(scope="module")
def wanted(packs: Packs) -> Mapping[str, list[str]]:
    """Codec -> digests of all samples, read one by one in the simplest way."""
    return {name: one_by_one(PackDataset(packs[FORMATS[0], name])) for name in CODECS}


def one_by_one(dataset: PackDataset) -> list[str]:
    return [sample_digest(dataset[index]) for index in range(len(dataset))]


def batched(dataset: PackDataset) -> list[str]:
    """As a DataLoader asks, out of order."""
    order = [*range(len(dataset))][::-1]
    return [sample_digest(sample) for sample in dataset.__getitems__(order)][::-1]


def threaded(dataset: PackDataset) -> list[str]:
    with ThreadPoolExecutor(4, thread_name_prefix="test") as pool:
        return list(pool.map(lambda index: sample_digest(dataset[index]), range(len(dataset))))


def worked(dataset: PackDataset, method: str, workers: int) -> list[str]:
    loader: Any = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)
    return [sample_digest(sample) for sample in loader]


WAYS: dict[str, Callable[[PackDataset], list[str]]] = {"one": one_by_one, "batch": batched, "threads": threaded}


def test_what_loses_nothing_is_equal_and_jpeg_is_not(wanted: Mapping[str, list[str]]) -> None:
    assert wanted["encoded"] == wanted["png"] == wanted["raw"]
    assert not set(wanted["jpeg"]) & set(wanted["raw"])
    assert len(set(wanted["raw"])) == len(wanted["raw"]) == 4


@pytest.mark.one_in(12)
@pytest.mark.parametrize("format", FORMATS)
def test_every_codec_decoder_and_thread_gives_one_digest(
    packs: Packs, wanted: Mapping[str, list[str]], format: str
) -> None:
    for name, decoder, way in product(CODECS, DECODERS, WAYS):
        dataset = PackDataset(packs[format, name], decoder=decoder)
        assert WAYS[way](dataset) == wanted[name], (name, decoder, way)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("format", FORMATS)
def test_simplejpeg_gives_it_too(
    packs: Packs, wanted: Mapping[str, list[str]], format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict_jpeg, "library", simplejpeg.SimpleJPEG)  # as where the system has no libjpeg-turbo
    for name in CODECS:
        assert one_by_one(PackDataset(packs[format, name])) == wanted[name], name


def test_a_pack_of_a_pack_gives_it_too(packs: Packs, wanted: Mapping[str, list[str]], tmp_path: Path) -> None:
    for number, (one, other) in enumerate(zip(FORMATS, (*FORMATS[1:], FORMATS[0]), strict=True)):
        packed(packs[one, "encoded"], tmp_path / f"{number}.pack", to=other, codecs=(("rgb", "raw"),))
        assert one_by_one(PackDataset(tmp_path / f"{number}.pack")) == wanted["raw"], (one, other)


def table(*, full: bool) -> Iterator[tuple[str, str, str, str, int]]:
    """Format, codec, decoder, start method, workers; not full: fork in every sixth format."""
    whole = product(FORMATS, CODECS, DECODERS[:2], METHODS, (1, 2))
    if full:
        yield from whole
        return
    for number, format in enumerate(FORMATS[::6]):
        yield format, ("raw", "png", "jpeg")[number % 3], DECODERS[number % 2], "fork", 2


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.full)])
def test_worker_processes_give_it_too(packs: Packs, wanted: Mapping[str, list[str]], full: bool) -> None:
    for format, name, decoder, method, workers in table(full=full):
        dataset = PackDataset(packs[format, name], decoder=decoder)
        dataset[1]  # touched in the parent
        assert worked(dataset, method, workers) == wanted[name], (format, name, decoder, method, workers)


# ---- the back door: what the libraries themselves read is what packer reads


def by_lmdb(part: Path, schema: Schema, samples: int) -> Iterator[dict[str, bytes]]:
    with lmdb.open(str(part), subdir=False, readonly=True, lock=False) as file, file.begin() as read:
        assert json.loads(read.get(b"packer")) == {"fields": list(schema.names), "samples": samples}
        for row in range(samples):
            first = row * len(schema)
            yield {name: read.get((first + at).to_bytes(8, "big")) for at, name in enumerate(schema.names)}


def by_h5py(part: Path, schema: Schema, samples: int) -> Iterator[dict[str, bytes]]:
    arrays: dict[str, Any] = {}

    def add(name: str, found: Any) -> None:
        if isinstance(found, h5py.Dataset):
            arrays[name.replace("/", ".")] = found[()]

    with h5py.File(part) as file:
        file.visititems(add)
    yield from by_arrays(arrays, schema, samples)


def by_torch(part: Path, schema: Schema, samples: int) -> Iterator[dict[str, bytes]]:
    tensors = torch.load(part, weights_only=True, mmap=True)
    yield from by_arrays({name: tensor.numpy() for name, tensor in tensors.items()}, schema, samples)


def by_arrays(arrays: Mapping[str, Any], schema: Schema, samples: int) -> Iterator[dict[str, bytes]]:
    def value(name: str, row: int) -> bytes:
        if name in arrays:
            return bytes(arrays[name][row].tobytes())
        start, end = arrays[f"{name}.offsets"][row : row + 2].tolist()
        return bytes(arrays[f"{name}.data"][start:end].tobytes())

    for row in range(samples):
        yield {name: value(name, row) for name in schema.names}


def by_numpy(part: Path, schema: Schema, samples: int) -> Iterator[dict[str, bytes]]:
    """values.npz, and the files that it names."""
    with np.load(part / "values.npz", allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    small = Schema(tuple(field for field in schema if f"sizes/{field.name}" not in arrays))
    for row, record in enumerate(by_arrays(arrays, small, samples)):
        for name in set(schema.names) - set(small.names):
            start, end = arrays[f"names/{name}.offsets"][row : row + 2].tolist()
            path = arrays[f"names/{name}.data"][start:end].tobytes().decode()
            record[name] = (part / name / path).read_bytes()
        yield {name: record[name] for name in schema.names}


def by_places(part: Path, schema: Schema, samples: int) -> Iterator[dict[str, bytes]]:
    """values.npz of a format of another tool, and the places in that tool's file."""
    with np.load(part / "values.npz", allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    (data,) = (path.read_bytes() for path in part.glob("data.*") if path.suffix in DATA)
    beside = Schema(tuple(field for field in schema if {field.name, f"{field.name}.data"} & set(arrays)))
    held = [name for name in schema.names if name not in beside]
    for row, record in enumerate(by_arrays(arrays, beside, samples)):
        for name, (at, size) in zip(held, arrays["foreign/places"][row].tolist(), strict=True):
            record[name] = data[at : at + size]
        yield {name: record[name] for name in schema.names}


def by_blocks(part: Path, schema: Schema, samples: int) -> Iterator[dict[str, bytes]]:
    """values.npz, and for what is not there the blocks of N5, which have a header of 4 bytes and 4 for each length."""
    with np.load(part / "values.npz", allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    beside = Schema(tuple(field for field in schema if {field.name, f"{field.name}.data"} & set(arrays)))
    blocks: dict[str, Any] = {}
    for name in set(schema.names) - set(beside.names):
        folder = part / "data.n5" / (schema[name].slot or name)
        said = json.loads((folder / "attributes.json").read_text())
        shape, dtype = said["dimensions"][::-1], np.dtype(said["dataType"]).newbyteorder(">")
        (block,) = (path for path in folder.rglob("*") if path.name.isdigit() and path.is_file())
        blocks[name] = np.frombuffer(block.read_bytes(), dtype, offset=4 + 4 * len(shape)).reshape(shape)
    for row, record in enumerate(by_arrays(arrays, beside, samples)):
        for name, array in blocks.items():
            record[name] = array[row].astype(array.dtype.newbyteorder("<")).tobytes()
        yield {name: record[name] for name in schema.names}


DATA = (".tfrecord", ".tar", ".rec", ".mdb", ".lmdb")
FOREIGN = [name for name in FORMATS if formats.load(name).Writer.slots]
BACK_DOORS = {
    "lmdb": by_lmdb,
    "hdf5": by_h5py,
    "pth": by_torch,
    "bmp": by_numpy,
    **dict.fromkeys(FOREIGN, by_places),
} | {"n5": by_blocks}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("format", FORMATS)
def test_the_library_of_the_format_reads_the_same_bytes(packs: Packs, format: str, name: str) -> None:
    assert format in BACK_DOORS, f"how to read format {format} without packer belongs into BACK_DOORS"
    folder = packs[format, name]
    pack = Pack(folder)
    schema, parts = pack.schema, pack.manifest.parts
    read = []
    for index in range(len(pack)):
        with pack.record(index, schema.names) as record:
            read.append({field: bytes(value) for field, value in record.items()})
    del pack, record
    gc.collect()  # py-lmdb opens a file once in a process, and a conversion may still wait for the collector
    bare = [record for part in parts for record in BACK_DOORS[format](folder / part.name, schema, part.samples)]
    assert len(parts) > 1
    assert bare == read
