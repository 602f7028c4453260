"""Splits: lists of samples as a field."""

import os
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from packer import sources
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, InvalidRequest
from packer.sources import base
from packer.sources._extend.sidecars import Sidecar, add_sidecars
from packer.sources._extend.splits import NO_SHARE, UNLISTED, Lists, Shares, add_shares, add_splits, parse_splits
from packer.sources.grasp import cornell as cornell_source
from packer.sources.image_files import folder
from tests.support.source_trees import BUILDERS, cornell, image, write


@pytest.fixture
def source(tmp_path: Path) -> folder.Source:
    names = [f"c/{number}.png" for number in range(6)]
    return folder.Source(write(tmp_path / "data", {name: name for name in names}))


def lists(tmp_path: Path, **texts: str | bytes) -> Lists:
    write(tmp_path, {f"{name}.txt": text for name, text in texts.items()})
    return {name: tmp_path / f"{name}.txt" for name in texts}


def test_parse_reads_name_and_file() -> None:
    assert parse_splits(["train=a=b.txt"]) == {"train": Path("a=b.txt")}
    for text in ("train", "=x", "train="):
        with pytest.raises(InvalidRequest, match="NAME=FILE"):
            parse_splits([text])


def test_listed_samples_stay_in_the_sources_order_with_their_lists_number(
    source: folder.Source, tmp_path: Path
) -> None:
    text = "\ufeff# train\r\n\r\n  c/4.png  \r\nc/0.png\r./c/2.png\r\n"
    found = add_splits(source, lists(tmp_path, val="c/1.png", train=text, test=""))
    assert [found.key(index) for index in range(len(found))] == ["c/0.png", "c/1.png", "c/2.png", "c/4.png"]
    assert [int(found[index]["split"]) for index in range(4)] == [1, 0, 1, 1]
    assert found.schema["split"].classes == ("val", "train", "test")
    assert found[0]["split"].dtype == np.int64
    assert found[3]["image"] == b"c/4.png"
    assert found.left_out == [("c/3.png", UNLISTED), ("c/5.png", UNLISTED)]
    assert found.notes[-1] == "splits: val 1, train 3, test 0; 2 samples in no list of --split"


def test_a_relative_path_of_any_file_names_the_sample(tmp_path: Path) -> None:
    inner = cornell_source.Source(cornell(tmp_path / "data"))
    found = add_splits(inner, lists(tmp_path, train="01/pcd0101cpos.txt\n1034\n", val="02/pcd0200r.png\n"))
    assert [found.key(index) for index in range(3)] == ["0101", "0200", "1034"]
    assert found.missing(0) == inner.missing(1)
    assert base.file_paths(found, 0) == base.file_paths(inner, 1)
    assert found.entry(0).stem == inner.entry(1).stem


def test_unknown_names_are_counted_and_the_first_twenty_named(source: folder.Source, tmp_path: Path) -> None:
    text = "c/0.png\n" + "".join(f"no{number:02}.png\n" for number in range(25))
    with pytest.raises(BadInput, match="train.txt: 25 names.*no00.png, .*no19.png.*5 more") as caught:
        add_splits(source, lists(tmp_path, train=text))
    assert "no20" not in str(caught.value)
    assert "such as c/0.png" in str(caught.value)


def test_a_sample_is_in_one_list_and_may_stand_there_twice(source: folder.Source, tmp_path: Path) -> None:
    found = lists(tmp_path, a="c/0.png\nc/1.png\nc/2.png\n", b="c/1.png\nc/3.png\nc/0.png\n")
    with pytest.raises(BadInput, match=r"b.txt: .*c/1.png \(also.*c/0.png \(also"):
        add_splits(source, found)
    assert len(add_splits(source, lists(tmp_path, a="c/0.png\n0.png\nc/0.png\n"))) == 1


def test_names_that_are_not_utf_8_are_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / os.fsdecode(b"\xff.png")).write_bytes(b"")
    found = add_splits(folder.Source(tmp_path / "data"), lists(tmp_path, a=b"\xff.png\n"))
    assert found.key(0) == "\udcff.png"


