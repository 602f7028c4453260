"""Images with masks: matched by name, in the layouts that sets are published in, with what goes wrong in them."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import packer
from packer import sources
from packer.cli import main
from packer.datasets import LMDBDataset
from packer.errors import BadInput, InvalidRequest
from packer.sources import base
from packer.sources._recognition import detect
from packer.sources._trees.folder_tree import SourceRoot
from packer.sources.image_files.pairs import Source
from tests.support import archives
from tests.support.source_trees import image, keys, mask, write

TREE = SourceRoot(Path())

ROLES = ("image=images/{stem}:image", "mask=masks/{stem}:mask")
Array = npt.NDArray[Any]


def saved(array: Array, form: str = "PNG", **options: Any) -> bytes:
    """An image file as Pillow writes it."""
    file = io.BytesIO()
    Image.fromarray(array).save(file, form, **options)
    return file.getvalue()


def labels(value: int, *, dtype: type = np.uint8, height: int = 48, width: int = 64) -> bytes:
    """A label map of 0 and one value, which says whose it is."""
    array = np.zeros((height, width), dtype)
    array[4:20, 6:30] = value
    return saved(array)


def by_pillow(path: Path) -> Array:
    """The values of a mask, by another reader."""
    with Image.open(path) as opened:
        return np.asarray(opened)


def packed(root: Path, pack: Path, **options: Any) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """The samples of a pack of the set, as arrays, and what was noted; the pack holds what the folder does."""
    summary = packer.convert(root, pack, **options)
    assert packer.verify(pack, source=root).problems == ()
    with packer.open(pack, output="numpy") as dataset:
        names = [*dataset.schema.names]
        return [dict(sample) for sample in (dataset[row] for row in range(len(dataset)))], [*summary.notes, *names]


# ---- matching


def test_a_file_that_is_missing_moves_no_other(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for number in range(1, 9):
        if number != 8:
            write(root, {f"images/{number}.jpg": image(number, suffix=".jpg")})
        if number != 4:
            write(root, {f"masks/{number}.png": labels(number)})
    with pytest.raises(BadInput, match="4 .*no masks/.*8 .*no images/.*--missing skip"):
        Source(root, roles=ROLES)
    roles = dict(role.split("=") for role in ROLES)
    samples, _ = packed(root, tmp_path / "out", roles=roles, missing="skip")
    assert [sample["key"] for sample in samples] == ["1", "2", "3", "5", "6", "7"]
    assert [int(sample["mask"].max()) for sample in samples] == [1, 2, 3, 5, 6, 7]
    source = Source(root, roles=ROLES, missing="skip")
    assert source.left_out == [("4", "no masks/{stem}"), ("8", "no images/{stem}")]


def test_two_files_of_one_stem_are_told_and_a_suffix_settles_it(tmp_path: Path) -> None:
    write(tmp_path, {"images/a.jpg": b"1", "images/a.png": b"2", "masks/a.png": b"3"})
    with pytest.raises(BadInput, match=r"images/a\.jpg, images/a\.png"):
        Source(tmp_path, roles=ROLES)
    source = Source(tmp_path, roles=("image=images/{stem}.jpg:image", ROLES[1]))
    assert source[0]["image"] == b"1"
    assert source.extras == ["images/a.png"]


def test_roles_of_every_kind(tmp_path: Path) -> None:
    root = tmp_path / "in"
    for number in range(3):
        write(root, {
            f"train/rgb/{number}.png": image(number),
            f"train/depth/{number}.png": saved(np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) + number),
            f"train/more/{number}.json": f'{{"n": {number}}}',
            f"train/more/{number}.txt": f"sample {number}",
            f"train/more/{number}.bin": bytes([number]),
            f"train/more/{number}_p_1.png": b"", f"train/more/{number}_p_2.png": b"",
        })  # fmt: skip
    roles = (
        "rgb={split}/rgb/{stem}.png:image",
        "depth={split}/depth/{stem}.png:depth:0",
        "j={split}/more/{stem}.json:json",
        "t={split}/more/{stem}.txt:text",
        "b={split}/more/{stem}.bin:bytes",
        "n={split}/more/{stem}_p_{number}.png:count",
    )
    samples, _ = packed(root, tmp_path / "out", roles=roles)
    for number, sample in enumerate(samples):
        assert (sample["j"], sample["t"], bytes(sample["b"]), int(sample["n"])) == (
            {"n": number}, f"sample {number}", bytes([number]), 2,
        )  # fmt: skip
        assert np.array_equal(sample["depth"], by_pillow(root / f"train/depth/{number}.png"))
    assert Source(root, roles=roles).companions == ["depth"]
    with LMDBDataset(tmp_path / "out") as dataset:
        assert dataset.schema["depth"].invalid == 0
        assert dataset.schema["split"].classes == ("train",)


# ---- layouts

CITY = "{split}/bonn/bonn_000001_0000{n}"
CITYSCAPES = {
    "leftImg8bit/" + CITY + "_leftImg8bit.png": "image",
    "gtFine/" + CITY + "_gtFine_labelIds.png": "labels",
    "gtFine/" + CITY + "_gtFine_instanceIds.png": "wide",
    "gtFine/" + CITY + "_gtFine_color.png": "image",
    "gtFine/" + CITY + "_gtFine_polygons.json": "{{}}",
}
FULL = {
    "{split}/street/ADE_{n}.jpg": "image",
    "{split}/street/ADE_{n}_seg.png": "image",
    "{split}/street/ADE_{n}_parts_1.png": "image",
}
TREES: dict[str, tuple[str, dict[str, str]]] = {
    "DUTS": ("duts", {"DUTS-TR/DUTS-TR-Image/{n}.jpg": "image", "DUTS-TR/DUTS-TR-Mask/{n}.png": "labels"}),
    "DUTS, the folder of one split": ("duts", {"DUTS-TE-Image/{n}.jpg": "image", "DUTS-TE-Mask/{n}.png": "labels"}),
    "HKU-IS": ("hku-is", {"imgs/{n}.png": "image", "gt/{n}.png": "labels", "testImgSet.mat": "x"}),
    "HKU-IS of MINet": ("minet", {"HKU-IS/Image/{n}.png": "image", "HKU-IS/Mask/{n}.png": "labels"}),
    "sets of MINet": (
        "minet",
        {
            "ECSSD/Image/{n}.jpg": "image",
            "ECSSD/Mask/{n}.png": "labels",
            "DUTS/Train/Image/{n}.jpg": "image",
            "DUTS/Train/Mask/{n}.png": "labels",
        },
    ),
    "VOC": (
        "voc",
        {
            "JPEGImages/{n}.jpg": "image",
            "SegmentationClass/{n}.png": "labels",
            "SegmentationObject/{n}.png": "labels",
        },
    ),
    "VOCdevkit": (
        "voc",
        {"VOC2012/JPEGImages/{n}.jpg": "image", "VOC2012/SegmentationClass/{n}.png": "labels"},
    ),
    "ADE20K SceneParsing": (
        "ade20k",
        {
            "images/training/ADE_{n}.jpg": "image",
            "annotations/training/ADE_{n}.png": "labels",
            "images/validation/ADE_{n}.jpg": "image",
            "annotations/validation/ADE_{n}.png": "labels",
            "objectInfo150.txt": "x",
        },
    ),
    "ADE20K 2017": (
        "ade20k-full-2017",
        {f"images/{name}": data for name, data in FULL.items()} | {"images/{split}/street/ADE_{n}_atr.txt": ""},
    ),
    "ADE20K 2017, inner folder": ("ade20k-full-2017", FULL | {"{split}/street/ADE_{n}_atr.txt": ""}),
    "ADE20K 2020": (
        "ade20k-full-2020",
        {f"images/ADE/{name}": data for name, data in FULL.items()}
        | {
            "images/ADE/{split}/street/ADE_{n}.json": "{{}}",
            "images/ADE/{split}/street/ADE_{n}/instance_000_ADE_{n}.png": "labels",
        },
    ),
    "Cityscapes": ("cityscapes", CITYSCAPES),
    "Cityscapes, imgsFine": (
        "cityscapes",
        {(f"imgsFine/{name}" if name.startswith("left") else name): data for name, data in CITYSCAPES.items()},
    ),
    "Cityscapes, packages": (
        "cityscapes",
        {
            (f"leftImg8bit_trainvaltest/{name}" if name.startswith("left") else f"gtFine_trainvaltest/{name}"): data
            for name, data in CITYSCAPES.items()
        },
    ),
    "Cityscapes, coarse": (
        "cityscapes",
        {
            "leftImg8bit/train_extra/a/a_{n}_leftImg8bit.png": "image",
            "gtCoarse/train_extra/a/a_{n}_gtCoarse_labelIds.png": "labels",
        },
    ),
    "U-2-Net": ("u2net", {"DUTS-TR/im_aug/{n}.jpg": "image", "DUTS-TR/gt_aug/{n}.png": "labels"}),
    "CamVid": ("camvid", {"{split}/{n}.png": "image", "{split}annot/{n}.png": "labels"}),
}


def built(root: Path, files: Mapping[str, str]) -> Path:
    """The tree with four samples in splits, whose label maps hold the sample's number."""
    for number, split in enumerate(("training", "training", "validation", "testing"), start=21):
        for name, what in files.items():
            path = name.format(n=number, split={"training": "train", "validation": "val"}.get(split, "test"))
            data: bytes | str = what.format()
            if what == "image":
                data = image(number, suffix=Path(path).suffix)
            elif what == "labels":
                data = labels(number)
            elif what == "wide":
                data = labels(1000 * number + 1, dtype=np.uint16)
            write(root, {path: data})
    return root


