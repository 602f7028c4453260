"""--mask-colors: masks drawn in colors become numbers by a table, exactly, and geometries move them as numbers."""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner
from PIL import Image

import packer
from packer.cli.convert import command
from packer.cli.extract import command as extract
from packer.errors import BadInput, BadInputs, InvalidRequest
from packer.pack import manifest as manifests
from packer.sources._color_table import ColorClass, class_names, read_color_classes
from packer.sources._extend.mask_colors import MaskColors, add_mask_colors
from packer.sources.image_files import pairs as pairs_source
from tests.support.source_trees import encoded, image, photos, tree, write

COLORS = {"sky": (128, 128, 128), "road": (128, 64, 128), "car": (64, 0, 128), "void": (0, 0, 0)}
CAMVID = "".join(f"{r} {g} {b}\t\t{name}\n" for name, (r, g, b) in COLORS.items())
NAMES = tuple(COLORS)
SIZE = (24, 32)

Values = npt.NDArray[np.uint8]


def numbers(seed: int) -> Values:
    """Patches of the four classes."""
    coarse = np.random.default_rng(seed).integers(0, 4, (6, 8)).astype(np.uint8)
    return coarse.repeat(4, 0).repeat(4, 1)


def drawn(values: Values, *, mode: str = "RGB", suffix: str = "PNG") -> bytes:
    """The numbers in colors, by Pillow's palette."""
    image = Image.frombytes("P", values.shape[::-1], values.tobytes())
    image.putpalette([channel for color in COLORS.values() for channel in color])
    return saved(image.convert(mode), suffix)


def saved(image: Image.Image, suffix: str = "PNG") -> bytes:
    """The file of an image, by Pillow."""
    file = io.BytesIO()
    image.save(file, suffix)
    return file.getvalue()


def camvid(root: Path, masks: Mapping[str, bytes], *, table: str = CAMVID) -> Path:
    """Images and these masks in the folders of CamVid, and the table beside them."""
    files = {f"{name.partition('/')[0]}/{name.partition('/')[2]}.png": image(3, height=24, width=32) for name in masks}
    annotated = {f"{name.replace('/', 'annot/')}.png": mask for name, mask in masks.items()}
    return write(root, {**files, **annotated, "label_colors.txt": table})


def masks_of(pack: Path) -> list[npt.NDArray[np.int64]]:
    with packer.open(pack, output="numpy") as dataset:
        return [sample["mask"] for sample in dataset]


# ---- tables


@pytest.mark.parametrize(
    "text",
    [
        CAMVID,
        CAMVID.replace("\n", "\r\n").rstrip(),
        "\ufeff# of the road\n\n" + CAMVID,
        "".join(f"{name} {r} {g} {b}\n" for name, (r, g, b) in COLORS.items()),
        "".join(f"{name};{r};{g};{b}\n" for name, (r, g, b) in COLORS.items()),
        "".join(f"{name}, {r}, {g}, {b}\n" for name, (r, g, b) in COLORS.items()),
        "# label:color_rgb:parts:actions\n" + "".join(f"{n}:{r},{g},{b}::\n" for n, (r, g, b) in COLORS.items()),
        "".join(f"{n}:{r},{g},{b}:wheel,door:drives\n" for n, (r, g, b) in COLORS.items()),
        "name,r,g,b\n" + "".join(f"{n},{r},{g},{b}\n" for n, (r, g, b) in COLORS.items()),
        "Red\tGreen\tBlue\tClass\n" + "".join(f"{r}\t{g}\t{b}\t{n}\n" for n, (r, g, b) in COLORS.items()),
        "id r g b name\n" + "".join(f"{i} {r} {g} {b} {n}\n" for i, (n, (r, g, b)) in enumerate(COLORS.items())),
    ],
)
def test_a_table_is_read_however_people_write_it(text: str) -> None:
    classes = read_color_classes(text.encode(), "table")
    assert classes == tuple(ColorClass(value, COLORS[name], name) for value, name in enumerate(NAMES))
    assert class_names(classes) == NAMES


