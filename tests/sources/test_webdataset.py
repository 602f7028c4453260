"""WebDataset: which members make a sample, and what is said of tar files that are cut, damaged or none."""

import base64
import gzip
import io
import json
import pickle
import tarfile
import tempfile
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest

import packer
from packer import sources
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, BadInputs, InvalidRequest
from packer.schema import PIXEL_KINDS
from packer.sources import base
from packer.sources._recognition import detect
from packer.sources.records import _random_access_files
from packer.sources.records.webdataset import Source
from tests.support.archives import tar_of
from tests.support.counted_steps import at_most
from tests.support.foreign_files import (
    bytes_list,
    example,
    lmdb_environment,
    tar_archive,
    tar_header,
    tar_member,
    tfrecord,
)
from tests.support.image_files import npy, oriented
from tests.support.source_trees import encoded, image, tar_shards, tree, write

END = bytes(1024)
# a file of webdataset's ShardWriter, deflated in base 85, and in hex what webdataset reads of it
GOLDEN = json.loads((Path(__file__).parent / "payloads/webdataset.json").read_text())


def members(count: int = 3) -> dict[str, bytes]:
    found = {}
    for number in range(count):
        found[f"{number:04d}.png"] = image(number)
        found[f"{number:04d}.cls"] = str(number).encode()
    return found


def test_the_work_on_many_suffixes_is_bounded_by_the_members(tmp_path: Path) -> None:
    """As keys with a dot give them: each sample has suffixes of its own."""
    found = {f"{number:04d}.{suffix}": b"a" for number in range(1500) for suffix in ("jpg", f"s{number}")}
    write(tmp_path, {"a.tar": tar_archive(found)})
    with at_most(1800 * len(found)), pytest.raises(BadInput, match="first dot"):  # 1540 of them for a tar header
        Source(tmp_path)
    assert len(Source(tmp_path, features=("image=jpg:bytes",))) == 1500


def opened(root: Path, found: dict[str, bytes], **options: object) -> Source:
    return Source(write(root, {"a.tar": tar_archive(found)}), **options)  # type: ignore[arg-type]


# ---- samples


def test_members_of_one_name_are_a_sample(tmp_path: Path) -> None:
    source = opened(tmp_path, members())
    assert [source.key(row) for row in range(3)] == ["0000", "0001", "0002"]
    assert source[2] == {"key": "0002", "image": image(2), "label": 2, "files": {"image": "0002.png"}}
    assert (source.schema["label"].dtype, source.schema["label"].shape) == ("int64", ())


def test_what_webdataset_wrote_is_read_as_it_reads_it(tmp_path: Path) -> None:
    source = Source(write(tmp_path, {"a.tar": zlib.decompress(base64.b85decode(GOLDEN["tar"]))}))
    suffixes = ("jpg", "cls", "json", "npy", "txt")
    assert source.key(0) == GOLDEN["read"]["__key__"]
    for suffix in suffixes:
        assert source.entries(0, source.record(0))[suffix] == bytes.fromhex(GOLDEN["read"][suffix])
    assert (int(source[0]["label"]), source[0]["json"], source[0]["text"]) == (5, {"i": 6}, "ü6")


@pytest.mark.parametrize(
    ("name", "key", "field"),
    [
        ("a.b/c.seg.png", "a.b/c", "seg"),
        ("a b/c d.PNG", "a b/c d", "image"),
        ("x/y.z/0.1.png", "x/y.z/0", "x_1"),
        ("ünï.png", "ünï", "image"),
    ],
)
def test_a_name_ends_at_the_first_dot_behind_the_last_slash(tmp_path: Path, name: str, key: str, field: str) -> None:
    source = opened(tmp_path, {name: image(1)})
    assert source.key(0) == key
    fields = [found.name for found in source.schema if found.kind == "image"]
    assert fields == [field]
    assert source[0]["files"] == {field: name.replace("PNG", "png")}


