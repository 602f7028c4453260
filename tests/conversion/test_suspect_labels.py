"""What is counted over all samples and said once: masks of 1 bit, boxes that are no pixels of their pictures."""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer.conversion.convert import ConversionSummary
from packer.errors import Interrupted, InvalidRequest
from packer.system.progress_counter import Progress
from tests.support.command_line import run
from tests.support.source_trees import mask, picture, write


def one_bit(seed: int, form: str) -> bytes:
    data = BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 2, (48, 64)).astype(bool)).save(data, form)
    return data.getvalue()


@pytest.mark.parametrize(("form", "suffix"), [("PNG", ".png"), ("BMP", ".bmp"), ("TIFF", ".tif")])
def test_masks_of_one_bit_are_told(tmp_path: Path, form: str, suffix: str) -> None:
    root = write(tmp_path / "in", {f"{n}.jpg": picture(n, suffix=".jpg") for n in range(3)})
    write(root, {f"{n}_mask{suffix}": one_bit(n, form) for n in range(3)})
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"mask": f"_mask{suffix}:mask"})
    (note,) = (note for note in made.notes if note.startswith("mask:"))
    assert "1-bit pictures, values 0 and 255 (3 samples)" in note
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert set(np.unique(dataset[0]["mask"])) == {0, 255}


def test_masks_of_eight_bit_are_not(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{n}.jpg": picture(n, suffix=".jpg") for n in range(3)})
    write(root, {f"{n}_mask.png": mask(n) for n in range(3)})
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"mask": "_mask.png:mask"})
    assert not any(note.startswith("mask:") for note in made.notes)


@pytest.mark.parametrize(("boxes", "said"), [
    (["0.1 0.2 0.5 0.6", "0 0 1 1\n0.2 0.2 0.3 0.3", ""], "boxes: all boxes lie within 0 to 1 (2 samples)"),
    (["-5 -5 200 300", "1 1 5 5", "0 0 64 48"], "boxes: boxes reach out of their pictures in 1 sample of 3 with boxes"),
    (["0 0 1 1", "1 1 5 5", "0.5 0.5 64.4 48.2"], ""),
    (["", "", ""], ""),
], ids=["shares", "outside", "px", "none"])  # fmt: skip
def test_boxes_that_are_no_pixels_of_their_pictures_are_told(tmp_path: Path, boxes: list[str], said: str) -> None:
    root = write(tmp_path / "in", {f"{n}.png": picture(n) for n in range(3)})
    write(root, {f"{n}.txt": text for n, text in enumerate(boxes)})
    done = run("convert", root, tmp_path / "a.pack", "--sidecar", "boxes=.txt:boxes", "--json")
    assert done.returncode == 0, done.stderr
    found = [note for note in json.loads(done.stdout)["notes"] if note.startswith("boxes:")]
    assert [note[: len(said)] for note in found] == ([said] if said else [])
    shown = run("convert", root, tmp_path / "b.pack", "--sidecar", "boxes=.txt:boxes")
    assert all(note in shown.stderr for note in found)


def test_boxes_of_a_turned_picture_are_seen_in_their_frame(tmp_path: Path) -> None:
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
            sidecar_frame=frame,  # type: ignore[arg-type]
        )
        assert any("reach out of their pictures in 3 samples of 3" in note for note in made.notes) == is_said


def test_a_run_that_goes_on_counts_what_the_earlier_one_did(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{n}.png": picture(n) for n in range(6)})
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
    assert any("all boxes lie within 0 to 1 (6 samples)" in note for note in made.notes)


def test_names_that_extract_will_refuse_are_told(tmp_path: Path) -> None:
    names = ("\u00e9/0.png", "e\u0301/0.png", "Cat/0.png", "cat/0.png", "b/0.png")
    root = write(tmp_path / "in", {name: picture(n) for n, name in enumerate(names)})
    made = packer.convert(root, tmp_path / "a.pack")
    (note,) = (note for note in made.notes if "packer extract" in note)
    assert note.startswith("2 files named as another but for case or the spelling of accents")
    with pytest.raises(InvalidRequest, match="collides with"):
        packer.extract(tmp_path / "a.pack", tmp_path / "out")


def test_the_summary_has_every_note_that_the_listener_gets(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{kind}/{n}.png": picture(n) for kind in ("ape", "cat") for n in range(3)})
    write(root, {"readme.txt": "x"})
    heard: list[str] = []
    made = packer.convert(root, tmp_path / "a.pack", on_note=heard.append)
    assert list(made.notes) == heard
    assert "classes: ape 3, cat 3" in heard
    assert packer.convert(root, tmp_path / "b.pack").notes == made.notes
