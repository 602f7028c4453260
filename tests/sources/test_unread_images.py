"""Images in formats that packer does not read: refused, listed where asked, or decoded by Pillow where asked."""

import builtins
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from packer.conversion.convert import ConversionSummary, convert_source, dry_run
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import BadInput, DamagedImage, InvalidRequest, MissingPackage
from packer.images.backends import pillow_other_formats as pillow
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.sources.image_files.folder import Source
from packer.tools.packing_advice import Question, advise
from tests.support.command_line import run_with_torch
from tests.support.image_files import with_pillow
from tests.support.source_trees import image, write


def pixels(seed: int, *, height: int = 20, width: int = 30) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def heic(seed: int, **how: Any) -> bytes:
    import pillow_heif

    pillow_heif.register_heif_opener()
    return with_pillow(pixels(seed), "HEIF", **how)


def packed(root: Path, target: Path, *, on_error: str = "error", **asked: Any) -> ConversionSummary:
    request = SourceSpec("folder", asked)
    source, _ = request.open(root)
    return convert_source(source, target, ConversionOptions(on_error=on_error, source=request.to_json(source)))


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    files = {f"c/{n}.jpg": image(n, suffix=".jpg") for n in range(2)}
    return write(
        tmp_path / "data", {**files, "c/x.heic": b"", "d/y.AVIF": b"", "c/notes.txt": "no", "d/z.jpg": image(9)}
    )


