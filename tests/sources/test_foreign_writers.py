"""What other libraries write is packed as they wrote it: each writes in its own environment (scripts/foreign)."""

from pathlib import Path

import numpy as np
import pytest

import packer
from tests.support.foreign_environments import said_by
from tests.support.source_trees import image, write

TFRECORD = """
import pathlib, sys
from tfrecord.tools import tfrecord2idx
from tfrecord.writer import TFRecordWriter
source, target = map(pathlib.Path, sys.argv[1:])
writer = TFRecordWriter(str(target / "a.tfrecord"))
for number, path in enumerate(sorted(source.iterdir())):
    writer.write({
        "image/encoded": (path.read_bytes(), "byte"),
        "image/class/label": (number - 2, "int"),
        "box": ([0.5, number / 3], "float"),
    })
writer.close()
tfrecord2idx.create_index(str(target / "a.tfrecord"), str(target / "a.tfrecord.idx"))
"""
WEBDATASET = """
import pathlib, sys, webdataset
source, target = map(pathlib.Path, sys.argv[1:])
with webdataset.ShardWriter(str(target / "%03d.tar"), maxcount=4, verbose=0) as writer:
    for number, path in enumerate(sorted(source.iterdir())):
        writer.write({
            "__key__": path.stem, path.suffix[1:]: path.read_bytes(), "cls": number - 2, "json": {"n": [number, None]},
        })
"""
MXNET = """
import pathlib, sys, warnings
warnings.simplefilter("ignore")
import mxnet, numpy
mxnet.recordio.np = numpy
source, target = map(pathlib.Path, sys.argv[1:])
writer = mxnet.recordio.MXIndexedRecordIO(str(target / "a.idx"), str(target / "a.rec"), "w")
for number, path in enumerate(sorted(source.iterdir())):
    header = mxnet.recordio.IRHeader(0, float(number), 7 * number, 0)
    writer.write_idx(7 * number, mxnet.recordio.pack(header, path.read_bytes()))
writer.close()
"""
COUNT = 10


def images(root: Path) -> list[bytes]:
    """Ten images in a folder; their bytes in the order of the names."""
    found = [image(number, suffix=(".jpg", ".png")[number % 2]) for number in range(COUNT)]
    write(root, {f"{number:02d}{('.jpg', '.png')[number % 2]}": data for number, data in enumerate(found)})
    return found


@pytest.mark.foreign
@pytest.mark.parametrize(("library", "program"), [("tfrecord", TFRECORD), ("webdataset", WEBDATASET), ("mxnet", MXNET)])
def test_what_a_library_writes_is_packed_as_it_is(tmp_path: Path, library: str, program: str) -> None:
    found = images(tmp_path / "images")
    (tmp_path / "written").mkdir()
    said_by(library, program, tmp_path / "images", tmp_path / "written")
    assert packer.convert(tmp_path / "written", tmp_path / "a.pack").samples == COUNT
    for number, sample in enumerate(packer.open(tmp_path / "a.pack", output="numpy")):
        assert np.array_equal(sample["image"], packer.images.decode(found[number], "image"))
        assert sample["label"] == (number if library == "mxnet" else number - 2)
        if library == "tfrecord":
            assert np.array_equal(sample["box"], np.float32([0.5, number / 3]))
        if library == "webdataset":
            assert sample["json"] == {"n": [number, None]}
