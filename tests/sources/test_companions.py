"""Images that belong to other images: refused unless they are declared, and the rows of the pages that declare them."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import packer
from packer.cli import main
from packer.errors import InvalidRequest
from packer.sources.image_files.folder import Source
from tests.support.source_trees import encoded, write

PAIRS = [
    ("{n}.jpg", "mask_{n}.png"),
    ("{n}.jpg", "{n}.png"),
    ("a_rgb_{n}.png", "a_depth_{n}.tiff"),
    ("c{n}_leftImg8bit.png", "c{n}_gtFine_labelIds.png"),
    ("img/img_{n}.jpg", "lab/mask_{n}.png"),
    ("hr/{n}.png", "lr/{n}.png"),
    ("a{n}.jpg", "a{n}Mask.png"),
    ("{n}/image.jpg", "{n}/mask.png"),
    ("{n}/images/{n}.png", "{n}/masks/m{n}.png"),
    ("cat/{n}.jpg", "cat_mask/{n}.png"),
]


@pytest.mark.parametrize("names", PAIRS)
def test_images_that_belong_to_others_are_refused_or_samples(tmp_path: Path, names: tuple[str, str]) -> None:
    for n in range(4):
        image, mask = (name.format(n=n) for name in names)
        write(tmp_path, {image: smooth(n, Path(image).suffix), mask: labels(n)})
    for folders in ("none", "class") if "/" in names[0] else ("none",):
        with pytest.raises(InvalidRequest, match="--companions samples") as caught:
            Source(tmp_path, folders=folders)
        assert "--sidecar" in str(caught.value)
    assert len(Source(tmp_path, folders="none", companions="samples")) == 8


@pytest.mark.parametrize("files", [
    ("cat/{n}.jpg", "dog/{n}.jpg"),
    ("left/{n}.png", "right/{n}.png"),
    ("with_mask/with_mask_{n}.jpg", "without_mask/without_mask_{n}.jpg"),
    ("mask/{n}0.jpg", "chair/{n}2.jpg", "lamp/{n}2.jpg", "table/{n}2.jpg", "pen/{n}3.jpg"),
    ("a/IMG_{n}.jpg", "b/IMG_{n}.jpg", "a/IMG_{n}_edited.jpg"),
])  # fmt: skip
def test_ordinary_classes_stay_classes(tmp_path: Path, files: tuple[str, ...]) -> None:
    for n in range(6):
        write(tmp_path, {name.format(n=n): smooth(n, Path(name).suffix) for name in files})
    source = Source(tmp_path)
    assert len(source) == 6 * len(files)
    assert source.schema["label"].classes == tuple(sorted({name.partition("/")[0] for name in files}))


def smooth(seed: int, suffix: str) -> bytes:
    """A photograph: many colors."""
    rows, columns = np.mgrid[0:48, 0:64]
    planes = [(rows * (seed + 2) + 3 * columns) % 256, (2 * rows + columns + seed) % 256, (rows * columns) % 256]
    return encoded(suffix, np.stack(planes, axis=-1).astype(np.uint8))


def labels(seed: int) -> bytes:
    """Three flat areas."""
    array = np.zeros((48, 64), np.uint8)
    array[5:30, 5 + seed : 40] = 1
    array[10:20, 20:30] = 2
    return encoded(".png", array)


_DOCS = Path(__file__).parents[2] / "docs/pack"
PAGES = [(_DOCS / f"{name}.md").read_text(encoding="utf-8").partition("\n## ")[0] for name in ("folders", "sidecars")]
ROWS = [row for page in PAGES for row in re.findall(r"^\| (`.*?) \| (.*) \|$", page, re.MULTILINE) if "--" in row[1]]


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("files", "typed"), ROWS)
def test_every_row_of_the_page_packs_its_files(tmp_path: Path, files: str, typed: str) -> None:
    root, pack = tmp_path / "set", tmp_path / "set.pack"
    names = [name for name in re.findall("`([^`]+)`", files) if "." in name and " " not in name]
    companions = [name for name in names if re.search("mask|annot|label|[yY]/|lr/|Segmentation|boxes", name)]
    for number, name in enumerate(names):
        data: bytes | str = labels(number) if name in companions else smooth(number, Path(name).suffix)
        write(root, {name: "1 2 3 4" if name.endswith(".txt") else data})
    (options,) = re.findall("`(--[^`]+)`", typed)
    folder = re.search(r"FOLDER is `([^`]+)`", typed)
    main.main(
        ["convert", str(root / (folder[1] if folder else "")), str(pack), *shlex.split(options)], standalone_mode=False
    )
    with packer.open(pack) as dataset:
        assert len(dataset) == len(names) - len(companions)
        if companions:
            name = re.findall("(?:--sidecar|--role) (\\w+)=", options)[-1]
            assert name in dataset[0]


def test_the_page_has_a_row_for_every_kind_of_pair() -> None:
    assert len(ROWS) >= 19