@pytest.mark.one_in(10)
@pytest.mark.parametrize("name", TREES)
def test_a_published_layout_in_a_tar_is_told_whatever_shares_its_stems(tmp_path: Path, name: str) -> None:
    like, files = TREES[name]
    dotted = {path.replace("{n}", "x.{n}"): what for path, what in files.items()}
    beside = {path.rpartition(".")[0] + ".txt": "" for path, what in files.items() if what == "image"}
    for number, found in enumerate((dotted, files | beside)):
        root = built(tmp_path / f"set{number}", found)
        archive = archives.gnu(root, tmp_path / f"a{number}")
        assert detect(root)[0] == "pairs"
        if (name, found) == ("HKU-IS of MINet", dotted):  # `Image/x` and `Mask/x` are samples of the same suffixes, too
            with pytest.raises(InvalidRequest, match="a0.tar: .*--from pairs .*--from webdataset"):
                detect(archive)
        else:
            assert detect(archive) == detect(root)
        assert detect(archive, given=["layout"])[0] == "pairs"
        assert keys(Source(archive)) == keys(Source(root))


@pytest.mark.parametrize("name", TREES)
def test_a_published_layout_is_told_by_its_names(tmp_path: Path, name: str) -> None:
    like, files = TREES[name]
    root = built(tmp_path / "set", files)
    kind, sentence = detect(root)
    assert (kind, sentence.partition(":")[0]) == ("pairs", f"pairs like {like}")
    source = Source(root)
    assert {path for path, what in files.items() if what == "x"} <= set(source.extras)
    images = [path for path in files if files[path] == "image" and "_seg" not in path and "_parts" not in path]
    assert len(source) == 4 * len([path for path in images if "_color" not in path])
    assert (keys(source), source.schema, source.notes) == (
        keys(Source(root, layout=like)), Source(root, layout=like).schema, Source(root, layout=like).notes,
    )  # fmt: skip
    for row in range(len(source)):
        sample = source[row]
        if "mask" in sample and isinstance(sample["mask"], bytes):
            assert Image.open(io.BytesIO(sample["mask"])).getextrema()[1] == int(source.key(row)[-2:])