def test_names_may_have_spaces_and_may_be_missing() -> None:
    assert read_color_classes(b"1 2 3 traffic light\n", "x")[0].name == "traffic light"
    assert read_color_classes(b"id r g b name\n0 1 2 3 traffic light\n", "x")[0].name == "traffic light"
    nameless = read_color_classes(b"1 2 3\n4,5,6\n", "x")
    assert [each.color for each in nameless] == [(1, 2, 3), (4, 5, 6)]
    assert class_names(nameless) is None


def test_values_of_a_column_may_have_gaps_and_255_is_void() -> None:
    classes = read_color_classes(b"r,g,b,name,id\n1,1,1,a,1\n2,2,2,b,0\n3,3,3,void,255\n", "x")
    assert [each.value for each in classes] == [1, 0, 255]
    assert class_names(classes) == ("b", "a")
    assert class_names(read_color_classes(b"r,g,b,name,id\n1,1,1,a,1\n2,2,2,b,7\n", "x")) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "no color"),
        (b"sky\n", "line 1: .*'sky'"),
        (b"1 2 3 a\n\n1 2 300 b\n", "line 3: .*above 255"),
        (b"1 2 3 a\n# x\n1 2 3 b\n", "line 3: .*1, 2, 3"),
        (b"0 128 0 0 aeroplane\n", "line 1: .*names the columns"),
        (b"sky 1 2 3 blue\n", "line 1: .*names the columns"),
        (b"id,r,g,b\n70000,1,2,3\n", "line 2: .*65535"),
        (b"id,r,g,b\n1,2,3\n", "line 2: .*columns"),
        (b"r,g,b\n1,x,3\n", "line 2: .*whole numbers"),
        (b"r,g,b\n1,-2,3\n", "line 2: .*whole numbers"),
        ("1 2 3 Stra\xdfe\n".encode("latin-1"), "UTF-8"),
    ],
)
def test_an_ambiguous_table_is_refused_with_its_line(text: bytes, said: str) -> None:
    with pytest.raises(BadInput, match=f"^colors.txt: .*{said}"):
        read_color_classes(text, "colors.txt")


# ---- packs


def test_every_pixel_is_looked_up_whatever_the_file_has(tmp_path: Path) -> None:
    gray = np.where(numbers(3) < 2, 128, 0).astype(np.uint8)
    masks = {"train/a": drawn(numbers(1)), "train/b": drawn(numbers(2), mode="P"), "val/c": encoded(".png", gray)}
    root = camvid(tmp_path / "set", {**masks, "val/d": drawn(numbers(4), mode="RGBA")})
    packer.convert(root, tmp_path / "pack", mask_colors=root / "label_colors.txt")
    with packer.open(tmp_path / "pack", output="numpy") as dataset:
        assert dataset.schema["mask"].classes == NAMES
        for index, name in enumerate(("train/a", "train/b", "val/c", "val/d")):
            assert dataset.key(index) == name
            shown = Image.open(root / f"{name.replace('/', 'annot/')}.png").convert("RGB")
            by_color = {color: value for value, color in enumerate(COLORS.values())}
            wanted = [[by_color[shown.getpixel((x, y))] for x in range(SIZE[1])] for y in range(SIZE[0])]  # type: ignore[index]
            assert dataset[index]["mask"].tolist() == wanted
            assert dataset[index]["mask"].dtype == np.uint8
    assert packer.verify(tmp_path / "pack", source=root).ok
    packer.extract(tmp_path / "pack", tmp_path / "again")
    assert tree(tmp_path / "again") == tree(root)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("r,g,b,name,id\n0,0,0,a,0\n1,1,1,b,7\n", "no classes"),
        ("r,g,b,name\n0,0,0,a\n1,1,1,a\n", "no classes"),
        ("r,g,b,name,id\n0,0,0,a,0\n1,1,1,b,1\n2,2,2,void,255\n", "3 colors)"),
        ("0 0 0\n1 1 1\n", "2 colors)"),
    ],
)
def test_a_note_says_whether_names_are_the_classes(tmp_path: Path, table: str, said: str) -> None:
    root = camvid(tmp_path / "set", {"train/a": drawn(numbers(1))}, table=table)
    colors = MaskColors.parse(str(root / "label_colors.txt"))
    source = add_mask_colors(pairs_source.Source(root), [colors])
    (note,) = (each for each in source.notes if each.startswith("masks in colors"))
    assert said in note
    assert (source.schema["mask"].classes is None) == ("no classes" in note or class_names(colors.classes) is None)


