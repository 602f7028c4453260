"""An image codec of another distribution, installed as pip installs one: every format, both ways, and extract."""

from pathlib import Path

import cv2
import numpy as np
import pytest

from packer import formats
from tests.support import warm_python

CODEC = '''
"""deflated: 8 bit images as height, width and their pixels, compressed by zlib."""

import struct
import zlib

import numpy as np

from packer.codecs import base
from packer.errors import CorruptRecord, InvalidRequest
from packer.geometry.warp import warp

_SIZE = struct.Struct("<4sII")


class Codec(base.Codec):
    kinds = ("image", "mask")
    suffixes = (".deflated", ".dfl")

    def encode(self, value):
        if value.dtype != np.uint8:
            raise InvalidRequest(f"field {self.field.name!r}: codec 'deflated' holds uint8, found {value.dtype}")
        return _SIZE.pack(b"DFLT", *value.shape[:2]) + zlib.compress(value.tobytes())

    def decode(self, buffer, view=None, out=None, *, header=None):
        shape = self.shape(buffer)
        pixels = np.frombuffer(zlib.decompress(buffer[_SIZE.size :]), np.uint8).reshape(shape)
        if view is not None:
            return warp(pixels, view, self.field.kind, out=out)
        if out is None:
            return pixels.copy()
        out[...] = pixels
        return out

    def shape(self, buffer):
        magic, height, width = _SIZE.unpack_from(buffer)
        if magic != b"DFLT":
            raise CorruptRecord(f"field {self.field.name!r}: no deflated image; pack again from the source")
        return (height, width, 3) if self.field.kind == "image" else (height, width)
'''

RUN = """
import sys
from pathlib import Path

import cv2
import numpy as np

import packer
from packer.cli import main
from packer.datasets.pack_dataset import PackDataset
from packer.geometry import CenterCrop
from packer.pack.verification import problems


def images(pack, geometry=None):
    dataset = PackDataset(pack, output="numpy", geometry=geometry)
    return [dataset[index]["image"] for index in range(len(dataset))]


def run(*words):
    main([str(word) for word in words], standalone_mode=False)


folder, format, other = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
paths = sorted((folder / "tree").rglob("*.png"))
wanted = [cv2.imread(str(path))[..., ::-1] for path in paths]

pack = folder / "a.pack"
run("convert", folder / "tree", pack, "--to", format, "--codec", "image=deflated")
assert not list(problems(pack, level="full"))
assert all(map(np.array_equal, images(pack), wanted))
cut = [pixels[4:12, 4:16] for pixels in wanted]
assert all(map(np.array_equal, images(pack, CenterCrop((8, 12))), cut))
batch = PackDataset(pack, output="numpy").__getitems__([0, 1, 2])
assert all(np.array_equal(batch[at]["image"], pixels) for at, pixels in enumerate(wanted))

run("extract", pack, folder / "out")
found = sorted(path.relative_to(folder / "out").as_posix() for path in (folder / "out").rglob("*") if path.is_file())
assert found == [path.relative_to(folder / "tree").with_suffix(".deflated").as_posix() for path in paths], found
assert (folder / "out" / found[0]).read_bytes()[:4] == b"DFLT"

if format == "bmp":
    names = [path.suffix for path in (pack / "part-00000" / "image").rglob("*") if path.is_file()]
    assert names == [".deflated"] * 3, names

run("convert", pack, folder / "copied.pack", "--to", other)
run("convert", pack, folder / "smaller.pack", "--to", other, "--resize", "10x8", "--codec", "image=deflated")
run("convert", pack, folder / "raw.pack", "--to", other, "--codec", "image=raw")
assert all(map(np.array_equal, images(folder / "copied.pack"), wanted))
assert all(map(np.array_equal, images(folder / "raw.pack"), wanted))
assert [pixels.shape for pixels in images(folder / "smaller.pack")] == [(8, 10, 3)] * 3
print("done")
"""


def install(site: Path) -> None:
    """What pip leaves of a distribution that brings the codec: its module, and its metadata with an entry point."""
    site.mkdir()
    (site / "deflated_codec.py").write_text(CODEC)
    about = site / "deflated_codec-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: deflated-codec\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[packer.codecs]\ndeflated = deflated_codec\n")


def make_tree(root: Path) -> None:
    """Two classes of PNG files of 16x20 px."""
    rng = np.random.default_rng(3)
    for name in ("cat/0", "cat/1", "dog/0"):
        path = root / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        assert cv2.imwrite(str(path), rng.integers(0, 256, (16, 20, 3), np.uint8))


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "format",
    [name if name in ("bmp", "hdf5") else pytest.param(name, marks=pytest.mark.full) for name in formats.names()],
)
def test_a_image_codec_of_another_package_goes_through_every_format(tmp_path: Path, format: str) -> None:
    install(tmp_path / "site")
    make_tree(tmp_path / "tree")
    names = formats.names()
    other = names[(names.index(format) + 1) % len(names)]
    paths = [str(tmp_path / "site"), str(Path(formats.__file__).parents[2])]
    code = f"import sys; sys.path[:0] = {paths!r}\n{RUN}"
    done = warm_python.run(code, str(tmp_path), format, other, capture=True, check=False, strict=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
