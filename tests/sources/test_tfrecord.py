"""TFRecord: what is read of other tools' bytes, and what is said of files that are none, cut or damaged."""

import gzip
import pickle
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.conversion.convert import convert
from packer.errors import BadInput, BadInputs, InvalidRequest
from packer.layouts import example as examples
from packer.layouts import tfrecord_frames
from packer.layouts.tfrecord_frames import crc32c, masked_crc32c
from packer.sources._recognition import detect
from packer.sources.records import _random_access_files
from packer.sources.records.tfrecord import Source
from packer.system.parallel import ordered_map
from tests.support.child_processes import child
from tests.support.counted_steps import at_most
from tests.support.foreign_files import (
    bytes_list,
    delimited,
    example,
    float_list,
    int64_list,
    tfrecord,
    tfrecord_frame,
    tfrecord_index,
    varint,
)
from tests.support.source_trees import encoded, image, mask, pasted_features, write

# of the layout's description: {'image/encoded': ff d8, 'image/class/label': -1}
GOLDEN = (
    "40000000000000002817f4950a3e0a170a0d696d6167652f656e636f64656412060a040a02ffd80a230a11696d6167652f636c6173732f6c61"
    "62656c120e1a0c0a0affffffffffffffffff01edfb7d8c"
)
# written by tfrecord 1.14.6, with the index that its tfrecord2idx makes
WRITTEN = (
    "5c00000000000000c9cdf98f0a5a0a190a0573636f72651210120e0a0c0000003f0000c07f000080bf0a230a11696d6167652f636c6173732f"
    "6c6162656c120e1a0c0a0afdffffffffffffffff010a180a0d696d6167652f656e636f64656412070a050a03ffd8ff73833ff64d0000000000"
    "00003d63d4a60a4b0a110a0573636f7265120812060a04000000400a1f0a11696d6167652f636c6173732f6c6162656c120a1a080a06808080"
    "8080200a150a0d696d6167652f656e636f64656412040a020a0089e020d4"
)
WRITTEN_INDEX = "0 108\n108 93\n"


def records(count: int = 4) -> list[bytes]:
    return [
        example({"image/encoded": bytes_list(image(number)), "image/class/label": int64_list([number])})
        for number in range(count)
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path, {"a.tfrecord": tfrecord(records())}) / "a.tfrecord"


# ---- checksums and messages


def test_crc32c_has_the_check_values_of_its_definition() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


def test_the_compiled_checksum_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tfrecord_frames._compiled_or_own() is not crc32c, "the extra test brings google-crc32c"
    data = np.random.default_rng(0).integers(0, 256, 9000, np.uint8).tobytes()
    compiled = [masked_crc32c(memoryview(data)[start:]) for start in (0, 1, 8999, 9000)]
    monkeypatch.setattr(tfrecord_frames, "_compiled_or_own", lambda: crc32c)
    assert [masked_crc32c(data[start:]) for start in (0, 1, 8999, 9000)] == compiled


def test_the_golden_record_is_read_and_written(tmp_path: Path) -> None:
    golden = bytes.fromhex(GOLDEN)
    features = {"image/encoded": bytes_list(b"\xff\xd8"), "image/class/label": int64_list([-1])}
    assert tfrecord_frame(example(features)) == golden
    source = Source(write(tmp_path, {"g.tfrecord": golden}) / "g.tfrecord")
    assert source[0] == {"key": "00000000", "image": b"\xff\xd8", "label": -1, "files": {"image": "00000000.image.bin"}}


def test_what_another_writer_wrote_is_read_with_and_without_its_index(tmp_path: Path) -> None:
    root = write(tmp_path, {"g.tfrecord": bytes.fromhex(WRITTEN)})
    for index in ("", "g.idx", "g.tfindex", "g.tfrecord.index"):
        if index:
            write(tmp_path, {index: WRITTEN_INDEX})
        source = Source(root)
        assert len(source.tables) == bool(index)
        assert [source.value(row, "image") for row in range(2)] == [b"\xff\xd8\xff", b""]
        assert [int(source.value(row, "label")) for row in range(2)] == [-3, 1 << 40]
        scores = [source.value(row, "score") for row in range(2)]
        assert np.array_equal(scores[0], np.float32([0.5, np.nan, -1]), equal_nan=True)
        assert scores[1].tolist() == [2.0]
        (root / index).unlink() if index else None


