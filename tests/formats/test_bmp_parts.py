"""bmp parts: any reader of images finds them, names cannot harm, and no damage is read as a value."""

import os
import shutil
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer import codecs
from packer.errors import CorruptPack, InvalidRequest, PackerError, StorageError
from packer.files import safe_paths
from packer.files.safe_paths import folded
from packer.formats.bmp import FileNames, Reader, Writer
from packer.pack.reader import Pack
from packer.pack.verification import problems
from packer.schema import Field, Schema
from tests.support import built_packs
from tests.support.part_damage import files_of, small_pack

SCHEMA = codecs.described(
    Schema((Field("key", "text", "text"), Field("image", "image", "bmp"), Field("blob", "bytes", "encoded")))
)


def write(path: Path, keys: Sequence[bytes]) -> list[dict[str, bytes]]:
    """A part with that many rows, each with values of its own; returns them."""
    records = [{"key": key, "image": b"image %d" % row, "blob": b"blob %d" % row} for row, key in enumerate(keys)]
    built_packs.write_records(path, records, "bmp", SCHEMA)
    return records


def names(path: Path, field: str = "image") -> list[str]:
    """The files of one field, in the order of the rows, as the documented arrays have them."""
    table = np.load(path / "values.npz")
    ends, data = table[f"names/{field}.offsets"].tolist(), table[f"names/{field}.data"].tobytes()
    return [data[start:end].decode("utf-8", "surrogateescape") for start, end in zip(ends, ends[1:], strict=False)]


# ---- names


HOSTILE = [
    *(b"", b".", b"..", b"../x", b"a/../../b", b"/etc/passwd", b"a//b", b"a/", b"nul\0", b"C:\\x", b"\\\\host\\share"),
    *(b"\xff\xfe.jpg", b"a\nb\t.jpg", b"n" * 255, b"n" * 252, b"d/" + b"y" * 254, b"/".join([b"deep"] * 900), b"~3"),
    *(b"A.jpg", b"a.jpg", b"a.JPG", "é".encode(), unicodedata.normalize("NFD", "é").encode(), b"dup", b"dup", b"dup"),
    *(b"f", b"f/g", b"f.bmp/g", b"f.bmp", b"F.BMP", b"values.npz", b"image", b"~3", b"dup~24", b"CON", b"x" * 4000),
    *(b"g.bmp/x", b"g.bmp", b"G.bmp/y"),
]


def test_no_key_leads_out_of_the_part_or_onto_another_file(tmp_path: Path) -> None:
    (tmp_path / "x.bmp").write_text("untouched")
    path = tmp_path / "in/part"
    path.parent.mkdir()
    records = write(path, HOSTILE)
    assert built_packs.read_records(path, len(HOSTILE), "bmp", SCHEMA) == records
    for field in ("image", "blob"):
        found = names(path, field)
        assert len({folded(name) for name in found}) == len(HOSTILE)
        files = [os.fsencode(file.relative_to(path / field)) for file in files_of(path / field)]
        assert sorted(files) == sorted(map(os.fsencode, found))
    assert os.listdir(path.parent) == ["part"]
    assert sorted(os.listdir(tmp_path)) == ["in", "x.bmp"]
    assert {top.name for top in path.iterdir()} == {"image", "blob", "values.npz"}


def test_a_name_is_the_key_with_a_suffix_that_fits_or_the_number_of_the_row(tmp_path: Path) -> None:
    write(tmp_path / "part", [b"cat/a.jpg", b"cat/A.jpg", b"cat/b.BMP", b"c", b"../x", b"d/" + b"n" * 255])
    expected = ["cat/a.jpg.bmp", "cat/A.jpg~1.bmp", "cat/b.BMP", "c.bmp", "~4.bmp", "d/~5.bmp"]
    assert names(tmp_path / "part") == expected
    assert names(tmp_path / "part", "blob")[0] == "cat/a.jpg.bin"
    schema = SCHEMA.select(("image",))
    built_packs.write_records(tmp_path / "bare", [{"image": b"one"}, {"image": b"two"}], "bmp", schema)
    assert (tmp_path / "bare/image/1.bmp").read_bytes() == b"two"


JPEG, PNG = b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n"


@given(st.lists(st.text(st.sampled_from("aAéÉ~1./\\"), max_size=4) | st.binary(max_size=6).map(os.fsdecode)))
@settings(max_examples=2 * settings().max_examples)
def test_names_are_never_taken_for_one(keys: list[str]) -> None:
    taken, found = FileNames(), []
    for row, key in enumerate(keys):
        found += [folded(name) for name in taken.take(os.fsencode(key), row, [(".bmp",)])]
    assert len(set(found)) == len(keys)
    folders = {name[:at] for name in found for at in range(len(name)) if name[at] == "/"}
    assert folders.isdisjoint(found)


@pytest.mark.parametrize(
    ("kind", "codec", "value", "suffix"),
    [
        *(("image", "encoded", JPEG, ".jpg"), ("image", "jpeg:95", JPEG, ".jpg"), ("image", "jpeg:95", PNG, ".png")),
        *(("image", "bmp", b"", ".bmp"), ("depth", "npy", b"", ".npy"), ("depth", "raw", b"BM", None)),
        *(
            ("depth", "encoded", b"II*\0", ".tiff"),
            ("bytes", "encoded", JPEG, None),
            ("mask", "encoded", b"", None),
        ),
    ],
)
def test_a_suffix_tells_what_the_file_is(kind: str, codec: str, value: bytes, suffix: str | None) -> None:
    found = codecs.stored_form(Field("x", kind, codec)).suffixes(value)
    assert found[:1] == (() if suffix is None else (suffix,))


