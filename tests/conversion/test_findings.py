"""Findings that are counted over all samples and noted once, and values that are refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer.conversion.convert import ConversionSummary
from packer.errors import BadInputs, Interrupted, InvalidRequest
from packer.system.progress_callback import Progress
from tests.support.command_line import run_here
from tests.support.source_trees import image, write


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("boxes", "said"), [
    (["0.1 0.2 0.5 0.6", "0 0 1 1\n0.2 0.2 0.3 0.3", ""], "boxes: all boxes are within 0 to 1"),
    (["-5 -5 200 300", "1 1 5 5", "0 0 64 48"], "boxes: boxes reach out of the image (1 sample)"),
    (["0 0 1 2", "1 1 5 5", "0.5 0.5 64.4 48.2"], ""),
    (["", "", ""], ""),
], ids=["shares", "outside", "px", "none"])  # fmt: skip
def test_boxes_that_are_no_pixels_of_their_images_are_told(tmp_path: Path, boxes: list[str], said: str) -> None:
    root = write(tmp_path / "in", {f"{n}.png": image(n) for n in range(3)})
    write(root, {f"{n}.txt": text for n, text in enumerate(boxes)})
    done = run_here("convert", root, tmp_path / "a.pack", "--sidecar", "boxes=.txt:boxes", "--json")
    assert done.returncode == 0, done.stderr
    found = [note for note in json.loads(done.stdout)["notes"] if note.startswith("boxes:")]
    assert [note[: len(said)] for note in found] == ([said] if said else [])
    shown = run_here("convert", root, tmp_path / "b.pack", "--sidecar", "boxes=.txt:boxes")
    assert all(note in shown.stderr for note in found)


def test_boxes_of_a_turned_image_are_seen_in_their_frame(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "in").mkdir()
    for n in range(3):
        Image.fromarray(np.zeros((48, 64, 3), np.uint8)).save(tmp_path / f"in/{n}.jpg", exif=exif)
    write(tmp_path / "in", {f"{n}.txt": "0 0 48 64" for n in range(3)})
    for frame, is_said in (("upright", False), ("stored", True)):
        made = packer.convert(
            tmp_path / "in",
            tmp_path / f"{frame}.pack",
            sidecars={"boxes": ".txt:boxes"},
            exif="rotate" if frame == "upright" else "ignore",
            labels_orientation=frame,  # type: ignore[arg-type]
        )
        assert any("reach out of the image (3 samples)" in note for note in made.notes) == is_said


def test_a_run_that_goes_on_counts_what_the_earlier_one_did(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{n}.png": image(n) for n in range(6)})
    write(root, {f"{n}.txt": "0 0 1 1" for n in range(6)})

    def stop(now: Progress) -> None:
        if now.samples >= 4:
            raise Interrupted(2)

    def pack(progress: object) -> ConversionSummary:
        return packer.convert(
            root, tmp_path / "a.pack", sidecars={"boxes": ".txt:boxes"}, part_bytes=20_000, threads=1, progress=progress
        )  # type: ignore[arg-type]

    with pytest.raises(Interrupted):
        pack(stop)
    made = pack(None)
    assert made.resumed_samples
    assert any("all boxes are within 0 to 1" in note and "(6 samples)" in note for note in made.notes)


def test_the_summary_has_every_note_that_the_listener_gets(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{kind}/{n}.png": image(n) for kind in ("ape", "cat") for n in range(3)})
    write(root, {"readme.txt": "x"})
    heard: list[str] = []
    made = packer.convert(root, tmp_path / "a.pack", on_note=heard.append)
    assert list(made.notes) == heard
    assert "classes: ape 3, cat 3" in heard
    assert packer.convert(root, tmp_path / "b.pack").notes == made.notes


# ---- depth with holes


def _with_holes(hole: float, dtype: str) -> np.ndarray[tuple[int, int], np.dtype[np.generic]]:
    depth = np.full((48, 64), 1000)
    depth[10:30, 20:40] = hole
    return depth.astype(dtype)


def _depth_tree(root: Path, hole: float, dtype: str) -> Path:
    write(root, {f"{n}.jpg": image(n, suffix=".jpg") for n in range(3)})
    for n in range(3):
        Image.fromarray(_with_holes(hole, dtype)).save(root / f"{n}_d.tif")
    return root


@pytest.mark.parametrize("geometry", [
    packer.geometry.RandomRotation(10), packer.geometry.RandomZoom(0.5, 0.7), packer.geometry.RandomResizedCrop(24),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("codec", ["kept", "raw", "npy"])
def test_a_named_hole_is_mixed_into_nothing(tmp_path: Path, geometry: packer.geometry.Geometry, codec: str) -> None:
    root = _depth_tree(tmp_path / "in", 0, "uint16")
    codecs = {} if codec == "kept" else {"d": codec}
    packer.convert(root, tmp_path / "a.pack", sidecars={"d": "_d.tif:depth:0"}, codecs=codecs)
    with packer.open(tmp_path / "a.pack", output="numpy", geometry=geometry) as dataset:
        assert dataset.schema["d"].invalid == 0
        assert all(set(np.unique(sample["d"])) <= {0, 1000} for sample in dataset)


def test_a_value_that_the_files_cannot_have_is_refused(tmp_path: Path) -> None:
    root = _depth_tree(tmp_path / "in", 0, "uint16")
    with pytest.raises(BadInputs, match="uint16.*-1.*missing"):
        packer.convert(root, tmp_path / "a.pack", sidecars={"d": "_d.tif:depth:-1"})


@pytest.mark.parametrize("typed", ["_d.tif:mask:0", "_d.tif:depth:none", "_d.tif:depth:nan"])
def test_invalid_values_of_missing_pixels_are_refused(tmp_path: Path, typed: str) -> None:
    root = _depth_tree(tmp_path / "in", 0, "uint16")
    with pytest.raises(InvalidRequest, match="invalid|INVALID"):
        packer.convert(root, tmp_path / "a.pack", sidecars={"d": typed})


# ---- masks in alpha, of several forms; images of two sizes


def _alpha_masks(root: Path, form: str, grays: int | None) -> Path:
    """Masks with their content in alpha. grays: the gray that all pixels have, None for one of their own each."""
    write(root, {f"{n}.jpg": image(n, suffix=".jpg") for n in range(3)})
    for n in range(3):
        content = np.random.default_rng(n).integers(0, 4, (48, 64)).astype(np.uint8)
        gray = np.random.default_rng(9 + n).integers(0, 4, (48, 64)).astype(np.uint8)
        if grays is not None:
            gray[:] = grays
        planes = [gray, content * 50] if form == "LA" else [gray, gray, gray, content * 50]
        Image.fromarray(np.dstack(planes)).save(root / f"{n}_m.png")
    return root


@pytest.mark.parametrize("form", ["LA", "RGBA"])
@pytest.mark.parametrize("options", [{}, {"resize": 20}, {"validate": "header"}, {"codecs": {"m": "png"}}], ids=str)
def test_a_mask_that_is_in_its_alpha_alone_is_refused(tmp_path: Path, form: str, options: dict[str, object]) -> None:
    root = _alpha_masks(tmp_path / "in", form, 0)
    with pytest.raises(BadInputs, match=r"0_m\.png: .*alpha channel.*4 values"):
        packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.png:mask"}, **options)  # type: ignore[arg-type]


def test_a_tga_mask_that_is_in_its_alpha_alone_is_refused(tmp_path: Path) -> None:
    root = _alpha_masks(tmp_path / "in", "RGBA", 255)
    for n in range(3):
        Image.open(root / f"{n}_m.png").save(root / f"{n}_m.tga")
        (root / f"{n}_m.png").unlink()
    with pytest.raises(BadInputs, match="content is there"):
        packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.tga:mask"}, decode_with="pillow")


def test_alpha_that_says_more_than_the_grays_is_told(tmp_path: Path) -> None:
    root = _alpha_masks(tmp_path / "in", "RGBA", None)
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.png:mask"})
    (note,) = (note for note in made.notes if note.startswith("m: "))
    assert "alpha channel" in note and note.endswith("(3 samples)")


@pytest.mark.parametrize("alpha", ["opaque", "clear where 0"])
def test_alpha_that_says_no_more_is_not(tmp_path: Path, alpha: str) -> None:
    root = write(tmp_path / "in", {f"{n}.jpg": image(n, suffix=".jpg") for n in range(3)})
    values = np.random.default_rng(0).integers(0, 4, (48, 64)).astype(np.uint8)
    last = np.full_like(values, 255) if alpha == "opaque" else np.where(values > 0, 255, 0).astype(np.uint8)
    for n in range(3):
        Image.fromarray(np.dstack([values, values, values, last])).save(root / f"{n}_m.png")
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.png:mask"})
    assert not any(note.startswith("m: ") for note in made.notes)
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert np.array_equal(dataset[0]["m"], values)


@pytest.mark.parametrize("options", [(), ("--resize", "32")])
def test_images_of_two_sizes_are_told(tmp_path: Path, options: tuple[str, ...]) -> None:
    root = write(tmp_path / "in", {f"hr/{n}.png": image(n, height=96, width=96) for n in range(3)})
    write(root, {f"lr/{n}.png": image(n, height=48, width=48) for n in range(3)})
    asked = ("--folders", "none", "--sidecar", "lr=lr/{stem}.png:image", "--json", *options)
    done = run_here("convert", root, tmp_path / "a.pack", *asked)
    (note,) = (note for note in json.loads(done.stdout)["notes"] if note.startswith("lr: "))
    assert "another size" in note and note.endswith("(3 samples)")