@pytest.mark.parametrize("packed", [True, False])
def test_lists_are_read_packed_and_one_by_one(packed: bool) -> None:
    numbers = [0, 1, -1, 127, 128, 300, 2**62, -(2**63), 2**63 - 1]
    found = examples.parse(
        example({"a": int64_list(numbers, packed=packed), "b": float_list([1.5, -2], packed=packed)})
    )
    assert np.asarray(found.features["a"]).tolist() == numbers
    assert np.asarray(found.features["b"]).tolist() == [1.5, -2]
    assert np.asarray(found.features["b"]).dtype == np.float32


def test_fields_come_in_any_order_and_unknown_ones_are_skipped() -> None:
    junk = (
        varint(9 << 3)
        + varint(7)
        + varint(10 << 3 | 1)
        + bytes(8)
        + varint(11 << 3 | 5)
        + bytes(4)
        + delimited(12, b"x")
    )
    entry = junk + delimited(2, junk + bytes_list(b"value")) + delimited(1, b"name") + junk
    found = examples.parse(junk + delimited(1, junk + delimited(1, entry)) + junk)
    assert found.features == {"name": [b"value"]}


def test_pieces_of_one_message_are_merged_as_protobuf_does() -> None:
    both = delimited(1, b"n") + delimited(2, bytes_list(b"1")) + delimited(2, bytes_list(b"2"))
    assert examples.parse(delimited(1, delimited(1, both))).features == {"n": [b"1", b"2"]}
    other = delimited(1, b"n") + delimited(2, bytes_list(b"1") + int64_list([5]))
    assert np.asarray(examples.parse(delimited(1, delimited(1, other))).features["n"]).tolist() == [5]
    twice = delimited(1, delimited(1, b"n") + delimited(2, bytes_list(b"1")))
    twice += delimited(1, delimited(1, b"n") + delimited(2, bytes_list(b"2")))
    assert examples.parse(delimited(1, twice)).features == {"n": [b"2"]}


@pytest.mark.parametrize(
    "record",
    [
        b"\x0a",  # a length that is missing
        b"\x0a\x05abc",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x00\x01",  # field number 0
        b"\x0b",  # a group
        b"\x09\x01",  # 8 bytes announced
        b"\xff" * 11,
        example({"a": delimited(2, delimited(1, b"abc"))}),  # floats of 3 bytes
        example({"a": delimited(3, delimited(1, b"\xff"))}),  # a varint that does not end
        example({"a": delimited(3, delimited(1, b"\xff" * 10 + b"\1"))}),  # one of 11 bytes
        delimited(1, delimited(1, delimited(1, b"\xff\xfe") + delimited(2, bytes_list(b"")))),  # no UTF-8
    ],
)
def test_what_is_no_message_is_refused(record: bytes) -> None:
    with pytest.raises(BadInput, match="no sound message"):
        examples.parse(record)


def test_feature_lists_of_a_sequence_example_are_refused(tmp_path: Path) -> None:
    entry = delimited(1, b"track") + delimited(2, delimited(1, int64_list([1, 2])))
    sequence = example({"id": int64_list([1])}) + delimited(2, delimited(1, entry))
    root = write(tmp_path, {"a.tfrecord": tfrecord([sequence])})
    with pytest.raises(BadInput, match="SequenceExample.*track"):
        Source(root)
    write(root, {"a.tfrecord": tfrecord([*records(40), sequence])})
    with pytest.raises(BadInput, match="record.*SequenceExample.*track"):
        Source(root)[40]


# ---- which records there are


