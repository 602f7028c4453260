"""What `--from auto` decides, and says that it cannot."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from packer import sources
from packer.conversion.source_spec import SourceSpec
from packer.errors import InvalidRequest, PackerError
from packer.sources import base, folder
from packer.sources._trees.file_tree import FileTree
from tests.support import archives, layout_trees
from tests.support.source_trees import photos


class Annotated(base.Source):
    """A layout of annotations that takes every tree with pictures in classes for its own."""

    @classmethod
    def options(cls) -> tuple[str, ...]:
        return ("follow_links", "labels")

    @classmethod
    def recognise_tables(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        return f"annotations: {len(names)} files" if tree.read(names[0]) else None


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Two sources that know the same trees, by name, and `folder`."""
    found = {"left": 50, "right": 20}

    def load(name: str) -> object:
        if name == "folder":
            return folder
        return SimpleNamespace(SPECIFICITY=found[name], Source=Annotated, recognise=lambda names: None)

    monkeypatch.setattr(sources, "names", lambda: ("folder", *found))
    monkeypatch.setattr(sources, "load", load)
    return found


def test_the_more_specific_of_two_is_taken(tmp_path: Path, ranks: dict[str, int]) -> None:
    assert sources.detect(photos(tmp_path / "data")) == ("left", "annotations: 12 files")
    ranks["right"] = 60
    assert sources.detect(tmp_path / "data")[0] == "right"


def test_two_of_one_rank_are_named_and_none_is_taken(tmp_path: Path, ranks: dict[str, int]) -> None:
    ranks["right"] = 50
    with pytest.raises(InvalidRequest) as caught:
        sources.detect(photos(tmp_path / "data"))
    assert str(caught.value) == (
        f"{tmp_path / 'data'}: cannot decide what it is; say which of these: "
        "--from left (annotations: 12 files); --from right (annotations: 12 files)"
    )


@pytest.mark.parametrize(
    "options", [SourceSpec(options={"classes": "none"}), SourceSpec(sidecars=("mask=_m.png:mask",))]
)
def test_what_the_user_asks_for_rules_layouts_out_that_do_not_have_it(
    tmp_path: Path, ranks: dict[str, int], options: SourceSpec
) -> None:
    root = photos(tmp_path / "data")
    names = [path.relative_to(root).as_posix() for path in root.rglob("*.jpg")]
    for name in names if options.sidecars else ():
        (root / name).with_name(Path(name).stem + "_m.png").write_bytes((root / name).read_bytes())
    assert options.open(root)[0].kind == "folder"
    assert sources.detect(root, given=["labels"])[0] == "left"


def test_one_of_records_is_ruled_out_by_nothing(tmp_path: Path, ranks: dict[str, int]) -> None:
    ranks.update(left=-1, right=-2)
    (tmp_path / "rows.txt").write_bytes(b"rows")
    assert sources.detect(tmp_path, given=["classes"])[0] == "left"


# ---- what each option makes of trees that fit one source, none, or two


def trees() -> dict[str, Callable[[Path], Path]]:
    """Small trees by name; `a+b` is both in one folder."""
    made = {"photos": photos, **layout_trees.builders()}

    def both(first: str, second: str, root: Path) -> Path:
        made[first](root)
        return made[second](root)

    pairs = [("voc", "yolo"), ("coco", "yolo"), ("coco", "voc")]
    return made | {f"{first}+{second}": partial(both, first, second) for first, second in pairs}


