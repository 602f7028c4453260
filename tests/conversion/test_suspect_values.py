"""What is counted over all samples and said once: masks of 1 bit, boxes that are no pixels of their pictures."""

import json
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer.conversion.convert import ConversionSummary
from packer.errors import BadInputs, Interrupted, InvalidRequest
from packer.system.progress_callback import Progress
from tests.support import foreign_files
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


@pytest.mark.one_in(2)
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


# ---- depth with holes


def _with_holes(hole: float, dtype: str) -> np.ndarray[tuple[int, int], np.dtype[np.generic]]:
    depth = np.full((48, 64), 1000)
    depth[10:30, 20:40] = hole
    return depth.astype(dtype)


def _depth_tree(root: Path, hole: float, dtype: str) -> Path:
    write(root, {f"{n}.jpg": picture(n, suffix=".jpg") for n in range(3)})
    for n in range(3):
        Image.fromarray(_with_holes(hole, dtype)).save(root / f"{n}_d.tif")
    return root


_HOLES = [(0, "uint16"), (0, "float32"), (-1, "float32"), (65535, "uint16")]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("hole", "dtype"), _HOLES)
def test_depth_with_holes_that_nobody_named_is_told_with_the_line_to_type(
    tmp_path: Path, hole: int, dtype: str
) -> None:
    root = _depth_tree(tmp_path / "in", hole, dtype)
    for options in ((), ("--resize", "37")):
        pack = tmp_path / f"a{len(options)}.pack"
        done = run("convert", root, pack, "--sidecar", "d=_d.tif:depth", "--json", *options)
        (note,) = (note for note in json.loads(done.stdout)["notes"] if note.startswith("d: "))
        assert note.startswith(f"d: 3 samples with pixels of {hole} beside others: geometries and --resize mix")
        assert note.endswith(f"say --sidecar d=_d.tif:depth:{hole}")
        named = run("convert", root, pack, "--overwrite", "--json", *note.partition("say ")[2].split(), *options)
        assert not any(note.startswith("d: ") for note in json.loads(named.stdout)["notes"])
        with packer.open(pack, output="numpy", geometry=packer.geometry.Resize((33, 51))) as dataset:
            assert set(np.unique(dataset[0]["d"])) == {hole, 1000}


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


@pytest.mark.parametrize("depth", [
    np.full((48, 64), 7, np.uint16), np.zeros((48, 64), np.uint16),
    np.linspace(0, 1, 48 * 64, dtype=np.float32).reshape(48, 64),
], ids=["without", "nothing else", "scaled"])  # fmt: skip
def test_depth_without_holes_is_not_told(
    tmp_path: Path, depth: np.ndarray[tuple[int, int], np.dtype[np.generic]]
) -> None:
    root = write(tmp_path / "in", {f"{n}.jpg": picture(n, suffix=".jpg") for n in range(3)})
    for n in range(3):
        Image.fromarray(depth).save(root / f"{n}_d.tif")
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"d": "_d.tif:depth"})
    assert not any(note.startswith("d: ") for note in made.notes)


def test_what_was_not_looked_at_for_holes_is_told(tmp_path: Path) -> None:
    root = _depth_tree(tmp_path / "in", 0, "uint16")
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"d": "_d.tif:depth"}, validate="header")
    (note,) = (note for note in made.notes if note.startswith("d: "))
    assert note.startswith("d: not looked at for holes (--validate header)")
    assert note.endswith("such as 0 by --sidecar d=_d.tif:depth:0")


@pytest.mark.parametrize("kind", ["tfrecord", "webdataset"])
def test_holes_of_a_depth_in_records_are_told_with_the_features_to_type(tmp_path: Path, kind: str) -> None:
    tree = _depth_tree(tmp_path / "files", 0, "uint16")
    pairs = [((tree / f"{n}.jpg").read_bytes(), (tree / f"{n}_d.tif").read_bytes()) for n in range(3)]
    if kind == "tfrecord":
        records = [
            foreign_files.example({"i": foreign_files.bytes_list(image), "d": foreign_files.bytes_list(depth)})
            for image, depth in pairs
        ]
        data = {"a.tfrecord": foreign_files.tfrecord(records)}
    else:
        members = {f"{n}.{end}": data for n, pair in enumerate(pairs) for end, data in zip("id", pair, strict=True)}
        data = {"a.tar": foreign_files.tar_archive(members)}
    root = write(tmp_path / "in", data)
    made = packer.convert(root, tmp_path / "a.pack", features=["image=i:image", "d=d:depth"])
    (note,) = (note for note in made.notes if note.startswith("d: "))
    assert note.endswith("where 0 is no measurement, say --features image=i:image,d=d:depth:0")
    features = note.rpartition(" ")[2].split(",")
    named = packer.convert(root, tmp_path / "a.pack", features=features, overwrite=True)
    assert not any(note.startswith("d: ") for note in named.notes)
    with packer.open(tmp_path / "a.pack", output="numpy", geometry=packer.geometry.Resize((33, 51))) as dataset:
        assert dataset.schema["d"].invalid == 0
        assert set(np.unique(dataset[0]["d"])) == {0, 1000}


def test_a_value_that_the_files_cannot_have_is_refused(tmp_path: Path) -> None:
    root = _depth_tree(tmp_path / "in", 0, "uint16")
    with pytest.raises(BadInputs, match=r"its samples are uint16, which have no -1 for a missing pixel"):
        packer.convert(root, tmp_path / "a.pack", sidecars={"d": "_d.tif:depth:-1"})