def test_moved_masks_are_extracted_as_their_numbers(tmp_path: Path) -> None:
    root = camvid(tmp_path / "set", {"train/a": drawn(numbers(1))})
    whole = packer.convert(root, tmp_path / "whole", mask_colors=root / "label_colors.txt")
    assert not [note for note in whole.notes if "left out" in note]
    for source, options in ((tmp_path / "whole", {}), (root, {"mask_colors": root / "label_colors.txt"})):
        pack, again = tmp_path / f"{source.name}.small", tmp_path / f"{source.name}.again"
        made = packer.convert(source, pack, resize=12, **options)  # type: ignore[arg-type]
        assert [note for note in made.notes if "mask_file" in note and "--resize" in note]
        result = CliRunner().invoke(extract, [str(pack), str(again)])
        assert result.exit_code == 0, result.output
        assert "field mask: the numbers of its classes, not the colors" in result.output
        assert "0 skipped" in result.output
        with packer.open(pack, output="numpy") as dataset:
            assert np.array_equal(np.asarray(Image.open(again / "trainannot/a.png")), dataset[0]["mask"])
        found = packer.extract(pack, tmp_path / f"{source.name}.exact", only_exact=True)
        assert "trainannot/a.png" in [path for path, _ in found.skipped]


def test_another_color_is_an_error_with_its_pixel_or_void(tmp_path: Path) -> None:
    shown = np.asarray(Image.open(io.BytesIO(drawn(numbers(1))))).copy()
    shown[5, 7], shown[20, 3] = (1, 2, 3), (9, 9, 9)
    root = camvid(tmp_path / "set", {"train/a": saved(Image.fromarray(shown)), "train/b": drawn(numbers(2))})
    table = root / "label_colors.txt"
    said = r"trainannot/a\.png: color 1, 2, 3 at pixel x 7, y 5 .*label_colors\.txt; 2 pixels"
    with pytest.raises(BadInputs, match=said):
        packer.convert(root, tmp_path / "pack", mask_colors=table)
    packer.convert(root, tmp_path / "pack", mask_colors=table, unknown_colors="void")
    wanted = numbers(1).copy()
    wanted[5, 7] = wanted[20, 3] = 255
    assert np.array_equal(masks_of(tmp_path / "pack")[0], wanted)
    assert packer.verify(tmp_path / "pack", source=root).ok


def test_values_beyond_255_make_a_mask_of_16_bit(tmp_path: Path) -> None:
    table = "id,r,g,b\n" + "".join(f"{1000 * n},{r},{g},{b}\n" for n, (r, g, b) in enumerate(COLORS.values()))
    root = camvid(tmp_path / "set", {"train/a": drawn(numbers(1)), "train/b": drawn(numbers(2))}, table=table)
    packer.convert(root, tmp_path / "pack", mask_colors=root / "label_colors.txt")
    assert np.array_equal(masks_of(tmp_path / "pack")[1], 1000 * numbers(2).astype(np.int32))


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (drawn(numbers(1), suffix="JPEG"), "JPEG"),
        (b"\x89PNG\r\n\x1a\nbroken", r"trainannot/a\.png: "),
    ],
)
def test_files_without_exact_colors_are_refused(mask: bytes, said: str, tmp_path: Path) -> None:
    root = camvid(tmp_path / "set", {"train/a": mask, "train/b": drawn(numbers(2))})
    with pytest.raises(BadInputs, match=said):
        packer.convert(root, tmp_path / "pack", mask_colors=root / "label_colors.txt")


def test_without_a_table_the_error_says_what_to_type(tmp_path: Path) -> None:
    root = camvid(tmp_path / "set", {"train/a": drawn(numbers(1)), "train/b": drawn(numbers(2))})
    with pytest.raises(BadInputs, match="channels.*mask.*--mask-colors FILE"):
        packer.convert(root, tmp_path / "pack")