@pytest.mark.parametrize(
    "names",
    [
        ("cat/{n}.jpg", "catannot/{n}.jpg"),
        ("images/cat/{n}.jpg", "annotations/cat/{n}.png"),
        ("train/cat/{n}.jpg", "val/cat/{n}.jpg"),
        ("{n}.jpg", "{n}.png"),
        ("images/train/{n}.jpg", "annotations/train/{n}.xml"),
        ("train/a/{n}.jpg", "train/a/{n}_seg.png"),
        ("Image/{n}.jpg", "Image/a.txt"),
        ("leftImg8bit/train/a/{n}_leftImg8bit.png", "README"),
    ],
)
def test_what_is_of_no_published_layout_is_not_taken_for_it(tmp_path: Path, names: Sequence[str]) -> None:
    files = [name.format(n=number) for name in names for number in range(3)]
    assert Source.recognize(TREE, files) is None
    with pytest.raises(InvalidRequest, match="no images.*--layout"):
        Source(write(tmp_path, dict.fromkeys(files, b"x")))


def test_a_tree_of_two_layouts_is_not_decided(tmp_path: Path) -> None:
    write(tmp_path, {name: labels(1) for name in ("imgs/1.png", "gt/1.png", "Image/1.png", "Mask/1.png")})
    with pytest.raises(InvalidRequest, match="--layout hku-is .*--layout minet"):
        Source(tmp_path)
    assert len(Source(tmp_path, layout="minet")) == 1


