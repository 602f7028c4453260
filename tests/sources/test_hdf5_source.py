"""HDF5 of others: what is read by hand is what h5py reads; what is no data set, damaged or hostile is refused."""

import resource
import struct
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import packer
from packer.errors import BadInput, InvalidRequest, PackerError
from packer.sources import base
from packer.sources.arrays import _hdf5_arrays as hdf5_arrays
from packer.sources.arrays.hdf5 import Source
from tests.support.child_processes import child
from tests.support.source_trees import image, write

PIXELS = np.random.default_rng(0).integers(0, 256, (11, 20, 24, 3), np.uint8)
LABELS = np.arange(11) % 3
# written by h5py 3.16.0 (HDF5 2.0.0): x, lists of uint8; y, uint16 in chunks through shuffle, gzip and fletcher32
GOLDEN = Path(__file__).parent / "payloads/h5py-3.16.0.h5"


def made(path: Path, **arrays: Any) -> Path:
    """A file with these arrays; a dict gives the options of create_dataset."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, value in arrays.items():
            if isinstance(value, dict):
                file.create_dataset(name.replace("__", "/"), **value)
            else:
                file[name.replace("__", "/")] = value
    return path


def encoded(count: int = 11) -> list[bytes]:
    return [image(row, suffix=".jpg") for row in range(count)]


def ragged(path: Path, values: list[bytes], **arrays: Any) -> Path:
    made(path, **arrays)
    with h5py.File(path, "a") as file:
        found = file.create_dataset("jpegs", (len(values),), h5py.vlen_dtype(np.uint8))
        for row, value in enumerate(values):
            found[row] = np.frombuffer(value, np.uint8)
    return path


STORED: dict[str, dict[str, Any]] = {
    "contiguous": {},
    "chunks": {"chunks": (4, 7, 24, 2)},
    "gzip": {"chunks": (3, 20, 24, 3), "compression": "gzip"},
    "lzf": {"compression": "lzf"},
    "shuffle": {"compression": "gzip", "shuffle": True},
    "fletcher32": {"chunks": (1, 20, 24, 3), "fletcher32": True},
    "odd fletcher32": {"chunks": (1, 3, 5, 1), "fletcher32": True},
    "all": {"compression": "lzf", "shuffle": True, "fletcher32": True},
    "one chunk": {"chunks": (11, 20, 24, 3), "compression": "gzip", "compression_opts": 9},
    "may grow": {"chunks": (4, 20, 24, 3), "maxshape": (None, 20, 24, 3)},
}


@pytest.mark.parametrize("stored", STORED)
def test_pixels_are_those_that_h5py_reads(stored: str, tmp_path: Path) -> None:
    pixels = np.where(PIXELS > 128, PIXELS, 7)  # so that lzf finds something
    source = Source(made(tmp_path / "a.h5", images={"data": pixels, **STORED[stored]}, labels=LABELS))
    with h5py.File(tmp_path / "a.h5") as file:
        expected = file["images"][()]
    for row in (10, 0, 5, *range(11)):
        assert np.array_equal(source[row]["image"], expected[row])
        assert source[row]["label"] == LABELS[row]
    assert "assumed to be RGB" in "\n".join(source.notes)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<f8", "<u2", ">u2"])
def test_depth_keeps_every_bit(dtype: str, tmp_path: Path) -> None:
    depth = np.random.default_rng(1).integers(0, 60000, (3, 9, 10)).astype(dtype)
    if depth.dtype.kind == "f":
        depth[0, :2, 0] = np.nan, -1
    source = Source(made(tmp_path / "a.h5", depth={"data": depth, "chunks": (2, 4, 10), "compression": "gzip"}))
    assert source.schema["depth"].kind == "depth"
    assert np.asarray(source[0]["depth"]).tobytes() == depth[0].astype(depth.dtype.newbyteorder("=")).tobytes()
    packer.convert(tmp_path / "a.h5", tmp_path / "a.pack")
    stored = np.asarray(packer.open(tmp_path / "a.pack", output="numpy")[0]["depth"])
    assert stored.astype(depth.dtype).tobytes() == depth[0].tobytes()
    assert packer.verify(tmp_path / "a.pack", source=tmp_path / "a.h5").problems == ()


def test_encoded_images_keep_their_bytes(tmp_path: Path) -> None:
    values = encoded()
    root = ragged(tmp_path / "a.h5", values, label=np.array(["b", "a", "c"] * 4, h5py.string_dtype())[:11])
    source = Source(root)
    assert [source[row]["image"] for row in range(11)] == values
    assert source.schema["label"].classes == ("a", "b", "c")
    assert [int(source[row]["label"]) for row in range(4)] == [1, 0, 2, 1]
    packer.convert(root, tmp_path / "a.pack")
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    assert (tmp_path / "out/00000003.jpg").read_bytes() == values[3]
    assert packer.verify(tmp_path / "a.pack", source=root).problems == ()


def test_texts_of_a_fixed_length_are_classes(tmp_path: Path) -> None:
    """Blanks at their ends are part of them: what is padded is padded with zeros, as in h5py and NumPy."""
    names = np.array([name.encode() for name in ("dog", "ünï", "dog ", "dog")])
    source = Source(made(tmp_path / "a.h5", x=PIXELS[:4], y=names))
    assert source.schema["label"].classes == ("dog", "dog ", "ünï")
    assert [int(source[row]["label"]) for row in range(4)] == [0, 2, 1, 0]


def test_lists_of_numbers_are_of_any_length(tmp_path: Path) -> None:
    root = made(tmp_path / "a.h5", x=PIXELS[:3])
    with h5py.File(root, "a") as file:
        found = file.create_dataset("boxes", (3,), h5py.vlen_dtype(np.dtype(">f4")))
        found[0], found[2] = [1.5, 2], [3.5]
    source = Source(root)
    assert [source[row]["boxes"].tolist() for row in range(3)] == [[1.5, 2.0], [], [3.5]]


# ---- which arrays


def gg_cnn(path: Path) -> Path:
    """As GG-CNN's generate_dataset.py of 2018 writes it, smaller."""
    drawn = np.random.default_rng(2)
    arrays: dict[str, Any] = {}
    for split, count in (("test", 2), ("train", 3)):
        boxes = np.zeros((count, 25, 4, 2), np.int64)
        boxes[:, 0] = [[10, 20], [10, 40], [15, 40], [15, 20]]
        boxes[:, 1] = boxes[:, 0] + 1
        arrays |= {f"{split}__img_id": 100 + np.arange(count), f"{split}__bounding_boxes": boxes}
        arrays[f"{split}__rgb"] = drawn.integers(0, 256, (count, 30, 30, 3), np.uint8)
        for name in ("depth_inpainted", "grasp_points_img", "angle_img", "grasp_width"):
            arrays[f"{split}__{name}"] = drawn.random((count, 30, 30))
    return made(path, **arrays)