def test_a_file_of_one_record_and_an_index_of_one_line_are_read(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.tfrecord": tfrecord(records(1)), "a.idx": tfrecord_index(records(1))})
    assert Source(root).value(0, "label") == 0


@pytest.mark.parametrize(
    "index", ["", "0 40\n", "0 1e9\n", "x y\n", "0 16 4\n", "40 40\n", "0 -40\n", "\xff\n", "0 99999999999\n"]
)
def test_an_index_that_does_not_fit_is_not_used(tmp_path: Path, index: str) -> None:
    root = write(tmp_path, {"a.tfrecord": tfrecord(records()), "a.idx": index.encode("latin1")})
    source = Source(root)
    assert len(source) == 4
    assert not source.tables
    assert "a.idx: does not cover its file" in "\n".join(source.notes)


def test_an_index_that_splits_records_elsewhere_is_found_out(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.tfrecord": tfrecord(records(2))})
    size = (root / "a.tfrecord").stat().st_size
    write(root, {"a.idx": f"0 100\n100 {size - 100}\n"})
    with pytest.raises(BadInput, match="no record begins"):
        Source(root)


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.full)])
def test_a_tail_that_a_killed_writer_left_is_listed_wherever_it_is_cut(tmp_path: Path, step: int) -> None:
    """Cut within the checksum of the data and within the length of the record at every byte, elsewhere at some."""
    data = tfrecord(records(3))
    last = len(tfrecord_frame(records(3)[2]))
    for missing in sorted({*range(1, last, step), *range(1, 6), *range(last - 13, last)}):
        root = write(tmp_path, {"a.tfrecord": data[:-missing]})
        source = Source(root)
        assert len(source) == 2
        ((key, reason),) = source.left_out
        assert key == f"a.tfrecord@{len(data) - last}"
        assert "record 2" in reason
        assert "is cut" in reason
        assert not source.unread
    write(tmp_path, {"a.tfrecord": data[:-last]})
    assert (len(Source(tmp_path)), Source(tmp_path).left_out) == (2, [])


def test_every_flipped_byte_of_a_record_is_found(tmp_path: Path) -> None:
    data = tfrecord([example({"image": bytes_list(b"\0\1\2"), "label": int64_list([1])})] * 3)
    size = len(data) // 3
    for at in range(size, 2 * size):
        broken = bytearray(data)
        broken[at] ^= 0x10
        source = Source(write(tmp_path, {"a.tfrecord": bytes(broken)}))
        if at < size + 12:
            assert (len(source), len(source.unread)) == (1, 1)
            assert "its length is damaged" in source.unread[0][1]
        else:
            with pytest.raises(BadInput, match=f"a.tfrecord: .* {size} .*crc32c"):
                source[1]
            assert source[0]["label"] == source[2]["label"] == 1


def test_damage_ends_a_conversion_unless_it_is_to_be_skipped(tmp_path: Path) -> None:
    data = bytearray(tfrecord(records()))
    first = len(tfrecord_frame(records()[0]))
    data[first + 40] ^= 1
    root = write(tmp_path / "in", {"a.tfrecord": bytes(data)})
    with pytest.raises(BadInputs) as caught:
        packer.convert(root, tmp_path / "a.pack")
    assert f"record at byte {first}" in caught.value.reasons[0]
    summary = packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert (summary.samples, len(summary.skipped)) == (3, 1)
    data[first] ^= 1  # now its length: what follows is lost
    write(root, {"a.tfrecord": bytes(data)})
    with pytest.raises(BadInput, match="a.tfrecord: record 1 "):
        packer.convert(root, tmp_path / "b.pack")
    summary = packer.convert(root, tmp_path / "b.pack", on_error="skip")
    assert (summary.samples, [key for key, _ in summary.skipped]) == (1, [f"a.tfrecord@{first}"])


def test_the_work_on_wide_records_is_linear_in_their_features(tmp_path: Path) -> None:
    """Names that become one field name are the worst case below the limit on fields."""
    record = example({f"f{'!' * number}": int64_list([1]) for number in range(1500)})
    (tmp_path / "a.tfrecord").write_bytes(tfrecord([record] * 2))
    with at_most(500 * 2 * 1500):
        source = Source(tmp_path / "a.tfrecord")
    assert "f_1500" in source.schema
    wide = example({f"f{number}": int64_list([1]) for number in range(10_001)})
    (tmp_path / "b.tfrecord").write_bytes(tfrecord([wide] * 2))
    with pytest.raises(InvalidRequest, match="fields"):
        Source(tmp_path / "b.tfrecord")


def test_a_record_of_more_than_a_gibibyte_is_refused(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 40)
    source = Source(
        write(tmp_path, {"a.tfrecord": tfrecord(records(1)) + length + struct.pack("<I", masked_crc32c(length))})
    )
    assert len(source.unread) == 1