def test_u2nets_mixed_folder_is_asked_for(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path, {f"data/{number}.jpg": image(number, suffix=".jpg"), f"data/{number}.png": labels(number)})
    with pytest.raises(InvalidRequest, match="no images.*masks"):
        Source(tmp_path)
    source = Source(tmp_path, layout="u2net")
    assert keys(source) == ["data/1", "data/2", "data/3"]
    assert [Image.open(io.BytesIO(source[row]["mask"])).getextrema()[1] for row in range(3)] == [1, 2, 3]


def test_masks_beside_few_of_the_images(tmp_path: Path) -> None:
    """VOC: 2 913 masks to 17 125 images."""
    write(tmp_path, {f"JPEGImages/{n}.jpg": image(n, suffix=".jpg") for n in range(6)})
    write(tmp_path, {f"SegmentationClass/{n}.png": labels(n) for n in (2, 4)})
    assert detect(tmp_path)[0] == "pairs"
    with pytest.raises(BadInput, match="4 samples.*--missing skip"):
        Source(tmp_path)
    assert keys(Source(tmp_path, missing="skip")) == ["2", "4"]


# ---- Cityscapes


def test_cityscapes_has_each_map_under_its_own_name(tmp_path: Path) -> None:
    root = built(tmp_path / "in", CITYSCAPES)
    for number, split in ((21, "train"), (22, "train"), (23, "val"), (24, "test")):
        write(root, {"gtFine/" + CITY.format(split=split, n=number) + "_gtFine_labelTrainIds.png": labels(number % 19)})
    samples, noted = packed(root, tmp_path / "out")
    assert [sample["key"] for sample in samples] == [
        *("train/bonn/bonn_000001_000021", "train/bonn/bonn_000001_000022"),
        *("val/bonn/bonn_000001_000023", "test/bonn/bonn_000001_000024"),
    ]
    assert [int(sample["split"]) for sample in samples] == [0, 0, 1, 2]
    assert {sample["folder"] for sample in samples} == {"bonn"}
    for number, sample in enumerate(samples, start=21):
        assert np.unique(sample["mask"]).tolist() == [0, number]
        assert np.unique(sample["train_ids"]).tolist() == [0, number % 19]
        assert np.unique(sample["instances"]).tolist() == [0, 1000 * number + 1]
    assert "color" not in "".join(name for name in noted if name.isidentifier())


# ---- ADE20K in full