def test_files_of_gg_cnn_give_grasps_as_x_y_without_padding(tmp_path: Path) -> None:
    root = gg_cnn(tmp_path / "dataset.hdf5")
    with pytest.raises(InvalidRequest, match="test 2, train 3.*--named-splits"):
        Source(root)
    source = Source(root, named_splits=True)
    assert [source.key(row) for row in (0, 2, 3)] == ["train/00000000", "train/00000002", "test/00000000"]
    assert (source[0]["grasps"].dtype, source[0]["grasps"].shape) == (np.float32, (2, 4, 2))
    assert source[0]["grasps"][0].tolist() == [[20, 10], [40, 10], [40, 15], [20, 15]]
    assert {field.name for field in source.schema} >= {"rgb", "depth", "grasps", "img_id", "grasp_width"}
    assert source[4]["img_id"] == 101
    one = Source(root, features=("image=test/rgb",))
    assert len(one) == 2
    assert "split" not in one.schema
    packer.convert(root, tmp_path / "a.pack", named_splits=True)
    assert packer.open(tmp_path / "a.pack", output="numpy")[0]["grasps"].tolist() == source[0]["grasps"].tolist()


def test_files_of_pcam_are_joined(tmp_path: Path) -> None:
    for split, count in (("train", 4), ("test", 2), ("valid", 3)):
        for name, data in (("x", PIXELS), ("y", LABELS.reshape(-1, 1, 1, 1)), ("mask", PIXELS[..., :1])):
            options = {"data": data[:count], "compression": "gzip"}
            made(tmp_path / f"in/camelyonpatch_level_2_split_{split}_{name}.h5", **{name: options})
    source = Source(tmp_path / "in", named_splits=True)
    assert source.schema["split"].classes == ("train", "valid", "test")
    assert [field.name for field in source.schema][:4] == ["key", "image", "label", "mask"]
    assert [int(source[row]["label"]) for row in range(9)] == [0, 1, 2, 0, 0, 1, 2, 0, 1]
    assert len(base.file_paths(source, 0)) == 3
    assert len(source.more_files) == 9
    packer.convert(tmp_path / "in", tmp_path / "a.pack", named_splits=True)
    assert packer.verify(tmp_path / "a.pack", source=tmp_path / "in").problems == ()


