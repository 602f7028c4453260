"""The index: keys, columns and checksums of every sample, merged from pieces, found without opening a part."""

import hashlib
import shutil
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer import codecs
from packer.errors import BadInput, CorruptPack, InvalidRequest, PackerError, StorageError, UnknownKey
from packer.pack import manifest as manifests
from packer.pack.manifest import IndexFile, Manifest
from packer.pack.sample_index import Index, PartIndex, merge
from packer.schema import MATRIX, Field, Schema
from scripts import make_golden
from tests.support import built_packs

keys = st.lists(
    st.text(st.characters(codec="utf-8"), max_size=6)
    | st.binary(max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
    | st.sampled_from(["", "a", "aa", "aaa", "a/b", "\udcff", "ÿ", "\0"]),
    unique_by=lambda key: key.encode("utf-8", "surrogateescape"),
    min_size=1,
    max_size=12,
)


def indexed(folder: Path, samples: list[dict[str, bytes]] | int = 10, **options: Any) -> Index:
    built_packs.make_pack(folder, samples, **options)
    return Index.open(folder, manifests.read(folder))


def resealed(folder: Path, name: str, data: bytes) -> Manifest:
    """Put other bytes into an index file, and a manifest that agrees with them."""
    (folder / "index" / name).write_bytes(data)
    old = manifests.read(folder)
    entry = IndexFile(name, len(data), zlib.crc32(data), hashlib.sha256(data).hexdigest())
    files = tuple(sorted([*(file for file in old.index if file.name != name), entry], key=lambda file: file.name))
    return replace(old, index=files).sealed()


# ---- keys


@given(keys, st.integers(1, 4), st.text(max_size=4))
def test_index_of_is_a_dict(
    tmp_path_factory: pytest.TempPathFactory, given_keys: list[str], parts: int, other: str
) -> None:
    samples = [built_packs.record(number, key=key) for number, key in enumerate(given_keys)]
    index = indexed(tmp_path_factory.mktemp("x") / "pack", samples, parts=parts)
    expected = {key: number for number, key in enumerate(given_keys)}
    assert {key: index.index_of(key) for key in given_keys} == expected
    assert [index.key(number) for number in range(len(index))] == given_keys
    if other not in expected:
        with pytest.raises(UnknownKey):
            index.index_of(other)


KEYS = ("a/0012.png", "b/0100.png", "c/0033.png")


def test_an_unknown_key_names_one_that_contains_it(tmp_path: Path) -> None:
    index = indexed(tmp_path / "pack", [built_packs.record(at, key=key) for at, key in enumerate(KEYS)])
    for text, found in (("0100", "'b/0100.png'"), ("0033.png", "'c/0033.png'"), ("c/", "'c/0033.png'")):
        with pytest.raises(UnknownKey, match=f"did you mean {found}"):
            index.index_of(text)
    # the first is in no key, but where two meet
    for text in ("pngb", "0034", "", "a/0012.png1", "\ud800", "\U0010ffff", "\0"):
        with pytest.raises(UnknownKey, match="no sample with key") as caught:
            index.index_of(text)
        assert "did you mean" not in str(caught.value)


def test_two_samples_of_one_key_are_refused_with_both_named(tmp_path: Path) -> None:
    samples = [built_packs.record(0, key="a"), built_packs.record(1, key="b"), built_packs.record(2, key="a")]
    with pytest.raises(BadInput, match="key 'a': samples 0 and 2 have it"):
        built_packs.make_pack(tmp_path / "pack", samples)


def test_a_pack_without_samples_has_an_index(tmp_path: Path) -> None:
    for name, parts in (("one", 1), ("three", 3), ("none", 0)):
        index = indexed(tmp_path / name, 0, parts=parts)
        assert len(index) == 0
        assert index.column("label").shape == (0,)
        assert index.column("pair").shape == (0, 2)
        with pytest.raises(UnknownKey):
            index.index_of("")


# ---- columns and checksums


def test_columns_and_checksums_are_what_the_samples_hold_in_their_order(tmp_path: Path) -> None:
    index = indexed(tmp_path / "pack", 10, parts=3)
    assert index.column("label").tolist() == [number % 2 for number in range(10)]
    assert index.column("pair").tolist() == [[number, 1] for number in range(10)]
    assert index.column("pair").dtype == np.dtype("<u2")
    with pytest.raises(UnknownKey, match="no column 'blob'; columns: label, pair"):
        index.column("blob")
    for number, record in enumerate(built_packs.records(10)):
        for name, value in record.items():
            assert index.crc32(number, name) == zlib.crc32(value)
    column = indexed(tmp_path / "other").column("label")
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


def test_columns_may_have_any_fixed_shape(tmp_path: Path) -> None:
    shapes = {"a": (), "b": (1,), "c": (2, 3), "d": (0,), "e": (2, 0, 3)}
    fields = [Field(name, "number", "number", dtype="float32", shape=shape) for name, shape in shapes.items()]
    schema = Schema((Field("key", "text", "text"), *fields))
    values = {name: np.arange(np.prod(shape, dtype=int), dtype="<f4") for name, shape in shapes.items()}
    sample = {"key": b"k", **{name: value.tobytes() for name, value in values.items()}}
    index = indexed(tmp_path / "pack", [sample], schema=schema, parts=1)
    for name, shape in shapes.items():
        assert index.column(name).shape == (1, *shape)
        assert np.array_equal(index.column(name)[0], values[name].reshape(shape))


def test_numpy_reads_the_files_by_their_documented_layout(tmp_path: Path) -> None:
    indexed(tmp_path / "pack", 10, parts=3)
    files = {path.name: np.load(path, allow_pickle=False) for path in (tmp_path / "pack" / "index").iterdir()}
    assert sorted(files) == [
        "crc32.npy",
        "key_ends.npy",
        "key_order.npy",
        "keys.npy",
        "number-label.npy",
        "number-pair.npy",
    ]
    assert files["keys.npy"].tobytes() == b"".join(record["key"] for record in built_packs.records(10))
    assert files["key_ends.npy"].tolist() == [12 * (number + 1) for number in range(10)]
    assert files["crc32.npy"].shape == (10, 4)
    assert files["number-pair.npy"].shape == (10, 2)


# ---- texts, sizes and counts

WIDE = Schema(
    (
        Field("key", "text", "text"),
        Field("caption", "text", "text", hidden=True),
        Field("photo", "image", "raw", "uint8", (None, None, 3)),
        Field("mask", "mask", "raw", "uint8", (2, 3)),
        Field("boxes", "boxes", "raw", "float32", (None, 4)),
        Field("points", "points", "raw", "float32", (None, None, 2)),
        Field("box_labels", "number", "raw", "int64", (None,), of="boxes"),
        Field("more", "json", "json"),
    )
)


def wide(number: int, caption: str = "a cup", height: int = 2, width: int = 3, rows: int = 1) -> dict[str, bytes]:
    values = {
        "key": f"sample-{number}",
        "caption": caption,
        "photo": np.full((height, width, 3), number % 256, np.uint8),
        "mask": np.zeros((2, 3), np.uint8),
        "boxes": np.zeros((rows, 4), np.float32),
        "points": np.zeros((rows, 5, 2), np.float32),
        "box_labels": np.zeros(rows, np.int64),
        "more": {"number": number},
    }
    return {field.name: codecs.make(field).encode(values[field.name]) for field in WIDE}


@given(
    st.lists(st.tuples(st.text(max_size=5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 4)), max_size=7),
    st.integers(1, 3),
)
def test_texts_sizes_and_counts_are_those_of_the_values(
    tmp_path_factory: pytest.TempPathFactory, given_values: list[tuple[str, int, int, int]], parts: int
) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text, *_ in given_values]
    samples = [
        wide(number, text, *rest) for number, (text, (_, *rest)) in enumerate(zip(texts, given_values, strict=True))
    ]
    index = indexed(tmp_path_factory.mktemp("x") / "pack", samples, schema=WIDE, parts=parts)
    assert [index.value(number, "caption").decode() for number in range(len(index))] == texts
    data, ends = index.texts("caption")
    assert data.tobytes().decode() == "".join(texts)
    assert [part.tobytes().decode() for part in np.split(data, ends.astype(int))[: len(texts)]] == texts
    assert index.sizes("photo").tolist() == [[height, width] for _, height, width, _ in given_values]
    assert index.sizes("mask").tolist() == [[2, 3]] * len(texts)
    for name in ("boxes", "points", "box_labels"):
        assert index.counts(name).tolist() == [rows for *_, rows in given_values]
    assert index.texts("key")[0].tobytes() == b"".join(sample["key"] for sample in samples)