def test_they_are_refused_with_counts_per_suffix_and_what_to_do(mixed: Path, tmp_path: Path) -> None:
    with pytest.raises(
        BadInput,
        match=r"\.heic 1, \.avif 1.*c/x\.heic, d/y\.AVIF.*--decode-with pillow.*--on-error skip",
    ):
        packed(mixed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    dry = dry_run(mixed, tmp_path / "out", {}, print)
    assert "2 images in formats that packer does not read" in str(dry.refused)


def test_where_bad_files_are_left_out_they_are_listed_and_not_carried_along(mixed: Path, tmp_path: Path) -> None:
    summary = packed(mixed, tmp_path / "out", on_error="skip")
    assert summary.samples == 3
    assert dict(summary.skipped) == {
        "c/x.heic": "image in a format that packer does not read: .heic",
        "d/y.AVIF": "image in a format that packer does not read: .avif",
    }
    extract(tmp_path / "out", tmp_path / "back")
    found = sorted(p.relative_to(tmp_path / "back").as_posix() for p in (tmp_path / "back").rglob("*.*"))
    assert found == ["c/0.jpg", "c/1.jpg", "c/notes.txt", "d/z.jpg"]
    assert manifests.read(tmp_path / "out").source["samples"] == 5


def test_other_files_are_counted_by_suffix(mixed: Path) -> None:
    write(mixed, {"a.csv": "", "b.csv": "", "README": "text"})
    assert "4 other files (.csv 2, .txt 1, no suffix 1): not images, or sidecars of images" in Source(mixed).notes


@pytest.mark.parametrize("suffix", [".heif", ".gif", ".jp2", ".tga", ".ico", ".psd", ".exr", ".hdr", ".CR2", ".dng"])
def test_a_folder_of_these_alone_says_so(tmp_path: Path, suffix: str) -> None:
    root = write(tmp_path / "data", {f"c/a{suffix}": b"", f"c/b{suffix}": b""})
    for kind in ("auto", "folder"):
        with pytest.raises((BadInput, InvalidRequest), match=f"2 images.*: {suffix.lower()} 2 "):
            SourceSpec(kind).open(root)


def test_sidecars_of_such_a_format_are_no_images_that_nobody_reads(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {"c/a.jpg": image(1, suffix=".jpg"), "c/a.CR2": b"raw"})
    source, _ = SourceSpec("folder", {}, ("raw=.CR2:bytes",)).open(root)
    assert source.unread == []
    assert source[0]["raw"] == b"raw"


FORMATS: dict[str, bytes] = {
    "g.gif": with_pillow(pixels(1), "GIF"),
    "j.jp2": with_pillow(pixels(2), "JPEG2000"),
    "t.tga": with_pillow(pixels(3), "TGA"),
    "a.avif": with_pillow(pixels(4), "AVIF", quality=100),
    "h.heic": heic(5, quality=100),
}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_pillow_decodes_what_it_reads(name: str) -> None:
    data = FORMATS[name]
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(image.convert("RGB"))
    assert np.array_equal(pillow.decode(data, name), expected)
    for cut in (data[: len(data) // 2], data[:20], b""):
        if not name.endswith((".gif", ".jp2")) or cut is not data[: len(data) // 2]:
            with pytest.raises(DamagedImage, match="cannot decode"):
                pillow.decode(cut, name)


def test_packed_by_pillow_the_pixels_are_exact_and_extract_and_verify_know_them(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {**FORMATS, "k.jpg": image(7, suffix=".jpg")})
    summary = packed(root, tmp_path / "out", decode_with="pillow")
    assert (summary.samples, summary.skipped) == (6, ())
    options: Any = manifests.read(tmp_path / "out").options
    assert options["source"]["options"] == {"decode_with": "pillow"}
    dataset = LMDBDataset(tmp_path / "out")
    for index, key in enumerate(dataset.keys()):
        if key in FORMATS:
            assert np.array_equal(np.moveaxis(dataset[index]["image"].numpy(), 0, -1), pillow.decode(FORMATS[key], key))
    extract(tmp_path / "out", tmp_path / "back")
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == sorted(
        ["k.jpg", *(f"{name}.png" for name in FORMATS)]
    )
    assert (tmp_path / "back/k.jpg").read_bytes() == image(7, suffix=".jpg")
    assert list(Comparison(tmp_path / "out", root).problems()) == []
    (root / "t.tga").write_bytes(FORMATS["t.tga"][:-40] + bytes(40))
    assert any("t.tga.png" in line for line in Comparison(tmp_path / "out", root).problems())


def test_what_would_lose_something_is_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(pixels(seed)) for seed in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(DamagedImage, match="contains 3 images"):
        pillow.decode(file.getvalue(), "a.gif")
    file = io.BytesIO()
    Image.fromarray(np.arange(600, dtype=np.uint16).reshape(20, 30) * 100).save(file, "JPEG2000")
    with pytest.raises(DamagedImage, match="16 bits"):
        pillow.decode(file.getvalue(), "a.jp2")


def test_a_image_is_read_as_what_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(DamagedImage, match="decode as TGA"):
        pillow.decode(FORMATS["g.gif"], "a.tga")


def test_a_turned_heic_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = heic(1, quality=100, exif=exif.tobytes())  # which makes it an irot box
    assert pillow.decode(data, "a.heic").shape == (30, 20, 3)


def test_a_package_that_is_absent_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__
    from packer.images.backends import pillow_other_formats as module

    def absent(name: str, needed_by: str) -> Any:
        if name.startswith("pillow_heif"):
            raise MissingPackage(f"{needed_by} needs the package 'pillow_heif': pip install pillow-heif")
        return real(name, fromlist=["x"])

    monkeypatch.setattr(module, "import_or_explain", absent)
    with pytest.raises(MissingPackage, match="pillow_heif"):
        Source(write(tmp_path, {"a.heic": b""}), decode_with="pillow")


def test_without_the_field_files_extract_does_not_name_pixels_as_the_file_that_they_were(tmp_path: Path) -> None:
    root = write(tmp_path / "data", {"t.tga": FORMATS["t.tga"], "k.jpg": image(7, suffix=".jpg")})
    request = SourceSpec("folder", {"decode_with": "pillow"})
    source, _ = request.open(root)
    convert_source(source, tmp_path / "out", ConversionOptions(fields=("image",), source=request.to_json(source)))
    again = SourceSpec("pack")
    copied, _ = again.open(tmp_path / "out")
    convert_source(copied, tmp_path / "again", ConversionOptions(source=again.to_json(copied)))
    for number, pack in enumerate(("out", "again")):
        extract(tmp_path / pack, tmp_path / f"back{number}")
        assert sorted(path.name for path in (tmp_path / f"back{number}").iterdir()) == ["k.jpg", "t.tga.png"]
        assert list(Comparison(tmp_path / pack, root).problems()) == []


def test_pixels_that_are_resized_stay_lossless_unless_asked(tmp_path: Path) -> None:
    files = {f"{number}.jpg": image(number, suffix=".jpg") for number in range(4)}
    root = write(tmp_path / "data", {"t.tga": FORMATS["t.tga"], **files})
    request = SourceSpec("folder", {"decode_with": "pillow"})
    source, _ = request.open(root)
    convert_source(source, tmp_path / "out", ConversionOptions(resize="10", source=request.to_json(source)))
    extract(tmp_path / "out", tmp_path / "back")
    assert {path.suffix for path in (tmp_path / "back").iterdir()} == {".jpg", ".png"}


def gif_mask(values: Any) -> bytes:
    """A GIF whose palette is black and white, as masks of cars are distributed."""
    image = Image.frombytes("P", values.shape[::-1], values.tobytes())
    image.putpalette([0, 0, 0, 255, 255, 255])
    file = io.BytesIO()
    image.save(file, "GIF")
    return file.getvalue()


@pytest.fixture
def masked(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    masks = {str(number): np.random.default_rng(number).integers(0, 2, (20, 30), np.uint8) for number in range(3)}
    files = {f"images/{stem}.jpg": image(int(stem), suffix=".jpg") for stem in masks}
    root = write(
        tmp_path / "data", {**files, **{f"masks/{stem}_m.gif": gif_mask(mask) for stem, mask in masks.items()}}
    )
    return root, masks


@pytest.mark.parametrize("folder", ["data", "data/images"])
def test_masks_that_only_pillow_reads_are_decoded_where_that_is_asked(
    tmp_path: Path, masked: tuple[Path, dict[str, Any]], folder: str
) -> None:
    _, masks = masked
    pattern = "masks/{stem}_m.gif" if folder == "data" else "../masks/{stem}_m.gif"
    request = SourceSpec("folder", {"folders": "none", "decode_with": "pillow"}, (f"mask={pattern}:mask",))
    source, _ = request.open(tmp_path / folder)
    summary = convert_source(source, tmp_path / "out", ConversionOptions(source=request.to_json(source)))
    assert (summary.samples, summary.skipped) == (3, ())
    dataset = LMDBDataset(tmp_path / "out")
    for index, key in enumerate(dataset.keys()):
        assert np.array_equal(dataset[index]["mask"].numpy(), masks[Path(key).stem])
    extract(tmp_path / "out", tmp_path / "back")
    assert sorted(path.name for path in (tmp_path / "back/masks").iterdir()) == [f"{n}_m.gif.png" for n in range(3)]
    assert list(Comparison(tmp_path / "out", tmp_path / folder).problems()) == []
    (tmp_path / "data/masks/1_m.gif").write_bytes(gif_mask(1 - masks["1"]))
    assert len(list(Comparison(tmp_path / "out", tmp_path / folder).problems())) == 1


def test_masks_that_only_pillow_reads_are_refused_before_a_file_is_read(masked: tuple[Path, dict[str, Any]]) -> None:
    root, _ = masked
    request = SourceSpec("folder", {"folders": "none"}, ("mask=masks/{stem}_m.gif:mask",))
    with pytest.raises(InvalidRequest, match=r"'mask': .*_m\.gif; .*--decode-with pillow"):
        request.open(root)


def test_a_damaged_mask_names_its_file(masked: tuple[Path, dict[str, Any]]) -> None:
    root, _ = masked
    (root / "masks/1_m.gif").write_bytes(b"GIF89a")
    request = SourceSpec("folder", {"folders": "none", "decode_with": "pillow"}, ("mask=masks/{stem}_m.gif:mask",))
    source, _ = request.open(root)
    with pytest.raises(BadInput, match=r"masks/1_m\.gif: .*GIF"):
        convert_source(source, root.parent / "out", ConversionOptions(source=request.to_json(source)))


def test_a_mask_is_what_its_file_stores() -> None:
    gray = np.arange(600, dtype=np.uint16).reshape(20, 30).astype(np.uint8)
    saved = {}
    for mode in ("L", "RGB", "1"):
        file = io.BytesIO()
        Image.fromarray(gray).convert(mode).save(file, "TGA")
        saved[mode] = pillow.decode(file.getvalue(), "a.tga", "mask")
    assert np.array_equal(saved["L"], gray)
    assert np.array_equal(saved["RGB"], gray)
    assert set(np.unique(saved["1"])) == {0, 255}
    with pytest.raises(DamagedImage, match="channels.*mask"):
        pillow.decode(FORMATS["t.tga"], "t.tga", "mask")


def test_advise_refuses_them_before_it_measures(mixed: Path) -> None:
    told: list[str] = []
    with pytest.raises(BadInput, match="2 images.*packer convert --on-error"):
        advise(Question(mixed), say=told.append)
    assert told == []


@pytest.mark.full
@pytest.mark.parametrize(
    "words",
    [
        ("bench", "--epochs", "1", "--loader", "DataLoader"),
        ("tune", "--epochs", "1", "--rounds", "1", "--batch-size", "1", "--loader", "DataLoader"),
    ],
    ids=lambda words: words[0],
)
def test_what_measures_a_folder_says_what_it_does_not_measure(mixed: Path, words: tuple[str, ...]) -> None:
    done = run_with_torch(words[0], mixed, "--workers", "0", *words[1:])
    assert done.returncode == 0, done.stderr
    assert f"{mixed}: not measured: " in done.stderr