def test_shards_follow_each_other(tmp_path: Path) -> None:
    for number in range(3):
        made(tmp_path / f"{number}.h5", x=PIXELS[number : number + 2], y=LABELS[number : number + 2])
    source = Source(tmp_path)
    assert [source.key(row) for row in range(6)] == [f"{number}/{row:08d}" for number in range(3) for row in range(2)]
    assert [int(source[row]["label"]) for row in range(6)] == [0, 1, 1, 2, 2, 0]
    made(tmp_path / "3.h5", x=PIXELS[:2, :5], y=LABELS[:2])
    with pytest.raises(BadInput, match="one field"):
        Source(tmp_path)


def test_names_of_an_enumeration_are_the_classes(tmp_path: Path) -> None:
    kind = h5py.enum_dtype({"DOG": 1, "CAT": 0}, basetype="i1")
    labels = {"data": np.array([1, 0, 1]), "dtype": kind}
    made(tmp_path / "in/0.h5", images=PIXELS[:3], labels=labels)
    made(tmp_path / "in/1.h5", images=PIXELS[:3], labels={**labels, "chunks": (2,)})
    source = Source(tmp_path / "in")
    assert source.schema["label"].classes == ("CAT", "DOG")
    assert [int(source[row]["label"]) for row in range(6)] == [1, 0, 1] * 2
    packer.convert(tmp_path / "in", tmp_path / "a.pack")
    assert packer.open(tmp_path / "a.pack").schema["label"].classes == ("CAT", "DOG")
    other = h5py.enum_dtype({"DOG": 0, "CAT": 1}, basetype="i1")
    for dtype in (other, np.dtype("i1")):
        made(tmp_path / "in/1.h5", images=PIXELS[:3], labels={**labels, "dtype": dtype})
        with pytest.raises(BadInput, match="1.h5/labels.*enumeration"):
            Source(tmp_path / "in")


def test_names_of_other_numbers_are_noted(tmp_path: Path) -> None:
    labels = {"data": np.array([7, 3, 7]), "dtype": h5py.enum_dtype({"CAT": 3, "DOG": 7}, basetype="u1")}
    source = Source(made(tmp_path / "a.h5", images=PIXELS[:3], labels=labels))
    assert source.schema["label"].classes is None
    assert [int(source[row]["label"]) for row in range(3)] == [7, 3, 7]
    assert any("2 names of its enumeration skipped" in note for note in source.notes)


def test_a_number_without_a_name_is_a_bad_sample(tmp_path: Path) -> None:
    labels = {"data": np.array([0, 9, 1]), "dtype": h5py.enum_dtype({"CAT": 0, "DOG": 1}, basetype="u1")}
    source = Source(made(tmp_path / "a.h5", images=PIXELS[:3], labels=labels))
    assert (source[0]["label"], source[2]["label"]) == (0, 1)
    with pytest.raises(BadInput, match="row 1.*label 9"):
        source[1]