number = st.floats(-1e6, 1e6, width=32)


@given(
    st.lists(st.lists(st.tuples(number, number, number, number), max_size=3), max_size=5),
    st.sampled_from([None, [[2, 0, 1], [0, 0.5, 1]], [[0, -1, 9], [3, 0, 0]]]),
    st.sampled_from(["float32", "float64", "int32"]),
)
def test_rows_are_numbers_and_boxes_have_sizes_in_stored_pixels(
    tmp_path_factory: pytest.TempPathFactory,
    boxes: list[list[tuple[float, float, float, float]]],
    matrix: list[list[float]] | None,
    dtype: str,
) -> None:
    boxes_field = Field("boxes", "boxes", "raw", dtype, (None, 4))
    moved = [MATRIX] if matrix is not None else []
    schema = Schema((WIDE["key"], boxes_field, WIDE["box_labels"], *moved))
    given_boxes = [np.array(some, dtype).reshape(-1, 4) for some in boxes]
    samples = [
        {
            "key": b"%d" % at,
            "boxes": some.tobytes(),
            "box_labels": np.arange(len(some)).tobytes(),
            "matrix": np.array(matrix or 0, np.float64).tobytes(),
        }
        for at, some in enumerate(given_boxes)
    ]
    arrays = indexed(tmp_path_factory.mktemp("x") / "pack", samples, schema=schema, parts=2).arrays
    assert arrays["row_values-box_labels"].tolist() == [at for some in boxes for at in range(len(some))]
    sizes = []
    for x0, y0, x1, y1 in np.concatenate([np.empty((0, 4)), *given_boxes]).tolist():
        scales = np.array(matrix or np.eye(2, 3))[:, :2]
        corners = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]]) @ scales.T
        sizes.append(np.ptp(corners, axis=0)[::-1])
    assert np.allclose(arrays["box_size-boxes"], np.array(sizes).reshape(-1, 2), rtol=1e-6)