@pytest.mark.parametrize("made", ["gzip", "zlib", "two members"])
def test_compressed_files_are_read_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str) -> None:
    monkeypatch.setattr(_random_access_files, "_BLOCK_BYTES", 5000)
    data = tfrecord(records(12))
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gzip": gzip.compress,
        "zlib": zlib.compress,
        "two members": lambda data: gzip.compress(data[:20_001]) + gzip.compress(data[20_001:]),
    }
    root = write(tmp_path, {"a.tfrecord.gz": pack[made](data), "a.tfrecord.idx": "0 16\n"})
    source = Source(root)
    assert len(source) == 12
    rows = [5, 11, 0, 3, 3, 10, 1]
    copy = pickle.loads(pickle.dumps(source))
    for row, label in zip(rows, ordered_map(lambda row: copy.value(row, "label"), rows, threads=3), strict=True):
        assert (int(label), source.value(row, "image")) == (row, image(row))


def test_a_child_forked_while_a_compressed_file_is_read_reads_it(tmp_path: Path) -> None:
    source = Source(write(tmp_path, {"a.tfrecord.gz": gzip.compress(tfrecord(records()))}))
    source[0]
    with source._files._lock:
        assert child(lambda: int(source[3]["label"]), timeout_seconds=20).value == 3


def test_a_compressed_file_that_is_cut_or_damaged_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(tfrecord(records()))
    with pytest.raises(BadInput, match="a.tfrecord.gz: is cut"):
        Source(write(tmp_path, {"a.tfrecord.gz": data[:-40]}))
    broken = bytearray(data)
    broken[-4000] ^= 255
    with pytest.raises(BadInput, match=r"a.tfrecord.gz: damaged"):
        Source(write(tmp_path, {"a.tfrecord.gz": bytes(broken)}))


# ---- where it lies


def test_a_name_that_says_nothing_is_told_by_its_content(tmp_path: Path) -> None:
    root = write(tmp_path, {"train-00000-of-00001": tfrecord(records()), "data": tfrecord(records(2))})
    assert detect(root / "data")[0] == "tfrecord"
    assert len(Source(root / "data")) == 2
    assert detect(root)[0] == "tfrecord"
    assert len(Source(root)) == 4
    write(root, {"text": "no record"})
    with pytest.raises(
        InvalidRequest,
        match="text: is a file; .*tfrecord",
    ):
        detect(root / "text")


def test_images_beside_a_file_are_a_folder_of_images(tmp_path: Path, file: Path) -> None:
    write(tmp_path, {"b.png": image(1)})
    assert detect(tmp_path)[0] == "folder"


def test_files_of_several_splits_are_refused_or_become_a_field(tmp_path: Path) -> None:
    names = ("train-00000-of-00002", "train-00001-of-00002", "validation-00000-of-00001")
    root = write(tmp_path, {name: tfrecord(records(2)) for name in names})
    with pytest.raises(InvalidRequest, match="train 2, validation 1.*--named-splits"):
        Source(root)
    source = Source(root, named_splits=True)
    assert source.schema["split"].classes == ("train", "validation")
    assert [int(source[row]["split"]) for row in range(6)] == [0, 0, 0, 0, 1, 1]
    assert len(Source(root / names[2])) == 2


def test_keys_tell_the_files_apart(tmp_path: Path) -> None:
    source = Source(write(tmp_path, {"a.tfrecord": tfrecord(records(1)), "a.tfrecords": tfrecord(records(2))}))
    assert [source.key(row) for row in range(3)] == [
        "a.tfrecord/00000000",
        "a.tfrecords/00000000",
        "a.tfrecords/00000001",
    ]


# ---- which fields


