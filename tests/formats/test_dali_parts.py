"""Parts of the formats that DALI reads, by DALI itself on its CPU operators: counts, bytes and labels, in order."""

import hashlib
import json
from pathlib import Path

import pytest

import packer
from tests.support import foreign_files as foreign
from tests.support import source_trees
from tests.support.conversions import packed
from tests.support.foreign_environments import said_by

READ = """
import hashlib, json, sys
import numpy as np
import nvidia.dali.tfrecord as tfrec
from nvidia.dali import fn, pipeline_def

name, *parts = sys.argv[1:]

@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def read():
    order = {"random_shuffle": False, "name": "reader"}
    if name == "caffe-lmdb":
        return tuple(fn.readers.caffe(path=parts, **order))
    if name == "recordio":
        (part,) = parts
        return tuple(fn.readers.mxnet(path=[part + "/data.rec"], index_path=[part + "/data.idx"], **order))
    if name == "webdataset":
        tars, indices = [part + "/data.tar" for part in parts], [part + "/data.idx" for part in parts]
        return tuple(fn.readers.webdataset(paths=tars, index_paths=indices, ext=["jpg", "cls"], **order))
    features = {
        "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
        "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, 0),
    }
    data = [part + "/data.tfrecord" for part in parts]
    found = fn.readers.tfrecord(path=data, index_path=[each + ".idx" for each in data], features=features, **order)
    return found["image/encoded"], found["image/class/label"]

pipeline = read()
pipeline.build()
rows = []
for _ in range(pipeline.epoch_size("reader")):
    image, label = (np.asarray(output[0]) for output in pipeline.run())
    number = int(label.tobytes()) if name == "webdataset" else int(label.ravel()[0])
    rows.append([hashlib.sha256(image.tobytes()).hexdigest(), number])
print(json.dumps(rows))
"""


@pytest.mark.foreign
@pytest.mark.parametrize(
    "name, parts", [("tfrecord", 2), ("webdataset", 2), ("recordio", 1), ("caffe-lmdb", 2), ("caffe-lmdb", 1)]
)
def test_dali_reads_the_parts(name: str, parts: int, tmp_path: Path) -> None:
    photos = source_trees.photos(tmp_path / "photos")
    packed(photos, tmp_path / "a.pack", to=name, order="shuffled", part_bytes=0 if parts == 1 else 10_000)
    dataset = packer.open(tmp_path / "a.pack")
    wanted = [
        [hashlib.sha256((photos / dataset.key(at)).read_bytes()).hexdigest(), dataset[at]["label"]] for at in range(12)
    ]
    folders = sorted((tmp_path / "a.pack").glob("part-*"))
    assert len(folders) == parts
    assert json.loads(said_by("dali", READ, name, *folders).splitlines()[-1]) == wanted


READ_LISTS = """
import json, sys
import numpy as np
from nvidia.dali import fn, pipeline_def, tfrecord

part, features = sys.argv[1:]

@pipeline_def(batch_size=1, num_threads=1, device_id=None)
def read():
    data = part + "/data.tfrecord"
    found = fn.readers.tfrecord(
        path=data, index_path=data + ".idx", features=eval(features), random_shuffle=False, name="reader"
    )
    return found["kp"], found["ids"]

pipeline = read()
pipeline.build()
print(json.dumps([[np.asarray(output[0]).tolist() for output in pipeline.run()] for _ in range(4)]))
"""


@pytest.mark.foreign
def test_dali_reads_lists_of_any_length_by_the_line_that_is_printed(tmp_path: Path) -> None:
    lists = [([n - 0.5] * n, [n, -1, 1 << 40][:n]) for n in range(4)]
    records = [foreign.example({"kp": foreign.float_list(kp), "ids": foreign.int64_list(ids)}) for kp, ids in lists]
    root = source_trees.write(tmp_path / "in", {"a.tfrecord": foreign.tfrecord(records)})
    made = packer.convert(root, tmp_path / "a.pack", to="tfrecord", order="stored")
    (line,) = (note.partition("features=")[2] for note in made.notes if "DALI" in note)
    said = said_by("dali", READ_LISTS, tmp_path / "a.pack/part-00000", line)
    assert json.loads(said.splitlines()[-1]) == [[kp, ids] for kp, ids in lists]
