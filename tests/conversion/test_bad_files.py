"""Bad files of all kinds are named in one run, and the remedy of many once."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import packer
from packer.errors import BadInputs, OutOfMemory
from packer.sources.image_files.folder import Source
from tests.support.command_line import run_here
from tests.support.source_trees import image, mask, write

BAD = ("cut.jpg", "empty.png", "page.jpg", "x.heic", "out.jpg", "gone.jpg")


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Three good images, one cut, one empty, a page, one HEIC, a link out of the folder and one that leads nowhere."""
    root = write(tmp_path / "in", {f"c/{n}.jpg": image(n, suffix=".jpg") for n in range(3)})
    write(root, {"c/cut.jpg": image(3, suffix=".jpg")[:300], "c/empty.png": b"", "c/x.heic": b"heic"})
    write(root, {"c/page.jpg": b"<html>not found</html>"})
    write(tmp_path, {"elsewhere.jpg": image(4, suffix=".jpg")})
    (root / "c/out.jpg").symlink_to(tmp_path / "elsewhere.jpg")
    (root / "c/gone.jpg").symlink_to("nowhere")
    return root


def test_every_bad_file_of_every_kind_is_named_in_one_run_or_left_out(mixed: Path, tmp_path: Path) -> None:
    done = run_here("convert", mixed, tmp_path / "a.pack")
    assert done.returncode == 3
    error = done.stderr[done.stderr.index("packer: ") :]
    assert "6 of 9 samples cannot be packed:" in error
    for name in BAD:
        assert error.count(f"c/{name}") == 1, name
    assert "every bad file" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere.jpg", "in"]
    made = packer.convert(mixed, tmp_path / "a.pack", on_error="skip")
    assert made.samples == 3
    assert {key for key, _ in made.skipped} == {f"c/{name}" for name in BAD}


def test_a_dry_run_names_all_that_is_known_without_reading(mixed: Path, tmp_path: Path) -> None:
    done = run_here("convert", mixed, tmp_path / "a.pack", "--dry-run", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["ok"] is False
    for name in ("x.heic", "out.jpg", "gone.jpg"):
        assert name in done.stderr


def test_a_remedy_of_many_is_said_once(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "in").mkdir()
    for n in range(5):
        Image.fromarray(np.zeros((48, 64, 3), np.uint8)).save(tmp_path / f"in/{n}.jpg", exif=exif)
        write(tmp_path / "in", {f"{n}.png": mask(n)})
    with pytest.raises(BadInputs) as caught:
        packer.convert(tmp_path / "in", tmp_path / "a.pack", sidecars={"mask": ".png:mask"})
    assert str(caught.value).count("--labels-orientation upright") == 1
    assert str(caught.value).count("its image has EXIF orientation 6") == 5


@pytest.mark.parametrize("detail", ["", "Unable to allocate 6.00 GiB"])
def test_a_memory_error_names_what_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, detail: str) -> None:
    """And it is not a bad sample, which --on-error would skip."""
    write(tmp_path / "in", {f"{name}.png": image(0) for name in "abc"})
    read = Source.read_file

    def reading(source: Source, path: str, *, is_table: bool = False) -> bytes:
        if path == "b.png":
            raise MemoryError(detail)
        return read(source, path, is_table=is_table)

    monkeypatch.setattr(Source, "read_file", reading)
    with pytest.raises(OutOfMemory, match=rf"in/b\.png: .*{detail}"):
        packer.convert(tmp_path / "in", tmp_path / "a.pack", on_error="skip")
    monkeypatch.setattr(Source, "__init__", lambda *_, **__: bytearray(1 << 60))
    with pytest.raises(OutOfMemory, match=r"/in: .*memory"):
        packer.convert(tmp_path / "in", tmp_path / "a.pack")