def test_names_and_shapes_say_the_fields(tmp_path: Path) -> None:
    root = made(tmp_path / "a.h5", x=PIXELS, y=LABELS, score=np.linspace(0, 1, 11), mask=PIXELS[..., 0], mean=PIXELS[0])
    source = Source(root)
    assert any("skipped: a.h5/mean uint8 (20, 24, 3)" in note for note in source.notes)
    assert [(field.name, field.kind) for field in source.schema][:5] == [
        ("key", "text"),
        ("image", "image"),
        ("label", "number"),
        ("mask", "mask"),
        ("score", "number"),
    ]


def test_arrays_are_named_by_the_user(tmp_path: Path) -> None:
    root = made(tmp_path / "a.h5", a=PIXELS, b=PIXELS[::-1].copy(), c=LABELS, d=LABELS[::-1].copy())
    only = Source(root, features=("image=a", "numbers=b:numbers"))
    assert only.schema.names == ("key", "image", "numbers", "files")
    assert np.array_equal(only[1]["numbers"], PIXELS[9])
    packer.convert(root, tmp_path / "a.pack", features={"image": "b", "label": "d"})
    sample = packer.open(tmp_path / "a.pack", output="numpy")[0]
    assert np.array_equal(sample["image"], PIXELS[10])
    assert sample["label"] == LABELS[10]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": ("image=c",)}, "no array 'c'.*a.h5/x, a.h5/y"),
        ({"features": ("image=z",)}, "no array 'z'"),
        ({"features": ("image=y",)}, r"image=y: a.h5/y int64 \(11,\)"),
        ({"features": ("image=x:text",)}, "image=x:text: a.h5/x"),
        ({"features": ("image=x:number",)}, "more than one number"),
        ({"features": ("key=x",)}, "packer's own"),
        ({"features": ("mask=x:mask",)}, "mask=x:mask: a.h5/x"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    root = made(tmp_path / "a.h5", x=PIXELS, y=LABELS)
    with pytest.raises(InvalidRequest, match=message):
        Source(root, **options)


def test_rows_that_may_be_in_either_order_are_asked_for(tmp_path: Path) -> None:
    root = made(tmp_path / "a.h5", images=np.arange(4 * 3 * 20 * 3, dtype=np.uint8).reshape(4, 3, 20, 3))
    with pytest.raises(InvalidRequest, match="--axes hwc.*--axes chw"):
        Source(root)
    assert Source(root, axes="hwc")[0]["image"].shape == (3, 20, 3)
    assert Source(root, axes="chw")[0]["image"].shape == (20, 3, 3)


def test_planes_and_gray_become_rgb(tmp_path: Path) -> None:
    red = np.zeros((2, 3, 10, 12), np.uint8)
    red[:, 0] = 255
    source = Source(made(tmp_path / "a.h5", images=red))
    assert source[0]["image"].shape == (10, 12, 3)
    assert source[0]["image"][..., 0].min() == 255
    assert source[0]["image"][..., 1:].max() == 0
    packer.convert(tmp_path / "a.h5", tmp_path / "a.pack")
    assert np.array_equal(packer.open(tmp_path / "a.pack", output="numpy")[0]["image"], source[0]["image"])
    gray = Source(made(tmp_path / "b.h5", images=red[:, 0]))
    assert gray[0]["image"].shape == (10, 12, 3)
    assert "images: gray: three equal channels" in gray.notes


# ---- what is not followed, not read, and not believed


def test_links_and_bytes_elsewhere_are_left_out(tmp_path: Path) -> None:
    root = made(tmp_path / "a.h5", x=PIXELS)
    secret = made(tmp_path / "secret.h5", secret=PIXELS)
    with h5py.File(root, "a") as file:
        file["linked"] = h5py.ExternalLink(secret.name, "secret")
        file["soft"] = h5py.SoftLink("/x")
        file["again"] = file["x"]  # another name of one array
        target = h5py.VirtualLayout(PIXELS.shape, np.uint8)
        target[:] = h5py.VirtualSource(secret, "secret", PIXELS.shape)
        file.create_virtual_dataset("virtual", target)
        file.create_dataset("outside", data=PIXELS, external=[(str(tmp_path / "raw"), 0, h5py.h5f.UNLIMITED)])
    source = Source(root)
    assert len(source.schema.names) == 3
    (note,) = (note for note in source.notes if note.startswith("arrays skipped: "))
    assert {name.partition(" (")[0] for name in note.partition(": ")[2].split(", a.h5/")} == {
        "a.h5/linked", "soft", "virtual", "outside",
    }  # fmt: skip


def test_other_compressions_are_named(tmp_path: Path) -> None:
    root = tmp_path / "a.h5"
    with h5py.File(root, "w") as file:
        file.create_dataset("x", data=PIXELS, chunks=(1, 20, 24, 3), scaleoffset=0)
    with pytest.raises(InvalidRequest, match="scaleoffset.*h5repack"):
        Source(root)


def test_chunks_that_were_never_written_are_zeros_and_counted(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        found = file.create_dataset("x", (9, 20, 24, 3), np.uint8, chunks=(2, 20, 24, 3))
        found[2:4] = 9
    source = Source(tmp_path / "a.h5")
    assert "a.h5/x: 4 blocks never written: zeros" in source.notes
    assert [int(source[row]["image"].max()) for row in (0, 2, 3, 8)] == [0, 9, 9, 0]


BOMBS = {
    "rows": ((1 << 20, 20, 24, 3), (1, 20, 24, 3)),
    "chunks": ((4, 1 << 14, 1 << 14, 3), (4, 1 << 14, 1 << 10, 3)),
    "shapes": ((1 << 40, 1 << 20, 20, 3), (1, 20, 20, 3)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_refused(bomb: str, tmp_path: Path) -> None:
    shape, chunks = BOMBS[bomb]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", shape, np.uint8, chunks=chunks)
    with pytest.raises(PackerError, match="never written|at most"):
        Source(tmp_path / "a.h5")


def test_a_limit_of_memory_is_not_a_verdict_on_the_file(tmp_path: Path) -> None:
    """With it, sound rows are read, and a chunk that inflates to more than its shape is damage."""
    root = made(tmp_path / "a.h5", x={"data": PIXELS, "chunks": (1, 20, 24, 3), "compression": "gzip"}, y=LABELS)
    encoder = zlib.compressobj(1)
    bomb = b"".join([*(encoder.compress(bytes(1 << 20)) for _ in range(400)), encoder.flush()])
    with h5py.File(root, "a") as file:
        file["x"].id.write_direct_chunk((4, 0, 0, 0), bomb)

    def run() -> str:
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (256 << 20), mapped + (256 << 20)))
        source = Source(root)
        assert np.array_equal(source[3]["image"], PIXELS[3])
        try:
            source[4]
        except BadInput as error:
            return str(error)
        return "read"

    outcome = child(run)
    assert outcome.kind == "value", outcome
    assert "deflate" in outcome.value


def changed(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after, 1))


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    options = {"data": PIXELS, "chunks": (1, 20, 24, 3), "fletcher32": True}
    root = made(tmp_path / "a.h5", x=options)
    changed(root, PIXELS[4].tobytes()[:99], bytes(99))
    source = Source(root)
    assert np.array_equal(source[3]["image"], PIXELS[3])
    with pytest.raises(BadInput, match=r"a.h5: row 4.*\(00000004\): .*checksum"):
        source[4]
    packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert len(packer.open(tmp_path / "a.pack")) == 10


@pytest.mark.parametrize(
    "key, at, value, reason",
    [
        (0, 0, 0, "block of no bytes"),
        (1, 24, 0, "two blocks"),
        (1, 24, 3, "bad coordinate offset"),  # HDF5's own
    ],
)
def test_a_damaged_index_of_chunks_is_no_chunks_of_zeros(
    key: int, at: int, value: int, reason: str, tmp_path: Path
) -> None:
    """at: in a key of the B-tree: u32 size, u32 mask, a u64 for each dimension and one for the bytes of an element."""
    array = np.arange(1, 244, dtype="<u2").reshape(3, 9, 9)
    path = made(tmp_path / "a.h5", x={"data": array, "chunks": (2, 9, 5)}, y=np.arange(3))
    data = bytearray(path.read_bytes())
    node = data.index(b"TREE\x01") + 24 + 48 * key  # of type 1: of chunks
    assert int.from_bytes(data[node : node + 4], "little") == 180
    data[node + at] = value
    path.write_bytes(data)
    with pytest.raises(BadInput, match=reason):
        Source(path)


def test_an_array_that_is_shorter_than_its_shape_is_left_out(tmp_path: Path) -> None:
    path = made(tmp_path / "a.h5", x=PIXELS[:3], other=np.arange(3))
    with h5py.File(path) as file:
        offset, size = file["x"].id.get_offset(), file["x"].id.get_storage_size()
    layout = struct.pack("<QQ", offset, size)
    data = path.read_bytes()
    assert data.count(layout) == 1
    path.write_bytes(data.replace(layout, struct.pack("<QQ", offset, size - 7)))
    with pytest.raises(InvalidRequest, match=f"x .*{size} .*{size - 7} .*layout"):
        Source(path)


def test_references_that_do_not_fit_are_damage(tmp_path: Path) -> None:
    root = ragged(tmp_path / "a.h5", encoded(4))
    data = root.read_bytes()
    place = data.index(b"GCOL")
    for at, new, message in (
        (place, b"XCOL", "no heap"),
        (place + 8, b"\xff" * 8, "no heap"),
        (place + 24, b"\xff" * 8, "of a heap"),
        (place + 16, b"\x77", "no value"),
    ):
        root.write_bytes(data[:at] + new + data[at + len(new) :])
        source = Source(root)
        with pytest.raises(BadInput, match=message):
            [source[row] for row in range(4)]
    address = place.to_bytes(8, "little")
    at = data.index(address, 0)
    root.write_bytes(data[: at - 4] + b"\xff\xff\xff\x7f" + data[at:])
    with pytest.raises(BadInput, match="bytes together"):
        Source(root)


def test_what_is_no_hdf5_is_said(tmp_path: Path) -> None:
    write(
        tmp_path,
        {"a.h5": b"GIF89a", "c.h5": b"\x89HDF\r\n\x1a\n"},
    )
    with pytest.raises(InvalidRequest, match="format HDF5"):
        Source(tmp_path / "a.h5")
    with pytest.raises(BadInput, match="c.h5: is damaged"):
        Source(tmp_path / "c.h5")
    with pytest.raises(InvalidRequest, match="a.h5/y int64"):
        Source(made(tmp_path / "d/a.h5", y=LABELS))
    with pytest.raises(InvalidRequest, match="found none"):
        Source(made(tmp_path / "e/a.h5"))


# ---- mutation


def test_lzf_refuses_what_does_not_fit() -> None:
    for data, message in (
        (b"\x05ab", "are cut"),
        (b"\x20\x00", "before them"),
        (b"\x00a\xe0", "are cut"),
        (b"\x00a\xe0\xff\x00" * 9, "more than"),
    ):
        with pytest.raises(ValueError, match=message):
            hdf5_arrays.undo_lzf(data, 64, 1)
    assert hdf5_arrays.undo_lzf(b"\x00a\xe0\x05\x00", 15, 1) == b"a" * 15


def test_the_golden_file_reads_as_it_was_written(tmp_path: Path) -> None:
    source = Source(GOLDEN, features=("data=x:bytes", "y=y"))
    assert [source[row]["data"] for row in range(3)] == [b"\xff\xd8ab", b"", b"\xff\xd8cde"]
    assert [int(source[row]["y"]) for row in range(3)] == [5, 6, 7]