def test_fewer_rows_than_the_counts_are_refused(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", [wide(number) for number in range(3)], schema=WIDE)
    data = npy(np.zeros(2, "<i8"))
    index = Index.open(tmp_path / "pack", resealed(tmp_path / "pack", "row_values-box_labels.npy", data))
    with pytest.raises(CorruptPack, match="row_values-box_labels"):
        index.counts("box_labels")


def test_fields_without_a_text_a_size_or_rows_have_no_such_column(tmp_path: Path) -> None:
    index = indexed(tmp_path / "pack", [wide(0)], schema=WIDE, parts=1)
    assert [name for name in WIDE.names if index.contains(name)] == ["key", "caption"]
    with pytest.raises(UnknownKey, match="fields with values: caption"):
        index.value(0, "more")
    with pytest.raises(UnknownKey, match="fields with size: mask, photo"):
        index.sizes("boxes")
    with pytest.raises(UnknownKey, match="fields with count: box_labels, boxes, points"):
        index.counts("photo")


def test_a_pack_of_version_1_has_its_numbers_only_and_says_so() -> None:
    folder = make_golden.GOLDEN / "lmdb/pack"
    index = Index.open(folder, manifests.read(folder))
    assert len(index.column("label")) == len(index) == 3
    for ask in (index.sizes, index.counts):
        with pytest.raises(UnknownKey, match="packer convert"):
            ask("photo" if ask == index.sizes else "boxes")


def test_an_index_is_made_of_arrays_that_are_taken_when_they_are_used(tmp_path: Path) -> None:
    found = indexed(tmp_path / "pack", [wide(number, f"text {number}") for number in range(3)], schema=WIDE)
    taken = []

    class Arrays(dict[str, np.ndarray]):
        def __getitem__(self, name: str) -> np.ndarray:
            taken.append(name)
            return super().__getitem__(name)

    index = Index(Arrays({name: np.array(array) for name, array in found.arrays.items()}), WIDE, 3, "memory")
    assert taken == []
    assert (index.value(2, "caption"), index.key(1), index.index_of("sample-2")) == (b"text 2", "sample-1", 2)
    assert index.crc32(1, "more") == found.crc32(1, "more")
    assert sorted(taken) == ["crc32", "key_ends", "key_order", "keys", "value_ends-caption", "values-caption"]


@pytest.mark.parametrize("name", ["values-caption", "value_ends-caption"])
def test_a_flipped_byte_of_texts_is_noticed_when_one_is_read_first(tmp_path: Path, name: str) -> None:
    built_packs.make_pack(tmp_path / "pack", [wide(number) for number in range(3)], schema=WIDE)
    path = tmp_path / "pack/index" / f"{name}.npy"
    built_packs.flip(path, path.stat().st_size - 1)
    index = Index.open(tmp_path / "pack", manifests.read(tmp_path / "pack"))
    assert index.key(0) == "sample-0"
    for _ in range(2):
        with pytest.raises(CorruptPack, match=f"{name}.npy: damaged"):
            index.value(0, "caption")


HOSTILE_TEXTS = {
    "ends that go back": ("value_ends-caption", np.asarray([5, 3, 15], "<u8")),
    "ends beyond the texts": ("value_ends-caption", np.asarray([5, 10, 1 << 63], "<u8")),
    "ends before the last text": ("value_ends-caption", np.asarray([5, 10, 14], "<u8")),
}


@pytest.mark.parametrize("what", HOSTILE_TEXTS)
def test_texts_that_contradict_their_ends_are_refused(tmp_path: Path, what: str) -> None:
    built_packs.make_pack(tmp_path / "pack", [wide(number) for number in range(3)], schema=WIDE)
    name, array = HOSTILE_TEXTS[what]
    index = Index.open(tmp_path / "pack", resealed(tmp_path / "pack", f"{name}.npy", npy(array)))
    with pytest.raises(CorruptPack, match="values-caption are not in order at sample [12]"):
        index.value(0, "caption")
    with pytest.raises(CorruptPack, match="values-caption"):  # collections are made of whole arrays
        index.arrays[name]


HOSTILE_COLUMNS = {
    "texts of another type": ("values-caption", np.zeros(15, "|i1")),
    "texts of two dimensions": ("values-caption", np.zeros((15, 1), "|u1")),
    "ends of another type": ("value_ends-caption", np.zeros(3, "<u4")),
    "too few sizes": ("size-photo", np.zeros((2, 2), "<u4")),
    "sizes with channels": ("size-photo", np.zeros((3, 3), "<u4")),
    "counts of another type": ("count-boxes", np.zeros(3, "<i4")),
    "counts of an image": ("count-photo", np.zeros(3, "<u4")),
    "texts of an image": ("values-photo", np.zeros(3, "|u1")),
    "rows of another type": ("row_values-box_labels", np.zeros(3, "<i4")),
    "rows of two dimensions": ("row_values-box_labels", np.zeros((3, 1), "<i8")),
    "rows of boxes": ("row_values-boxes", np.zeros(3, "<f4")),
    "rows without counts": ("row_values-more", np.zeros(3, "<i8")),
    "corners of boxes": ("box_size-boxes", np.zeros((3, 4), "<f4")),
    "ends of a field that is not there": ("value_ends-other", np.zeros(3, "<u8")),
    "ends without texts": ("value_ends-more", np.zeros(3, "<u8")),
}


@pytest.mark.parametrize("what", HOSTILE_COLUMNS)
def test_columns_that_do_not_fit_the_schema_are_refused(tmp_path: Path, what: str) -> None:
    built_packs.make_pack(tmp_path / "pack", [wide(number) for number in range(3)], schema=WIDE)
    name, array = HOSTILE_COLUMNS[what]
    manifest = resealed(tmp_path / "pack", f"{name}.npy", npy(array))
    with pytest.raises(CorruptPack, match="do not fit the schema"):
        Index.open(tmp_path / "pack", manifest)


def test_values_of_any_field_without_pixels_may_be_in_the_index(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", [wide(number) for number in range(3)], schema=WIDE)
    values = [b'{"number":%d}' % (7 + number) for number in range(3)]
    resealed(tmp_path / "pack", "values-more.npy", npy(np.frombuffer(b"".join(values), "|u1")))
    (tmp_path / "pack/packer.json").write_bytes(
        resealed(tmp_path / "pack", "value_ends-more.npy", npy(np.cumsum([12, 12, 12]).astype("<u8"))).to_bytes()
    )
    with pytest.raises(CorruptPack, match="do not fit"):  # the second manifest lists no values
        Index.open(tmp_path / "pack", manifests.read(tmp_path / "pack"))
    data = (tmp_path / "pack/index/values-more.npy").read_bytes()
    manifest = resealed(tmp_path / "pack", "values-more.npy", data)
    assert Index.open(tmp_path / "pack", manifest).value(1, "more") == values[1]


# ---- pieces


def test_a_value_that_does_not_fill_its_column_and_a_piece_that_is_gone_are_refused(tmp_path: Path) -> None:
    piece = PartIndex(built_packs.SCHEMA)
    with pytest.raises(InvalidRequest, match="field 'label': expected 8 bytes, found 7"):
        piece.add([0, 0, 0, 0], {"keys": b"key", "number-label": bytes(7), "number-pair": bytes(4)})
    with pytest.raises(StorageError, match="nowhere"):
        merge([tmp_path / "nowhere"], tmp_path, built_packs.SCHEMA)


# ---- damage and hostile files


@pytest.mark.parametrize("name", ["crc32", "key_ends", "key_order", "keys", "number-label", "number-pair"])
def test_any_flipped_byte_of_an_index_file_is_noticed_when_it_is_used(tmp_path: Path, name: str) -> None:
    built_packs.make_pack(tmp_path / "pack", 3)
    manifest = manifests.read(tmp_path / "pack")
    path = tmp_path / "pack" / "index" / f"{name}.npy"
    for at in range(path.stat().st_size):
        built_packs.flip(path, at, 1 << (at % 8))
        with pytest.raises(CorruptPack, match=f"{name}.npy"):
            Index.open(tmp_path / "pack", manifest).arrays[name]
        built_packs.flip(path, at, 1 << (at % 8))
    assert len(Index.open(tmp_path / "pack", manifest)) == 3


def npy(array: np.ndarray) -> bytes:
    head = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}".encode()
    padded = head.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + array.tobytes()


HOSTILE = {
    "ends of another type": ("key_ends.npy", np.zeros(3, "<f8") + np.nan),
    "ends of infinity": ("key_ends.npy", np.zeros(3, "<f8") + np.inf),
    "ends of two dimensions": ("key_ends.npy", np.zeros((3, 1), "<u8")),
    "too few ends": ("key_ends.npy", np.zeros(2, "<u8")),
    "no ends": ("key_ends.npy", np.zeros(0, "<u8")),
    "ends beyond the keys": ("key_ends.npy", np.asarray([1, 2, 1 << 63], "<u8")),
    "signed ends": ("key_ends.npy", np.asarray([12, 24, 36], "<i8")),
    "too many keys": ("keys.npy", np.zeros(37, "|u1")),
    "checksums of other fields": ("crc32.npy", np.zeros((3, 3), "<u4")),
    "too few checksums": ("crc32.npy", np.zeros((2, 4), "<u4")),
    "an order of another type": ("key_order.npy", np.zeros(3, "<u4")),
    "a column of another type": ("number-label.npy", np.zeros(3, "<u8")),
    "a column of another width": ("number-pair.npy", np.zeros((3, 3), "<u2")),
    "an unknown column": ("number-more.npy", np.zeros(3, "<i8")),
    "an unknown file": ("more.npy", np.zeros(3, "<i8")),
    "a file without suffix": ("keys", np.zeros(36, "|u1")),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_index_files_that_do_not_fit_the_schema_are_refused(tmp_path: Path, what: str) -> None:
    built_packs.make_pack(tmp_path / "pack", 3)
    name, array = HOSTILE[what]
    manifest = resealed(tmp_path / "pack", name, npy(array))
    if what == "a file without suffix":
        manifest = replace(manifest, index=tuple(file for file in manifest.index if file.name != "keys.npy"))
        (tmp_path / "pack" / "index" / "keys").write_bytes(b"")
    with pytest.raises(CorruptPack):
        Index.open(tmp_path / "pack", manifest).key(0)


def test_ends_and_an_order_that_cannot_be_are_refused(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 3)
    manifest = resealed(tmp_path / "pack", "key_ends.npy", npy(np.asarray([30, 20, 36], "<u8")))
    with pytest.raises(CorruptPack, match="keys are not in order at sample 1"):
        Index.open(tmp_path / "pack", manifest).key(0)
    shutil.rmtree(tmp_path / "pack")
    built_packs.make_pack(tmp_path / "pack", 3)
    manifest = resealed(tmp_path / "pack", "key_order.npy", npy(np.asarray([0, 1 << 60, 2], "<u8")))
    with pytest.raises(CorruptPack, match="key order points outside the pack"):
        Index.open(tmp_path / "pack", manifest).index_of("sample-00001")
    with pytest.raises(CorruptPack, match="key order points outside the pack"):
        Index.open(tmp_path / "pack", manifest).arrays["key_order"]


@pytest.mark.parametrize("name", ["keys.npy", "crc32.npy", "number-label.npy"])
def test_a_missing_index_file_is_named(tmp_path: Path, name: str) -> None:
    built_packs.make_pack(tmp_path / "pack", 3)
    (tmp_path / "pack" / "index" / name).unlink()
    with pytest.raises(PackerError, match=name):
        Index.open(tmp_path / "pack", manifests.read(tmp_path / "pack"))


def test_an_index_file_that_the_manifest_does_not_list_is_missed(tmp_path: Path) -> None:
    built_packs.make_pack(tmp_path / "pack", 3)
    manifest = manifests.read(tmp_path / "pack")
    for gone in manifest.index:
        rest = tuple(file for file in manifest.index if file != gone)
        with pytest.raises(CorruptPack, match="do not fit the schema"):
            Index.open(tmp_path / "pack", replace(manifest, index=rest))
