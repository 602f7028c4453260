"""Folders in archives: every source of small files reads a tar and a zip as the folder that they were made of."""

import io
import os
import pickle
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from packer import sources
from packer.conversion.convert import convert
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison
from packer.errors import BadInput, InvalidRequest, PackerError
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.sources import _recognition, base
from packer.sources._recognition import detect
from packer.sources._trees import archive_tree, tar_tree
from packer.sources._trees.open_tree import open_tree
from packer.sources._trees.tar_tree import tar_tree as opened_tar
from packer.system.parallel import ordered_map
from tests.support.archives import MAKERS, deflated, gnu, packed, pax, stored, tar_of, zip_of
from tests.support.child_processes import forked
from tests.support.conversions import digest
from tests.support.descriptors import open_files
from tests.support.source_trees import BUILDERS, image, mask, photos, tree, write

FOLDER_LIKE = [name for name in BUILDERS if not sources.load(name).Source.holds_records]


@pytest.mark.one_in(20)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", FOLDER_LIKE)
def test_an_archive_gives_the_pack_of_the_folder(tmp_path: Path, kind: str, maker: str) -> None:
    folder = BUILDERS[kind](tmp_path / "in")
    archive = MAKERS[maker](folder, tmp_path / "data")
    convert(folder, tmp_path / "a.pack", kind=kind)
    convert(archive, tmp_path / "b.pack", kind=kind)
    a, b = manifests.read(tmp_path / "a.pack"), manifests.read(tmp_path / "b.pack")
    assert (b.pack_id, b.source, b.incomplete, b.skipped) == (a.pack_id, a.source, a.incomplete, a.skipped)
    assert digest(tmp_path / "a.pack" / "part-00000") == digest(tmp_path / "b.pack" / "part-00000")
    comparison = Comparison(tmp_path / "a.pack", archive)
    assert list(comparison.problems()) == [] and comparison.compared > 0
    extract(tmp_path / "b.pack", tmp_path / "out")
    extracted = tree(tmp_path / "out")
    assert extracted and extracted.items() <= tree(folder).items()


@pytest.mark.one_in(9)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("kind", FOLDER_LIKE)
def test_samples_are_those_of_the_folder(tmp_path: Path, kind: str, maker: str) -> None:
    folder = BUILDERS[kind](tmp_path / "in")
    archive = MAKERS[maker](folder, tmp_path / "data")
    expected = sources.load(kind).Source(folder)
    found = pickle.loads(pickle.dumps(sources.load(kind).Source(archive)))
    assert (found.schema, found.notes, found.left_out) == (expected.schema, expected.notes, expected.left_out)
    assert [found.key(row) for row in range(len(found))] == [expected.key(row) for row in range(len(expected))]
    samples = ordered_map(found.__getitem__, list(range(len(found))), threads=4)
    assert list(map(repr, samples)) == [repr(expected[row]) for row in range(len(expected))]
    assert [found.entry(row) for row in range(len(found))] == [expected.entry(row) for row in range(len(found))]


@pytest.mark.parametrize("maker", [pax, packed, deflated])
def test_forked_children_read_what_the_parent_reads(tmp_path: Path, maker: Callable[[Path, Path], Path]) -> None:
    source = sources.load("folder").Source(maker(photos(tmp_path / "in"), tmp_path / "data"))
    expected = [repr(source[row]) for row in range(len(source))]

    def read() -> None:
        assert [repr(source[row]) for row in range(len(source))] == expected

    children = [forked(read) for _ in range(4)]
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4


@pytest.mark.parametrize("maker", [pax, packed, stored])
def test_nothing_stays_open(tmp_path: Path, maker: Callable[[Path, Path], Path]) -> None:
    archive = maker(photos(tmp_path / "in"), tmp_path / "data")
    convert(archive, tmp_path / "warm.pack", kind="folder")
    before = {target for target in open_files().values() if str(tmp_path) in target}
    convert(archive, tmp_path / "a.pack", kind="folder", threads=2)
    assert {target for target in open_files().values() if str(tmp_path) in target} == before


