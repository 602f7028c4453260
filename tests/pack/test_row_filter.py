"""Row filters: each filter has the rows that Python finds for the same text, and others are refused."""

import pickle
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from packer.errors import CorruptPack, InvalidRequest
from packer.pack import filter_columns
from packer.pack.filter_columns import PackColumns
from packer.pack.row_filter import MOST_DEPTH, parse
from packer.pack.sample_index import Index
from packer.schema import Field, Schema

CLASSES = ("cup", "mug", "it's", "")
SCHEMA = Schema(
    (
        Field("key", "text", "text"),
        Field("caption", "text", "text"),
        Field("image", "image", "encoded"),
        Field("depth", "depth", "raw:float32", dtype="float32", shape=(None, None)),
        Field("label", "number", "number", dtype="int64", shape=(), classes=CLASSES),
        Field("guess", "number", "number", dtype="uint8", shape=(), classes=CLASSES[:2]),
        Field("score", "number", "number", dtype="float32", shape=()),
        Field("rank", "number", "number", dtype="uint8", shape=()),
        Field("valid", "number", "number", dtype="bool", shape=()),
        Field("pair", "number", "number", dtype="int64", shape=(2,)),
        Field("boxes", "boxes", "raw:float32", dtype="float32", shape=(None, 4)),
        Field("box_labels", "number", "raw:int16", dtype="int64", shape=(None,), classes=CLASSES, of="boxes"),
        Field("box_scores", "number", "raw", dtype="float32", shape=(None,), of="boxes"),
        Field("peaks", "number", "raw", dtype="uint8", shape=(None,)),
    )
)
NAMES = {
    **dict.fromkeys(("key", "caption"), "text"),
    **dict.fromkeys(("label", "guess"), "class"),
    **dict.fromkeys(("score", "rank", "valid", "width", "height"), "number"),
    **dict.fromkeys((f"len({name})" for name in ("boxes", "box_labels", "box_scores", "peaks")), "number"),
    **dict.fromkeys(
        (f"{name}{side}" for name in ("image.", "depth.") for side in ("width", "height", "area")), "number"
    ),
    "area": "number",
    "incomplete": "number",
}


ROW_NAMES = {
    **dict.fromkeys(("boxes.width", "boxes.height", "boxes.area", "box_scores"), "number"),
    "box_labels": "class",
}


class Box(NamedTuple):
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0
    label: int = 0
    score: float = 0


class Row(NamedTuple):
    key: str = ""
    caption: str = ""
    image: tuple[int, int] = (1, 1)
    depth: tuple[int, int] = (1, 1)
    label: int = 0
    guess: int = 0
    score: float = 0
    rank: int = 0
    valid: bool = False
    boxes: Sequence[Box] = ()


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def packed(texts: Sequence[str]) -> tuple[Any, Any]:
    data = list(map(as_bytes, texts))
    ends = np.cumsum([len(each) for each in data], dtype="<u8") if data else np.empty(0, "<u8")
    return np.frombuffer(b"".join(data), np.uint8), ends


def columns_of(rows: Sequence[Row], schema: Schema = SCHEMA) -> PackColumns:
    arrays: dict[str, Any] = {}
    arrays["keys"], arrays["key_ends"] = packed([row.key for row in rows])
    arrays["key_order"] = np.array(sorted(range(len(rows)), key=lambda row: as_bytes(rows[row].key)), "<u8")
    arrays["values-caption"], arrays["value_ends-caption"] = packed([row.caption for row in rows])
    for name in ("image", "depth"):
        arrays[f"size-{name}"] = np.array([getattr(row, name) for row in rows], "<u4").reshape(-1, 2)
    for name in ("label", "guess", "score", "rank", "valid"):
        arrays[f"number-{name}"] = np.array([getattr(row, name) for row in rows], schema[name].dtype)
    arrays |= row_arrays([row.boxes for row in rows])
    return PackColumns(schema, Index(arrays, schema, len(rows), "a.pack"))


