"""Run lengths of COCO: numbers in lists and in pycocotools' text."""

import numpy as np
import pytest

from packer.errors import BadInput
from packer.sources.annotations._rle_and_panoptic import run_lengths


def text_of(counts: list[int]) -> str:
    """As pycocotools writes them (rleToString of maskApi.c), number by number."""
    found = ""
    for at, count in enumerate(counts):
        rest = count - counts[at - 2] if at > 2 else count
        while True:
            group, rest = rest & 31, rest >> 5
            more = rest != -1 if group & 16 else rest != 0
            found += chr(48 + group + 32 * more)
            if not more:
                break
    return found


@pytest.mark.parametrize("seed", range(20))
def test_texts_and_lists_give_the_same_numbers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    height, width = (int(side) for side in rng.integers(1, 900, 2))
    cuts = np.sort(rng.integers(0, height * width + 1, int(rng.integers(0, 60))))
    counts = np.diff([0, *cuts, height * width]).tolist()
    for given in (counts, text_of(counts)):
        found = run_lengths(given, (height, width))
        assert found.dtype == np.int32
        assert found.tolist() == counts


def test_what_pycocotools_wrote() -> None:
    """mask.encode of a 5 x 10 mask whose columns 2 and 3, and 5 and 6, are set; rows are 5 high."""
    assert run_lengths(text_of([10, 10, 5, 10, 15]), (5, 10)).tolist() == [10, 10, 5, 10, 15]
    assert text_of([10, 10, 5, 10, 15]) == "::50:"
    assert run_lengths("::50:", (5, 10)).tolist() == [10, 10, 5, 10, 15]


@pytest.mark.parametrize(
    ("counts", "size", "reason"),
    [
        ([10, 10], (5, 5), "20 px"),
        ([], (5, 5), "of 0 px"),
        ("", (5, 5), "of 0 px"),
        ([-1, 26], (5, 5), "from -1 to 26"),
        ([1 << 40], (5, 5), "numbers of pixels"),
        ("::50", (5, 10), "of 35 px"),
        ("P", (5, 5), "other characters"),
        ("\u00e9", (5, 5), "other characters|of "),
        (" ", (5, 5), "other characters"),
        ("oooooooooo0", (5, 5), "other characters"),
        ("@", (5, 5), "from -16"),
        ([25], (0, 5), "of a mask of 5x0"),
        ([25], (1 << 20, 1 << 20), "expected 1 to"),
    ],
)
def test_others_are_refused(counts: str | list[int], size: tuple[int, int], reason: str) -> None:
    with pytest.raises(BadInput, match=reason):
        run_lengths(counts, size)
