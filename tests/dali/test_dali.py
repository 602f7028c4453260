"""DALI itself reads packs: docs/train/dali.md runs, and pixels are packer's. CPU operators need no GPU."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.support import source_trees
from tests.support.command_line import called
from tests.support.conversions import packed
from tests.support.foreign_environments import said_by
from tests.support.source_trees import photos

PAGE = (Path(__file__).parents[2] / "docs/train/dali.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^packer convert (photos .*)", PAGE, re.MULTILINE)
READERS = ("tfrecord", "recordio", "caffe-lmdb", "webdataset")
IN_FOLDER = "import os, sys\nos.chdir(sys.argv[1])\n"

COMPARE = """
import itertools
import numpy as np
import packer
from nvidia.dali import fn, pipeline_def

def arrays(output):
    return [np.asarray(output.at(number)) for number in range(len(output))]

dataset = packer.open("photos.pack", output="numpy")

def check(parallel, batch, last_batch, encoded, start):
    source = packer.dali.source(
        "photos.pack", 8, fields=("image", "label", "key"), batch=batch, last_batch=last_batch, encoded=encoded,
        shuffle=True, seed=5, rank=1, world_size=2,
    )

    @pipeline_def(batch_size=8, num_threads=2, device_id=None, py_num_workers=2, py_start_method=start)
    def read():
        images, labels, keys = fn.external_source(**source.arguments(), **({"parallel": True} if parallel else {}))
        if encoded:
            images = fn.decoders.image(images, device="cpu", adjust_orientation=False)
        return images, labels, keys

    pipeline = read()
    pipeline.build()
    options = {"shuffle": True, "seed": 5, "rank": 1, "world_size": 2, "drop_last": last_batch == "drop"}
    with packer.Loader(dataset, 8, collate_fn=list, **options) as loader:
        for epoch in range(2):
            expected = [[sample["key"] for sample in batch] for batch in loader]
            if last_batch == "fill":
                whole = list(itertools.chain.from_iterable(expected))
                expected[-1] = (expected[-1] + whole)[:8]
            for names in expected:
                images, labels, keys = map(arrays, pipeline.run())
                assert [bytes(key).decode() for key in keys] == names, (epoch, names, keys)
                for name, image, label in zip(names, images, labels, strict=True):
                    sample = dataset[dataset.index_of(name)]
                    assert np.array_equal(image, sample["image"]), name
                    assert (label, label.shape, label.dtype) == (sample["label"], (), np.int64)
            try:
                pipeline.run()
            except StopIteration:
                pipeline.reset()
            else:
                raise AssertionError("the epoch goes on")
"""

DEPTH = """
import numpy as np
import packer
from nvidia.dali import fn, pipeline_def

fields = ("rgb", "depth", "grasps", "object_id")
source = packer.dali.source("cornell.pack", 2, fields=fields)

@pipeline_def(batch_size=2, num_threads=2, device_id=None)
def read():
    files, depths, grasps, numbers = fn.external_source(**source.arguments())
    return fn.decoders.image(files, device="cpu"), depths, fn.flip(depths), grasps, numbers

pipeline = read()
pipeline.build()
dataset = packer.open("cornell.pack", fields, output="numpy")
for first in range(0, len(dataset), 2):
    rgb, depth, flipped, grasps, numbers = pipeline.run()
    assert depth.layout() == "HWC"
    for at in range(len(rgb)):
        sample = dataset[first + at]
        assert np.array_equal(rgb.at(at), sample["rgb"])
        assert np.array_equal(depth.at(at)[..., 0], sample["depth"], equal_nan=True)
        assert np.array_equal(flipped.at(at)[..., 0], sample["depth"][:, ::-1], equal_nan=True)
        assert np.array_equal(grasps.at(at), sample["grasps"])
        assert numbers.at(at) == sample["object_id"]
"""

CHECKPOINT = """
import packer
from nvidia.dali import fn, pipeline_def

source = packer.dali.source("photos.pack", 4, fields=("key",), shuffle=True)

@pipeline_def(batch_size=4, num_threads=2, device_id=None, enable_checkpointing=True)
def read():
    (keys,) = fn.external_source(**source.arguments())
    return keys