def test_imagenet_in_its_tar_of_tars(tmp_path: Path) -> None:
    folder = photos(tmp_path / "in", 9)
    inner = {
        f"{path.name}.tar": tar_of({name.name: name.read_bytes() for name in sorted(path.iterdir())})
        for path in sorted(folder.iterdir())
    }
    (tmp_path / "ILSVRC2012_img_train.tar").write_bytes(tar_of(inner))
    convert(folder, tmp_path / "a.pack")
    convert(tmp_path / "ILSVRC2012_img_train.tar", tmp_path / "b.pack", kind="folder")
    assert manifests.read(tmp_path / "b.pack").pack_id == manifests.read(tmp_path / "a.pack").pack_id
    assert manifests.read(tmp_path / "b.pack").schema["label"].classes == ("class0", "class1", "class2")


def test_the_headers_are_read_and_nothing_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {f"a/{number}.bin": bytes(100_000) for number in range(20)}
    (tmp_path / "x.tar").write_bytes(tar_of(members))
    read = []
    real = os.pread

    def noted(descriptor: int, size: int, offset: int) -> bytes:
        read.append((offset, size))
        return real(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", noted)
    opened_tar(tmp_path / "x.tar")
    assert sum(size for _, size in read) < 20 * 4096 + (1 << 18)
    assert [offset for offset, _ in read] == sorted(offset for offset, _ in read)


# ---- what is told by itself


def test_what_a_mac_adds_to_a_zip_does_not_keep_its_folder_from_being_the_root(tmp_path: Path) -> None:
    members = {f"photos/{kind}/{n}.png": image(n) for kind in ("cat", "dog") for n in range(2)}
    left = {"__MACOSX/photos/cat/._0.png": b"x", "__MACOSX/._photos": b"x", ".DS_Store": b"x"}
    (tmp_path / "photos.zip").write_bytes(zip_of(left | members))
    source, _ = SourceSpec().open(tmp_path / "photos.zip")
    assert [source.key(at) for at in range(4)] == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]
    assert [source.value(at, "image") for at in range(4)] == list(members.values())
    assert any("desktops" in note and "__MACOSX" in note for note in source.notes)


def test_one_folder_that_the_finder_packed_is_the_root_whatever_the_zip_is_called(tmp_path: Path) -> None:
    members = {f"photos/{kind}/{n}.png": image(n) for kind in ("cat", "dog") for n in range(2)}
    left = {"__MACOSX/photos/cat/._0.png": b"x", "__MACOSX/._photos": b"x"}
    (tmp_path / "photos.zip").write_bytes(zip_of(members))
    convert(tmp_path / "photos.zip", tmp_path / "plain.pack")
    (tmp_path / "photos (1).zip").write_bytes(zip_of(members | {"photos/README": b"x"} | left))
    convert(tmp_path / "photos (1).zip", tmp_path / "finder.pack")
    found, plain = (manifests.read(tmp_path / f"{name}.pack") for name in ("finder", "plain"))
    assert found.schema == plain.schema and found.schema["label"].classes == ("cat", "dog")
    assert list(Comparison(tmp_path / "finder.pack", tmp_path / "photos (1).zip").problems()) == []


@pytest.mark.parametrize("others", [{"b/2.png": image(2)}, {"2.png": image(2)}, {}])
def test_folders_that_the_finder_packed_beside_others_or_without_folders_stay(
    tmp_path: Path, others: dict[str, bytes]
) -> None:
    inner = "a/x/1.png" if others else "a/1.png"  # images in one folder: it is their class
    (tmp_path / "x.zip").write_bytes(zip_of({inner: image(1), "__MACOSX/._a": b"x", **others}))
    found = open_tree(tmp_path / "x.zip").contents
    assert found is not None and inner in found.names