def test_gathered_values_are_plain_arrays(tmp_path: Path) -> None:
    records = built_packs.records(9)
    built_packs.write_part(tmp_path / "part", records, format="bmp")
    table = np.load(tmp_path / "part/values.npz", allow_pickle=False)
    assert table["label"].tolist() == [row % 2 for row in range(9)]
    assert (table["pair"].dtype, table["pair"].shape) == (np.dtype("uint16"), (9, 2))
    assert table["key.data"].tobytes() == b"".join(record["key"] for record in records)
    assert table["sizes/blob"].tolist() == [len(record["blob"]) for record in records]
    assert table["packer.json"] == b'{"fields": ["key", "blob", "label", "pair"], "samples": 9}'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            b"'descr': '<i8', 'fortran_order': False, 'shape': (9,)",
            b"'descr': '<u8', 'fortran_order': False, 'shape': (9,)",
        ),
        (b"'fortran_order': False", b"'fortran_order': True "),
        (b"'shape': (9, 2)", b"'shape': (18,) "),
        (b"\x93NUMPY\x01", b"\x93NUMPY\x02"),
        (b'"samples": 9', b'"samples": 8'),
        (b"label.npy", b"lapel.npy"),
    ],
)
def test_a_table_of_another_layout_is_refused(tmp_path: Path, old: bytes, new: bytes) -> None:
    built_packs.write_part(tmp_path / "part", built_packs.records(9), format="bmp")
    table = tmp_path / "part/values.npz"
    data = table.read_bytes()
    assert old in data
    table.write_bytes(data.replace(old, new))
    with pytest.raises(CorruptPack, match=r"part/values\.npz: .*again"):
        Reader(tmp_path / "part", built_packs.SCHEMA, samples=9)


# ---- damage


def swapped(part: Path) -> None:
    one, other = part / "blob/sample-00003.bin", part / "blob/sample-00004.bin"
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def linked(part: Path) -> None:
    """The very same bytes, but elsewhere."""
    shutil.move(part / "blob/sample-00003.bin", part.parent.parent / "elsewhere")
    (part / "blob/sample-00003.bin").symlink_to(part.parent.parent / "elsewhere")


def folder_linked(part: Path) -> None:
    shutil.move(part / "blob", part.parent.parent / "elsewhere")
    (part / "blob").symlink_to(part.parent.parent / "elsewhere")


def other_kind(make: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(part: Path) -> None:
        (part / "blob/sample-00003.bin").unlink()
        make(part / "blob/sample-00003.bin")

    return change


def renamed(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Another name in the table, of the same length; what it leads to is there, and has the right bytes."""

    def change(part: Path) -> None:
        data = (part / "values.npz").read_bytes()
        at = data.index(old, data.index(b"names/blob.data"))
        (part / "values.npz").write_bytes(data[:at] + new + data[at + len(old) :])
        shutil.copy(part / "blob" / old.decode(), part.parent / "sample.bin")

    return change


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "missing": (lambda part: (part / "blob/sample-00003.bin").unlink(), "sample-00003.bin: missing"),
    "cut": (lambda part: os.truncate(part / "blob/sample-00003.bin", 99), "expected 100 bytes, found 99"),
    "empty": (lambda part: os.truncate(part / "blob/sample-00003.bin", 0), "expected 100 bytes, found 0"),
    "grown": (lambda part: os.truncate(part / "blob/sample-00003.bin", 101), "expected 100 bytes, found 101"),
    "swapped": (swapped, "damaged record: crc32"),
    "a link": (linked, "cannot be opened as a file"),
    "a linked folder": (folder_linked, "cannot be opened as a file"),
    "a folder": (other_kind(lambda path: path.mkdir()), "found a folder or a device"),
    "a fifo": (other_kind(os.mkfifo), "found a folder or a device"),
    "no folder": (lambda part: shutil.rmtree(part / "blob"), "missing"),
    "a name that leads out": (
        renamed(b"sample-00003.bin", b"../../sample.bin"),
        "cannot be opened as a file",
    ),
    "a name with NUL": (renamed(b"sample-00003.bin", b"sample-0003.bin\0"), "cannot be opened as a file"),
}


@pytest.mark.one_in(12)
@pytest.mark.parametrize("has_call", [True, pytest.param(False, marks=pytest.mark.full)])
@pytest.mark.parametrize("what", DAMAGE)
def test_a_file_that_is_not_what_was_written_is_named(
    tmp_path: Path, what: str, has_call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = small_pack(tmp_path / "pack", "bmp")
    change, words = DAMAGE[what]
    change(part)
    monkeypatch.setattr(safe_paths, "_HAS_CALL", has_call and safe_paths._HAS_CALL)
    pack = Pack(tmp_path / "pack")
    with pytest.raises(CorruptPack, match=words) as caught, pack.record(3, ("blob",)):
        pass
    assert str(part) in str(caught.value)
    assert "\n" not in str(caught.value)
    pack.close()
    lines = list(problems(tmp_path / "pack"))
    assert lines, "verify has overlooked it"


def test_a_part_that_is_a_link_is_refused(tmp_path: Path) -> None:
    part = small_pack(tmp_path / "pack", "bmp")
    part.rename(tmp_path / "away")
    part.symlink_to(tmp_path / "away")
    with pytest.raises(PackerError, match="expected a folder"):
        Pack(tmp_path / "pack")


def test_a_failed_write_ends_the_part(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "part", SCHEMA, payload_bytes=0)
    (tmp_path / "part/image").symlink_to(tmp_path)
    with pytest.raises(StorageError, match="^[^ ]*part/image/a.bmp: .*write: [A-Z][a-z ]*$"):
        writer.write({"key": b"a", "image": b"x", "blob": b""})
    with pytest.raises(InvalidRequest, match="closed"):
        writer.finish()
    assert sorted(os.listdir(tmp_path)) == ["part"]