def test_members_of_no_sample_are_passed_over_and_counted(tmp_path: Path) -> None:
    """Such as the second name of a file, as tar writes it; readers of WebDataset pass over them without a word."""
    kinds = {b"1": "2 hard links", b"2": "1 symbolic link", b"S": "1 sparse file"}
    links = b"".join(tar_header(b"%d.png" % at, 0, kind=kind) for at, kind in enumerate((b"1", b"1", b"2", b"S"), 7))
    made = tar_member("__meta__/a.png", b"x") + tar_header(b"folder/", 0, kind=b"5") + tar_member("README", b"text")
    made += tar_member("0.png", image(1)) + links + tar_member("0.cls", b"7") + END
    source = Source(write(tmp_path, {"a.tar": made}))
    assert (len(source), int(source[0]["label"]), source[0]["image"]) == (1, 7, image(1))
    assert len(source.left_out) == 4
    assert ("__members__", "2 members of no sample in the tar files") in source.left_out
    for said in kinds.values():
        assert ("__members__", f"{said} of no sample in the tar files") in source.left_out
        assert any(note.startswith(f"{said} of no sample") for note in source.notes)


def test_a_name_that_comes_again_is_another_sample(tmp_path: Path) -> None:
    made = b"".join(
        tar_member(name, image(at)) for at, name in enumerate(["a.png", "b.png", "a.png", "a~2.png", "a.png"])
    )
    source = Source(write(tmp_path, {"a.tar": made + END}))
    keys = [source.key(row) for row in range(len(source))]
    assert len(set(keys)) == 5
    assert keys[0] == "a"
    assert [source[row]["image"] for row in range(5)] == [image(row) for row in range(5)]
    assert len({source[row]["files"]["image"] for row in range(5)}) == 5


def test_two_members_of_one_suffix_are_refused_or_skipped(tmp_path: Path) -> None:
    made = tar_member("a.png", image(0)) + tar_member("b.png", image(1)) + tar_member("b.PNG", image(2))
    root = write(tmp_path / "in", {"a.tar": made + END})
    with pytest.raises(BadInput, match="'b'.*two members"):
        packer.convert(root, tmp_path / "a.pack")
    assert packer.convert(root, tmp_path / "a.pack", on_error="skip").samples == 1


def test_the_end_of_a_file_ends_its_sample(tmp_path: Path) -> None:
    files = {"a-0.tar": tar_archive({"x.png": image(1)}), "a-1.tar": tar_archive({"x.cls": b"1"})}
    with pytest.raises(BadInput, match="2 samples.*lack"):
        Source(write(tmp_path, files))


# ---- which fields


def test_suffixes_are_fields_by_what_they_mean(tmp_path: Path) -> None:
    file = io.BytesIO()
    depth = np.float32([[np.nan, -1.0], [0.5, 2.0]])
    np.save(file, depth)
    found = {
        "0.jpg": image(1, suffix=".jpg"),
        "0.depth.npy": file.getvalue(),
        "0.json": b'{"a": [1, null]}',
        "0.txt": "ünï".encode(),
        "0.cls": b"-3\n",
        "0.index": b"12",
        "0.mp4": b"\0\1",
    }
    source = opened(tmp_path / "in", found)
    assert {field.name: field.kind for field in source.schema if field.name not in ("key", "files")} == {
        "image": "image",
        "label": "number",
        "depth_npy": "depth",
        "index": "number",
        "json": "json",
        "mp4": "bytes",
        "text": "text",
    }
    sample = source[0]
    assert (sample["label"], sample["index"], sample["text"], sample["json"]) == (-3, 12, "ünï", {"a": [1, None]})
    packer.convert(tmp_path / "in", tmp_path / "a.pack")
    assert np.asarray(packer.open(tmp_path / "a.pack")[0]["depth_npy"]).tobytes() == depth.tobytes()
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    out = tree(tmp_path / "out")
    assert json.loads(out.pop(b"0.json")) == {"a": [1, None]}
    assert out == {name.encode(): data for name, data in found.items() if name not in ("0.json", "0.cls", "0.index")}