EMPTY = {
    "a.tfrecord": ["tfrecord"],
    "a.rec": ["recordio"],
    "a.tar": ["webdataset", "folder"],
    "a.zip": ["folder"],
    "a.h5": ["hdf5"],
    "a.npz": ["npz"],
    "a.npy": ["npy"],
    "data.mdb": ["caffe-lmdb", "efficient-lmdb"],
}


@pytest.mark.parametrize("name", EMPTY)
def test_a_file_without_a_byte_is_called_empty_whatever_reads_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    for kind in ("auto", *EMPTY[name]):
        with pytest.raises(InvalidRequest, match="file is empty"):
            SourceSpec(kind).open(tmp_path / name)
    with pytest.raises(InvalidRequest, match="1 file"):
        SourceSpec().open(tmp_path)


def test_class_folders_in_a_tar_are_read_as_the_folder(tmp_path: Path) -> None:
    """No name has a second member, as those of a sample have."""
    archive = gnu(photos(tmp_path / "in"), tmp_path / "photos")
    assert detect(archive)[0] == detect(tmp_path / "in")[0] == "folder"
    assert "label" in SourceSpec().open(archive)[0].schema
    assert len(SourceSpec("webdataset").open(archive)[0]) == 12


def test_class_folders_with_a_late_second_member_cannot_be_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_recognition, "_LOOKED_AT", 2)
    members = {name: image(1) for name in ("a/1.png", "a/2.png", "b/3.png", "b/3.jpg")}
    (tmp_path / "a.tar").write_bytes(tar_of(members))
    with pytest.raises(InvalidRequest, match="several sources.*--from folder .*--from webdataset"):
        detect(tmp_path / "a.tar")


def test_a_tar_of_tars_cannot_be_decided(tmp_path: Path) -> None:
    inner = tar_of({"0.jpg": image(0, suffix=".jpg")})
    (tmp_path / "a.tar").write_bytes(tar_of({"n01.tar": inner, "n02.tar": inner}))
    with pytest.raises(InvalidRequest, match="tars: several sources.*--from folder .*--from webdataset"):
        detect(tmp_path / "a.tar")


@pytest.mark.parametrize("members", [("a/1.jpg", "a/1.cls"), ("1.jpg", "2.jpg"), ("./a/x.seg.png", "./a/x.jpg")])
def test_samples_in_a_tar_stay_webdataset(tmp_path: Path, members: tuple[str, ...]) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of(dict.fromkeys(members, image(1))))
    assert detect(tmp_path / "a.tar")[0] == "webdataset"


def test_an_archive_without_images_says_what_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zip_of({"a.pdf": b"1", "b/c.pdf": b"2"}))
    with pytest.raises(InvalidRequest, match=r"no known.*\.pdf 2"):
        detect(tmp_path / "a.zip")
    (tmp_path / "b.zip").write_bytes(zip_of({"a.heic": b"\0\0\0\x18ftypheic"}))
    with pytest.raises(InvalidRequest, match=r"no images: .*\.heic 1"):
        SourceSpec().open(tmp_path / "b.zip")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a.bin": b"no archive"})
    with pytest.raises(InvalidRequest, match="is a file; .*tar or zip"):
        SourceSpec("folder").open(tmp_path / "a.bin")


# ---- what packer does with sources


def test_sidecars_lie_in_the_archive(tmp_path: Path) -> None:
    files = {f"images/{number}.jpg": image(number, suffix=".jpg") for number in range(4)}
    files |= {f"masks/{number}.png": mask(number) for number in range(4)}
    folder = write(tmp_path / "in", files)
    beside = ("mask=masks/{stem}.png:mask",)
    convert(folder, tmp_path / "a.pack", sidecars=beside, folders="none")
    for maker in (gnu, stored):
        archive = maker(folder, tmp_path / "b")
        convert(archive, tmp_path / f"{maker.__name__}.pack", kind="folder", sidecars=beside, folders="none")
        made = tmp_path / f"{maker.__name__}.pack"
        assert manifests.read(made).pack_id == manifests.read(tmp_path / "a.pack").pack_id
        assert list(Comparison(made, archive).problems()) == []


