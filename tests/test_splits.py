"""Splits: lists of samples as a field."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from packer.errors import BadInput, Refused
from packer.sources import cornell as cornell_source
from packer.sources import folder
from packer.sources.adding.sidecars import Sidecar, add_sidecars
from packer.sources.adding.splits import UNLISTED, Split, add_splits
from tests.trees import cornell, write


@pytest.fixture
def source(tmp_path: Path) -> folder.Source:
    names = [f"c/{number}.png" for number in range(6)]
    return folder.Source(write(tmp_path / "data", {name: name for name in names}))


def lists(tmp_path: Path, **texts: str | bytes) -> list[Split]:
    write(tmp_path, {f"{name}.txt": text for name, text in texts.items()})
    return [Split(name, tmp_path / f"{name}.txt") for name in texts]


def test_parse_reads_name_and_file() -> None:
    assert Split.parse("train=a=b.txt") == Split("train", Path("a=b.txt"))
    for text in ("train", "=x", "train="):
        with pytest.raises(Refused, match="expected NAME=FILE"):
            Split.parse(text)


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
    assert found.files(0) == inner.files(1)
    assert found.stem(0) == inner.stem(1)


def test_unknown_names_are_counted_and_the_first_twenty_named(source: folder.Source, tmp_path: Path) -> None:
    text = "c/0.png\n" + "".join(f"no{number:02}.png\n" for number in range(25))
    with pytest.raises(
        BadInput, match=r"train.txt: 25 names that no sample .*no00.png, .*no19.png and 5 more; "
    ) as caught:
        add_splits(source, lists(tmp_path, train=text))
    assert "no20" not in str(caught.value)
    assert "such as c/0.png" in str(caught.value)


def test_a_sample_in_two_lists_is_an_error(source: folder.Source, tmp_path: Path) -> None:
    found = lists(tmp_path, a="c/0.png\nc/1.png\nc/2.png\n", b="c/1.png\nc/3.png\nc/0.png\n")
    with pytest.raises(BadInput, match=r"b.txt: 2 samples of split 'b' .*c/1.png \(also in a\), c/0.png \(also in a\)"):
        add_splits(source, found)


def test_a_sample_twice_in_one_list_is_one_sample(source: folder.Source, tmp_path: Path) -> None:
    assert len(add_splits(source, lists(tmp_path, a="c/0.png\nc/0.png\n"))) == 1


def test_two_lists_of_one_name_are_refused(source: folder.Source, tmp_path: Path) -> None:
    (split,) = lists(tmp_path, a="c/0.png")
    with pytest.raises(Refused, match="names are not unique"):
        add_splits(source, [split, split])


def test_a_list_that_is_not_there_is_bad_input(source: folder.Source, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere.txt: cannot read"):
        add_splits(source, [Split("a", tmp_path / "nowhere.txt")])


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
