"""Argument types: what annotations allow, and what they refuse with the argument's name."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from packer.errors import WrongType
from packer.system.argument_types import check_arguments

FOLDER = str | PathLike[str]


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (int | None, (3, np.int64(3), True, None)),
        (bool, (True, False, 0, 1, np.True_, np.int8(0))),
        (FOLDER, ("a", Path("a"))),
        (Literal["a", "b"] | None, ("a", None)),
        (int | tuple[int, int], (3, (3, 4), [3, np.int64(4)])),
        (Sequence[str], ((), ["a"], {"a": 1}.keys(), np.array(["a"]))),
        (Mapping[str, FOLDER | float] | Sequence[str], ({"a": 1}, {"a": Path("a")}, {"a": np.float32(0.5)}, ["a=b"])),
        (Callable[[int], str] | bool, (str, True)),
        (Any, (None, 5)),
    ],
)
def test_what_an_annotation_means_is_allowed(annotation: Any, values: tuple[Any, ...]) -> None:
    for value in values:
        check_arguments({"a": value}, {"a": annotation})


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (int | None, (3.0, "3", [3])),
        (bool, ("no", 2, None)),
        (FOLDER, (b"a", 5, None)),
        (Literal["a", "b"] | None, (5, "c", ["a"])),
        (int | tuple[int, int], ((3,), (3, 4, 5), (3.5, 4), "34")),
        (Sequence[str], ("abc", b"abc", {"a": 1}, [1], 5)),
        (Mapping[str, FOLDER | float] | Sequence[str], ({"a": None}, {1: "a"}, [1], "a=b")),
        (Callable[[int], str] | bool, (5, "a")),
    ],
)
def test_anything_else_is_refused_with_the_name_of_the_argument(annotation: Any, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(WrongType, match=r"^wanted="):
            check_arguments({"wanted": value}, {"wanted": annotation})