def test_there_is_no_folder_above_an_archive(tmp_path: Path) -> None:
    archive = gnu(photos(tmp_path / "in"), tmp_path / "x")
    with pytest.raises(InvalidRequest, match="no folder"):
        SourceSpec("folder", sidecars=("mask=../masks/{stem}.png:mask",)).open(archive)


def test_what_cannot_be_read_is_skipped_and_listed_as_of_the_folder(tmp_path: Path) -> None:
    folder = photos(tmp_path / "in")
    write(folder, {"class0/bad.jpg": b"\xff\xd8\xff no image", "class1/x.heic": b"\0\0\0\x18ftypheic"})
    for archive in (gnu(folder, tmp_path / "t"), deflated(folder, tmp_path / "z")):
        with pytest.raises(BadInput, match="2 of 14"):
            convert(archive, tmp_path / "no.pack", kind="folder")
        convert(archive, tmp_path / f"{archive.name}.pack", kind="folder", on_error="skip")
    convert(folder, tmp_path / "a.pack", on_error="skip")
    expected = manifests.read(tmp_path / "a.pack")
    for name in ("t.tar", "z.zip"):
        found = manifests.read(tmp_path / f"{name}.pack")
        assert [key for key, _ in found.skipped] == [key for key, _ in expected.skipped]
        assert not any(str(tmp_path) in reason for _, reason in found.skipped)


@pytest.mark.parametrize("maker", [pax, packed, deflated])
def test_a_conversion_goes_on_in_an_archive_that_has_not_changed(
    tmp_path: Path, maker: Callable[[Path, Path], Path]
) -> None:
    archive = maker(photos(tmp_path / "in"), tmp_path / "data")

    def fingerprint() -> str:
        return make_plan(sources.load("folder").Source(archive), ConversionOptions()).fingerprint

    before = fingerprint()
    assert fingerprint() == before
    os.utime(archive, ns=(1, 1))
    assert fingerprint() != before


# ---- hostile archives


def with_member(kind: bytes, *, link: str = "", size: int = 0) -> bytes:
    """A tar with an image and a member of some kind."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("cat/1.png")
        info.size = len(image(1))
        archive.addfile(info, io.BytesIO(image(1)))
        other = tarfile.TarInfo("cat/2.png")
        other.type, other.linkname, other.size = kind, link, size
        archive.addfile(other, io.BytesIO(bytes(size)))
    return file.getvalue()


def sparse() -> bytes:
    """A tar with a file that GNU tar wrote without its holes, in pax."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("GNUSparseFile.0/1.png")
        info.size = 4
        info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "1.png"}
        archive.addfile(info, io.BytesIO(b"1234"))
    return file.getvalue()


