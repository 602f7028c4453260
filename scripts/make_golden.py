"""Write the golden packs, tests/golden/<format>/: one pack per format with a field of every kind, and its digests.

They show that packs of this version stay readable for ever. So they are written once, when the version is new: one
that is written again by a later packer proves nothing about packs that users have. A new format gets one of its own,
and so does a new codec: tests/golden/codec-<name>/, an LMDB pack with a field of every kind that it holds. A new
version of the pack layout gets a folder of its own, tests/golden/version-<number>/, an LMDB pack, and the old ones stay
as they are.

Usage: python scripts/make_golden.py [--overwrite] [FORMAT, codec-NAME or version-NUMBER ...]
"""

import argparse
import base64
import io
import json
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from packer import codecs, formats
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.files.folder_handle import remove
from packer.pack import manifest as manifests
from packer.schema import Field, Schema
from packer.sources import base
from packer.sources._trees.folder_tree import SourceRoot

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.sample_digests import field_digests  # noqa: E402  it lies among the tests

GOLDEN = ROOT / "tests/golden"
SAMPLES = 3
# distributions whose version may show in a part's bytes (containers) or in encoded images (opencv-python)
LIBRARIES = ("lmdb", "h5py", "torch", "numpy", "opencv-python")
# 16 x 8 px, 4:2:0, a gradient: kept bytes must not depend on who encodes today
_JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAA0JCgsKCA0LCgsODg0PEyAVExISEyccHhcgLikxMC4pLSwzOko+MzZGNywtQFdBRkxOUlNSMj5aYV"
    "pQYEpRUk//2wBDAQ4ODhMREyYVFSZPNS01T09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT09PT0//wAARCAAI"
    "ABADASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAAQG/8QAFRABAQAAAAAAAAAAAAAAAAAAAAL/xAAUAQEAAAAAAAAAAAAAAAAAAAAD/8"
    "QAGBEAAwEBAAAAAAAAAAAAAAAAAAIDBFH/2gAMAwEAAhEDEQA/AMhFqIsCzio2qCcP/9k="
)
SCHEMA = Schema(
    (
        Field("key", "text", "text"),
        Field("kept", "image", "encoded"),
        Field("photo", "image", "jpeg:90", "uint8", (None, None, 3)),
        Field("drawing", "image", "png", "uint8", (None, None, 3)),
        Field("pixels", "image", "raw", "uint8", (6, 8, 3)),
        Field("ragged", "image", "raw", "uint8", (None, None, 3)),
        Field("depth", "depth", "raw:float16", "float16", (None, None), invalid=-1.0),
        Field("distance", "depth", "encoded", "float32"),
        Field("mask", "mask", "png", "uint8", (None, None)),
        Field("grasps", "points", "raw:float32", "float32", (None, 4, 2)),
        Field("boxes", "boxes", "raw", "float32", (None, 4)),
        Field("label", "number", "number", "int64", (), ("cat", "dog")),
        Field("pose", "number", "number", "float32", (2, 3)),
        Field("valid", "number", "number", "bool", ()),
        Field("more", "json", "json"),
        Field("blob", "bytes", "encoded"),
        Field("files", "json", "json", hidden=True),
    )
)
# since version 2, texts are in the index
TEXTS = (Field("title", "text", "text"), Field("notes", "text", "text", hidden=True))
# asked for by name, so that a format which prefers another codec holds both: it has `pixels`, `ragged`, `depth`, `mask`
_ASKED = tuple((name, SCHEMA[name].codec) for name in ("kept", "photo", "drawing", "distance"))
# asked for besides of a format whose images have one shape, which these do not
_OF_OTHER_SHAPES = tuple((name, SCHEMA[name].codec) for name in ("ragged", "depth", "mask"))
# one of each kind, for the golden pack of a codec
_FREE = ("drawing", "mask", "distance", "grasps", "boxes", "pose", "more", "blob")
_OF_CODEC, _OF_VERSION = "codec-", "version-"
EXTRAS = {"z.txt": b"0000 0 Cup pcdb_0002\n", "lists/tr\udcffain.txt": b""}


