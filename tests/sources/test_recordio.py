"""RecordIO: what is read of im2rec's and InsightFace's files, and what is said of files cut, damaged or none."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.errors import BadInput, InvalidRequest
from packer.layouts.recordio_frames import unframed
from packer.pack import manifest
from packer.sources.records.recordio import Source
from tests.support.foreign_files import RECORDIO_MAGIC, recordio, recordio_frame, recordio_image, recordio_index
from tests.support.source_trees import image, recordio_files, write

KEY = struct.pack("<I", RECORDIO_MAGIC)

# written by mxnet 1.9.1: a label, two labels and the magic twice, the magic at a multiple of 4, no image
MXNET = (
    "0a23d7ce1d000000000000000000404000000000000000000000000000000000ffd86a70670000000a23d7ce2800002002000000000000"
    "00010000000000000000000000000000000000803f0000204061620a23d7ce63640a23d7ce000000600a23d7ce18000020000000000000"
    "e040020000000000000000000000000000000a23d7ce0500006078787878780000000a23d7ce1c00000001000000000000000300000000"
    "000000000000000000000000008040"
)
MXNET_INDEX = "0\t0\n1\t40\n2\t96\n3\t144\n"


def records(count: int = 4) -> list[bytes]:
    return [recordio_image(image(number), number, number) for number in range(count)]


def written(root: Path, made: list[bytes]) -> Source:
    return Source(write(root, {"a.rec": recordio(made)}))


# ---- frames


def test_what_mxnet_wrote_is_read_and_written_alike(tmp_path: Path) -> None:
    images = [b"\xff\xd8jpg", b"ab" + KEY + b"cd" + KEY, KEY + b"xxxxx", b""]
    labels: list[float | list[float]] = [3.0, [1.0, 2.5], 7.0, [4.0]]
    made = [recordio_image(content, label, at) for at, (content, label) in enumerate(zip(images, labels, strict=True))]
    assert recordio(made) == bytes.fromhex(MXNET)
    assert recordio_index(made, range(4)) == MXNET_INDEX
    source = Source(write(tmp_path, {"m.rec": bytes.fromhex(MXNET), "m.idx": MXNET_INDEX}))
    assert [source[row]["image"] for row in range(4)] == images
    assert [source[row]["label"].tolist() for row in range(4)] == [[3.0], [1.0, 2.5], [7.0], [4.0]]


def test_payloads_of_magic_words_come_back() -> None:
    drawn = random.Random(1)
    words = (KEY, b"abcd", KEY[:2], b"x", KEY[2:], b"")
    for _ in range(3000):
        payload = b"".join(drawn.choice(words) for _ in range(drawn.randrange(12)))
        framed = recordio_frame(payload)
        assert len(framed) % 4 == 0
        assert unframed(framed) == payload


def test_the_magic_in_an_image_and_in_its_header_is_read_through(tmp_path: Path) -> None:
    images = [KEY * 3 + image(1), image(2) + KEY, b"ab" + KEY + image(3), image(4)]
    made = [recordio_image(content, 1.0, number) for number, content in enumerate(images)]
    made[3] = recordio_image(images[3], 1.0, RECORDIO_MAGIC)  # the id is the magic
    source = written(tmp_path, made)
    assert [source.value(row, "image") for row in range(4)] == images
    assert [int(source.value(row, "label")) for row in range(4)] == [1] * 4


def test_a_record_without_bytes_is_bad_and_named_and_the_others_are_read(tmp_path: Path) -> None:
    source = written(tmp_path, [records()[0], b"", records()[1], b"short"])
    assert len(source) == 4
    assert source[2]["label"] == 1
    for row, size in ((1, 0), (3, 5)):
        with pytest.raises(BadInput, match=rf"a.rec: .*0000{row}\): .* {size} bytes.*header"):
            source[row]


def test_labels_that_a_record_has_no_room_for_are_bad(tmp_path: Path) -> None:
    made = struct.pack("<IfQQ", 9, 0, 0, 0) + b"abc"
    source = written(tmp_path, [records()[0], made])
    with pytest.raises(BadInput, match="9 labels.* 60"):
        source[1]


# ---- labels


def test_labels_are_whole_numbers_where_all_are(tmp_path: Path) -> None:
    assert written(tmp_path / "a", records()).schema["label"].dtype == "int64"
    half = written(tmp_path / "b", [*records(2), recordio_image(image(5), 0.5)])
    assert half.schema["label"].dtype == "float32"
    assert half[2]["label"] == np.float32(0.5)
    nan = written(tmp_path / "c", [recordio_image(image(5), float("nan"))])
    assert np.isnan(nan[0]["label"])
    beyond = written(tmp_path / "d", [recordio_image(image(0), 1.0), recordio_image(image(1), 1e30)])
    assert [beyond[row]["label"] for row in range(2)] == [np.float32(1), np.float32(1e30)]


def test_vectors_of_labels_are_arrays(tmp_path: Path) -> None:
    made = [recordio_image(image(number), [number, 0.25, -1.0, float("nan"), 7.0]) for number in range(2)]
    source = written(tmp_path / "a", made)
    assert source.schema["label"].shape == (5,)
    assert np.array_equal(source[1]["label"], np.float32([1, 0.25, -1, np.nan, 7]), equal_nan=True)
    mixed = written(tmp_path / "b", [*made, recordio_image(image(3), 4.0), recordio_image(image(3), [1.0, 2.0])])
    assert mixed.schema["label"].shape == (None,)
    assert [mixed[row]["label"].tolist() for row in (2, 3)] == [[4.0], [1.0, 2.0]]


# ---- index and list


def test_a_list_gives_the_records_their_paths_and_an_index_numbers(tmp_path: Path) -> None:
    root = recordio_files(tmp_path)
    source = Source(root)
    assert [source.key(row) for row in range(4)] == ["cat/a b.jpg", "dog/a b.jpg", "dog/ünï.png", "dog/c.jpg"]
    assert [source[row]["files"]["image"] for row in range(4)] == [source.key(row) for row in range(4)]
    assert [int(source[row]["label"]) for row in range(4)] == [1, 0, 0, 0]
    assert source.extras == ["property"]
    assert sorted(source.tables) == ["train.idx", "train.lst"]
    alone = Source(root / "train.rec")
    assert [alone.key(row) for row in range(4)] == [source.key(row) for row in range(4)]
    with pytest.raises(InvalidRequest, match="--from recordio"):
        packer.open(root)
    (root / "train.lst").unlink()
    assert [Source(root).key(row) for row in range(4)] == ["00000003", "00000000", "00000002", "00000017"]
    (root / "train.idx").unlink()
    assert [Source(root).key(row) for row in range(4)] == ["00000000", "00000001", "00000002", "00000003"]
    assert Source(root).value(3, "image") == image(3, suffix=".jpg")


def test_what_was_encoded_anew_gets_the_suffix_of_its_bytes(tmp_path: Path) -> None:
    root = write(tmp_path, {"a.rec": recordio(records(1)), "a.lst": "0\t0\tcat/1.jpg\n"})  # the bytes are a PNG's
    assert Source(root)[0]["files"] == {"image": "cat/1.jpg.png"}


@pytest.mark.parametrize("line", ["x\t0", "0\t4", "0\t-4", "0\t0\n0\t0", "0\t0\n1\t0", "0 0"])
def test_an_index_of_another_file_is_not_used(tmp_path: Path, line: str) -> None:
    root = write(tmp_path, {"a.rec": recordio(records()), "a.idx": f"{line}\n"})
    source = Source(root)
    assert len(source) == 4
    assert any("a.idx" in note and "not used" in note for note in source.notes)


def test_records_that_the_index_leaves_out_are_listed(tmp_path: Path) -> None:
    made = records()
    index = "".join(recordio_index(made, range(4)).splitlines(keepends=True)[1:3])
    source = Source(write(tmp_path, {"a.rec": recordio(made), "a.idx": index}))
    assert [source.key(row) for row in range(2)] == ["00000001", "00000002"]
    assert source.left_out == [("a.rec", "2 records that the index does not name")]


def test_lines_of_a_list_that_are_none_are_passed_over(tmp_path: Path) -> None:
    source = Source(write(tmp_path, {"a.rec": recordio(records(1)), "a.lst": "\n5\nx\t0\ty\n0\t0\ta/b.png\n"}))
    assert source.key(0) == "a/b.png"


def test_a_list_with_equal_or_missing_paths_is_said_and_not_used(tmp_path: Path) -> None:
    for listed in ("0\t0\ta.jpg\n1\t0\ta.jpg\n", "0\t0\ta.jpg\n"):
        source = Source(write(tmp_path, {"a.rec": recordio(records(2)), "a.lst": listed}))
        assert source.key(1) == "00000001"
        assert any("the .lst does not give" in note for note in source.notes)


@pytest.mark.parametrize("has_numbers", [True, False])
def test_a_shuffled_list_without_an_index_names_the_records_that_it_was_made_of(
    tmp_path: Path, has_numbers: bool
) -> None:
    """im2rec shuffles the list's lines and writes records in their order, with their numbers in the headers."""
    order = [3, 1, 5, 0, 2, 4]
    made = [recordio_image(image(at), at, at if has_numbers else 0) for at in order]
    listed = "".join(f"{at}\t{at}\ta/{at}.png\n" for at in order)
    source = Source(write(tmp_path, {"a.rec": recordio(made), "a.lst": listed}))
    assert [source.key(row) for row in range(6)] == [f"a/{at}.png" for at in order]
    assert [int(source[row]["label"]) for row in range(6)] == order
    if has_numbers:  # of a list whose lines somebody sorted
        source = Source(write(tmp_path, {"a.lst": "".join(sorted(listed.splitlines(keepends=True)))}))
        assert [source.key(row) for row in range(6)] == [f"a/{at}.png" for at in order]