def zip_link() -> bytes:
    """A zip whose one member is a symbolic link."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        info = zipfile.ZipInfo("cat/1.png")
        info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return file.getvalue()


def changed(data: bytes, magic: bytes, offset: int, value: bytes) -> bytes:
    """A zip with some bytes behind each of its headers of a kind replaced."""
    out, at = bytearray(data), 0
    while (at := data.find(magic, at)) >= 0:
        out[at + offset : at + offset + len(value)] = value
        at += 4
    return bytes(out)


LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
BIG = zip_of({"a/1.png": bytes(100_000)})
PNG = image(1)
TAR = tar_of({"a/1.png": PNG, "a/2.png": PNG})
INNER = tar_of({"1.png": PNG})
REFUSED = {
    "above.tar": (tar_of({"../a.png": PNG}), "leads out of the archive"),
    "deep above.tar": (tar_of({"a/../../b.png": PNG}), "leads out of the archive"),
    "absolute.tar": (tar_of({"/etc/a.png": PNG}), "leads out of the archive"),
    "drive.tar": (tar_of({"C:/a.png": PNG}), "could lead out"),
    "symbolic.tar": (with_member(tarfile.SYMTYPE, link="1.png"), r"cat/2.png \(symbolic link\)"),
    "hard.tar": (with_member(tarfile.LNKTYPE, link="cat/1.png"), r"hard link; tar --hard-dereference"),
    "device.tar": (with_member(tarfile.CHRTYPE), r"\(device\)"),
    "fifo.tar": (with_member(tarfile.FIFOTYPE), r"\(device\)"),
    "twice.tar": (tar_of({"a/1.png": PNG})[:-10240] + tar_of({"a/1.png": PNG}), r"comes twice|damaged|more than zeros"),
    "case.tar": (tar_of({"a/1.png": PNG, "a/1.PNG": PNG}), "in the way of"),
    "folder case.tar": (tar_of({"a/1.png": PNG, "A/2.png": PNG}), "in case or accents only"),
    "accents.tar": (tar_of({"a/\u00fc.png": PNG, "a/u\u0308.png": PNG}), "in the way of"),
    "file and folder.tar": (tar_of({"a": PNG, "a/1.png": PNG}), "in the way of"),
    "cut in data.tar": (TAR[:1000], "is cut in the data"),
    "cut in a header.tar": (TAR[:512] + TAR[512 : 512 + (-(-len(PNG) // 512)) * 512] + b"x" * 100, "is cut"),
    "no end mark.tar": (TAR[: 2 * (512 + -(-len(PNG) // 512) * 512)], "no end mark"),
    "three deep.tar": (tar_of({"a.tar": tar_of({"b.tar": INNER})}), "a tar in a tar in a tar"),
    "inner cut.tar": (tar_of({"a.tar": INNER, "b.tar": INNER[:1024]}), r"b\.tar: is cut"),
    "inner above.tar": (tar_of({"a.tar": tar_of({"../../x.png": PNG})}), "leads out"),
    "pax sparse.tar": (sparse(), r"\(sparse file\)"),
    "above.zip": (zip_of({"../a.png": PNG}), "leads out of the archive"),
    "absolute.zip": (zip_of({"/a.png": PNG}), "leads out of the archive"),
    "link.zip": (zip_link(), "symbolic link"),
    "case.zip": (zip_of({"a/1.png": PNG, "a/1.PNG": PNG}), "in the way of"),
    "cut.zip": (zip_of({"a/1.png": PNG})[:-30], "does not end with the directory"),
    "one letter twice.tar": (tar_of({"a": b"x"})[:1024] * 2 + bytes(1024), "twice"),
    "folder with bytes.tar": (with_member(tarfile.DIRTYPE, size=512), r"cat/2.png/ \(.*bytes"),
    "encrypted.zip": (changed(changed(BIG, LOCAL, 6, b"\1\0"), CENTRAL, 8, b"\1\0"), "is compressed or encrypted"),
    "lzma.zip": (zip_of({"a/1.png": PNG}, method=zipfile.ZIP_LZMA), "is compressed or encrypted"),
    "of a later disk.zip": (changed(BIG, END, 4, b"\1\0"), "one of several disks"),
    "begun on a later disk.zip": (changed(BIG, END, 6, b"\1\0"), "one of several disks"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_archives_are_refused_when_they_are_listed(tmp_path: Path, name: str) -> None:
    data, reason = REFUSED[name]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadInput, match=reason) as caught:
        open_tree(tmp_path / name)
    assert name in str(caught.value) and "\n" not in str(caught.value)


def test_a_member_never_unpacks_to_more_than_it_says(tmp_path: Path) -> None:
    small = struct.pack("<I", 10)
    (tmp_path / "a.zip").write_bytes(changed(changed(BIG, LOCAL, 22, small), CENTRAL, 24, small))
    with pytest.raises(BadInput, match="more bytes.* 10"):
        open_tree(tmp_path / "a.zip").read("1.png")
    large = struct.pack("<I", 0xFFFFFFF0)
    (tmp_path / "b.zip").write_bytes(changed(changed(BIG, LOCAL, 22, large), CENTRAL, 24, large))
    for is_table in (False, True):
        with pytest.raises(BadInput, match="more|--max-pixels"):
            open_tree(tmp_path / "b.zip").read("a/1.png", is_table=is_table)


def zip64(*, size: int = len(PNG), end_size: int | None = None) -> bytes:
    """A zip with one stored member whose sizes, and the directory's, are in zip64 records."""
    name = b"x/1.png"
    none, crc = b"\xff" * 4, struct.pack("<I", zlib.crc32(PNG))
    extra = struct.pack("<HHQQ", 1, 16, size, size)
    both = struct.pack("<HHHHH", 45, 0, 0, 0, 0x21) + crc + none + none + struct.pack("<HH", len(name), len(extra))
    local = LOCAL + both + name + extra + PNG
    central = CENTRAL + struct.pack("<H", 45) + both + bytes(14) + name + extra
    said = len(central) if end_size is None else end_size
    end64 = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, said, len(local))
    locator = b"PK\x06\x07" + struct.pack("<IQI", 0, len(local) + len(central), 1)
    end = b"PK\x05\x06" + struct.pack("<HHHH", 0, 0, 1, 1) + none + none + bytes(2)
    return local + central + end64 + locator + end


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({}, ""),
        ({"size": len(PNG) - 1}, "damaged in the archive: crc32"),
        *(({"size": size}, "does not fit before the next one") for size in (len(PNG) + 1, 1 << 40, 1 << 63)),
        *(({"end_size": size}, "cannot read the zip file") for size in (1, 1 << 40, 1 << 63)),
    ],
)
def test_sizes_in_zip64_records_are_taken_and_must_fit(tmp_path: Path, sizes: dict[str, int], said: str) -> None:
    (tmp_path / "a.zip").write_bytes(zip64(**sizes))
    if said:
        with pytest.raises(BadInput, match=said):
            open_tree(tmp_path / "a.zip").read("x/1.png")
        return
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert archive.read("x/1.png") == open_tree(tmp_path / "a.zip").read("x/1.png") == PNG