def row_arrays(boxes: Sequence[Sequence[Box]]) -> dict[str, Any]:
    """The files of the index for the rows of samples."""
    arrays: dict[str, Any] = {}
    arrays["box_size-boxes"] = np.array([(each.height, each.width) for some in boxes for each in some], "<f4").reshape(
        -1, 2
    )
    arrays["row_values-box_labels"] = np.array([each.label for some in boxes for each in some], "<i2")
    arrays["row_values-box_scores"] = np.array([each.score for some in boxes for each in some], "<f4")
    arrays["row_values-peaks"] = np.array([len(some) for some in boxes], "|u1")
    counts = np.array([len(some) for some in boxes], "<u4")
    return (
        arrays
        | {f"count-{name}": counts for name in ("boxes", "box_labels", "box_scores")}
        | {"count-peaks": np.ones(len(boxes), "<u4")}
    )


def found(text: str, rows: Sequence[Row]) -> list[bool]:
    mask = parse(text).rows(columns_of(rows))
    assert mask.dtype == np.bool_ and mask.shape == (len(rows),)
    return [bool(each) for each in mask]


class Label:
    """A class in Python: equal to its number and to its name."""

    def __init__(self, number: int, classes: Sequence[str]) -> None:
        self.number = number
        self.name = classes[number] if 0 <= number < len(classes) else None

    def __eq__(self, other: object) -> bool:
        return other == (self.name if isinstance(other, str) else self.number)

    def __hash__(self) -> int:
        return 0

    def __lt__(self, other: float) -> bool:
        return self.number < other

    def __le__(self, other: float) -> bool:
        return self.number <= other

    def __gt__(self, other: float) -> bool:
        return self.number > other

    def __ge__(self, other: float) -> bool:
        return self.number >= other


def by_python(text: str, row: Row) -> bool:
    image, depth = (sized(*each) for each in (row.image, row.depth))
    names = {"image": image, "depth": depth, "width": image.width, "height": image.height, "area": image.area}
    columns = {"box_labels": row.boxes, "box_scores": row.boxes, "peaks": [0], "incomplete": 0}
    classes = {"label": Label(row.label, CLASSES), "guess": Label(row.guess, CLASSES[:2])}

    def some(condition: Callable[[Any, Any, Any], Any]) -> bool:
        sides = (sized(each.height, each.width) for each in row.boxes)
        return any(
            condition(side, Label(each.label, CLASSES), each.score) for side, each in zip(sides, row.boxes, strict=True)
        )

    text = re.sub(r"any\s*\(", "some(lambda boxes, box_labels, box_scores: ", text)
    return bool(eval(text, {}, {**row._asdict(), **names, **columns, **classes, "some": some}))


def sized(height: float, width: float) -> SimpleNamespace:
    return SimpleNamespace(height=height, width=width, area=height * width)


# ---- random filters

texts = st.text("ab'\"\\é ", max_size=3)
numbers = st.integers(-2, 5) | st.integers(-8, 16).map(lambda number: number / 4) | st.sampled_from([10**30, 1e30])
quarters = st.integers(-8, 16).map(lambda number: number / 4)
boxes_of = st.lists(
    st.builds(Box, quarters, quarters, quarters, quarters, st.integers(-1, 4), quarters | st.just(float("nan"))),
    max_size=3,
)
rows_of = st.lists(
    st.builds(
        Row,
        key=texts,
        caption=texts,
        image=st.tuples(st.integers(0, 4), st.integers(0, 4)),
        depth=st.tuples(st.integers(0, 4), st.integers(0, 4)),
        label=st.integers(-1, 4),
        guess=st.integers(0, 2),
        score=st.integers(-8, 16).map(lambda number: number / 4) | st.just(float("nan")),
        rank=st.integers(0, 4),
        valid=st.booleans(),
        boxes=boxes_of,
    ),
    max_size=8,
    unique_by=lambda row: row.key,
)
equalities = st.sampled_from(["==", "!="])
orders = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
ins = st.sampled_from([" in ", " not in ", " not  in "])
a_number = st.sampled_from([name for name, kind in NAMES.items() if kind == "number"])
a_text = st.sampled_from(["key", "caption"])


