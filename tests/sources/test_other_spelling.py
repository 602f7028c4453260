"""Names that the screen shows alike: messages tell them apart."""

import re
from pathlib import Path

import pytest

from packer.conversion.source_spec import SourceSpec
from packer.errors import PackerError
from packer.sources._name_words import other_spelling
from tests.support.layout_trees.coco import annotations, image_entry
from tests.support.source_trees import image, mask, write

COMPOSED, APART = "\u00e9", "e\u0301"


def said(root: Path, **options: str) -> str:
    """What opening the tree ends with."""
    sidecars = (options.pop("sidecar"),) if "sidecar" in options else ()
    with pytest.raises(PackerError) as caught:
        SourceSpec("auto", options, sidecars=sidecars).open(root)
    return str(caught.value)


def trees(root: Path, there: str, asked: str) -> list[tuple[Path, str]]:
    """Trees whose labels or masks are called otherwise than their images: each, and the sidecar to ask for."""
    table = f"file_name,label\n{asked}.png,1\n"
    coco = annotations([image_entry(1, f"{asked}.png")], [])
    masked = {f"{asked}.png": image(1), f"m/{there}.png": mask(1)}
    beside = "mask=m/{stem}.png:mask"
    return [
        (write(root / "table", {f"{there}.png": image(1), "metadata.csv": table}), ""),
        (write(root / "coco", {f"train/{there}.png": image(1), "train/_annotations.coco.json": coco}), ""),
        (write(root / "one", masked), beside),
        (write(root / "some", {**masked, "z.png": image(2), "m/z.png": mask(2)}), beside),
    ]


@pytest.mark.parametrize(
    ("there", "asked", "what"),
    [(APART, COMPOSED, "another spelling of its accents"), ("A", "a", "other letter case")],
    ids=["accents", "case"],
)
def test_a_name_that_is_there_in_another_spelling_is_told(tmp_path: Path, there: str, asked: str, what: str) -> None:
    for root, sidecar in trees(tmp_path, there, asked):
        message = said(root, **({"sidecar": sidecar} if sidecar else {}))
        assert f"({ascii(asked + '.png')} is there in {what}: {ascii(there + '.png')}" in message, root


def test_other_names_are_not_taken_for_spellings() -> None:
    assert other_spelling(["a.png", "x/b.png"], ["c.png", "y/b.png"]) == ""
    assert other_spelling([], ["a.png"]) == ""
    assert re.search("other letter case: 'B.png'", other_spelling(["x/b.png"], ["y/B.png"]))
