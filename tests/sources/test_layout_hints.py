"""Images and folders that are not declared: refused, with the options that pack the set when they are pasted."""

import re
import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
import pytest

import packer
from packer.cli import main
from packer.errors import InvalidRequest, PackerError
from packer.sources.image_files.folder import Source
from tests.support.source_trees import depth, encoded, write

# of six samples, four in the first split: {n} number, {s} train or val, {t} training or validation; what begins with
# = is the image, the others are name=companion
SETS: dict[str, tuple[str, ...]] = {
    "flat": ("={n}.jpg", "mask=mask_{n}.png"),
    "flat, both named": ("=img_{n}.jpg", "mask=mask_{n}.png"),
    "flat, numbers at once": ("=img{n}.jpg", "mask=mask{n}.png"),
    "flat, ending": ("={n}.jpg", "mask={n}_mask.png"),
    "flat, ending without a word": ("={n}.jpg", "mask={n}_b.png"),
    "flat, suffix": ("={n}.jpg", "mask={n}.png"),
    "flat, in the middle": ("=a_rgb_{n}.png", "depth=a_depth_{n}.tiff"),
    "Cityscapes, beside each other": ("=c{n}_leftImg8bit.png", "mask=c{n}_gtFine_labelIds.png"),
    "Cityscapes": (
        "=leftImg8bit/{s}/bonn/c{n}_leftImg8bit.png",
        "mask=gtFine/{s}/bonn/c{n}_gtFine_labelIds.png",
    ),
    "two words": ("=img/img_{n}.jpg", "mask=lab/mask_{n}.png"),
    "folders that say nothing": ("=p/img_{n}.jpg", "mask=q/mask_{n}.png"),
    "x and y": ("=x/{n}.png", "mask=y/{n}.png"),
    "A and B": ("=A/{n}.jpg", "mask=B/{n}.png"),
    "super resolution": ("=hr/{n}.png", "lr=lr/{n}.png:image"),
    "super resolution in splits": ("={s}/hr/{n}.png", "lr={s}/lr/{n}.png:image"),
    "DIV2K": ("=DIV2K_train_HR/000{n}.png", "lr=DIV2K_train_LR_bicubic/X2/000{n}x2.png:image"),
    "DIV2K in splits": ("=DIV2K_{s}_HR/000{n}.png", "lr=DIV2K_{s}_LR_bicubic/X2/000{n}x2.png:image"),
    "Flickr2K": ("=Flickr2K_HR/000{n}.png", "lr=Flickr2K_LR_bicubic/X4/000{n}x4.png:image"),
    "HR and LR of one folder each": ("=HR/{n}.png", "lr=LR/X4/{n}.png:image"),
    "HR and LR behind names": ("=a{n}_HR.png", "lr=a{n}_LR.png:image"),
    "SIDD": ("={n}/GT_SRGB_{n}.png", "noisy={n}/NOISY_SRGB_{n}.png:image"),
    "rain": ("=norain/norain-{n}.png", "rainy=rainy/norain-{n}x2.png:image"),
    "a word at the end": ("=a{n}.jpg", "mask=a{n}Mask.png"),
    "two words before numbers": ("=im{n}.png", "mask=gt{n}.png"),
    "a folder per sample": ("={n}/image.jpg", "mask={n}/mask.png"),
    "Carvana": ("=train/{n}.jpg", "mask=train_masks/{n}_mask.png"),
    "img and mask": ("={s}/img/{n}.jpg", "mask={s}/mask/{n}_mask.png"),
    "images and masks in splits": ("={s}/images/{n}.jpg", "mask={s}/masks/{n}.png"),
    "DSB2018, one mask each": ("={n}/images/{n}.png", "mask={n}/masks/m{n}.png"),
    "ADE20K": ("=images/{t}/a{n}.jpg", "mask=annotations/{t}/a{n}.png"),
    "VOC": (
        "=JPEGImages/{n}.jpg",
        "mask=SegmentationClass/{n}.png",
        "mask2=SegmentationObject/{n}.png",
    ),
    "DUTS": ("=im/{n}.jpg", "mask=gt/{n}.png"),
    "u2net": ("=data/test_images/{n}.jpg", "mask=data/u2net_results/{n}.png"),
    "u2net, soft": ("=data/test_images/{n}.jpg", "mask=data/u2net_results/{n}.png:soft"),
    "rgb and depth": ("=rgb/{n}.png", "depth=depth/{n}.tiff"),
    "CHASE": ("=Im_{n}.jpg", "stho=Im_{n}_1stHO.png", "ndho=Im_{n}_2ndHO.png"),
    "ending with a digit": ("=Im_{n}.jpg", "mask=Im_{n}_1stHO.png"),
    "a word and a digit": ("=Im_{n}.jpg", "mask=Im_{n}_mask0.png"),
    "a letter and a digit": ("=Im_{n}.jpg", "mask=Im_{n}_P2.png"),
    "a digit": ("=Im_{n}.jpg", "mask=Im_{n}_2.png"),
    "Montgomery": ("=CXR_png/a{n}.png", "mask=masks/a{n}_mask.png"),
    "jpg and mask": ("=jpg/a{n}.jpg", "mask=mask/a{n}_mask.png"),
    "Montgomery, left and right": ("=CXR/{n}.png", "mask=leftMask/{n}.png", "mask2=rightMask/{n}.png"),
    "a folder per sample, t1 and seg": ("={n}/t1.png", "mask={n}/seg.png"),
    "folders and endings that say nothing": ("=im/Im_{n}.jpg", "mask=xx/Im_{n}_b.png"),
    "folders and first words that say nothing": ("=im/Im_{n}.jpg", "mask=xx/b_{n}.png"),
    "mattes": ("=fgr/{n}.jpg", "mask=pha/{n}.png:soft"),
    "images and masks in classes": ("={c}/images/{n}.png", "mask={c}/masks/{n}.png"),
    "images and masks of splits": ("={s}_images/{n}.jpg", "mask={s}_masks/{n}.png"),
    "color, depth and mask": ("={n}_color.png", "depth={n}_depth.tiff", "mask={n}_mask.png"),
    "pairs in classes": ("={c}/{n}.jpg", "mask={c}/{n}_mask.png"),
    "masks in a folder of the same classes": ("={c}/{n}.jpg", "mask=masks/{c}/{n}.png"),
    "masks in folders named after classes": ("={c}/{n}.jpg", "mask={c}_mask/{n}.png"),
    "pairs in splits of classes": ("={s}/{c}/{n}.jpg", "mask={s}/{c}/{n}_mask.png"),
}


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


