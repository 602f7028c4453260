"""JSON text: what JSON leaves open is refused."""

import pytest

from packer.layouts.json_text import json_value


@pytest.mark.parametrize("text", ['{"a": 1, "a": 1}', '[{"b": {"a": 1, "a": 2}}]', b'\xff\xfe{\0"\0', "[", "", "1 2"])
def test_text_that_has_no_one_value_is_refused(text: str | bytes) -> None:
    for finite in (True, False):
        with pytest.raises(ValueError, match=r"twice|JSON|decode|Expecting|Extra|Unterminated"):
            json_value(text, finite=finite)


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a": 1e999}'])
def test_numbers_that_are_not_finite_are_refused_unless_that_is_asked_for(text: str) -> None:
    with pytest.raises(ValueError, match="number"):
        json_value(text)
    json_value(text, finite=False)


def test_values_are_those_of_the_text() -> None:
    for text in ('{"a": [1, 2.5, null, "\u00fc"]}', '{"a": [1, 2.5, null, "ü"]}'.encode(), '["a"]'.encode("utf-16")):
        assert json_value(text) in ({"a": [1, 2.5, None, "ü"]}, ["a"])