class Source(base.Source):
    """Samples that are made here, and a folder with nothing but extras."""

    kind = "golden"

    def __init__(self, root: Path, texts: Sequence[Field] = ()) -> None:
        self.root, self.folder = root, SourceRoot(root)
        self.schema = Schema((*SCHEMA.fields, *texts))
        self.extras = list(EXTRAS)
        self.notes = []
        self.left_out = [("left", "left out, to have an entry")]

    def __len__(self) -> int:
        return SAMPLES

    def read(self, index: int, names: Sequence[str]) -> base.Sample:
        random = np.random.default_rng(index)
        height, width = 5 + index, 7 - index
        return {
            "key": self.key(index),
            "kept": _JPEG,
            "photo": _gradient(8, 16 + 16 * index),
            "drawing": random.integers(0, 256, (height, width, 3), np.uint8),
            "pixels": random.integers(0, 256, (6, 8, 3), np.uint8),
            "ragged": random.integers(0, 256, (height, width, 3), np.uint8),
            "depth": random.integers(-1, 9, (height, width)).astype(np.float16) / 4,
            "distance": _npy(random.uniform(0.5, 2, (height, width)).astype(np.float32)),
            "mask": random.integers(0, 2, (height, width), np.uint8) * 255,
            "grasps": random.uniform(-5, 99, (index, 4, 2)).astype(np.float32),
            "boxes": random.uniform(0, 99, (index + 1, 4)).astype(np.float32),
            "label": np.int64(index % 2),
            "pose": random.uniform(-1, 1, (2, 3)).astype(np.float32),
            "valid": np.bool_(index == 1),
            "more": {"a": [1, None, -2.5], "b": {"c": "d" * index}},
            "blob": bytes(range(256))[: 100 * index],
            "files": {"kept": f"{index}.jpg"},
            "title": ("", "a cup", "b\udcff \N{SNOWMAN}")[index],
            "notes": "note " * index,
        }

    def entry(self, index: int) -> base.SampleEntry:
        key = ("b/zero", "a/one", "two")[index]
        return base.SampleEntry(key, (), key)

    def missing(self, index: int) -> str | None:
        return "no grasps" if not index else None


def _gradient(height: int, width: int) -> np.ndarray[Any, Any]:
    ramp = np.add.outer(np.arange(height) * 8, np.arange(width) * 4) % 256
    return np.stack([ramp, ramp[::-1], ramp[:, ::-1]], axis=2).astype(np.uint8)


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return file.getvalue()


def versions() -> dict[str, str]:
    """What may show in the bytes, as installed; HDF5 itself beside h5py."""
    import h5py  # only to tell its version

    found = {"hdf5": h5py.version.hdf5_version}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # opencv-python-headless, say
            found[name] = "another distribution"
    return found


def asked(name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Format and codecs of the golden pack of that name."""
    name = "lmdb" if name.startswith(_OF_VERSION) else name
    if not name.startswith(_OF_CODEC):
        return name, (*_ASKED, *(_OF_OTHER_SHAPES if formats.load(name).Writer.one_shape else ()))
    codec = name.removeprefix(_OF_CODEC)
    fields = {SCHEMA[field].kind: field for field in _FREE}
    mine = {fields[kind]: codec for kind in codecs.load(codec).Codec.kinds if kind in fields}
    return "lmdb", tuple({**dict(_ASKED), **mine}.items())


def lacking() -> list[str]:
    """Names of the golden packs that are to be written: of formats and versions without one, and of codecs in none."""
    found = {field.codec_name for path in GOLDEN.glob("*/pack") for field in manifests.read(path).schema}
    layouts = (*formats.names(), f"{_OF_VERSION}{manifests.VERSION}")
    return [name for name in layouts if not (GOLDEN / name).exists()] + [
        f"{_OF_CODEC}{name}" for name in codecs.names() if name not in found
    ]


def write(name: str, folder: Path, work: Path) -> None:
    """The golden pack of that name and its digests into the new folder `folder`; work: an empty folder."""
    format, chosen = asked(name)
    for path, data in EXTRAS.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    folder.mkdir(parents=True)
    writer = formats.load(format).Writer
    slots = (("image", "pixels" if writer.one_shape else "kept"),) if writer.slots else ()
    wanted = ConversionOptions(to=format, codecs=chosen, slots=slots, order="stored", part_bytes=0)
    texts = TEXTS if name.startswith(_OF_VERSION) else ()
    convert_source(Source(work, texts), folder / "pack", wanted, threads=1)
    digests = list(field_digests(folder / "pack"))
    text = json.dumps({"written_with": versions(), "sha256": digests}, indent=1, sort_keys=True)
    (folder / "digests.json").write_text(text + "\n", encoding="ascii")


def main() -> None:
    """Write what is missing; refuse what is there."""
    import tempfile

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="a format, codec-NAME or version-NUMBER; default: those that have none yet",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace golden packs, which were to stay for ever")
    args = parser.parse_args()
    wanted = args.names or (formats.names() if args.overwrite else lacking())
    for name in wanted:
        if (GOLDEN / name).exists():
            if not args.overwrite:
                sys.exit(
                    f"{GOLDEN / name}: already there, and meant to stay: a pack written by today's packer says nothing "
                    "about the packs that users have. Raise the version instead; --overwrite before a release only"
                )
            remove(GOLDEN / name)
        with tempfile.TemporaryDirectory() as work:
            write(name, GOLDEN / name, Path(work))
        print(f"{GOLDEN / name}: written")


if __name__ == "__main__":
    main()