def test_another_crc32_is_an_error(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        data = zip_of({"x/1.png": PNG}, method=method)
        (tmp_path / "a.zip").write_bytes(changed(data, CENTRAL, 16, struct.pack("<I", zlib.crc32(PNG) ^ 1)))
        with pytest.raises(BadInput, match=r"x/1\.png: damaged.*crc32"):
            open_tree(tmp_path / "a.zip").read("x/1.png")


def test_members_over_each_other_are_refused(tmp_path: Path) -> None:
    data = zip_of({"x/1.png": PNG, "x/2.png": PNG}, method=zipfile.ZIP_STORED)
    second = data.rfind(CENTRAL)
    out = bytearray(data)
    out[second + 42 : second + 46] = bytes(4)  # the place of the first
    (tmp_path / "a.zip").write_bytes(out)
    with pytest.raises(BadInput, match="no header|before the next"):
        open_tree(tmp_path / "a.zip")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_comes_twice_in_a_zip_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x/1.png", PNG)
        archive.writestr("x/1.png", PNG)
    with pytest.raises(BadInput, match="repeated"):
        open_tree(tmp_path / "a.zip")


def test_names_of_zips_in_code_page_437_and_in_utf_8_that_does_not_say_so(tmp_path: Path) -> None:
    data = zip_of({"x/aa.png": PNG, "x/bb.png": PNG})
    data = data.replace(b"x/aa.png", "x/\u00fc.png".encode()).replace(b"x/bb.png", b"x/\x81b.png")
    (tmp_path / "a.zip").write_bytes(data)
    tree_found = open_tree(tmp_path / "a.zip")
    assert tree_found.contents is not None
    assert tree_found.contents.names == sorted(["x/\u00fc.png", "x/\u00fcb.png"])
    assert {tree_found.read(name) for name in tree_found.contents.names} == {PNG}


def test_a_zip_with_a_comment_and_one_without_members(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x/1.png", PNG)
        archive.comment = b"0d7a6f2 of some repository"
    assert open_tree(tmp_path / "a.zip").read("x/1.png") == PNG
    with zipfile.ZipFile(tmp_path / "b.zip", "w"):
        pass
    with pytest.raises(InvalidRequest, match="no file"):
        detect(tmp_path / "b.zip")


def test_a_small_file_that_unpacks_to_very_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_tree, "_MOST_UNPACKED_BYTES", 1 << 20)
    archive = packed(write(tmp_path / "in", {"a/1.bin": bytes(3 << 20), "b/2.bin": b""}), tmp_path / "x")
    assert archive.stat().st_size < 1 << 16
    with pytest.raises(BadInput, match="gunzip it first"):
        open_tree(archive)


def test_every_culprit_is_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(tar_of({f"../{number}.png": b"" for number in range(30)}))
    with pytest.raises(BadInput, match=r"\.\./0\.png .*\.\./19\.png .* 10 more; .*unpack"):
        open_tree(tmp_path / "a.tar")


def test_equal_hashes_of_other_names_are_no_collision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_tree, "hash", lambda text: 1, raising=False)
    (tmp_path / "x.tar").write_bytes(TAR)
    assert open_tree(tmp_path / "x.tar").read("a/1.png") == PNG