def test_images_of_several_suffixes_are_one_field_unless_a_sample_has_two(tmp_path: Path) -> None:
    one = opened(tmp_path / "a", {"0.jpg": image(1, suffix=".jpg"), "1.png": image(2)})
    assert [field.name for field in one.schema] == ["key", "image", "files"]
    assert one[1]["image"] == image(2)
    two = opened(tmp_path / "b", {"0.jpg": image(1, suffix=".jpg"), "0.png": image(2)})
    assert [field.name for field in two.schema] == ["key", "image", "png", "files"]


def test_that_there_are_no_labels_is_said(tmp_path: Path) -> None:
    found = {f"{top}/{number}.png": image(number) for top in ("cat", "dog") for number in range(2)}
    assert "no labels" in opened(tmp_path / "a", found).notes
    assert "no labels" in opened(tmp_path / "b", {"0.png": image(1)}).notes
    assert not any(note.startswith("no labels") for note in opened(tmp_path / "c", members()).notes)


def test_the_user_names_fields_and_kinds(tmp_path: Path) -> None:
    root = tar_shards(tmp_path)
    source = Source(root, features=("image=png;jpg", "mask=seg.png:mask"))
    assert [(field.name, field.kind) for field in source.schema][1:3] == [("image", "image"), ("mask", "mask")]
    assert [*source.companions] == ["mask"]
    for features, message in (
        (("image=gif",), "no member ends in .gif; there are: cls, jpg, png, seg.png, txt"),
        (("image",), "expected FIELD=FEATURE"),
        (("a=cls:numbers",), "one number"),
    ):
        with pytest.raises(InvalidRequest, match=message):
            Source(root, features=features)


def test_a_lone_image_of_sixteen_bit_is_said_to_be_a_depth(tmp_path: Path) -> None:
    thermal = cv2.imencode(".png", np.arange(48 * 64, dtype=np.uint16).reshape(48, 64))[1].tobytes()
    source = opened(tmp_path, {"0.png": thermal, "1.png": thermal})
    assert source.schema["image"].kind == "depth"
    assert any("taken as a depth" in note for note in source.notes)


def test_members_that_no_sample_has_all_of_are_said(tmp_path: Path) -> None:
    found = {"0.png": image(0), "0.cls": b"0", "1.png": image(1), "1.txt": b"a", "2.png": image(2), "2.cls": b"1"}
    with pytest.raises(BadInput, match="3 samples.*lack") as refused:
        opened(tmp_path, found)
    assert "--missing skip" not in str(refused.value)
    with pytest.raises(
        InvalidRequest,
        match=r"0 \(\.txt\), 1 \(\.cls\)",
    ):
        opened(tmp_path, found, missing="skip")
    many = {f"{n}.{suffix}": b"1" for n in range(8) for suffix in ("png", *"abcdefgh") if suffix != "abcdefgh"[n]}
    with pytest.raises(InvalidRequest, match="8 samples"):
        opened(tmp_path / "many", many, missing="skip", features=("image=png", *(f"{n}={n}:bytes" for n in "abcdefgh")))


@pytest.mark.parametrize("suffix", ["pkl", "pickle", "pyd", "pth", "meta.pkl"])
def test_pickled_members_are_refused_left_out_or_kept_unread(tmp_path: Path, suffix: str) -> None:
    evil = b"cos\nsystem\n(S'false'\ntR."
    root = write(tmp_path, {"a.tar": tar_archive({"0.png": image(1), f"0.{suffix}": evil})})
    with pytest.raises(InvalidRequest, match=rf".{suffix} are pickled.*--feature image=png"):
        Source(root)
    assert [field.name for field in Source(root, features=("image=png",)).schema] == ["key", "image", "files"]
    assert Source(root, features=("image=png", f"meta={suffix}:bytes"))[0]["meta"] == evil


