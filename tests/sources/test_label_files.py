"""Label text: rectangles of four lines, rows of five numbers, strict and lenient."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import BadInput
from packer.sources.grasp._label_files import read_rectangles, read_rows

PATH = Path("pcd0100cpos.txt")
# the rectangles of a real NaN file, as its description gives them
NAN_FILE = (
    b"283 286.999 \n284 315 \n313 314 \n312 285.999\nNaN NaN \n256 313 \n277 313 \nNaN NaN\n"
    b"233 289.772 \n236 316 \n262 313 \n259 286.772\n"
)
NUMBERS = st.floats(-5000, 5000).map(lambda value: round(value, 3))


@given(
    corners=st.lists(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=4, max_size=4), max_size=6),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    space=st.sampled_from([" ", "\t", "  "]),
    last=st.booleans(),
)
def test_rectangles_are_read_back_whatever_the_white_space(
    corners: list[list[tuple[float, float]]], end: str, space: str, last: bool
) -> None:
    lines = [f"{x}{space}{y}{space if number < 3 else ''}" for four in corners for number, (x, y) in enumerate(four)]
    text = end.join(lines) + (end if last else "") + end * 2
    labels = read_rectangles(text.encode(), PATH, strict=True)
    assert labels.dropped == 0
    assert labels.values.shape == (len(corners), 4, 2)
    assert labels.values.ravel().tolist() == [number for four in corners for point in four for number in point]


def test_a_rectangle_with_nan_is_dropped_whole_and_the_next_keeps_its_frame() -> None:
    labels = read_rectangles(NAN_FILE, PATH, strict=True)
    assert (labels.total, labels.dropped) == (3, 1)
    assert labels.values[1].tolist() == [[233, 289.772], [236, 316], [262, 313], [259, 286.772]]


def test_an_empty_file_has_no_rectangles() -> None:
    for data in (b"", b"\n \r\n", b"\xef\xbb\xbf"):
        labels = read_rectangles(data, PATH, strict=True)
        assert labels.values.shape == (0, 4, 2)
        assert labels.total == 0


def test_a_partial_rectangle_is_an_error_or_dropped() -> None:
    data = NAN_FILE + b"1 2\n3 4\n"
    with pytest.raises(BadInput, match="pcd0100cpos.txt:14: .*14 corners"):
        read_rectangles(data, PATH, strict=True)
    labels = read_rectangles(data, PATH, strict=False)
    assert (len(labels.values), labels.total) == (2, 4)


@pytest.mark.parametrize("line", [b"1", b"1 2 3", b"1 x", b"1,2", b"1 1_0", "1 ٣".encode(), b"1 \xff", b"1 2 # note"])
def test_a_line_that_is_no_corner_is_an_error_with_its_place_or_drops_its_rectangle(line: bytes) -> None:
    data = b"1 2\n\n3 4\n" + line + b"\n5 6\n" + b"7 8\n" * 4
    with pytest.raises(BadInput, match="pcd0100cpos.txt:4: .*2 numbers"):
        read_rectangles(data, PATH, strict=True)
    labels = read_rectangles(data, PATH, strict=False)
    assert labels.values.tolist() == [[[7, 8]] * 4]
    assert labels.dropped == 1


@pytest.mark.parametrize("word", ["nan", "NaN", "inf", "-Infinity", "1e39", "1e999"])
def test_what_float32_cannot_hold_is_dropped(word: str) -> None:
    data = f"1;2;3;4;5\n{word};2;3;4;5\n1;2;3;4;{word}\n".encode()
    labels = read_rows(data, PATH, columns=5, separator=";", strict=True)
    assert labels.values.tolist() == [[1, 2, 3, 4, 5]]
    assert labels.dropped == 2


def test_rows_keep_every_digit_with_any_line_end() -> None:
    for end in ("\r\n", "\n"):
        for last in (end, ""):
            data = f"523.15383;400.89325;68.2203;25.5;26.0661{end}1;2;-89.94;4;27.129{last}".encode()
            labels = read_rows(data, PATH, columns=5, separator=";", strict=True)
            assert labels.values.dtype == np.float64
            assert labels.values.tolist() == [[523.15383, 400.89325, 68.2203, 25.5, 26.0661], [1, 2, -89.94, 4, 27.129]]


def test_a_row_of_four_numbers_is_an_error_with_its_place_or_dropped() -> None:
    data = b"1;2;3;4;5\r\n1;2;3;4\r\n1;2;3;4;5;\r\n"
    with pytest.raises(BadInput, match=":2: .*5 numbers.*';'"):
        read_rows(data, PATH, columns=5, separator=";", strict=True)
    labels = read_rows(data, PATH, columns=5, separator=";", strict=False)
    assert (len(labels.values), labels.dropped) == (1, 2)
