"""Rows that belong together: what is checked when a sample is packed, and what goes with a dropped box."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import BadInput, InvalidRequest
from packer.geometry import BoxRule
from packer.pack.field_row_relations import RowRelations, check_rows
from packer.schema import Field, Schema
from tests.support import annotated_source

SCHEMA = Schema(annotated_source.FIELDS)
OBJECTS = [(2, 3, 12, 13), (20, 5, 36, 25), (44, 20, 58, 38)]
DROPPING = BoxRule(least_visible=0.5)


def values(**changed: Any) -> dict[str, Any]:
    return {**annotated_source.values_of(OBJECTS), **changed}


def test_what_fits_together_passes() -> None:
    check_rows(SCHEMA, values())
    check_rows(SCHEMA, annotated_source.values_of([]))
    check_rows(SCHEMA.select(["box_labels", "polygon_box"]), values())  # nothing that they belong to is there


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("box_labels", np.int64([0, 1]), "box_labels has 2 rows, boxes 3"),
        ("keypoints", np.zeros((4, 2, 2), np.float32), "keypoints has 4 rows, boxes 3"),
        ("polygon_box", np.int64([0, 0, 1, 1, 2]), "polygon_box has 5 rows, polygon_starts 6"),
        ("polygon_box", np.int64([0, 0, 1, 1, 2, 3]), "rows 0 to 3 of boxes, which has 3"),
        ("polygon_box", np.int64([-1, 0, 1, 1, 2, 2]), "rows -1 to 2 of boxes"),
        ("polygon_starts", np.int64([1, 4, 9, 13, 18, 22]), "begins with 1"),
        ("polygon_starts", np.int64([0, 9, 4, 13, 18, 22]), "ascending"),
        ("polygon_starts", np.int64([0, 4, 9, 13, 18, 28]), "ends with 28.*at most 27"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check_rows(SCHEMA, values(**{name: value}))


def test_points_that_nothing_starts_are_refused() -> None:
    with pytest.raises(BadInput, match="polygon_starts .*polygons.*27 rows"):
        check_rows(SCHEMA, values(polygon_starts=np.empty(0, np.int64), polygon_box=np.empty(0, np.int64)))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(1, 9), st.booleans()), max_size=7))
def test_rows_go_as_if_each_object_was_an_object(given_objects: list[tuple[int, int, int, bool]]) -> None:
    """The objects that stay, packed alone, have the values that the rule leaves of all."""
    objects = [(x, y, x + side, y + side) for x, y, side, _ in given_objects]
    gone = np.asarray([away for *_, away in given_objects], bool)
    whole = annotated_source.values_of(objects)
    whole["box_labels"], whole["box_crowd"] = np.arange(len(objects)), np.zeros(len(objects), np.uint8)
    whole["boxes"] = np.where(gone[:, None], whole["boxes"] + 1000, whole["boxes"]).astype(np.float32)
    made = RowRelations(SCHEMA, SCHEMA, DROPPING).ruled(whole, (40, 60))
    stays = np.flatnonzero(~gone)
    wanted = annotated_source.values_of([objects[at] for at in stays])
    wanted["box_labels"], wanted["box_crowd"] = stays, np.zeros(len(stays), np.uint8)
    for name, value in wanted.items():
        assert np.array_equal(made[name], value), name
        assert made[name].dtype == value.dtype, name
    check_rows(SCHEMA, made)


def test_one_polygon_for_each_box_needs_no_field_that_leads_back() -> None:
    image, boxes = SCHEMA["image"], SCHEMA["boxes"]
    polygons, starts = (
        SCHEMA["polygons"],
        Field("s", "number", "raw:uint64", "uint64", (None,), of="boxes", starts="polygons"),
    )
    schema = Schema((image, boxes, polygons, starts))
    given_values = {
        "boxes": np.float32([[900, 900, 901, 901], [0, 0, 5, 5]]),
        "polygons": np.float32([[900, 900], [901, 900], [901, 901], [0, 0], [5, 0], [5, 5], [0, 5]]),
        "s": np.uint64([0, 3]),
    }
    made = RowRelations(schema, schema, DROPPING).ruled(given_values, (40, 60))
    assert made["s"].tolist() == [0]
    assert made["polygons"].tolist() == [[0, 0], [5, 0], [5, 5], [0, 5]]


def test_of_two_fields_of_boxes_the_one_that_the_other_is_of_decides() -> None:
    full = Field("boxes", "boxes", "raw:float32", "float32", (None, 4))
    heads = Field("heads", "boxes", "raw:float32", "float32", (None, 4), of="boxes")
    schema = Schema((heads, full, SCHEMA["image"]))
    inside, outside = [0, 0, 5, 5], [90, 0, 95, 5]
    made = RowRelations(schema, schema, BoxRule(clip=True, least_visible=0.5)).ruled(
        {"heads": np.float32([outside, inside]), "boxes": np.float32([inside, outside])}, (40, 60)
    )
    assert made["boxes"].tolist() == [inside]
    assert made["heads"].tolist() == [[60, 0, 60, 5]]


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["image", "box_labels"], "'boxes'"),
        (["image", "boxes", "polygons"], "'polygon_starts'"),
        (["image", "boxes", "polygons", "polygon_starts"], "'polygon_box'"),
        (["image", "polygon_box", "polygon_starts"], "'boxes'"),
        (["boxes"], "size of an image"),
    ],
)
def test_fields_that_would_lose_rows_by_one_that_is_not_there(names: list[str], missing: str) -> None:
    with pytest.raises(InvalidRequest, match=missing):
        RowRelations(SCHEMA.select(names), SCHEMA, DROPPING)


def test_fields_that_lose_nothing_may_be_there_alone() -> None:
    for names in (["image"], ["image", "boxes"], ["image", "boxes", "keypoints"]):
        RowRelations(SCHEMA.select(names), SCHEMA, DROPPING)
    RowRelations(SCHEMA.select(["image", "boxes", "polygons"]), SCHEMA, BoxRule(clip=True))


def test_a_rule_needs_boxes() -> None:
    schema = SCHEMA.select(["image", "polygons"])
    with pytest.raises(InvalidRequest, match="kind boxes; .*image, polygons"):
        RowRelations(schema, schema, DROPPING)