def image_of_many_values(seed: int) -> bytes:
    """What a network gives: 256 values of one channel."""
    return encoded(".png", (np.arange(48 * 64).reshape(48, 64) * (seed + 1) // 12 % 256).astype(np.uint8))


def built(root: Path, name: str) -> Mapping[str, dict[str, str]]:
    """Makes the set; returns image -> field -> path of what belongs to it."""
    expected = {}
    for n in range(6):
        words = {
            "n": n,
            "s": ("train", "val")[n > 3],
            "t": ("training", "validation")[n > 3],
            "c": ("ape", "cat")[n % 2],
        }
        main, *others = (text.format(**words) for text in SETS[name])
        main = main.removeprefix("=")
        write(root, {main: smooth(n, Path(main).suffix)})
        pairs = dict(text.partition(":")[0].split("=") for text in others)
        expected[main] = pairs
        for number, (field, path) in enumerate(pairs.items()):
            is_photo = field in IMAGES
            data = depth(n) if field == "depth" else smooth(9 + n, ".png") if is_photo else labels(n + number)
            soft = image_of_many_values(n) if others[number].endswith(":soft") else data
            write(root, {path: soft})
    return expected


# those that `pairs` reads as they are, so that the line to paste is for who says --from folder
PUBLISHED = ("Cityscapes", "ADE20K", "VOC", "images and masks in splits")
# no word names a companion: each image is a sample
UNNOTICED = (
    *("flat, ending without a word", "A and B", "CHASE", "ending with a digit", "a letter and a digit", "a digit"),
    *("folders and endings that say nothing", "folders and first words that say nothing"),
)
IMAGES = ("lr", "b", "noisy", "rainy")  # fields of kind image


def pasted(root: Path, pack: Path, message: str) -> None:
    """Runs what a refusal says to type."""
    found = re.search(r"if they do, (?:add|run): (.*?); if ", message)
    assert found is not None, message
    words = shlex.split(found[1])
    command = words[1:] if words[0] == "packer" else ["convert", str(root), "PACK", *words]
    main.main([str(pack) if word == "PACK" else word for word in command], standalone_mode=False)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", [name for name in SETS if name not in UNNOTICED])
def test_what_the_refusal_says_packs_the_set(tmp_path: Path, name: str) -> None:
    root, pack = tmp_path / "set", tmp_path / "set.pack"
    expected = built(root, name)
    said = ("--from", "folder") if name in PUBLISHED else ()
    with pytest.raises(InvalidRequest, match="--companions samples") as caught:
        main.main(["convert", str(root), str(pack), *said], standalone_mode=False)
    pasted(root, pack, str(caught.value))
    with packer.open(pack, output="numpy") as dataset:
        assert len(dataset) == 6
        for index in range(6):
            sample = dataset[index]
            path = next(path for path in expected if path.endswith(sample["key"]))
            for field, companion in expected[path].items():
                kind = dataset.schema[field].kind
                data = (root / companion).read_bytes()
                assert kind == (field if field == "depth" else "image" if field in IMAGES else "mask")
                stored = packer.images.decode(data, kind)
                assert np.array_equal(np.squeeze(sample[field]), stored), (path, companion)
        if SETS[name][0].startswith(("={s}", "=DIV2K_{s}")):
            assert Counter(dataset.column("split").tolist()) == {0: 4, 1: 2}
        assert ("label" in dataset.schema) == ("{c}" in SETS[name][0])


@pytest.mark.parametrize("masks", [("1/masks/e7.png", "1/masks/0b.png"), ("1/masks/9f.png",)], ids=["several", "one"])
def test_masks_whose_names_do_not_follow_are_refused(tmp_path: Path, masks: tuple[str, ...]) -> None:
    """DSB2018: the masks of an image are named by chance."""
    write(tmp_path, {"1/images/1.png": smooth(1, ".png"), "2/images/2.png": smooth(2, ".png")})
    write(tmp_path, {name: labels(1) for name in (*masks, "2/masks/c3.png", "2/masks/d4.png")})
    for folders in ("auto", "none"):
        with pytest.raises(InvalidRequest, match="--from pairs --role"):
            Source(tmp_path, folders=folders)
    assert len(Source(tmp_path, folders="none", companions="samples")) == 4 + len(masks)


@pytest.mark.parametrize("files", [
    {"cat/{n}.jpg": "photo", "dog/{n}.jpg": "photo"},
    {"left/{n}.png": "photo", "right/{n}.png": "photo"},
    {"digit0/{n}.png": "labels", "digit1/{n}.png": "labels"},
    {"with_mask/with_mask_{n}.jpg": "photo", "without_mask/without_mask_{n}.jpg": "photo"},
    {"mask/{n}0.jpg": "photo", "image/{n}1.jpg": "photo", "chair/{n}2.jpg": "photo"},
    {"a/IMG_{n}.jpg": "photo", "b/IMG_{n}.jpg": "photo", "a/IMG_{n}_edited.jpg": "photo"},
], ids=lambda files: next(iter(files)))  # fmt: skip
def test_ordinary_classes_stay_classes(tmp_path: Path, files: dict[str, str]) -> None:
    for n in range(6):
        for name, what in files.items():
            data = labels(n) if what == "labels" else smooth(n, Path(name).suffix)
            write(tmp_path, {name.format(n=n): data})
    source = Source(tmp_path)
    assert len(source) == 6 * len(files)
    assert source.schema["label"].classes == tuple(sorted({name.partition("/")[0] for name in files}))


@pytest.mark.parametrize("name", ["flat", "two words", "x and y", "Carvana", "VOC"])
def test_images_in_pairs_can_be_samples(tmp_path: Path, name: str) -> None:
    built(tmp_path, name)
    source = Source(tmp_path, companions="samples", folders="none")
    assert len(source) == 6 * len(SETS[name])


def test_a_second_mask_of_one_image_goes_to_no_other_class(tmp_path: Path) -> None:
    """BUSI: `benign (1)_mask_1.png` is no mask of `malignant (1).png`."""
    for n in range(4):
        for c in ("benign", "malignant"):
            write(tmp_path, {f"{c}/{c} ({n}).png": smooth(n, ".png"), f"{c}/{c} ({n})_mask.png": labels(n)})
    write(tmp_path, {"benign/benign (1)_mask_1.png": labels(7)})
    with pytest.raises(InvalidRequest, match="_mask.png:mask"):
        Source(tmp_path)


def wide(seed: int) -> bytes:
    """Ids of objects, of 16 bit."""
    return encoded(".png", np.asarray([0, 24001, 26002], np.uint16)[np.arange(48 * 64).reshape(48, 64) // 9 % 3 - seed])


@pytest.mark.parametrize(
    "files",
    [
        ("leftImg8bit/train/b/c{}_leftImg8bit.png", "gtFine/train/b/c{}_gtFine_instanceIds.png"),
        ("{}.jpg", "{}_instances.png"),
    ],
)
def test_label_maps_of_16_bit_are_masks_never_depth(tmp_path: Path, files: tuple[str, str]) -> None:
    root, pack = tmp_path / "set", tmp_path / "set.pack"
    for n in range(3):
        image, label_map = (text.format(n) for text in files)
        write(root, {image: smooth(n, Path(image).suffix), label_map: wide(n % 2)})
    with pytest.raises(InvalidRequest, match=":mask'") as caught:
        main.main(["convert", str(root), str(pack), "--from", "folder"], standalone_mode=False)
    with pytest.raises(PackerError, match="mask:uint16"):
        pasted(root, pack, str(caught.value))
    pasted(root, pack, str(caught.value).replace(":mask'", ":mask:uint16'"))
    with packer.open(pack, output="numpy") as dataset:
        for n in range(3):
            stored = cv2.imdecode(np.frombuffer(wide(n % 2), np.uint8), cv2.IMREAD_UNCHANGED)
            assert np.array_equal(dataset[n]["mask"], stored)


def test_depth_in_16_bit_stays_depth(tmp_path: Path) -> None:
    for n in range(3):
        write(tmp_path, {f"rgb/{n}.jpg": smooth(n, ".jpg"), f"depth/{n}.png": wide(n % 2)})
    with pytest.raises(InvalidRequest, match=r"--sidecar 'depth=depth/\{stem\}\.png:depth'"):
        Source(tmp_path)


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
    folder = re.search("FOLDER is `([^`]+)`", typed)
    main.main(
        ["convert", str(root / (folder[1] if folder else "")), str(pack), *shlex.split(options)], standalone_mode=False
    )
    with packer.open(pack) as dataset:
        assert len(dataset) == len(names) - len(companions)
        if companions:
            name = options.partition("--sidecar ")[2].partition("=")[0]
            assert name in dataset[0]


def test_the_page_has_a_row_for_every_kind_of_pair() -> None:
    assert len(ROWS) >= 19
