"""What `--from auto` decides, and says that it cannot."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from packer import sources
from packer.conversion.source_spec import SourceSpec
from packer.errors import InvalidRequest, PackerError
from packer.sources import _recognition, base
from packer.sources._file_pattern import is_image
from packer.sources._recognition import detect
from packer.sources._trees.file_tree import FileTree
from packer.sources._trees.folder_scan import scan
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.image_files import folder
from tests.support import archives, layout_trees
from tests.support.layout_trees import voc
from tests.support.source_trees import BUILDERS, image, photos, write

LAYOUTS = tuple(layout_trees.builders())


class Annotated(base.Source):
    """A layout of annotations that takes every tree with images in classes for its own."""

    @classmethod
    def defaults(cls) -> dict[str, object]:
        return {"follow_links": False, "bad_labels": "error"}

    @classmethod
    def recognize(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        return f"annotations: {len(names)} files" if tree.read(names[0]) else None


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Two sources that know the same trees, by name, and `folder`."""
    found = {"left": 50, "right": 20}

    def load(name: str) -> object:
        if name == "folder":
            return folder
        return SimpleNamespace(SPECIFICITY=found[name], Source=Annotated)

    monkeypatch.setattr(_recognition, "names", lambda: ("folder", *found))
    monkeypatch.setattr(_recognition, "load", load)
    return found


def test_the_more_specific_of_two_is_taken(tmp_path: Path, ranks: dict[str, int]) -> None:
    assert detect(photos(tmp_path / "data")) == ("left", "annotations: 12 files")
    ranks["right"] = 60
    assert detect(tmp_path / "data")[0] == "right"


def test_two_of_one_rank_are_named_and_none_is_taken(tmp_path: Path, ranks: dict[str, int]) -> None:
    ranks["right"] = 50
    with pytest.raises(InvalidRequest) as caught:
        detect(photos(tmp_path / "data"))
    assert str(caught.value) == (
        f"{tmp_path / 'data'}: several sources fit; use one of these: "
        "--from left (annotations: 12 files); --from right (annotations: 12 files)"
    )


def test_what_the_user_asks_for_rules_layouts_out_that_do_not_have_it(tmp_path: Path, ranks: dict[str, int]) -> None:
    root = photos(tmp_path / "data")
    assert SourceSpec(options={"folders": "none"}).open(root)[0].kind == "folder"
    assert detect(root, given=["bad_labels"])[0] == "left"