def test_splits_and_sidecars_go_together(source: folder.Source, tmp_path: Path) -> None:
    write(source.root, {"c/1.txt": "one", "c/3.txt": "three"})
    inner = add_sidecars(source, [Sidecar("text", ".txt", "text")], missing="skip")
    found = add_splits(inner, lists(tmp_path, a="c/3.png\n"))
    assert len(found) == 1
    assert found[0] == {
        "key": "c/3.png",
        "image": b"c/3.png",
        "label": 0,
        "text": "three",
        "files": {"image": "c/3.png", "text": "c/3.txt"},
        "split": 0,
    }
    assert [key for key, _ in found.left_out] == ["c/0.png", "c/2.png", "c/4.png", "c/5.png", "c/1.png"]
    assert pickle.loads(pickle.dumps(found))[0] == found[0]


def many(root: Path, count: int, *, first: int = 0) -> folder.Source:
    return folder.Source(write(root, {f"c/{number}.png": b"x" for number in range(first, first + count)}))


def numbered(source: base.Source) -> dict[str, int]:
    return {source.key(row): int(source.value(row, "split")) for row in range(len(source))}


def test_shares_are_told_from_files() -> None:
    assert parse_splits(["train=0.9", "val=.1"], seed=3, by="label") == Shares(
        {"train": "0.9", "val": ".1"}, 3, "label"
    )
    assert parse_splits(["train=./0.9"]) == {"train": Path("./0.9")}
    assert parse_splits(["train=90"]) == {"train": Path("90")}
    assert parse_splits([]) == {}
    for texts in (["a=0.5", "b=b.txt"], ["a=0.5", "a=0.5"], ["a=a", "a=b"]):
        with pytest.raises(InvalidRequest, match="unique names"):
            parse_splits(texts)
    for texts in (["a=0.9", "b=0.2"], ["a=0.0"], ["a=1", "b=0"], ["a=-0.1", "b=1"]):
        with pytest.raises(InvalidRequest, match="at most 1"):
            parse_splits(texts)
    with pytest.raises(InvalidRequest, match="for random splits"):
        parse_splits(["a=a.txt"], by="label")


def test_random_splits_have_exact_counts_and_depend_on_seed_and_keys_alone(tmp_path: Path) -> None:
    source = many(tmp_path / "data", 30)
    shares = Shares({"train": "0.8", "val": "0.1", "test": "0.1"})
    found = add_shares(source, shares)
    assert found.schema["split"].classes == ("train", "val", "test")
    numbers = numbered(found)
    assert [list(numbers.values()).count(number) for number in range(3)] == [24, 3, 3]
    assert list(numbers) == [source.key(row) for row in range(30)]
    assert numbered(add_shares(many(tmp_path / "data", 30), shares)) == numbers
    assert numbered(add_shares(source, Shares(shares.shares, seed=1))) != numbers
    assert "splits: train 24, val 3, test 3 (drawn with seed 0)" in found.notes
    # pinned: another machine or version gives the same
    assert sorted(key for key, number in numbers.items() if number == 1) == PINNED


PINNED = ["c/1.png", "c/28.png", "c/7.png"]


def test_what_is_in_no_share_is_left_out_and_named(tmp_path: Path) -> None:
    found = add_shares(many(tmp_path / "data", 10), Shares({"train": "0.5", "val": "0.2"}))
    assert len(found) == 7
    assert [reason for _, reason in found.left_out] == [NO_SHARE] * 3


def test_a_file_more_moves_few_samples(tmp_path: Path) -> None:
    shares = Shares({"train": "0.9", "val": "0.1"})
    before = numbered(add_shares(many(tmp_path / "data", 200), shares))
    after = numbered(add_shares(many(tmp_path / "data", 2, first=200), shares))
    assert len(after) == 202
    assert sum(before[key] != after[key] for key in before) <= 2


