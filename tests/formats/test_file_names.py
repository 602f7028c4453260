"""The names of files in a part that is a folder."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from packer import codecs
from packer.files.safe_paths import folded
from packer.formats.bmp import FileNames
from packer.schema import Field

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