NOT = "has no option"  # and which sources have it
NONE = "none of these has the option"  # of two, which are named
BOTH = "cannot decide what it is"  # and both are named
TREES = ("photos", "coco", "voc", "yolo", "table", "pairs", "voc+yolo", "coco+yolo", "coco+voc")
NOTHING, NO_TABLE, NO_PAIRS, NO_FILE = "matches nothing", "no table", "no pictures with masks", "no such file"
ROLES = ("image=JPEGImages/{stem}.jpg:image", "mask=SegmentationClass/{stem}.png:mask")
OUTCOMES: dict[tuple[str, str | tuple[str, ...]], tuple[str, ...]] = {
    #                              photos   coco  voc   yolo  table  pairs    voc+yolo coco+yolo coco+voc
    ("", ""):                    ("folder", "coco", "voc", "yolo", "table", "pairs", BOTH, BOTH, BOTH),
    ("task", "segment"):         (NOT, "unknown value 'segment'", "voc", "yolo", NOT, NOT, BOTH, BOTH, BOTH),
    ("task", "keypoints"):       (NOT, "for --task keypoints", "unknown value", "unknown value", NOT, NOT, BOTH, BOTH,
                                  BOTH),
    ("origin", "zero"):          (NOT, NOT, "voc", NOT, NOT, NOT, "voc", NONE, "voc"),
    ("label_frame", "stored"):   (NOT, "coco", "voc", NOT, "table", NOT, "voc", "coco", BOTH),
    ("like", "duts"):            (NO_PAIRS, NO_PAIRS, NO_PAIRS, NO_PAIRS, NO_PAIRS, "pairs", NO_PAIRS, NO_PAIRS,
                                  NO_PAIRS),
    ("roles", ROLES):            (NOTHING, NOTHING, "pairs", NOTHING, NOTHING, NOTHING, "pairs", NOTHING, "pairs"),
    ("key_column", "id"):        (NO_TABLE, NO_TABLE, NO_TABLE, NO_TABLE, "table", NO_TABLE, NO_TABLE, NO_TABLE,
                                  NO_TABLE),
    ("group_by", "file_name"):   (NO_TABLE, NO_TABLE, NO_TABLE, NO_TABLE, "table", NO_TABLE, NO_TABLE, NO_TABLE,
                                  NO_TABLE),
    ("annotations", ("annotations/instances_val2017.json",)):
                                 (NO_FILE, "coco", NO_FILE, NO_FILE, NO_FILE, NO_FILE, NO_FILE, "coco", "coco"),
}  # fmt: skip


@pytest.mark.parametrize("place", range(len(TREES)), ids=TREES)
def test_what_an_option_makes_of_a_tree(tmp_path: Path, place: int) -> None:
    root = trees()[TREES[place]](tmp_path / "data")
    for (option, value), outcomes in OUTCOMES.items():
        spec = SourceSpec(options={option: value} if option else {})
        wanted = outcomes[place]
        if wanted in sources.names():
            assert spec.open(root)[0].kind == wanted, option
            continue
        with pytest.raises(PackerError, match=re.escape(wanted)) as caught:
            spec.open(root)
        said = str(caught.value)
        if wanted in (NOT, NONE):
            assert f"--{option.replace('_', '-')} is of --from {' or '.join(sources.having(option))}" in said
        if wanted in (BOTH, NONE):
            assert all(f"--from {kind} (" in said for kind in TREES[place].split("+")), said


def test_what_no_option_decides_is_said_with_what_was_found(tmp_path: Path) -> None:
    root = layout_trees.builders()["yolo"](tmp_path / "data")
    with pytest.raises(InvalidRequest) as caught:
        SourceSpec(options={"origin": "zero"}).open(root)
    assert str(caught.value) == (
        f"{root}: YOLO set: 4 pictures, 3 label files, data.yaml: --from yolo, which has no option --origin; leave it "
        "out; --origin is of --from vmrd or voc"
    )


def test_a_tar_of_two_layouts_is_asked_about_too(tmp_path: Path) -> None:
    place = archives.pax(trees()["voc+yolo"](tmp_path / "in"), tmp_path / "data")
    with pytest.raises(InvalidRequest, match="cannot decide what it is; .*--from voc .*--from yolo "):
        sources.detect(place)
    assert sources.detect(place, given=["origin"])[0] == "voc"