def test_old_tars_mark_folders_by_a_slash(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(tar_of({"a/": b"", "a/1.png": PNG}))
    assert open_tree(tmp_path / "x.tar").contents == (["a/1.png"], ["a"])


def test_cuts_anywhere_are_errors_of_packer(tmp_path: Path) -> None:
    for name, data in (("a.tar", tar_of({"a/1.bin": b"x" * 700, "b/2.bin": b""})), ("a.zip", zip_of({"a/1": b"x"}))):
        for end in range(0, len(data.rstrip(b"\0")), 13):
            (tmp_path / name).write_bytes(data[:end])
            with pytest.raises(PackerError):
                sources.load("folder").Source(tmp_path / name)


def test_a_source_of_an_archive_is_a_source(tmp_path: Path) -> None:
    source = sources.load("folder").Source(stored(photos(tmp_path / "in"), tmp_path / "x"))
    assert isinstance(source, base.Source)
    assert base.sample_name(source, 0) == str(tmp_path / "x.zip" / "class0" / "0000.jpg")
    with pytest.raises(BadInput, match=r"x\.zip/nowhere: .*no such"):
        source.read_file("nowhere")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("maker", [tar_of, zip_of])
@pytest.mark.parametrize(
    ("files", "culprit"),
    [
        ({"a/1.png": PNG, "b/2.png": PNG, "a/1.png/": PNG}, "a/1.png/"),  # a folder with bytes, named as a file is
        ({"a/1.png": PNG, "b/2.png": PNG, "c/": PNG}, "c/"),
        ({"a/1.png": PNG, "b/2.png": PNG, "a/1.png/": b""}, "a/1.png"),
        ({"a/1.png": PNG, "b/2.png": PNG, "A/1.PNG/": b""}, "1.png"),
        ({"a/1.png/": b"", "a/1.png": PNG, "b/2.png": PNG}, "a/1.png"),
        ({"a/1.png": PNG, "b/2.png": PNG, "B/": b""}, "B/"),
    ],
)
def test_names_of_files_and_folders_are_one_table(
    tmp_path: Path, maker: Callable[[dict[str, bytes]], bytes], files: dict[str, bytes], culprit: str
) -> None:
    (tmp_path / "x").write_bytes(maker(files))
    with pytest.raises(BadInput, match="refuses") as caught:
        open_tree(tmp_path / "x")
    assert culprit in str(caught.value)
