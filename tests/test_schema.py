"""Field and Schema: what is accepted, and that they survive JSON."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packer.errors import InvalidRequest, UnknownKey
from packer.schema import DTYPES, KINDS, MOST_FIELDS, Field, Schema

names = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,63}", fullmatch=True)
shapes = st.none() | st.lists(st.none() | st.integers(0, 20), max_size=8).map(tuple)
fields = st.builds(
    Field,
    name=names,
    kind=st.sampled_from(KINDS),
    codec=st.text(max_size=20),
    dtype=st.none() | st.sampled_from(DTYPES),
    shape=shapes,
    classes=st.none() | st.lists(st.text(), max_size=4).map(tuple),
    invalid=st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18),
    hidden=st.booleans(),
)


@given(st.lists(fields, unique_by=lambda field: field.name, max_size=5))
def test_a_schema_survives_json(given_fields: list[Field]) -> None:
    schema = Schema(tuple(given_fields))
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


def test_a_description_holds_only_what_differs_from_the_defaults() -> None:
    assert Field("key", "text", "text").to_json() == {"name": "key", "kind": "text", "codec": "text"}


@pytest.mark.parametrize("name", ["", "1st", "a-b", "a b", "_x", "x" * 65, "é", "a\n", "../a", "a/b"])
def test_a_name_that_is_no_plain_word_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest, match="field name"):
        Field(name, "text", "text")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"kind": "photo"}, "unknown kind 'photo'"),
        ({"dtype": "complex64"}, "unknown dtype 'complex64'"),
        ({"dtype": "<f4"}, "unknown dtype"),
        ({"shape": (-1,)}, "bad shape"),
        ({"shape": (1.0,)}, "bad shape"),
        ({"shape": (True,)}, "bad shape"),
        ({"shape": (1,) * 9}, "bad shape"),
        ({"shape": (1 << 70,)}, "bad shape"),
        ({"shape": (1 << 32, 1 << 32)}, "bad shape"),
        ({"shape": (0, 1 << 50)}, "bad shape"),
        ({"invalid": math.nan}, "finite number"),
        ({"invalid": math.inf}, "finite number"),
        ({"invalid": 10**400}, "finite number"),
    ],
)
def test_a_member_out_of_range_is_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Field(**{"name": "x", "kind": "number", "codec": "number", **members})


@pytest.mark.parametrize(
    "description",
    [
        "key",
        ["name"],
        None,
        3,
        {},
        {"name": "x", "kind": "text"},
        {"name": "x", "kind": "text", "codec": 1},
        {"name": None, "kind": "text", "codec": "text"},
        {"name": "x", "kind": "text", "codec": "text", "color": "red"},
        {"name": "x", "kind": "text", "codec": "text", "hidden": 1},
        {"name": "x", "kind": "depth", "codec": "raw", "invalid": True},
        {"name": "x", "kind": "depth", "codec": "raw", "invalid": "0"},
        {"name": "x", "kind": "number", "codec": "raw", "shape": 3},
        {"name": "x", "kind": "number", "codec": "raw", "shape": ["3"]},
        {"name": "x", "kind": "number", "codec": "raw", "shape": [[3]]},
        {"name": "x", "kind": "number", "codec": "raw", "shape": [2**80]},
        {"name": "x", "kind": "number", "codec": "raw", "classes": [1]},
        {"name": "x", "kind": "number", "codec": "raw", "classes": "ab"},
    ],
)
def test_an_ill_typed_description_is_refused(description: Any) -> None:
    with pytest.raises(InvalidRequest):
        Field.from_json(description)


def test_two_fields_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="unique: x, x"):
        Schema((Field("x", "text", "text"), Field("x", "json", "json")))


@pytest.mark.parametrize(("kind", "codec"), [("image", "encoded"), ("text", "raw"), ("number", "number")])
def test_a_key_is_text_as_the_index_has_it(kind: str, codec: str) -> None:
    with pytest.raises(InvalidRequest, match="'key' has kind"):
        Schema((Field("key", kind, codec),))


def test_fields_are_found_by_name_and_in_order() -> None:
    schema = Schema((Field("b", "text", "text"), Field("a", "json", "json")))
    assert schema.names == ("b", "a")
    assert [field.name for field in schema] == ["b", "a"]
    assert len(schema) == 2
    assert "a" in schema
    assert "c" not in schema
    assert schema["a"].kind == "json"
    assert schema.select(["a"]).names == ("a",)
    with pytest.raises(UnknownKey, match="'c'; .*b, a"):
        schema["c"]


@pytest.mark.parametrize(
    ("kind", "dtype", "shape", "expected"),
    [
        ("number", "int64", (), True),
        ("number", "int64", (2, 3), True),
        ("number", "int64", (None, 3), False),
        ("number", "int64", None, False),
        ("number", None, (), False),
        ("points", "float32", (4, 2), False),
    ],
)
def test_only_numbers_of_fixed_dtype_and_shape_are_columns(kind: str, dtype: Any, shape: Any, expected: bool) -> None:
    assert Field("x", kind, "raw", dtype=dtype, shape=shape).is_column is expected


def test_more_fields_than_any_set_has_are_refused_at_once() -> None:
    field = {"name": "a", "kind": "text", "codec": "text"}
    with pytest.raises(InvalidRequest, match="10001 fields"):
        Schema.from_json([field] * (MOST_FIELDS + 1))
    many = tuple(Field(f"f{number}", "text", "text") for number in range(MOST_FIELDS + 1))
    assert len(Schema(many[:-1])) == MOST_FIELDS
    with pytest.raises(InvalidRequest, match="10001 fields"):
        Schema(many)


# ---- fields that belong together

BOXES = Field("boxes", "boxes", "raw:float32", "float32", (None, 4))
POLYGONS = Field("polygons", "points", "raw:float32", "float32", (None, 2), edges=True)


def rows(name: str, **members: Any) -> Field:
    """A number of each row."""
    return Field(name, "number", "raw:int64", "int64", (None,), **members)


def test_relations_survive_json_and_say_nothing_where_there_are_none() -> None:
    labels = rows("box_labels", of="boxes")
    starts, owner = rows("polygon_starts", starts="polygons"), rows("polygon_box", of="polygon_starts", into="boxes")
    schema = Schema((BOXES, labels, POLYGONS, starts, owner))
    described = json.loads(json.dumps(schema.to_json()))
    assert Schema.from_json(described) == schema
    assert "of" not in described[0] and "edges" not in described[0]
    assert described[1]["of"] == "boxes" and described[2]["edges"] is True
    assert described[3]["starts"] == "polygons" and described[4]["into"] == "boxes"
    assert schema.starts_of("polygons") == starts
    assert schema.starts_of("boxes") is None


def test_what_a_field_belongs_to_may_be_left_out() -> None:
    schema = Schema((BOXES, rows("box_labels", of="boxes")))
    assert schema.select(["box_labels"])["box_labels"].of == "boxes"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"name": "image", "kind": "image", "codec": "encoded", "edges": True}, "edges is for points"),
        ({"name": "label", "kind": "number", "codec": "number", "dtype": "int64", "shape": (), "of": "boxes"}, "None"),
        ({"name": "note", "kind": "text", "codec": "text", "of": "boxes"}, "first length is None"),
        ({"name": "a", "kind": "number", "codec": "raw", "dtype": "int64", "shape": (None,), "of": "a"}, "another"),
        ({"name": "a", "kind": "number", "codec": "raw", "dtype": "int64", "shape": (None,), "of": "../b"}, "another"),
        ({"name": "a", "kind": "number", "codec": "raw", "dtype": "float32", "shape": (None,), "into": "b"}, "whole"),
        ({"name": "a", "kind": "number", "codec": "raw", "dtype": "int64", "shape": (None, 2), "starts": "b"}, "whole"),
    ],
)
def test_a_relation_that_cannot_be_is_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Field(**members)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((Field("boxes", "number", "number", "int64", ()), rows("a", of="boxes")), "expected rows"),
        ((BOXES, rows("a", of="boxes"), rows("b", of="a")), "of 'boxes' itself"),
        ((POLYGONS, rows("a", starts="polygons"), rows("b", starts="polygons")), "two fields contain the starts"),
    ],
)
def test_fields_whose_relations_do_not_fit_are_refused(fields: tuple[Field, ...], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        Schema(fields)