def test_one_of_records_is_ruled_out_by_nothing(tmp_path: Path, ranks: dict[str, int]) -> None:
    ranks.update(left=-1, right=-2)
    (tmp_path / "rows.txt").write_bytes(b"rows")
    assert detect(tmp_path, given=["folders"])[0] == "left"


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
BOTH = "several sources fit"  # and both are named
TREES = ("photos", "coco", "voc", "yolo", "table", "pairs", "voc+yolo", "coco+yolo", "coco+voc")
NOTHING, NO_TABLE, NO_PAIRS, NO_FILE = "no samples", "no table", "no images with masks", "no such file"
ROLES = ("image=JPEGImages/{stem}.jpg:image", "mask=SegmentationClass/{stem}.png:mask")
OUTCOMES: dict[tuple[str, str | int | tuple[str, ...]], tuple[str, ...]] = {
    #                              photos   coco  voc   yolo  table  pairs    voc+yolo coco+yolo coco+voc
    ("", ""):                    ("folder", "coco", "voc", "yolo", "table", "pairs", BOTH, BOTH, BOTH),
    ("task", "segment"):         (NOT, "unknown value 'segment'", "voc", "yolo", NOT, NOT, BOTH, BOTH, BOTH),
    ("task", "keypoints"):       (NOT, "for --task keypoints", "unknown value", "unknown value", NOT, NOT, BOTH, BOTH,
                                  BOTH),
    ("first_pixel", 0):          (NOT, NOT, "voc", NOT, NOT, NOT, "voc", NOT, "voc"),
    ("layout", "duts"):          (NO_PAIRS, NO_PAIRS, NO_PAIRS, NO_PAIRS, NO_PAIRS, "pairs", NO_PAIRS, NO_PAIRS,
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
        if wanted == NOT:
            assert f"--{option.replace('_', '-')} is of --from {' or '.join(sources.having(option))}" in said
        if wanted == BOTH:
            assert all(f"--from {kind} (" in said for kind in TREES[place].split("+")), said


def test_a_tar_of_two_layouts_is_asked_about_too(tmp_path: Path) -> None:
    place = archives.pax(trees()["voc+yolo"](tmp_path / "in"), tmp_path / "data")
    with pytest.raises(InvalidRequest, match="several sources.*--from voc.*--from yolo"):
        detect(place)
    assert detect(place, given=["first_pixel"])[0] == "voc"


# ---- rules that hold for every layout


def with_texts(root: Path, kind: str) -> Path:
    """The tree with a text beside each image, which is of no layout."""
    source = sources.load(kind).Source(root)
    for row in range(len(source)):
        stem = root / source.entry(row).stem
        stem.with_name(f"{stem.name}.note").write_text(f"{row} an image")
    return root


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_sidecar_does_not_change_what_is_found(tmp_path: Path, kind: str) -> None:
    root = with_texts(layout_trees.builders()[kind](tmp_path / "data"), kind)
    plain, found = SourceSpec().open(root)
    for options in ({}, {"missing": "skip"}):
        source, said = SourceSpec(sidecars=("note=.note:text",), options=options).open(root)
        assert (source.kind, said) == (kind, found)
        assert set(source.schema.names) == {*plain.schema.names, "note", "files"}
        assert source[len(source) - 1]["note"].endswith("an image")


def test_a_sidecar_with_the_name_of_a_field_that_was_found_is_told(tmp_path: Path) -> None:
    root = layout_trees.builders()["voc"](tmp_path)
    mask = "mask=SegmentationClass/{stem}.png:mask"
    with pytest.raises(InvalidRequest, match="--sidecar mask.*--from folder"):
        SourceSpec(sidecars=(mask,)).open(root)
    both = (mask, "other=SegmentationObject/{stem}.png:mask")
    source, _ = SourceSpec("folder", {"folders": "none"}, sidecars=both).open(root)
    assert source.schema.names == ("key", "image", "mask", "other", "files")


@pytest.mark.one_in(7)
@pytest.mark.parametrize("maker", [archives.gnu, archives.named, archives.deflated])
@pytest.mark.parametrize("kind", LAYOUTS)
def test_an_archive_of_a_tree_is_told_as_the_tree(
    tmp_path: Path, kind: str, maker: Callable[[Path, Path], Path]
) -> None:
    root = layout_trees.builders()[kind](tmp_path / "in")
    expected = detect(root)
    assert detect(maker(root, tmp_path / "plain")) == expected
    archive = maker(with_texts(root, kind), tmp_path / "texts")
    assert detect(archive) == detect(root) == expected
    names = SourceSpec().open(root)[0].schema.names
    assert SourceSpec().open(archive)[0].schema.names == names


XML = voc.annotation([voc.annotated_object("cat", (1, 2, 30, 40))])


@pytest.mark.parametrize(
    ("kind", "label", "text"), [("voc", "xml", XML), ("yolo", "txt", "0 0.5 0.5 0.2 0.2\n")], ids=["voc", "yolo"]
)
def test_labels_beside_each_image_in_a_tar_may_be_samples_too(tmp_path: Path, kind: str, label: str, text: str) -> None:
    files = {f"train/{n}.jpg": image(n, suffix=".jpg") for n in range(3)}
    root = write(tmp_path / "in", {**files, **{f"train/{n}.{label}": text for n in range(3)}})
    assert detect(root)[0] == detect(archives.deflated(root, tmp_path / "a"))[0] == kind
    archive = archives.gnu(root, tmp_path / "a")
    with pytest.raises(InvalidRequest, match=f"several sources.*--from {kind}.*--from webdataset "):
        detect(archive)
    assert detect(archive, given=["features"])[0] == "webdataset"
    assert [len(SourceSpec(name).open(archive)[0]) for name in (kind, "webdataset")] == [3, 3]
    write(root, {"train/3.jpg": image(3, suffix=".jpg")})  # without a label: no sample
    assert detect(archives.gnu(root, tmp_path / "b"))[0] == kind


def test_the_sources_that_a_folder_of_images_does_without_cannot_know_it(tmp_path: Path) -> None:
    behind = {name for name in sources.names() if sources.load(name).SPECIFICITY < 0}
    assert behind == _recognition._BEHIND_IMAGES
    for name in _recognition._OF_LABEL_FILES:
        tree = SourceRoot(BUILDERS[name](tmp_path / name))
        files = scan(tree).names
        images = [file for file in files if is_image(file)]
        whole, bare = (sources.load(name).Source.recognize(tree, some) for some in (files, images))
        assert whole is not None and len(images) > 1 and bare is None, name


def test_a_folder_of_images_is_told_without_sources_that_cannot_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, asked = sources.load, set[str]()

    def noted(name: str) -> ModuleType:
        asked.add(name)
        return load(name)

    monkeypatch.setattr(_recognition, "load", noted)
    root = write(tmp_path / "in", {"a/1.png": image(1), "b/2.png": image(2)})
    assert detect(root)[0] == "folder"
    assert "folder" in asked and not asked & {*_recognition._BEHIND_IMAGES, *_recognition._OF_LABEL_FILES}
    write(root, {"a/notes.txt": "none"})  # with which it may be of labels
    assert detect(root)[0] == "folder"
    assert asked >= _recognition._OF_LABEL_FILES and not asked & _recognition._BEHIND_IMAGES
    for name in ("a/1.png", "b/2.png"):
        (root / name).unlink()
    with pytest.raises(InvalidRequest, match="no known"):
        detect(root)
    assert asked == set(sources.names())


def test_samples_that_no_folder_can_be_made_of_stay_webdataset(tmp_path: Path) -> None:
    found = {"a.jpg": image(1, suffix=".jpg"), "a.xml": XML.encode(), "../b.jpg": b"", "../b.xml": b""}
    (tmp_path / "a.tar").write_bytes(archives.tar_of(found))
    assert detect(tmp_path / "a.tar")[0] == "webdataset"


def test_an_option_says_a_published_set_in_an_archive_as_in_a_folder(tmp_path: Path) -> None:
    root = layout_trees.builders()["regrad"](tmp_path / "in")
    for place in (root, archives.gnu(root, tmp_path / "a"), archives.deflated(root, tmp_path / "a")):
        assert detect(place, given=["angle_convention"])[0] == "regrad"