@pytest.mark.parametrize("year", ["2017", "2020"])
def test_classes_of_ade20k_in_full(tmp_path: Path, year: str) -> None:
    root = tmp_path / "in"
    text = '001 # 0 # 1 # seat #2 # seat # ""\n'
    for number in range(3):
        colors = np.random.default_rng(number).integers(0, 256, (48, 64, 3), np.uint8)
        stem = f"training/street/ADE_{number}"
        table = f"{stem}_atr.txt" if year == "2017" else f"{stem}.json"
        write(root, {
            f"{stem}.jpg": image(number, suffix=".jpg"),
            f"{stem}_seg.png": saved(colors),
            table: text if year == "2017" else '{"annotation": {"object": [{"id": 0, "raw_name": "seat #2"}]}}',
            **{f"{stem}_parts_{level}.png": saved(colors) for level in range(1, number + 1)},
        })  # fmt: skip
    write(root, {"training/street/ADE_0/instance_000_ADE_0.png": mask(1)})
    samples, _ = packed(root, tmp_path / "out")
    for number, sample in enumerate(samples):
        rgb = by_pillow(root / f"training/street/ADE_{number}_seg.png").astype(int)
        assert np.array_equal(np.squeeze(sample["mask"]), rgb[:, :, 0] // 10 * 256 + rgb[:, :, 1])
        assert np.array_equal(np.squeeze(sample["instances"]), rgb[:, :, 2])
        assert int(sample["parts"]) == number
        found = sample["objects"]
        name = found[0]["names"][0] if year == "2017" else found["annotation"]["object"][0]["raw_name"]
        assert name == "seat #2"
    source = Source(root)
    assert (
        source.schema["seg_file"].hidden
        and source[1]["seg_file"] == (root / source[1]["files"]["seg_file"]).read_bytes()
    )
    assert len(source.extras) == 4
    assert not any("_parts_" in path.name for row in range(3) for path in base.file_paths(source, row))
    for name in source.schema.names:
        assert repr(source.value(2, name)) == repr(source[2][name])


# ---- options


def test_a_role_says_the_source(tmp_path: Path) -> None:
    write(tmp_path / "in", {f"images/{n}.jpg": image(n, suffix=".jpg") for n in range(3)})
    write(tmp_path / "in", {f"masks/{n}.png": labels(n) for n in range(3)})
    typed = ["convert", str(tmp_path / "in"), str(tmp_path / "out"), "--role", ROLES[0], "--role", ROLES[1]]
    main.main(typed, standalone_mode=False)
    with packer.open(tmp_path / "out") as dataset:
        assert len(dataset) == 3
    with pytest.raises(InvalidRequest, match="'folder'.*no option --role"):
        main.main([*typed[:2], str(tmp_path / "b"), *typed[3:], "--from", "folder"], standalone_mode=False)


def test_a_layout_and_roles_that_contradict_each_other_or_that_no_file_has_are_told(tmp_path: Path) -> None:
    write(tmp_path, {"images/1.jpg": b"x", "masks/1.png": b"x"})
    with pytest.raises(InvalidRequest, match="--layout.*own roles"):
        Source(tmp_path, roles=ROLES, layout="minet")
    with pytest.raises(InvalidRequest, match=r"\{folder\}/Image/\{stem\}"):
        Source(tmp_path, layout="minet")
    (tmp_path / "masks").rename(tmp_path / "mask")
    with pytest.raises(InvalidRequest, match=r"--role mask=masks/\{stem\} .*nothing: .*masks/1\."):
        Source(tmp_path, roles=ROLES)


# ---- lists of VOC


def voc_sets(root: Path, **lists: str) -> Path:
    """Masks of four of five images of VOC, and lists of them; names of lists with `__` for a slash."""
    files: dict[str, bytes | str] = {f"ImageSets/{name.replace('__', '/')}.txt": text for name, text in lists.items()}
    for number in range(5):
        files[f"JPEGImages/2007_{number}.jpg"] = image(number, suffix=".jpg")
        if number < 4:
            files[f"SegmentationClass/2007_{number}.png"] = mask(number)
    return write(root, files)


def splits_of(root: Path, **options: Any) -> dict[str, str]:
    source = Source(root, missing="skip", **options)
    names = source.schema["split"].classes or ()
    assert [int(source[row]["split"]) for row in range(len(source))] == [
        int(source.value(row, "split")) for row in range(len(source))
    ]
    return {source.key(row): names[source.value(row, "split")] for row in range(len(source))}


LISTS = {
    "Segmentation__train": "\ufeff2007_0\r\n2007_2\r\n",
    "Segmentation__val": "2007_1\n2007_4\n2007_9\n\n",  # one without a mask, one that is not there
    "Segmentation__trainval": "2007_0\n2007_1\n2007_2\n2007_4\n2007_9\n",
    "Main__train": "2007_3\n",
    "Main__cat_train": "2007_3 -1\r\n",
}


def test_the_lists_of_voc_are_the_splits(tmp_path: Path) -> None:
    root = voc_sets(tmp_path / "in" / "VOC2012", **LISTS)
    wanted = {"2007_0": "train", "2007_1": "val", "2007_2": "train", "2007_3": "unlisted"}
    assert splits_of(root) == wanted
    source = Source(root.parent, missing="skip")
    assert source.schema["split"].classes == ("train", "val", "unlisted")
    assert [source.key(row) for row in range(len(source))] == [f"VOC2012/{name}" for name in wanted]
    assert splits_of(root.parent) == {f"VOC2012/{name}": split for name, split in wanted.items()}
    notes = [note for note in source.notes if "list" in note or "splits" in note]
    assert notes == [
        "splits: train 2, val 1, unlisted 1",
        "2 lines of lists without an image: 2007_9 (VOC2012/ImageSets/Segmentation/trainval.txt), "
        "2007_9 (VOC2012/ImageSets/Segmentation/val.txt)",
        "1 image in no list of ImageSets: split 'unlisted'",
    ]
    assert {name.rpartition("/")[2] for name in source.tables} == {"train.txt", "val.txt", "trainval.txt"}


def test_the_source_voc_gives_the_same_splits(tmp_path: Path) -> None:
    from_pairs = splits_of(voc_sets(tmp_path / "in", **LISTS))
    source = sources.load("voc").Source(tmp_path / "in", task="segment")
    names = source.schema["split"].classes
    assert {source.key(row): names[source.value(row, "split")] for row in range(len(source))} == from_pairs


@pytest.mark.parametrize(
    ("lists", "wanted"),
    [
        ({"Main__train": "2007_0 1\r\n2007_1 1\r\n", "Main__val": "2007_2 -1\n2007_3  1\n"}, "ttvv"),  # of classes
        ({"train": "2007_0.jpg\n2007_1\n2007_2\n", "val": "2007_3"}, "tttv"),  # directly in ImageSets
    ],
)
def test_other_lists_of_voc(tmp_path: Path, lists: dict[str, str], wanted: str) -> None:
    assert "".join(split[0] for split in splits_of(voc_sets(tmp_path, **lists)).values()) == wanted


def test_lists_of_voc_that_overlap_or_that_the_user_gives_anew(tmp_path: Path) -> None:
    both = {"Segmentation__train": "2007_0\n2007_1\n", "Segmentation__val": "2007_1\n2007_2\n"}
    source = Source(voc_sets(tmp_path / "a", **both), missing="skip")
    assert "split" not in source.schema
    assert any("lists of ImageSets overlap" in note for note in source.notes)
    root = voc_sets(tmp_path / "b", **LISTS)
    (tmp_path / "mine.txt").write_text("2007_3\n")
    packer.convert(root, tmp_path / "b.pack", missing="skip", splits={"mine": tmp_path / "mine.txt"})
    with packer.open(tmp_path / "b.pack") as pack:
        assert (len(pack), pack.schema["split"].classes) == (1, ("mine",))