# ---- InsightFace


def test_the_header_and_the_identities_of_insightface_are_no_samples(tmp_path: Path) -> None:
    images = [recordio_image(image(number), [float(number // 2), 0.0], number) for number in range(1, 5)]
    identities = [recordio_image(b"", [1.0, 3.0], 5), recordio_image(b"", [3.0, 5.0], 6)]
    made = [recordio_image(b"", [5.0, 7.0], 0), *images, *identities]
    for index in (True, False):
        root = write(tmp_path / str(index), {"train.rec": recordio(made)})
        if index:
            write(root, {"train.idx": recordio_index(made, range(7))})
        source = Source(root)
        assert [source.key(row) for row in range(len(source))] == [f"{number:08d}" for number in range(1, 5)]
        assert [int(source[row]["label"]) for row in range(4)] == [0, 1, 1, 2]
        assert source.schema["label"].dtype == "int64"
        assert source[3]["label_vector"].tolist() == [2.0, 0.0]
        assert source.left_out == [("train.rec", "3 records of InsightFace's identities, without images")]
    packer.convert(root, tmp_path / "a.pack")
    assert len(packer.open(tmp_path / "a.pack")) == 4
    assert manifest.read(tmp_path / "a.pack").skipped[0][0] == "train.rec"


def test_a_first_record_with_a_vector_and_an_image_is_a_sample(tmp_path: Path) -> None:
    assert len(written(tmp_path, [recordio_image(image(1), [2.0, 3.0]), recordio_image(image(2), [1.0, 1.0])])) == 2


# ---- damage


def test_a_tail_that_is_cut_is_listed_wherever_that_is(tmp_path: Path) -> None:
    made = [recordio_image(b"abc" + KEY * 2 + b"de", 1.0, number) for number in range(3)]
    data = recordio(made)
    last = len(recordio_frame(made[2]))
    padding = 3
    for missing in range(1, last):
        source = Source(write(tmp_path, {"a.rec": data[:-missing]}))
        is_whole = missing <= padding
        assert len(source) == (3 if is_whole else 2), missing
        assert len(source.left_out) == (0 if is_whole else 1)
        assert not source.unread
    assert "record 2 at byte" in source.left_out[0][1]


def test_bytes_that_are_no_frame_end_the_file_and_are_refused(tmp_path: Path) -> None:
    data = bytearray(recordio(records()))
    first = len(recordio_frame(records()[0]))
    data[first] ^= 1
    root = write(tmp_path / "in", {"a.rec": bytes(data)})
    with pytest.raises(BadInput, match=rf"a.rec: record 1.* {first} .*--on-error skip"):
        packer.convert(root, tmp_path / "a.pack")
    summary = packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert (summary.samples, [key for key, _ in summary.skipped]) == (1, [f"a.rec@{first}"])


@pytest.mark.parametrize("frames", [(2,), (3,), (1, 0), (1, 1), (1, 2, 0), (4,), (0, 2)])
def test_parts_out_of_order_are_no_record(tmp_path: Path, frames: tuple[int, ...]) -> None:
    data = b"".join(struct.pack("<II", RECORDIO_MAGIC, part << 29 | 4) + b"abcd" for part in frames)
    source = Source(write(tmp_path, {"a.rec": recordio(records(1)) + data}))
    assert len(source.unread) == 1
    with pytest.raises(BadInput, match="damaged"):
        unframed(data[:12] if frames == (1,) else struct.pack("<II", RECORDIO_MAGIC, 2 << 29))
