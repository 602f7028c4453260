"""packer ls: the lines are the samples that the condition selects, in the order that was requested."""

import json
from pathlib import Path
from typing import Any

import pytest

from packer.errors import InvalidRequest
from tests.support.command_line import called
from tests.support.conversions import packed
from tests.support.source_trees import image, write

SIDES = {"cat/a.jpg": 20, "cat/b.jpg": 40, "dog/new\nline.jpg": 30, "dog/d.jpg": 40, "dog/it's.jpg": 10}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack of five photos of different widths."""
    files = {key: image(7, suffix=".jpg", height=16, width=width) for key, width in SIDES.items()}
    packed(write(tmp_path / "in", files), tmp_path / "a.pack")
    return tmp_path / "a.pack"


def listed(*words: object) -> list[dict[str, Any]]:
    """The samples of `packer ls --json`."""
    found: list[dict[str, Any]] = json.loads(called("ls", *words, "--json").stdout)["samples"]
    return found


def keys(*words: object) -> list[str]:
    """The keys of `packer ls`."""
    return [sample["key"] for sample in listed(*words)]


def test_a_line_has_the_key_and_the_columns(pack: Path) -> None:
    result = called("ls", pack, "--where", "width >= 30 and label == 'dog'", "--sort", "width", "--desc")
    assert result.stdout.splitlines() == ["dog/d.jpg  width=40  label=dog", r"dog/new\nline.jpg  width=30  label=dog"]
    assert result.stderr == "2 of 2 samples\n"
    assert called("ls", pack, "-n", "1").stdout == "cat/a.jpg\n"
    assert called("ls", pack, "--columns", "height,key,label", "-n", "1").stdout == "cat/a.jpg  height=16  label=cat\n"


def test_the_order_is_that_of_the_column(pack: Path) -> None:
    everything = sorted(SIDES, key=str.encode)
    by_width = sorted(everything, key=SIDES.__getitem__)
    assert keys(pack) == keys(pack, "--sort", "key") == everything
    assert keys(pack, "--desc") == keys(pack, "--sort", "key", "--desc") == everything[::-1]
    assert keys(pack, "--sort", "width") == by_width
    assert keys(pack, "--sort", "width", "--desc") == sorted(everything, key=lambda key: -SIDES[key])
    assert keys(pack, "--sort", "width", "--desc", "-n", "2") == ["cat/b.jpg", "dog/d.jpg"]
    assert listed(pack, "--sort", "label", "-n", "1") == [{"key": "cat/a.jpg", "label": "cat"}]


def test_samples_are_counted(pack: Path) -> None:
    assert len(keys(pack, "-n", "0")) == len(SIDES)
    result = json.loads(called("ls", pack, "-n", "2", "--json").stdout)
    assert (result["matching"], len(result["samples"])) == (len(SIDES), 2)
    none = called("ls", pack, "--where", "width > 1000")
    assert (none.stdout, none.stderr) == ("", "0 of 0 samples\n")


def test_a_split_has_its_samples(tmp_path: Path) -> None:
    files = {f"{name}/x/{number}.jpg": image(number, suffix=".jpg") for name in ("it's", "val") for number in range(2)}
    pack = tmp_path / "a.pack"
    called("convert", write(tmp_path / "in", files), pack, "--folders", "split/class")
    assert keys(pack, "--split", "it's", "--where", "'1' in key or '0' in key") == ["it's/x/0.jpg", "it's/x/1.jpg"]
    assert listed(pack, "--split", "val", "-n", "1") == [{"key": "val/x/0.jpg", "split": "val"}]
    with pytest.raises(InvalidRequest, match="'val'"):
        raise called("ls", pack, "--split", "vall").exception or AssertionError


def test_a_column_that_is_absent_is_refused(pack: Path) -> None:
    for words in (("--sort", "widht"), ("--columns", "widht,label"), ("--where", "widht > 1")):
        with pytest.raises(InvalidRequest, match="widht.*width"):
            raise called("ls", pack, *words).exception or AssertionError