def test_the_user_names_fields_and_kinds(file: Path) -> None:
    source = Source(file, features=("mask=image/encoded:mask", "number=image/class/label"))
    assert [(field.name, field.kind) for field in source.schema][1:3] == [("mask", "mask"), ("number", "number")]
    assert source[1]["mask"] == image(1)
    assert source[1]["files"] == {"mask": "00000001.png"}
    listed = Source(file, features=("labels=image/class/label:numbers",))
    assert listed[2]["labels"].tolist() == [2]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (("image",), "expected FIELD=FEATURE"),
        (("image=",), "expected FIELD=FEATURE"),
        (("image=image",), "no feature 'image'.*image/class/label, image/encoded"),
        (("a=image/encoded", "a=image/class/label"), "twice"),
        (("key=image/encoded",), "packer's own"),
        (("a=image/encoded:number",), "contains bytes"),
        (("a=image/class/label:image",), "contains numbers"),
        (("1a=image/encoded",), "field name"),
    ],
)
def test_an_option_that_does_not_fit_is_refused(file: Path, features: tuple[str, ...], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Source(file, features=features)


def test_a_record_that_lacks_a_feature_is_bad_and_named(tmp_path: Path) -> None:
    made = [*records(40)]
    made[25] = example({"image/encoded": bytes_list(image(1)), "image/class/label": int64_list([1, 2])})
    made[27] = example({"image/class/label": int64_list([1])})
    made[29] = example({"image/encoded": bytes_list(image(1)), "image/class/label": float_list([1])})
    source = Source(
        write(tmp_path, {"a.tfrecord": tfrecord(made)}),
        features=("image=image/encoded", "label=image/class/label:number"),
    )
    for row, message in (
        (25, "expected one number, found 2; .*label=...:numbers with"),
        (27, "found none"),
        (29, "expected int64 numbers"),
    ):
        with pytest.raises(BadInput, match=f"a.tfrecord: .*0000{row}.*{message}"):
            source[row]


def test_an_empty_feature_is_one_that_is_not_there(tmp_path: Path) -> None:
    made = [*records(3), example({"image/encoded": bytes_list(image(9)), "image/class/label": b""})]
    source = Source(write(tmp_path, {"a.tfrecord": tfrecord(made)}))
    assert source.schema["label"].shape == ()
    with pytest.raises(BadInput, match="found none"):
        source[3]
    lists = Source(tmp_path, features=("image=image/encoded", "label=image/class/label:numbers"))
    assert [lists[row]["label"].tolist() for row in range(4)] == [[0], [1], [2], []]


def test_what_some_records_lack_is_left_out_bytes_and_numbers_alike(tmp_path: Path) -> None:
    """But for the label, and for lists, of which a record without a thing has the name and no value."""
    made = [{"id": int64_list([n]), "text": bytes_list(b"a"), "area": float_list([n])} for n in range(3)]
    made += [{"id": int64_list([n]), "other": int64_list([7]), "xmin": float_list([0.5])} for n in range(2)]
    made += [{"id": int64_list([5]), "xmin": b""}]
    root = write(tmp_path, {"a.tfrecord": tfrecord(map(example, made))})
    source = Source(root)
    assert [name for name in source.schema.names if not name.startswith("key")] == ["id", "xmin"]
    assert [source[row]["xmin"].tolist() for row in range(6)] == [[], [], [], [0.5], [0.5], []]
    (note,) = (note for note in source.notes if "skipped" in note)
    assert "area, other, text; --feature" in note
    asked = Source(root, features=("other=other:numbers",))
    assert [asked[row]["other"].tolist() for row in (0, 3)] == [[], [7]]


def test_a_image_of_one_channel_that_is_named_as_labels_is_a_mask(tmp_path: Path) -> None:
    wide = encoded(".png", np.zeros((4, 4), np.uint16))
    features = {"image/encoded": image(1), "mask": mask(1), "gt_depth": wide, "label_map": wide, "seg": image(2)}
    record = example({name: bytes_list(data) for name, data in features.items()})
    source = Source(write(tmp_path, {"a.tfrecord": tfrecord([record])}))
    kinds = {field.name: field.kind for field in source.schema if not field.hidden}
    found = {"image": "image", "mask": "mask", "gt_depth": "depth", "label_map": "bytes", "seg": "image"}
    assert kinds == {"key": "text", **found}


@pytest.mark.parametrize(
    "bad", [b"GIF89a" + bytes(40), b"\xff\xd8\xff", b"<html>"], ids=["another format", "cut", "text"]
)
def test_one_record_without_a_image_is_bad_and_the_others_are_images(tmp_path: Path, bad: bytes) -> None:
    features = [bytes_list(bad if number == 3 else image(number)) for number in range(8)]
    made = [example({"image/encoded": data, "image/class/label": int64_list([1])}) for data in features]
    write(tmp_path / "in", {"a.tfrecord": tfrecord(made)})
    assert Source(tmp_path / "in").schema["image"].kind == "image"
    with pytest.raises(BadInputs, match=r"a\.tfrecord: .*\(00000003\): .*pack"):
        convert(tmp_path / "in", tmp_path / "a.pack")
    assert convert(tmp_path / "in", tmp_path / "b.pack", on_error="skip").samples == 7


def test_resizing_where_no_field_is_a_image_is_refused(tmp_path: Path) -> None:
    record = example({"image_raw": bytes_list(bytes(range(256))), "label": int64_list([1])})
    root = write(tmp_path / "in", {"a.tfrecord": tfrecord([record])})
    with pytest.raises(InvalidRequest, match=r"--resize 10: .*image.*\(bytes\)"):
        packer.convert(root, tmp_path / "a.pack", resize=10)


def test_texts_json_and_bytes_are_told_apart(tmp_path: Path) -> None:
    features = {"text": bytes_list("ünï\n".encode()), "data": bytes_list(b"\0\1"), "json": bytes_list(b'{"a": [1]}')}
    root = write(tmp_path, {"a.tfrecord": tfrecord([example(features)])})
    assert {field.name: field.kind for field in Source(root).schema if field.name in features} == {
        "text": "text",
        "data": "bytes",
        "json": "text",
    }
    typed = Source(root, features=("json=json:json", "text=data:text"))
    assert "is no UTF-8" not in str(typed.schema)
    assert Source(root, features=("json=json:json",))[0]["json"] == {"a": [1]}
    with pytest.raises(BadInput, match=r"json=...:bytes"):
        Source(root, features=("json=text:json",))[0]


# ---- through a pack


def test_splits_and_subsets_are_of_records(tmp_path: Path, file: Path) -> None:
    write(tmp_path, {"train.txt": "00000002\n00000000\n"})
    packer.convert(file, tmp_path / "a.pack", splits={"train": tmp_path / "train.txt"})
    dataset = packer.open(tmp_path / "a.pack")
    assert [dataset[row]["label"] for row in range(len(dataset))] == [0, 2]
    with pytest.raises(InvalidRequest, match="records have none"):
        packer.convert(file, tmp_path / "b.pack", sidecars={"mask": "_m.png:mask"})


def test_a_feature_that_is_empty_wherever_packer_looks_is_said_to_stay_behind(tmp_path: Path) -> None:
    records = [example({"id": int64_list([row]), "tags": b""}) for row in range(3)]
    source = Source(write(tmp_path, {"a.tfrecord": tfrecord(records)}))
    assert "tags" not in source.schema
    assert any("skipped" in note and "tags" in note for note in source.notes)


def test_features_that_no_record_looked_at_has_are_told_at_the_end(tmp_path: Path) -> None:
    records = [example({"id": int64_list([row]), "tags": b""}) for row in range(60)]
    records[21] = example({"id": int64_list([21]), "tags": bytes_list(b"a"), "late": float_list([0.5])})
    records[23] = example({"id": int64_list([23]), "late": float_list([1.5])})
    root = write(tmp_path / "in", {"a.tfrecord": tfrecord(records)})
    made = packer.convert(root, tmp_path / "a.pack")
    notes = [note for note in made.notes if "not packed" in note]
    assert [note.partition(":")[0] + note[-11:] for note in notes] == ["late(2 samples)", "tags (1 sample)"]
    chosen = packer.convert(root, tmp_path / "b.pack", features=("id=id",))
    assert not any("not packed" in note for note in chosen.notes)


def test_of_numbers_the_type_of_most_counts_and_the_others_are_bad(tmp_path: Path) -> None:
    """One record in ten among those that the schema is guessed from, of another type; neither list is left out."""
    records = [example({"id": int64_list([3])}) for _ in range(10)]
    records[4] = example({"id": float_list([3])})
    source = Source(write(tmp_path, {"a.tfrecord": tfrecord(records)}))
    assert source.schema["id"].dtype == "int64"
    assert not any("skipped" in note for note in source.notes)
    assert [source[row]["id"] for row in (0, 3, 5, 9)] == [3, 3, 3, 3]
    with pytest.raises(BadInput, match="int64.*float32"):
        source[4]


def test_the_line_for_features_of_any_name_can_be_pasted(tmp_path: Path) -> None:
    names = ("a,b", "c\\d", "e\\,f", "g=h", "i:mask", "j k", "k\\", "$HOME")
    record = example({name: int64_list([number]) for number, name in enumerate(names)})
    root = write(tmp_path, {"a.tfrecord": tfrecord([record])})
    source = Source(root)
    (line,) = (note for note in source.notes if note.startswith("--feature"))
    again = Source(root, features=pasted_features(line))
    assert again.schema == source.schema and again[0] == source[0]
    assert sorted(int(value) for name, value in again[0].items() if name != "key") == list(range(len(names)))


def test_records_without_a_feature_to_pack_are_refused_with_the_reason(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.tfrecord": tfrecord([example({"image": bytes_list(image(1), image(2))})])})
    with pytest.raises(InvalidRequest, match="no feature.*image"):
        Source(root)