def test_what_has_one_value_of_a_field_stays_together(tmp_path: Path) -> None:
    names = [f"{kind}/{number}.png" for kind in "abcdefghij" for number in range(5)]
    source = folder.Source(write(tmp_path / "data", dict.fromkeys(names, b"x")))
    found = add_shares(source, Shares({"train": "0.6", "val": "0.4"}, by="label"))
    pairs = {(int(found.value(row, "label")), int(found.value(row, "split"))) for row in range(len(found))}
    assert len(pairs) == 10
    assert sorted(number for _, number in pairs) == [0] * 6 + [1] * 4


WITH_SPLITS = ["coco", *(name for name in sources.names() if "own_splits" in sources.load(name).Source.defaults())]


@pytest.mark.parametrize("kind", WITH_SPLITS)
def test_splits_of_the_request_replace_those_of_the_source(tmp_path: Path, kind: str) -> None:
    root = BUILDERS[kind](tmp_path / "in")
    source, _ = SourceSpec(kind, splits=("one=0.5", "two=0.5")).open(root)
    assert source.schema["split"].classes == ("one", "two")
    assert {int(source.value(row, "split")) for row in range(len(source))} == {0, 1}


def test_shares_and_lists_that_cannot_be_are_refused(tmp_path: Path) -> None:
    source = many(tmp_path / "data", 3)
    with pytest.raises(InvalidRequest, match="'val': .*3 samples"):
        add_shares(source, Shares({"train": "0.9", "val": "0.01"}))
    with pytest.raises(InvalidRequest, match="'val': .*1 values.*'label'"):
        add_shares(source, Shares({"train": "0.9", "val": "0.1"}, by="label"))
    for name in ("image", "object_id"):
        with pytest.raises(InvalidRequest, match=f"--split-by {name}: .*key, label"):
            add_shares(source, Shares({"train": "1"}, by=name))
    with pytest.raises(InvalidRequest, match="does not exist"):
        add_splits(source, {"train": tmp_path / "train.txt"})


def test_images_that_nobody_reads_count_where_they_are_listed(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {"c/a.jpg": b"", "c/b.heic": b"", "c/d.heic": b""})
    found = add_splits(folder.Source(root), lists(tmp_path, train="c/a.jpg\nc/b.heic"))
    assert [key for key, _ in found.unread] == ["c/b.heic"]
    assert dict(found.left_out) == {"c/d.heic": UNLISTED}


def test_names_that_one_sample_has_are_taken(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{kind}/{kind}{n}.png": image(n) for kind in ("a", "b") for n in range(3)})
    stems = write(tmp_path, {"train.txt": "a0\nb1.png\na/a1.png 3\nb2\n"}) / "train.txt"
    source = add_splits(folder.Source(root), {"train": stems})
    assert [source.key(row) for row in range(len(source))] == ["a/a0.png", "a/a1.png", "b/b1.png", "b/b2.png"]


@pytest.mark.parametrize("line", ["1 5.png", "1\t5", "5.png 1.png", "1 no.png", "1 cat", "no such 1.png", "0 5 1.png"])
def test_a_line_that_may_mean_another_sample_is_refused(source: folder.Source, tmp_path: Path, line: str) -> None:
    with pytest.raises(BadInput, match=re.escape(str(source.root))):
        add_splits(source, lists(tmp_path, train=line))


@pytest.mark.parametrize(
    "line",
    [
        "5.png 1",
        "5.png,cat",
        "c/5.png masks/5.png",
        "5",
        "data/c/5.png 3",
        "{root}/c/5.png",
    ],
)
def test_what_stands_behind_a_name_is_passed_over(source: folder.Source, tmp_path: Path, line: str) -> None:
    found = add_splits(source, lists(tmp_path, train=line.format(root=source.root)))
    assert [found.key(index) for index in range(len(found))] == ["c/5.png"]


def test_a_name_of_several_samples_is_none(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{kind}/{n}.png": image(n) for kind in ("a", "b") for n in range(3)})
    stems = write(tmp_path, {"train.txt": "a/0.png\n1\n2.png\n"}) / "train.txt"
    with pytest.raises(BadInput, match=r" 1 \(.*several.*2.png \("):
        add_splits(folder.Source(root), {"train": stems})
