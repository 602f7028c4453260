"""Labels of ADE20K in full: colors that are classes, tables and JSON of objects."""

import numpy as np
import pytest

from packer.errors import BadInput
from packer.sources.image_files._ade20k_labels import annotation, attribute_rows, classes_and_instances
from tests.support.image_files import with_pillow


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (with_pillow(np.zeros((4, 4), np.uint8), "PNG"), "PNG of 1 channel"),
        (with_pillow(np.zeros((4, 4, 4), np.uint8), "PNG"), "PNG of 4 channel"),
        (with_pillow(np.zeros((16, 16, 3), np.uint8), "JPEG"), "JPEG of 3 channel"),
        (with_pillow(np.zeros((4, 4, 3), np.uint8), "PNG")[:60], "cannot decode"),
        (b"", "the file is empty"),
    ],
)
def test_what_has_no_such_colors_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=f"a/1_seg.png: .*{said}") as caught:
        classes_and_instances(data, "a/1_seg.png")
    assert "\n" not in str(caught.value)


def test_a_table_of_objects() -> None:
    text = '001 # 0 # 1 # sky # sky # ""\r\n\r\n002 # 1 # 0 # person, somebody # person # "walking, red"\n'
    assert attribute_rows(text.encode(), "1_atr.txt") == [
        {"object": 1, "part_level": 0, "is_occluded": True, "names": ["sky", "sky"], "attributes": []},
        {
            "object": 2,
            "part_level": 1,
            "is_occluded": False,
            "names": ["person, somebody", "person"],
            "attributes": ["walking", "red"],
        },
    ]


def test_a_number_sign_in_a_name_is_no_column() -> None:
    (row,) = attribute_rows(b'3 # 0 # 0 # seat #2, C# # row#1 # "no. #4"', "1_atr.txt")
    assert row["names"] == ["seat #2, C#", "row#1"]
    assert row["attributes"] == ["no. #4"]


def test_a_table_without_spaces_and_in_latin_letters() -> None:
    (row,) = attribute_rows('3#0#0#caf\xe9\x85#b#""'.encode("latin-1"), "1_atr.txt")
    assert row["names"] == ["caf\xe9", "b"]
    (row,) = attribute_rows("\ufeff3 # 0 # 0 # caf\xe9 # b # ".encode(), "1_atr.txt")
    assert (row["names"], row["attributes"]) == (["caf\xe9", "b"], [])


@pytest.mark.parametrize("line", ['1 # 0 # 0 # a # ""', 'x # 0 # 0 # a # b # ""', '1 # 0 # 0 # a # b # c # ""', "-"])
def test_a_line_of_other_columns_is_named(line: str) -> None:
    with pytest.raises(BadInput, match="1_atr.txt: line 2.*columns"):
        attribute_rows(f'1 # 0 # 0 # a # b # ""\n{line}\n'.encode(), "1_atr.txt")


def test_an_annotation() -> None:
    assert annotation('{"annotation": {"object": [{"id": 0, "name": "caf\xe9"}]}}'.encode("latin-1"), "1.json") == {
        "annotation": {"object": [{"id": 0, "name": "caf\xe9"}]}
    }


@pytest.mark.parametrize("text", ["[1]", "{", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', "[" * 100_000])
def test_what_is_no_annotation_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="1.json: .*JSON") as caught:
        annotation(text.encode(), "1.json")
    assert "\n" not in str(caught.value)