def test_one_of_several_masks_beside_photos_by_the_palette_of_voc(tmp_path: Path) -> None:
    root = photos(tmp_path / "set", 2)
    ids = np.arange(24 * 32, dtype=np.uint8).reshape(SIZE)
    palette = [
        [(value >> 3 * bit + channel & 1) << 7 - bit for bit in range(3)]
        for value in range(256)
        for channel in range(3)
    ]
    colored = Image.frombytes("P", ids.shape[::-1], ids.tobytes())
    colored.putpalette([sum(bits) for bits in palette])
    for path in sorted(root.rglob("*.jpg")):
        path.with_name(f"{path.stem}_seg.png").write_bytes(saved(colored.convert("RGB")))
        path.with_name(f"{path.stem}_ids.png").write_bytes(encoded(".png", ids))
    sidecars = {"mask": "_seg.png:mask", "ids": "_ids.png:mask"}
    with pytest.raises(InvalidRequest, match="NAME=FILE.*: mask, ids"):
        packer.convert(root, tmp_path / "pack", sidecars=sidecars, mask_colors="voc")
    words = [str(root), str(tmp_path / "pack"), "--sidecar", "mask=_seg.png:mask", "--sidecar", "ids=_ids.png:mask"]
    result = CliRunner().invoke(command, [*words, "--mask-colors", "mask=voc", "--json"])
    assert result.exit_code == 0, result.output
    assert "masks in colors, by a table: mask (Pascal VOC's palette, 256 colors)" in json.loads(result.stdout)["notes"]
    with packer.open(tmp_path / "pack", output="numpy") as dataset:
        assert all(np.array_equal(sample["mask"], ids) and np.array_equal(sample["ids"], ids) for sample in dataset)
    assert packer.verify(tmp_path / "pack", source=root).ok
    packer.extract(tmp_path / "pack", tmp_path / "again")
    assert tree(tmp_path / "again") == tree(root)


# ---- what does not go together


def test_what_has_no_mask_in_a_file_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "table.txt"
    table.write_text(CAMVID)
    root = photos(tmp_path / "photos", 2)
    for wish, said in (
        ({"mask_colors": table}, "no mask is one"),
        ({"mask_colors": tmp_path / "none.txt"}, "there is no file"),
        ({"mask_colors": {"depth": table}}, "no mask is one"),
        ({"unknown_colors": "void"}, "--unknown-colors is for --mask-colors"),
        ({"mask_colors": table, "unknown_colors": "black"}, "'black': expected 'error', 'void' or None"),
    ):
        with pytest.raises(InvalidRequest, match=said):
            packer.convert(root, tmp_path / "pack", **wish)  # type: ignore[arg-type]
    packer.convert(root, tmp_path / "pack")
    with pytest.raises(InvalidRequest, match="--mask-colors"):
        packer.convert(tmp_path / "pack", tmp_path / "other", mask_colors=table)
    with pytest.raises(InvalidRequest, match="Python object"):
        packer.convert([{"image": image(1)}], tmp_path / "other", fields=["image"], mask_colors=table)


def test_the_manifest_keeps_the_table_and_takes_no_other_form(tmp_path: Path) -> None:
    root = camvid(tmp_path / "set", {"train/a": drawn(numbers(1)), "train/b": drawn(numbers(2))})
    packer.convert(root, tmp_path / "pack", mask_colors=root / "label_colors.txt")
    kept = manifests.read(tmp_path / "pack").options["source"]["mask_colors"]["mask"]
    assert kept == {"classes": [[n, *COLORS[name], name] for n, name in enumerate(NAMES)], "unknown": "error"}
    assert MaskColors.from_json("mask", kept).to_json() == kept
    for other in (
        None,
        {},
        {"classes": [], "unknown": "error"},
        {**kept, "unknown": 3},
        {**kept, "classes": [[0, 256, 0, 0, ""]]},
    ):
        with pytest.raises(InvalidRequest, match="ill-formed"):
            MaskColors.from_json("mask", other)
