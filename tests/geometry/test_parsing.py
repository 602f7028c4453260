"""Geometries as people write them."""

import pytest

from packer import geometry
from packer.errors import InvalidRequest
from packer.geometry import Compose, RandomHorizontalFlip, RandomResizedCrop, RandomRotation, Resize
from packer.geometry.parsing import classes, parse


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Resize((224, 224))", Resize((224, 224))),
        (" RandomResizedCrop(96, scale=(0.5, 1), antialias=False) ", RandomResizedCrop(96, (0.5, 1), antialias=False)),
        ("RandomResizedCrop(8), RandomHorizontalFlip(p=1.0)", Compose(RandomResizedCrop(8), RandomHorizontalFlip(1.0))),
        ("RandomRotation(choices=(0, 90)),", RandomRotation(choices=(0, 90))),
    ],
)
def test_what_is_written_is_made(text: str, wanted: object) -> None:
    assert parse(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "()", "224", "Resize", "Foo(3)", "Resize(224", "Resize(open('x'))", "__import__('os')", "Compose(Resize(2))"]
    + ["Resize(2) + Resize(2)", "Resize(*(1, 2))", "Resize(**{'height': 2})", "lambda: 0", "\0", "Resize(side=3)"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="geometry"):
        parse(text)


def test_a_geometry_that_does_not_fit_says_itself_why() -> None:
    with pytest.raises(InvalidRequest, match=r"Resize\(5, 3\): .*Resize\(\(5, 3\)\)"):
        parse("Resize(5, 3)")


def test_a_size_beyond_all_images_is_refused_before_it_is_divided() -> None:
    with pytest.raises(InvalidRequest, match="at most 1048576"):
        parse(f"Resize((1{'0' * 400}, 1))")
    with pytest.raises(InvalidRequest, match="whole number"):
        parse("Resize((0, 3))")


def test_every_geometry_is_parsed_and_exported() -> None:
    for name, found in classes().items():
        assert getattr(geometry, name, None) is found, (
            f"packer/geometry/__init__.py does not export {name}: import it there from {found.__module__} and add it "
            "to __all__, so that type checkers and completion know it"
        )
        assert name in geometry.__all__, f"packer/geometry/__init__.py: add {name} to __all__"
    assert {"Resize", "RandomZoom"} < set(classes())
    assert "Compose" not in classes()