def test_samples_that_lack_a_member_are_an_error_or_left_out(tmp_path: Path) -> None:
    found = {**members(), "0003.png": image(3)}
    with pytest.raises(BadInput, match=r"lack.*0003 \(.cls\).*--missing skip.*image=png"):
        opened(tmp_path, found)
    skipped = opened(tmp_path, found, missing="skip")
    assert (len(skipped), skipped.left_out) == (3, [("0003", "no member .cls")])
    assert [int(skipped[row]["label"]) for row in range(3)] == [0, 1, 2]
    assert len(opened(tmp_path, found, features=("image=png",))) == 4


@pytest.mark.parametrize("data", [b"", b"x", b"1.5", b"1 2", b"99999999999999999999", b"\xff"])
def test_a_label_that_is_no_number_is_bad_and_named(tmp_path: Path, data: bytes) -> None:
    source = opened(tmp_path, {**members(), "0003.png": image(3), "0003.cls": data})
    with pytest.raises(BadInput, match=r"a.tar: .*\(0003\): .cls: .*number"):
        source[3]


# ---- tar


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_tarfile_writes_is_read(tmp_path: Path, form: int) -> None:
    found = {f"{'d' * 90}/{'e' * 60}/{at}.png": image(at) for at in range(3)}
    if form != tarfile.USTAR_FORMAT:
        found |= {f"{'ü' * 200}/{at}.png": image(9 + at) for at in range(2)}
    source = Source(write(tmp_path, {"a.tar": tar_of(found, form=form)}))
    assert {source.key(row) + ".png": source[row]["image"] for row in range(len(source))} == found
    if form != tarfile.USTAR_FORMAT:
        assert "/" in source[3]["files"]["image"] or source[3]["files"]["image"].startswith("0")


def test_a_name_that_extract_would_not_write_gets_a_number(tmp_path: Path) -> None:
    found = {"../a.png": image(1), "/b.png": image(2), f"{'x' * 300}.png": image(3)}
    source = Source(write(tmp_path / "in", {"a.tar": tar_of(found, form=tarfile.PAX_FORMAT)}))
    assert [source[row]["files"]["image"] for row in range(3)] == [f"0000000{row}.png" for row in range(3)]
    packer.convert(tmp_path / "in", tmp_path / "a.pack")
    packer.extract(tmp_path / "a.pack", tmp_path / "out")
    assert sorted(tree(tmp_path / "out").values()) == sorted(found.values())


def test_a_size_in_base_256_and_in_pax_is_read(tmp_path: Path) -> None:
    data = image(1)
    header = tar_header(b"a.png", 0)
    header = header[:124] + b"\x80" + len(data).to_bytes(11, "big") + header[136:148] + b" " * 8 + header[156:]
    header = header[:148] + b"%06o\0 " % sum(header) + header[156:]
    pax = b"%d size=%d\n"
    line = pax % (len(pax % (12, len(data))), len(data))
    second = tar_header(b"x", len(line), kind=b"x") + line + bytes(-len(line) % 512) + tar_header(b"b.png", 0)
    body = data + bytes(-len(data) % 512)
    source = Source(write(tmp_path, {"a.tar": header + body + second + body + END}))
    assert [source[row]["image"] for row in range(2)] == [data, data]


def test_compressed_files_are_read_and_other_compressions_are_not_recognized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_random_access_files, "_BLOCK_BYTES", 5000)
    root = write(tmp_path, {"a.tar.gz": gzip.compress(tar_archive(members()))})
    assert detect(root)[0] == "webdataset"
    assert [Source(root)[row]["image"] for row in (2, 0, 1)] == [image(2), image(0), image(1)]


# ---- damage