def keys(pipeline):
    (found,) = pipeline.run()
    return [bytes(found.at(number)).decode() for number in range(len(found))]

pipeline = read()
pipeline.build()
for _ in range(len(source)):
    keys(pipeline)
try:
    pipeline.run()
except StopIteration:
    pipeline.reset()
keys(pipeline)
saved = pipeline.checkpoint()
expected = [keys(pipeline), keys(pipeline)]
again = read(checkpoint=saved)
again.build()
assert [keys(again), keys(again)] == expected
assert expected[0] != keys(again)
"""

# behind a block of the page: one epoch of its pipeline, against the pack that it reads
EPOCH = """
import numpy as np
import packer

dataset = packer.open(sys.argv[2], output="numpy")
assert pipeline.epoch_size("reader") == len(dataset)
outputs = [(images, labels)]
while len(outputs) * 64 < len(dataset):
    outputs.append(pipeline.run())
at = 0
for images, labels in outputs:
    for number in range(min(64, len(dataset) - at)):
        sample, label = dataset[at], np.asarray(labels.at(number))
        assert np.array_equal(images.at(number), sample["image"]), (at, sample["key"])
        assert (int(label.tobytes()) if sys.argv[3] == "webdataset" else label.item()) == sample["label"], sample["key"]
        at += 1
assert at == len(dataset)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the pack of the page, of images large enough for it."""
    packed(photos(tmp_path / "photos", 140, height=48, width=64), tmp_path / "photos.pack")
    return tmp_path


@pytest.mark.foreign
def test_the_page_runs(folder: Path) -> None:
    assert len(BLOCKS) == 2 + len(READERS)
    for block in BLOCKS[:2]:
        said_by("dali", IN_FOLDER + block, folder)


@pytest.mark.foreign
@pytest.mark.parametrize("name", READERS)
def test_what_dalis_reader_gives_is_what_packer_reads(tmp_path: Path, name: str) -> None:
    """As on the page, but for the buffer that shuffles; the parts as the page has them, or several small ones."""
    block = BLOCKS[2 + READERS.index(name)]
    (words,) = [shlex.split(line) for line in COMMANDS if f"--to {name}" in line]
    photos(tmp_path / "photos", 140, height=48, width=64)
    called("convert", *(str(tmp_path / word) if word.startswith("photos") else word for word in words))
    assert block.count("random_shuffle=True") == 1
    in_order = block.replace("random_shuffle=True", "random_shuffle=False")
    said_by("dali", IN_FOLDER + block, tmp_path)
    said_by("dali", IN_FOLDER + in_order + EPOCH, tmp_path, words[1], name)
    if "--part-size" not in words:
        shutil.rmtree(tmp_path / words[1])
        packed(tmp_path / "photos", tmp_path / words[1], to=name, part_bytes=100_000)
        assert len(list((tmp_path / words[1]).glob("part-*"))) > 1
        said_by("dali", IN_FOLDER + in_order + EPOCH, tmp_path, words[1], name)


@pytest.mark.one_in(2)
@pytest.mark.foreign
@pytest.mark.parametrize(
    "case",
    [
        "False, True, 'partial', True, 'fork'",
        "False, False, 'fill', True, 'fork'",
        "False, True, 'drop', False, 'fork'",
        "True, True, 'partial', True, 'fork'",
        "True, False, 'fill', False, 'fork'",
        "True, False, 'drop', True, 'spawn'",
    ],
)
def test_order_and_pixels_are_packers(folder: Path, case: str) -> None:
    said_by("dali", f"{IN_FOLDER}{COMPARE}\ncheck({case})", folder)


@pytest.mark.foreign
def test_depth_and_grasps_come_beside_files(tmp_path: Path) -> None:
    packed(source_trees.cornell(tmp_path / "cornell"), tmp_path / "cornell.pack")
    said_by("dali", IN_FOLDER + DEPTH, tmp_path)


@pytest.mark.foreign
def test_a_pipeline_goes_on_from_its_checkpoint(folder: Path) -> None:
    said_by("dali", IN_FOLDER + CHECKPOINT, folder)