def quoted(text: str, quote: str) -> str:
    return quote + text.replace("\\", "\\\\").replace(quote, f"\\{quote}") + quote


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(values, min_size=2, max_size=4).map(", ".join)
    return several.map("({})".format) | several.map("[{}]".format) | values.map("({},)".format) | st.just("()")


def written(*pieces: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    return st.tuples(*(st.just(each) if isinstance(each, str) else each for each in pieces)).map("".join)


def combined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    both = written(parts, st.sampled_from([" and ", " or ", "  and  "]), parts)
    return written("(", parts, ")") | written("not ", parts) | both


literal_texts = st.builds(quoted, texts, st.sampled_from("'\""))
literal_numbers = numbers.map(repr)
literal_classes = st.builds(quoted, st.sampled_from(CLASSES), st.sampled_from("'\""))
a_row_number = st.sampled_from([name for name, kind in ROW_NAMES.items() if kind == "number"])
pieces_of_rows = st.one_of(
    written(a_row_number, orders, literal_numbers | a_row_number),
    written(literal_numbers, orders, a_row_number, orders, literal_numbers),
    written("box_labels", equalities, literal_classes),
    written("box_labels", orders, literal_numbers),
    written("box_labels", ins, lists(literal_classes | literal_numbers)),
)
conditions_of_rows = st.recursive(pieces_of_rows, lambda parts: combined(parts), max_leaves=4)
pieces_of_filters = st.one_of(
    written(st.sampled_from(["any(", "any (", "not any ( "]), conditions_of_rows, ")"),
    written(a_number, orders, literal_numbers | a_number),
    written(literal_numbers, orders, a_number),
    written(literal_numbers, orders, a_number, orders, literal_numbers | a_number),
    written(a_number | st.just("label"), ins, lists(literal_numbers)),
    written("label", equalities, literal_classes),
    written(literal_classes, equalities, "label"),
    written("label", orders, literal_numbers),
    written("label", ins, lists(literal_classes | literal_numbers)),
    written(a_text, equalities, literal_texts),
    written(a_text, ins, lists(literal_texts)),
    written(literal_texts, ins, a_text),
    written(literal_texts, ins, a_text, equalities, literal_texts),
)
filters = st.recursive(pieces_of_filters, lambda parts: combined(parts), max_leaves=8)


@settings(max_examples=2 * settings().max_examples)
@given(filters, rows_of)
@example("not not 1<rank<=3 and (label=='cup' or 'a' in key)", [Row(rank=2), Row(rank=1), Row(rank=3, label=1)])
@example("len(box_labels)==len(box_scores) and len(peaks)==1 and incomplete==0", [Row(boxes=[Box()]), Row(key="b")])
def test_a_filter_finds_what_python_finds(text: str, rows: list[Row]) -> None:
    assert found(text, rows) == [by_python(text, row) for row in rows]


@given(filters, rows_of)
def test_the_canonical_text_is_the_same_filter(text: str, rows: list[Row]) -> None:
    parsed = parse(text)
    assert parse(str(parsed)) == parsed == pickle.loads(pickle.dumps(parsed))
    assert str(parse(str(parsed))) == str(parsed)
    assert found(str(parsed), rows) == found(text, rows)


def test_different_filters_differ() -> None:
    canonical = {str(parse(text)) for text in ("rank == 1", "rank==1 ", "( rank == 1 )", "1 == rank")}
    assert canonical == {"rank == 1"}
    assert parse("rank == 1") != parse("rank == 2")
    assert parse("caption == 'rank'") != parse("caption == rank")
    assert str(parse("""caption=="it's" """)) == r"caption == 'it\'s'"
    assert str(parse("not(rank>1 and(rank>2 or rank>3))or len( boxes )in[1]")) == (
        "not (rank > 1 and (rank > 2 or rank > 3)) or len(boxes) in (1,)"
    )


def test_names_are_those_of_the_text() -> None:
    assert parse("label == 'cup' and width > image.height or len(boxes) > 1 and label != 'width'").names == (
        *("label", "width", "image.height", "len(boxes)"),
    )


# ---- texts as bytes

any_texts = st.lists(
    st.text("ab\0é\udcc3\udca9", max_size=12) | st.text(st.characters(codec="utf-8"), max_size=4), max_size=12
)


@given(any_texts, any_texts, st.integers(1, 5))
def test_texts_are_compared_by_their_bytes(there: list[str], wanted: list[str], block: int) -> None:
    keys = list({as_bytes(text): text for text in there}.values())  # no two samples have one key
    captions = [there[number % len(there)] * (1 + number % 3) for number in range(len(keys))]
    known = [*wanted, *there[:2]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filter_columns, "_BLOCK", block)
        columns = columns_of([Row(key=key, caption=caption) for key, caption in zip(keys, captions, strict=True)])
        for name, values in (("key", keys), ("caption", captions)):
            equal = {as_bytes(text) for text in known}
            assert columns.equals(name, known).tolist() == [as_bytes(value) in equal for value in values]
            for part in map(as_bytes, [*known, *(text[1:-1] for text in there)]):
                mask = columns.contains(name, part.decode("utf-8", "surrogateescape"))
                assert mask.tolist() == [part in as_bytes(value) for value in values]


def test_a_text_is_not_found_across_two_rows() -> None:
    rows = [Row(key="abc"), Row(key="def"), Row(key="cd")]
    assert found("'cd' in key", rows) == [False, False, True]
    assert found("'c' in key and not 'd' in key", rows) == [True, False, False]
    assert found("'\ud800' in key or key == '\ud800' or key in ()", rows) == [False] * 3  # in no UTF-8


def test_every_byte_of_a_long_text_is_compared() -> None:
    text = "0123456789abcdefghijk"
    changed = [text[:at] + "?" + text[at + 1 :] for at in range(len(text))]
    rows = [Row(caption=f"x{each}y") for each in (*changed, text)]
    assert found(f"'{text}' in caption", rows) == [False] * len(text) + [True]
    assert found(f"'?' in caption and not '{text}y' in caption", rows) == [True] * len(text) + [False]


# ---- kinds of values


def test_numbers_are_compared_in_the_dtype_of_the_column() -> None:
    rows = [Row(score=0.1), Row(score=float("inf")), Row(score=float("nan"))]
    assert found("score == 0.1", rows) == [True, False, False]
    assert found("score < 1e300", rows) == [True, False, False]
    assert found("score != 0.1", rows) == [False, True, True]
    assert found("rank > -1 and rank < 99999999999999999999 and rank != 256", [Row(rank=255)]) == [True]
    assert found("valid == 1", [Row(valid=True), Row()]) == [True, False]
    assert found("valid < 18446744073709551616", [Row(valid=True)]) == [True]


def test_a_class_of_several_numbers_has_the_rows_of_all() -> None:
    fields = (Field("label", "number", "number", dtype="int64", shape=(), classes=("a", "b", "a")), *SCHEMA.fields[5:])
    schema = Schema((*SCHEMA.fields[:4], *fields))
    rows = [Row(label=0), Row(label=1), Row(label=2), Row(label=3)]
    assert parse("label == 'a'").rows(columns_of(rows, schema)).tolist() == [True, False, True, False]


def test_every_name_of_a_pack_has_a_kind() -> None:
    assert columns_of([]).kinds == NAMES
    assert columns_of([]).groups == {**dict.fromkeys(ROW_NAMES, "boxes"), "peaks": "peaks"}


def test_a_field_precedes_the_size_of_the_image() -> None:
    width = Field("width", "number", "number", dtype="int64", shape=())
    schema = Schema((Field("key", "text", "text"), Field("image", "image", "encoded"), width))
    arrays = {"number-width": np.array([7]), "size-image": np.array([[3, 4]], "<u4")}
    arrays["keys"], arrays["key_ends"] = packed(["a"])
    columns = PackColumns(schema, Index(arrays, schema, 1, "a.pack"))
    assert parse("width == 7 and image.width == 4 and height == 3").rows(columns).tolist() == [True]


def test_a_pack_without_the_columns_of_version_2_has_no_such_names() -> None:
    arrays = {"number-label": np.array([1]), "number-score": np.array([1.5], "f4")}
    arrays["keys"], arrays["key_ends"] = packed(["a"])
    schema = Schema(tuple(SCHEMA[name] for name in ("key", "caption", "image", "label", "score", "boxes")))
    columns = PackColumns(schema, Index(arrays, schema, 1, "a.pack"))
    assert columns.kinds == {"key": "text", "label": "class", "score": "number", "incomplete": "number"}
    with pytest.raises(InvalidRequest, match="boxes.width.*packer convert"):
        parse("any(boxes.width < 3)").rows(columns)
    assert parse("label == 'mug' and score > 1").rows(columns).tolist() == [True]


# ---- refusals


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("", "end: expected a name"),
        ("rank", "end: expected a comparison"),
        ("rank = 1", "character 6, '= 1': unexpected '='; write =="),
        ("rank == 1 & rank == 2", "write and"),
        ("rank == 1 || rank == 2", "write or"),
        ("!rank", "write not"),
        ("key == 'a", "close the quote"),
        (r"key == 'a\n'", "close the quote"),
        ("rank == 1 rank == 2", "character 11"),
        ("(rank == 1", "end: expected and, or, or )"),
        ("rank == 1)", "character 10"),
        ("rank == width + 1", "character 15, '+ 1'"),
        ("rank -1 == 1", "expected a comparison"),
        ("1 < 2", "expected NAME"),
        ("'a' == 'a'", "expected NAME"),
        ("rank in width", "expected NAME"),
        ("1 in key", "expected NAME"),
        ("key in caption", "expected NAME"),
        ("rank == (1, 2)", "expected NAME"),
        ("rank in 1", "expected NAME"),
        ("rank in (1, 2) == rank", "expected NAME"),
        ("rank in (1, width)", "expected a number"),
        ("rank in (1, (2, 3))", "expected a number"),
        ("rank in (1 2)", "expected ,"),
        ("rank in (1]", "expected ,"),
        ("rank not 1", "expected a comparison"),
        ("rank == 1e999", "too large"),
        ("rank == " + "0" * 5000, "too large"),
        ("rank == 1j", "character 10"),
        ("rank == ١", "unexpected"),
        ("max(rank) == 1", "character 4"),
        ("key.__class__ == 'a'", "character 4"),
        ("key.upper() == 'a'", "character 10"),
        ("lambda: 1", "unexpected ':'"),
        ("any(box_scores < 1", "end: expected and, or, or )"),
        ("any()", "character 5, ')': expected a name"),
        ("any(box_scores < 1) < 2", "character 21"),
        ("any(box_scores < 1 and any(box_scores > 1))", "any(...) in any(...)"),
    ],
)
def test_a_text_that_is_not_a_filter_is_refused_where_it_ends(text: str, keyword: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(text)
    assert keyword in caught.value.message


@pytest.mark.parametrize(
    ("text", "keyword"),
    [
        ("rnk == 1", "unknown name rnk; did you mean 'rank'"),
        ("rank == zzzzz", "there are 21: 'key'"),
        ("boxes == 1", "did you mean 'len(boxes)'"),
        ("pair == 1", "unknown name pair"),
        ("len(key) == 1", "unknown name len(key)"),
        ("image.depth == 1", "did you mean 'image.width', 'image.area'"),
        ("True == 1", "unknown name True"),
        ("label == 'cupp'", "no class 'cupp'; did you mean 'cup'"),
        ("label in ('cup', 'xyz')", "no class 'xyz'; there are 4: 'cup'"),
        ("label < 'cup'", "label is a class; write label == 'CLASS'"),
        ("'cup' in label", "label is a class; write label == 'CLASS'"),
        ("label == guess", "label is a class"),
        ("label == rank", "label is a class"),
        ("width >= '256'", "width is a number; write width >= 1"),
        ("rank in (1, '2')", "rank is a number"),
        ("'1' in rank", "rank is a number"),
        ("rank == key", "rank is a number"),
        ("key == 3", "key is a text; write key == 'TEXT'"),
        ("key in ('a', 3)", "key is a text"),
        ("key < 'a'", "key is a text"),
        ("key == caption", "key is a text"),
        ("box_labels == 'cup'", "box_labels has a value for each row; write any(box_labels == 'cup')"),
        ("1 < boxes.width", "boxes.width has a value for each row; write any(boxes.width > 1)"),
        ("any(box.width < 1)", "box.width is not a value of rows; did you mean 'boxes.width'"),
        ("any(rank < 1)", "rank is not a value of rows; there are 6: 'boxes.width'"),
        ("any(boxes.width < peaks)", "rows of boxes and of peaks; write an any() for each"),
        ("any(box_labels == 'cupp')", "no class 'cupp'; did you mean 'cup'"),
        ("any(boxes.width == '1')", "boxes.width is a number; write boxes.width >= 1"),
        ("any('cup' in box_labels)", "box_labels is a class"),
        ("3 < key", "key is a text"),
    ],
)
def test_names_and_kinds_are_checked_before_rows_are_computed(text: str, keyword: str) -> None:
    columns = columns_of([Row()])
    columns.numbers = columns.equals = columns.contains = None  # type: ignore[assignment, method-assign]
    with pytest.raises(InvalidRequest) as caught:
        parse(f"rank == 1 or ({text})").rows(columns)
    assert keyword in caught.value.message


def test_long_and_deep_texts_are_refused() -> None:
    fits: list[Callable[[int], str]] = [
        lambda depth: "not " * depth + "rank == 1",
        lambda depth: "(" * depth + "rank == 1" + ")" * depth,
        lambda depth: "rank == 2 or (rank < 9 and not rank == 1 or " * depth + "rank < 1" + ")" * depth,
    ]
    for text in fits:
        parsed = parse(text(MOST_DEPTH - 2))
        assert parse(str(parsed)) == parsed
        for depth in (MOST_DEPTH + 2, 2400):
            with pytest.raises(InvalidRequest, match="levels|characters"):
                parse(text(depth))
    for depth in range(MOST_DEPTH - 1, MOST_DEPTH + 1):
        text_of_chain = "not " * depth + "1 < rank < 2"
        if depth < MOST_DEPTH:
            assert parse(str(parse(text_of_chain))) == parse(text_of_chain)
        else:
            with pytest.raises(InvalidRequest, match="levels"):
                parse(text_of_chain)
    for text_of_length in ("(" * 20_000, "rank<1 or " * 999 + "rank < 1" * 100, "1<" + "rank<" * 1999 + "2"):
        with pytest.raises(InvalidRequest, match="characters"):
            parse(text_of_length)
    assert parse(" or ".join(["rank < 1"] * 800)).names == ("rank",)


words = st.sampled_from(
    [
        "any",
        "boxes.width",
        *"()[],.-+=<>!'\"\\ \n\0",
        "==",
        "not",
        "in",
        "and",
        "or",
        "len(boxes)",
        "1",
        "1e9",
        ".5",
        "key",
        "label",
        "'cup'",
    ]
)


@given(st.text(max_size=40) | st.lists(words, max_size=14).map(" ".join) | st.lists(words, max_size=14).map("".join))
def test_a_hostile_text_is_a_filter_or_refused(text: str) -> None:
    try:
        parsed = parse(text)
        assert parse(str(parsed)) == parsed
        assert len(parsed.rows(columns_of([Row(), Row(key="a")]))) == 2
    except InvalidRequest as error:
        assert "\n" not in str(error)


def test_rows_that_contradict_each_other_are_refused() -> None:
    arrays = row_arrays([[Box()], [Box()]])
    arrays["count-box_labels"], arrays["row_values-box_labels"] = np.array([1, 2], "<u4"), np.zeros(3, "<i2")
    columns = PackColumns(SCHEMA, Index(arrays, SCHEMA, 2, "a.pack"))
    with pytest.raises(CorruptPack, match=r"box\w+ and box\w+ .*numbers of"):
        parse("any(boxes.width < 3 and box_labels == 1)").rows(columns)