def test_a_cut_is_listed_wherever_it_is(tmp_path: Path) -> None:
    found = {f"{number}.cls": b"12345" for number in range(3)}
    data = tar_archive(found)
    for size in range(1024, len(data) - 511, 64):
        source = Source(write(tmp_path, {"a.tar": data[:size]}))
        assert len(source) == min((size + 507) // 1024, 3) if size % 1024 > 512 + 4 else size // 1024
        assert len(source.left_out) == (size < 3 * 1024 + 512), size
    whole = Source(write(tmp_path, {"a.tar": data}))
    assert (len(whole), whole.left_out, whole.unread) == (3, [], [])


def test_every_flipped_byte_of_a_header_is_found(tmp_path: Path) -> None:
    data = tar_archive({"0.cls": b"1", "1.cls": b"2", "2.cls": b"3"})
    for at in range(1024, 1536):
        broken = bytearray(data)
        broken[at] ^= 0x11
        source = Source(write(tmp_path, {"a.tar": bytes(broken)}))
        if at - 1024 in range(148, 156) and len(source) == 3:
            continue  # the sum's own padding
        assert (len(source), len(source.unread)) == (1, 1), at - 1024
        assert "a.tar@1024" in source.unread[0][0]


def test_what_follows_the_end_mark_is_said(tmp_path: Path) -> None:
    data = tar_archive(members(1)) + tar_archive(members(2))
    root = write(tmp_path / "in", {"a.tar": data})
    with pytest.raises(BadInput, match="end mark"):
        packer.convert(root, tmp_path / "a.pack")
    summary = packer.convert(root, tmp_path / "a.pack", on_error="skip")
    assert (summary.samples, len(summary.skipped)) == (1, 1)
    padded = Source(write(tmp_path / "b", {"a.tar": tar_archive(members(1)) + bytes(9000)}))
    assert not padded.unread


def test_other_tar_files_are_named(tmp_path: Path) -> None:
    root = write(tmp_path / "docs", {"a.tar": tar_archive({"README": b"text"})})
    with pytest.raises(InvalidRequest, match="no tar files.*names"):
        SourceSpec().open(root)
    with pytest.raises(InvalidRequest, match="pipe:"):  # a name like any other, and no command
        SourceSpec("webdataset").open(Path("pipe:touch hacked"))


# ---- what an entry is, by what lies beside it


def shards(kind: str, samples: list[dict[str, bytes]]) -> dict[str, bytes]:
    """A file of these entries, as the source `kind` reads it."""
    if kind == "tfrecord":
        records = [example({name: bytes_list(data) for name, data in sample.items()}) for sample in samples]
        return {"a.tfrecord": tfrecord(records)}
    if kind == "tensorpack-lmdb":
        entries = {b"%08d" % number: pickle.dumps(sample) for number, sample in enumerate(samples)}
        lmdb_environment(root := Path(tempfile.mkdtemp()), {**entries, b"__keys__": pickle.dumps(list(entries))})
        return {"data.mdb": (root / "data.mdb").read_bytes()}
    named = {f"{number:04d}.{name}": data for number, sample in enumerate(samples) for name, data in sample.items()}
    return {"a.tar": tar_archive(named)}


def beside_photos(kind: str, root: Path, name: str, values: list[bytes]) -> base.Source:
    """The source of records that have a photo (24x32 px) and this."""
    photos = [image(number, suffix=".jpg", height=24, width=32) for number in range(len(values))]
    samples = [{"jpg": photo, name: value} for photo, value in zip(photos, values, strict=True)]
    found: base.Source = sources.load(kind).Source(write(root, shards(kind, samples)))
    return found


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord"])
@pytest.mark.parametrize(("name", "array", "expected"), [
    ("boxes.npy", np.zeros((2, 4), np.float32), "bytes"),
    ("clip.npy", np.ones((77, 64), np.float32), "bytes"),
    ("depth.npy", np.ones((7, 9), np.float32), "depth"),
    ("z.npy", np.arange(768, dtype=np.float32).reshape(24, 32), "bytes"),
    ("seg.npy", np.ones((24, 32), np.uint16), "bytes"),
])  # fmt: skip
def test_an_array_is_a_depth_if_its_name_says_so(
    tmp_path: Path, kind: str, name: str, array: np.ndarray[tuple[int, int], np.dtype[np.float32]], expected: str
) -> None:
    source = beside_photos(kind, tmp_path, name, [npy(array)] * 3)
    assert {field.name: field.kind for field in source.schema}[name.replace(".", "_")] == expected


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord"])
def test_the_image_that_its_name_says_comes_first(tmp_path: Path, kind: str) -> None:
    samples = [{"aux.png": image(n), "rgb.png": image(n + 9), "seg.png": image(n)} for n in range(3)]
    source = sources.load(kind).Source(write(tmp_path, shards(kind, samples)))
    assert source.schema.names[1].startswith(("rgb", "image"))


def test_a_image_that_is_turned_otherwise_than_the_first_is_an_error(tmp_path: Path) -> None:
    samples = [{"image.jpg": oriented(first), "thumb.jpg": oriented(second)} for first, second in ((1, 1), (6, 6))]
    packer.convert(write(tmp_path / "a", shards("webdataset", samples)), tmp_path / "a.pack", exif="rotate")
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert all(sample["image"].shape == sample["thumb"].shape for sample in dataset)
    samples.append({"image.jpg": oriented(1), "thumb.jpg": oriented(6)})
    with pytest.raises(BadInputs, match="EXIF orientation 6.* 1"):
        packer.convert(write(tmp_path / "b", shards("webdataset", samples)), tmp_path / "b.pack")


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "tensorpack-lmdb"])
@pytest.mark.parametrize(("dtype", "readings"), [(np.uint8, ("image", "mask")), (np.uint16, ("depth", "mask:uint16"))])
def test_images_of_one_channel_next_to_others_are_declared(
    tmp_path: Path, kind: str, dtype: type[np.uint8 | np.uint16], readings: tuple[str, str]
) -> None:
    grays = [encoded(".png", np.full((24, 32), number, dtype)) for number in range(3)]
    samples = [{"png": gray, "jpg": image(number, suffix=".jpg")} for number, gray in enumerate(grays)]
    root = write(tmp_path / "in", shards(kind, samples))
    with pytest.raises(InvalidRequest, match="png") as refused:
        sources.load(kind).Source(root)
    assert "=jpg:image" in str(refused.value) and "mask:uint16" in str(refused.value)
    for reading in readings:
        declared = sources.load(kind).Source(root, features=("image=jpg", f"png=png:{reading}"))
        assert declared.schema["png"].kind == reading.partition(":")[0]
    alone = write(tmp_path / "alone", shards(kind, [{"png": gray} for gray in grays]))
    assert [each.kind for each in sources.load(kind).Source(alone).schema if each.kind in PIXEL_KINDS] == [readings[0]]


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord"])
def test_images_that_are_named_as_images_labels_or_depth_need_no_declaration(tmp_path: Path, kind: str) -> None:
    files = {"rgb.png": np.uint8, "seg.png": np.uint8, "disparity.png": np.uint16}
    samples = [{name: encoded(".png", np.full((24, 32), n, dtype)) for name, dtype in files.items()} for n in range(3)]
    source = sources.load(kind).Source(write(tmp_path, shards(kind, samples)))
    assert [field.kind for field in source.schema if field.kind in PIXEL_KINDS] == ["image", "depth", "mask"]


def test_a_tar_whose_only_sample_cannot_be_read_says_why(tmp_path: Path) -> None:
    data = tar_member("0.jpg", image(1)) * 2 + bytes(1024)
    with pytest.raises(BadInput, match="'0'.*two members.*.jpg"):
        Source(write(tmp_path, {"a.tar": data}))
