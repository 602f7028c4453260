"""Which files of a set play which role, by patterns of their paths."""

import pytest

from packer.errors import BadInput, InvalidRequest
from packer.sources._parse.pair_layouts import LAYOUTS, PairLayout
from packer.sources._parse.pair_roles import Role, check_roles, collect
from packer.sources._parse.role_pattern import RolePattern, SampleName


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
        assert made.fits_one(["other.txt", name])


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


def test_the_pattern_that_says_more_has_the_file() -> None:
    roles = [Role.parse("image={split}/{stem}:image"), Role.parse("mask={split}annot/{stem}:mask")]
    found = collect(["train/1.png", "trainannot/1.png"], roles)
    assert found.paths == {SampleName("train", "", "1"): ["train/1.png", "trainannot/1.png"]}


def test_a_file_of_two_roles_is_an_error() -> None:
    roles = [Role.parse("image=a_{stem}.png:image"), Role.parse("mask={stem}_m.png:mask")]
    with pytest.raises(BadInput, match=r"two roles fit equally well: a_1_m\.png \(image, mask\)"):
        collect(["a_1.png", "1_m.png", "a_1_m.png"], roles)


def test_two_files_of_one_role_are_an_error() -> None:
    with pytest.raises(BadInput, match=r"images/1\.jpg and images/1\.png \(image of 1\).* --role 'image=images/"):
        collect(["images/1.jpg", "images/1.png", "images/2.png"], [Role.parse("image=images/{stem}:image")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image", "expected NAME=PATH:KIND"),
        ("image=a/{stem}.png", "expected NAME=PATH:KIND"),
        ("image=a/{stem}.png:picture", "unknown kind 'picture'"),
        ("mask=a/{stem}.png:mask:int32", "expected uint8 or uint16 behind mask, found 'int32'"),
        ("d=a/{stem}.png:depth:none", "expected behind depth the value of a missing pixel"),
        ("text=a/{stem}:text", "expected the suffix of its files"),
        ("split=a/{stem}.png:mask", "every sample has a 'split' of its own"),
        ("1st=a/{stem}.png:mask", "expected a letter"),
        ("mask=../a/{stem}.png:mask", "expected a path from the folder"),
    ],
)
def test_a_role_that_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Role.parse(text)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (("a=a/{stem}.png:image", "a=b/{stem}.png:mask"), "two are named a"),
        (("a=a/{stem}.txt:text",), "none is a picture"),
        (("a=a/{folder}/{stem}.png:image", "b=b/{stem}.png:mask"), "not the same placeholders"),
        (("a=a/{stem}.png:image", "b=a/{stem}.png:mask"), r"two of them are the files a/\{stem\}\.png"),
    ],
)
def test_roles_of_one_sample_fit_together(texts: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        check_roles(list(map(Role.parse, texts)))


def test_roles_say_the_forms_of_their_values() -> None:
    assert Role.parse("d=a/{stem}.png:depth:0").field.invalid == 0
    assert Role.parse("m=a/{stem}.png:mask:uint16").field.dtype == "uint16"
    assert Role.parse("n=a/{stem}_{number}.png:count").field.kind == "number"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: f"{layout.name} {layout.roles[0].pattern.text}")
def test_the_roles_of_every_layout_fit_together(layout: PairLayout) -> None:
    check_roles(layout.roles)
    assert layout.roles[0].name == "image"
    assert {name for group in layout.needs for name in group} <= {role.name for role in layout.roles}
