"""Point clouds as text, and the depth image."""

from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import BadInput
from packer.sources.grasp.cornell import _point_lines, read_depth, read_points
from tests.support.source_trees import CLOUD_HEADER, cloud

PATH = Path("pcd0100.txt")
HEADER = CLOUD_HEADER.format(3).encode()
WORDS = st.one_of(
    st.integers(-(10**16), 10**16).map(str),
    st.floats(-3000, 3000).map(lambda value: f"{value:.4f}"),
    st.sampled_from(
        ["nan", "0", "-0", "-0.0", ".5", "5.", "-.5", ".", "-", "", "1.2.3", "1e3", "+1", "x", "007", "--1"]
    ),
)


@given(
    rows=st.lists(st.lists(WORDS, min_size=4, max_size=6), max_size=8),
    space=st.sampled_from([" ", "\t", "  ", "\r", "\x0b"]),
    end=st.sampled_from(["\n", "\r\n", "\n\n", " \n", "\r"]),
    last=st.booleans(),
)
def test_every_line_of_five_numbers_is_a_point(rows: list[list[str]], space: str, end: str, last: bool) -> None:
    body = (end.join(space.join(row) for row in rows) + (end if last else "")).encode()
    points, lines = read_points(HEADER + body, PATH), _point_lines(body)
    assert points.shape == lines.shape
    assert points.tobytes() == lines.tobytes()


def test_a_cloud_without_lines_has_no_points() -> None:
    for body in (b"", b" \r\n\n", b"\x1f\n"):  # bytes.strip keeps the last one
        assert read_points(HEADER + body, PATH).shape == (0, 4)


def test_other_lines_are_skipped() -> None:
    body = b"1 2 3 0 7\nx 2 3 0 8\n1 2 3 0\n\n1 2 3 0 9 9\n1.5 2 3 NaN 10\n"
    assert read_points(HEADER + body, PATH).tolist() == [[1, 2, 3, 7], [1.5, 2, 3, 10]]


def test_five_words_on_two_lines_are_no_point_nor_are_ten_on_one() -> None:
    assert read_points(HEADER + b"1 2 3 0 7 1 2 3 0 8\n", PATH).shape == (0, 4)
    assert read_points(HEADER + b"1 2 3\n0 7\n1 2 3 0 7 8\n1 2 3 0\n", PATH).shape == (0, 4)


def test_the_header_may_have_any_length_and_line_end() -> None:
    for header in (b"DATA ascii\r\n", b"# x\nVERSION .7\nDATA  ascii\n", HEADER):
        assert read_points(header + b"1 2 3 0 7\n", PATH).tolist() == [[1, 2, 3, 7]]


@pytest.mark.parametrize("data", [b"", b"DATA binary\n1 2 3 0 7\n", b"1 2 3 0 7\n"])
def test_another_file_is_bad_input(data: bytes) -> None:
    with pytest.raises(BadInput, match=r"pcd0100\.txt: .*DATA ascii"):
        read_points(data, PATH)


def test_depth_is_the_distance_in_meters_at_the_index() -> None:
    index = 2 * 8 + 3
    body = "".join(f"{300 if i == index else 0} 400 0 0 {i}\n" for i in range(48))
    depth = read_depth(HEADER + body.encode(), PATH, height=6, width=8)
    assert depth.dtype == np.float32
    assert depth[2, 3] == np.float32(0.5)
    assert (np.delete(depth.ravel(), index) == np.float32(0.4)).all()


def test_the_last_point_of_a_pixel_counts_and_nan_is_not_a_point() -> None:
    body = b"".join(b"0 0 1000 0 %d\n" % index for index in range(48))
    again = b"0 0 3000 0 5\n0 0 2000 0 5\nnan 0 9000 0 5\n0 0 nan 0 5\n"
    depth = read_depth(HEADER + body + again, PATH, height=6, width=8)
    assert depth[0, 5] == 2
    assert (np.delete(depth.ravel(), 5) == 1).all()


def test_holes_are_filled_as_the_reference_fills_them() -> None:
    data = cloud().encode()
    depth = read_depth(data, PATH, height=48, width=64)
    points = read_points(data, PATH)
    plain = np.zeros((48, 64))
    for x, y, z, index in points:
        plain[int(index) // 64, int(index) % 64] = np.sqrt(x * x + y * y + z * z) / 1000
    holes = plain == 0
    assert 100 < holes.sum() < 1000
    assert np.abs(depth[~holes] - plain[~holes]).max() < 1e-6
    assert (depth > 0).all()
    scale = np.float32(plain.max())
    framed = cv2.copyMakeBorder(plain, 1, 1, 1, 1, cv2.BORDER_REFLECT_101)
    filled = cv2.inpaint(framed.astype(np.float32) / scale, (framed == 0).astype(np.uint8), 1, cv2.INPAINT_NS)
    assert np.array_equal(depth, filled[1:-1, 1:-1] * scale)


@pytest.mark.parametrize("index", ["48", "-1", "2.5", "1e18"])
def test_an_index_outside_the_image_is_bad_input(index: str) -> None:
    with pytest.raises(BadInput, match="does not fit.*8x6"):
        read_depth(HEADER + f"0 0 1000 0 {index}\n".encode(), PATH, height=6, width=8)


def test_a_cloud_without_a_point_is_bad_input() -> None:
    for body in (b"", b"nan nan nan 0 3\n", b"0 0 0 0 3\n"):
        with pytest.raises(BadInput, match="no valid point"):
            read_depth(HEADER + body, PATH, height=6, width=8)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"1 1 1 0 99999999999999999999", "indices"),
        (b"1 1 1 0 -1e300", "indices"),
        (b"1e200 1 1 0 3", "distance"),
        (b"1e45 0 0 0 3", "distance"),
        (b"1e-300 0 0 0 3", "no valid point"),
    ],
)
def test_a_point_too_far_away_is_an_error_without_a_warning(line: bytes, why: str) -> None:
    with pytest.raises(BadInput, match=why):
        read_depth(HEADER + b"1e-300 0 0 0 2\n" + line + b"\n", PATH, height=3, width=4)