@pytest.mark.parametrize(("typed", "said"), [
    ("_d.tif:mask:0", "'0' behind mask: only a depth has a value for missing pixels"),
    ("_d.tif:depth:none", "expected behind depth the value of a missing pixel, such as 0 or -1, found 'none'"),
    ("_d.tif:depth:nan", "invalid is nan, expected a finite number"),
])  # fmt: skip
def test_what_is_no_value_of_a_missing_pixel_is_refused(tmp_path: Path, typed: str, said: str) -> None:
    root = _depth_tree(tmp_path / "in", 0, "uint16")
    with pytest.raises(InvalidRequest, match=said):
        packer.convert(root, tmp_path / "a.pack", sidecars={"d": typed})


# ---- masks in alpha, of several forms; pictures of two sizes


def _alpha_masks(root: Path, form: str, grays: int | None) -> Path:
    """Masks with their content in alpha. grays: the gray that all pixels have, None for one of their own each."""
    write(root, {f"{n}.jpg": picture(n, suffix=".jpg") for n in range(3)})
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
    with pytest.raises(
        BadInputs, match=r"0_m\.png: .*alpha channel, which a mask does not keep, has 4 values.*getchannel"
    ):
        packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.png:mask"}, **options)  # type: ignore[arg-type]


def test_a_tga_mask_that_is_in_its_alpha_alone_is_refused(tmp_path: Path) -> None:
    root = _alpha_masks(tmp_path / "in", "RGBA", 255)
    for n in range(3):
        Image.open(root / f"{n}_m.png").save(root / f"{n}_m.tga")
        (root / f"{n}_m.png").unlink()
    with pytest.raises(BadInputs, match="its content is there"):
        packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.tga:mask"}, decode_with="pillow")


def test_alpha_that_says_more_than_the_grays_is_told(tmp_path: Path) -> None:
    root = _alpha_masks(tmp_path / "in", "RGBA", None)
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.png:mask"})
    (note,) = (note for note in made.notes if note.startswith("m: "))
    assert note.startswith("m: alpha channels are dropped, and in 3 samples of 3 pixels of one gray differ in it")


@pytest.mark.parametrize("alpha", ["opaque", "clear where 0"])
def test_alpha_that_says_no_more_is_not(tmp_path: Path, alpha: str) -> None:
    root = write(tmp_path / "in", {f"{n}.jpg": picture(n, suffix=".jpg") for n in range(3)})
    values = np.random.default_rng(0).integers(0, 4, (48, 64)).astype(np.uint8)
    last = np.full_like(values, 255) if alpha == "opaque" else np.where(values > 0, 255, 0).astype(np.uint8)
    for n in range(3):
        Image.fromarray(np.dstack([values, values, values, last])).save(root / f"{n}_m.png")
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"m": "_m.png:mask"})
    assert not any(note.startswith("m: ") for note in made.notes)
    with packer.open(tmp_path / "a.pack", output="numpy") as dataset:
        assert np.array_equal(dataset[0]["m"], values)


def test_masks_of_one_bit_among_others_are_told_so(tmp_path: Path) -> None:
    root = write(tmp_path / "in", {f"{n}.jpg": picture(n, suffix=".jpg") for n in range(4)})
    write(root, {f"{n}_mask.png": one_bit(n, "PNG") if n < 2 else mask(n) for n in range(4)})
    made = packer.convert(root, tmp_path / "a.pack", sidecars={"mask": "_mask.png:mask"})
    (note,) = (note for note in made.notes if note.startswith("mask:"))
    assert "1-bit pictures, values 0 and 255, in 2 of 4 samples" in note
    assert "the others are of more bits" in note
    assert "divide by 255" not in note


@pytest.mark.parametrize("options", [(), ("--resize", "32")])
def test_pictures_of_two_sizes_are_told(tmp_path: Path, options: tuple[str, ...]) -> None:
    root = write(tmp_path / "in", {f"hr/{n}.png": picture(n, height=96, width=96) for n in range(3)})
    write(root, {f"lr/{n}.png": picture(n, height=48, width=48) for n in range(3)})
    asked = ("--classes", "none", "--sidecar", "lr=lr/{stem}.png:image", "--json", *options)
    done = run("convert", root, tmp_path / "a.pack", *asked)
    (note,) = (note for note in json.loads(done.stdout)["notes"] if note.startswith("lr: "))
    assert note.startswith(
        "lr: of another size than its picture in 3 samples: geometries (a flip too) and --resize give"
    )


def test_what_records_would_say_is_said_of_their_pack_when_it_is_made_smaller(tmp_path: Path) -> None:
    depth = np.stack([_with_holes(0, "uint16")] * 3)
    boxes = np.array([[10, 5, 30, 20]] * 3, np.float32)
    pixels = np.random.default_rng(1).integers(0, 255, (3, 48, 64, 3), np.uint8)
    np.savez(tmp_path / "a.npz", image=pixels, depth=depth, boxes=boxes)
    features = ["image=image:image", "depth=depth:depth", "boxes=boxes:numbers"]
    packer.convert(tmp_path / "a.npz", tmp_path / "a.pack", features=features)
    as_it_is = packer.convert(tmp_path / "a.pack", tmp_path / "b.pack")
    smaller = packer.convert(tmp_path / "a.pack", tmp_path / "c.pack", resize=20)
    for start, said in (("boxes: stored as they are", "--resize"), ("depth: 3 samples with pixels of 0", ":depth:0")):
        assert not any(note.startswith(start) for note in as_it_is.notes)
        (note,) = (note for note in smaller.notes if note.startswith(start))
        assert said in note
