"""Patterns of the paths of files, and the declarations of --role."""

from pathlib import Path

import pytest

from packer.errors import BadInput, InvalidRequest
from packer.sources._file_pattern import RolePattern, SampleName
from packer.sources.image_files._pair_layouts import LAYOUTS, PairLayout, PairRole, check_roles
from packer.sources.image_files.pairs import Source
from tests.support.source_trees import write


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        ("masks/{stem}.png", "masks/1.png", ("", "", "1")),
        ("masks/{stem}.png", "masks/a.b.c.png", ("", "", "a.b.c")),
        ("masks/{stem}.png", "masks/1.PNG", None),
        ("masks/{stem}.png", "masks/x/1.png", None),
        ("masks/{stem}.png", "masks/.png", None),
        ("masks/{stem}", "masks/1.PNG", ("", "", "1")),
        ("masks/{stem}", "masks/1.jpg.png", ("", "", "1.jpg")),
        ("masks/{stem}", "masks/1.txt", None),
        ("masks/gt_{stem}_m.png", "masks/gt_1_m.png", ("", "", "1")),
        ("masks/gt_{stem}_m.png", "masks/gt__m.png", None),
        ("{folder}/m/{stem}.png", "m/1.png", ("", "", "1")),
        ("{folder}/m/{stem}.png", "a/b/m/1.png", ("", "a/b", "1")),
        ("{folder}/m/{stem}.png", "am/1.png", None),
        ("m/{folder}/{stem}.png", "m/1.png", ("", "", "1")),
        ("m/{folder}/{stem}.png", "m/a/b/1.png", ("", "a/b", "1")),
        ("{split}annot/{stem}.png", "trainannot/1.png", ("train", "", "1")),
        ("{split}annot/{stem}.png", "annot/1.png", None),
        ("{split}/{split}_m/{stem}.png", "val/val_m/1.png", ("val", "", "1")),
        ("{split}/{split}_m/{stem}.png", "val/train_m/1.png", None),
        ("{split}/{folder}/{stem}_parts_{number}.png", "val/a/1_parts_12.png", ("val", "a", "1")),
        ("{split}/{folder}/{stem}_parts_{number}.png", "val/a/1_parts_.png", None),
        ("m[1]/{stem}(x).png", "m[1]/a\n(x).png", ("", "", "a\n")),
    ],
)
def test_a_pattern_says_of_which_sample_a_file_is(pattern: str, name: str, found: tuple[str, ...] | None) -> None:
    made = RolePattern(pattern)
    assert made.match(name) == (None if found is None else SampleName(*found))
    if found is not None:
        assert made.fits_folder([name[: name.rfind("/") + 1]])


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "masks/1.png", "{stem}/1.png", "{stem}_{stem}.png", "/m/{stem}.png", "../m/{stem}.png", "m//{stem}.png"),
        *("m/./{stem}", "{folder}/{folder}/{stem}", "x{folder}/{stem}", "{split}_{stem}.png", "{name}", "m/{stem}}"),
        "m/{stem}.png\0",
    ],
)
def test_a_pattern_that_names_no_files_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        RolePattern(pattern)


def test_the_path_of_a_sample_is_told() -> None:
    sample = SampleName("train", "a/b", "{split}")
    assert RolePattern("m/{split}/{folder}/gt_{stem}.png").path(sample) == "m/train/a/b/gt_{split}.png"
    assert RolePattern("m/{split}/{folder}/{stem}").path(SampleName("val", "", "1")) == "m/val/1.*"
    assert RolePattern("{stem}_parts_{number}.png").path(SampleName("", "", "1")) == "1_parts_*.png"
    assert sample.key == "train/a/b/{split}"


def test_the_longest_pattern_that_matches_applies(tmp_path: Path) -> None:
    write(tmp_path, {"train/1.png": b"1", "trainannot/1.png": b"2"})
    source = Source(tmp_path, roles=("image={split}/{stem}:image", "mask={split}annot/{stem}:mask"))
    assert (len(source), source[0]["image"], source[0]["mask"]) == (1, b"1", b"2")


def test_a_file_of_two_roles_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"a_1.png": b"", "1_m.png": b"", "a_1_m.png": b""})
    with pytest.raises(BadInput, match=r"a_1_m\.png \(image, mask\)"):
        Source(tmp_path, roles=("image=a_{stem}.png:image", "mask={stem}_m.png:mask"))


@pytest.mark.parametrize(
    "text",
    [
        "image",
        "image=a/{stem}.png",
        "image=a/{stem}.png:photo",
        "mask=a/{stem}.png:mask:int32",
        "d=a/{stem}.png:depth:none",
        "text=a/{stem}:text",
        "split=a/{stem}.png:mask",
        "1st=a/{stem}.png:mask",
        "mask=../a/{stem}.png:mask",
    ],
)
def test_a_role_that_is_not_valid_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="role|field|\\.\\./a"):
        PairRole.parse(text)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("a=a/{stem}.png:image", "a=b/{stem}.png:mask"), "same name"),
        (("a=a/{stem}.txt:text",), "expected an image first"),
        (("a=a/{folder}/{stem}.png:image", "b=b/{stem}.png:mask"), "different placeholders"),
        (("a=a/{stem}.png:image", "b=a/{stem}.png:mask"), r"same files: a/\{stem\}\.png"),
    ],
)
def test_roles_of_one_sample_fit_together(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check_roles(list(map(PairRole.parse, texts)))


def test_roles_say_the_forms_of_their_values() -> None:
    assert PairRole.parse("d=a/{stem}.png:depth:0").field.invalid == 0
    assert PairRole.parse("m=a/{stem}.png:mask:uint16").field.dtype == "uint16"
    assert PairRole.parse("n=a/{stem}_{number}.png:count").field.kind == "number"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.name} {layout.roles[0].pattern.text}")
def test_the_roles_of_every_layout_fit_together(layout: PairLayout) -> None:
    check_roles(layout.roles)
    assert layout.roles[0].name == "image"
    assert {name for group in layout.needs for name in group} <= {role.name for role in layout.roles}
