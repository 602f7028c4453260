"""Files of no sample: they go along byte for byte, through packs of packs, and nothing hostile comes of them."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from packer import formats
from packer.conversion.options import ConversionOptions
from packer.conversion.pack_build import estimate
from packer.conversion.plan import make_plan
from packer.conversion.source_verification import Comparison
from packer.errors import CorruptPack, InvalidRequest
from packer.inspect.extraction import extract
from packer.pack import extra_files, verification
from packer.pack import manifest as manifests
from packer.pack.extra_files import ExtraFiles
from packer.pack.sample_index import write_array
from packer.sources.image_files.folder import Source
from tests.support import built_packs, source_trees
from tests.support.command_line import run_here
from tests.support.conversions import packed
from tests.support.source_trees import tree

TABLE = {"z.txt": "0100 26 Cup pcdb_0002\n", "a/deep/list, ünï.csv": "a,b\r\n", "empty.txt": ""}
ODD = {os.fsdecode(b"\xff\xfe.txt"): b"\x00\x01", "new\nline.csv": b"x"}


def photos(root: Path) -> Path:
    """Two classes, and files of no sample, one of them in a class folder."""
    images: dict[str, bytes | str] = {
        f"{name}/{at}.jpg": source_trees.image(at, suffix=".jpg") for name in "ab" for at in (1, 2)
    }
    return source_trees.write(root, images | TABLE | ODD | {"a/1.txt": "label"})


def hostile(folder: Path, files: dict[str, bytes]) -> Path:
    """A pack whose extras have these names, all hashes right."""
    photos(folder.with_name("in"))
    packed(folder.with_name("in"), folder, extras_bytes=0)
    return forged(folder, files)


def forged(folder: Path, files: dict[str, bytes]) -> Path:
    """Put other extras into a pack and seal it anew."""
    shutil.rmtree(folder / manifests.EXTRAS, ignore_errors=True)
    sizes = {path: len(data) for path, data in files.items()}
    listed = extra_files.write_extras(folder, sizes, list(files.values()))
    sealed = replace(manifests.read(folder), extras=listed).sealed()
    (folder / manifests.NAME).write_bytes(sealed.to_bytes())
    return folder


@pytest.mark.one_in(6)
@pytest.mark.parametrize("format", formats.names())
def test_the_whole_tree_comes_back_also_from_a_pack_of_a_pack(tmp_path: Path, format: str) -> None:
    root = photos(tmp_path / "in")
    packed(root, tmp_path / "one.pack", to=format, codecs=(("image", "encoded"),))
    packed(tmp_path / "one.pack", tmp_path / "two.pack", to="lmdb", resize="32")
    extract(tmp_path / "one.pack", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(root)
    extract(tmp_path / "two.pack", tmp_path / "again")
    kept = {path: data for path, data in tree(root).items() if not path.endswith(b".jpg")}
    assert kept.items() <= tree(tmp_path / "again").items()
    assert [*verification.problems(tmp_path / "two.pack", level="full")] == []
    assert [*Comparison(tmp_path / "one.pack", root).problems()] == []


def test_a_pack_without_them_has_no_folder_and_no_member(tmp_path: Path) -> None:
    root = source_trees.write(tmp_path / "in", {"1.jpg": source_trees.image(1, suffix=".jpg")})
    packed(root, tmp_path / "out.pack")
    assert not (tmp_path / "out.pack/extras").exists()
    assert b'"extras":' not in (tmp_path / "out.pack/packer.json").read_bytes()


def test_numpy_reads_them_without_packer(tmp_path: Path) -> None:
    packed(photos(tmp_path / "in"), tmp_path / "out.pack")
    folder = tmp_path / "out.pack/extras"
    arrays = {path.stem: np.load(path) for path in folder.iterdir()}
    paths = np.split(arrays["paths"], arrays["path_ends"][:-1])
    contents = np.split(arrays["data"], arrays["data_ends"][:-1])
    found = {path.tobytes(): content.tobytes() for path, content in zip(paths, contents, strict=True)}
    assert found == {path: data for path, data in tree(tmp_path / "in").items() if not path.endswith(b".jpg")}


def test_all_go_along_or_none_and_it_is_said(tmp_path: Path) -> None:
    root = photos(tmp_path / "in")
    total = sum(len(data) for path, data in tree(root).items() if not path.endswith(b".jpg"))
    whole = packed(root, tmp_path / "whole.pack", extras_bytes=total)
    assert any(f"6 other files without a sample packed, too: {total} bytes" in note for note in whole.notes)
    less = packed(root, tmp_path / "less.pack", extras_bytes=total - 1)
    assert any("6 other files skipped" in note for note in less.notes)
    assert manifests.read(tmp_path / "less.pack").source["left_behind"] == {"files": 6, "bytes": total}
    assert extract(tmp_path / "less.pack", tmp_path / "back").left_behind == 6
    assert not packed(root, tmp_path / "none.pack", extras_bytes=0).notes
    assert whole.pack_id != less.pack_id


def test_what_is_no_file_is_left_behind_and_named(tmp_path: Path) -> None:
    root = photos(tmp_path / "in")
    os.mkfifo(root / "pipe")
    (root / "nowhere").symlink_to("gone")
    (root / "a\\..\\b").write_text("its name could lead out of a target")
    summary = packed(root, tmp_path / "out.pack")
    assert "3 other files skipped, which are not readable: a\\\\..\\\\b, nowhere, pipe" in summary.notes[0].replace(
        "\\", "\\\\"
    )
    assert len(ExtraFiles(tmp_path / "out.pack", manifests.read(tmp_path / "out.pack"))) == 6


def test_the_estimate_counts_them_and_a_changed_one_makes_another_plan(tmp_path: Path) -> None:
    source = Source(photos(tmp_path / "in"))
    whole, none = (estimate(make_plan(source, ConversionOptions(extras_bytes=most))) for most in (1 << 20, 0))
    assert whole.pack_bytes - none.pack_bytes == sum((tmp_path / "in" / path).stat().st_size for path in source.extras)
    root = photos(tmp_path / "in")
    before = make_plan(Source(root), ConversionOptions()).fingerprint
    (root / "z.txt").write_text("other")
    assert make_plan(Source(root), ConversionOptions()).fingerprint != before


def test_files_of_sidecars_are_no_extras(tmp_path: Path) -> None:
    root = source_trees.write(
        tmp_path / "in", {"1.jpg": source_trees.image(1, suffix=".jpg"), "1.txt": "one", "note.txt": "more"}
    )
    run_here("convert", root, tmp_path / "out.pack", "--sidecar", "text=.txt:text")
    assert ExtraFiles(tmp_path / "out.pack", manifests.read(tmp_path / "out.pack")).sizes == {"note.txt": 4}


def test_every_changed_byte_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "out.pack"
    packed(photos(tmp_path / "in"), folder)
    for path in sorted((folder / "extras").iterdir()):
        for at in range(0, path.stat().st_size, 7):
            built_packs.flip(path, at)
            assert [*verification.problems(folder, level="quick")], f"{path.name} at {at}"
            with pytest.raises(CorruptPack):
                ExtraFiles(folder, manifests.read(folder))
            built_packs.flip(path, at)
    assert not [*verification.problems(folder)]


def test_missing_and_further_files_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "out.pack"
    packed(photos(tmp_path / "in"), folder)
    (folder / "extras/more.npy").write_bytes(b"")
    assert any("unknown file" in problem for problem in verification.problems(folder))
    (folder / "extras/more.npy").unlink()
    (folder / "extras/data.npy").unlink()
    assert any("missing" in problem for problem in verification.problems(folder, level="quick"))


def test_verify_compares_them_with_the_original_files(tmp_path: Path) -> None:
    root = photos(tmp_path / "in")
    packed(root, tmp_path / "out.pack")
    (root / "z.txt").write_text("other")
    (root / "empty.txt").unlink()
    problems = [*Comparison(tmp_path / "out.pack", root).problems()]
    assert len(problems) == 2
    assert any("z.txt: differs" in problem for problem in problems)


@pytest.mark.parametrize("name", ["../out.txt", "/etc/passwd", "a/../../b", "", "a//b", "nul\0", "C:\\x", "x" * 256])
def test_a_name_that_leads_out_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    folder = hostile(tmp_path / "out.pack", {"fine.txt": b"1", name: b"2"})
    with pytest.raises(InvalidRequest, match="nothing was extracted"):
        extract(folder, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert [*verification.problems(folder)]


@pytest.mark.parametrize("name", ["a/1.jpg", "A/1.JPG", "a", "a/1.jpg/inner"])
def test_a_name_of_a_sample_is_refused(tmp_path: Path, name: str) -> None:
    folder = hostile(tmp_path / "out.pack", {name: b"2"})
    with pytest.raises(InvalidRequest, match="collides"):
        extract(folder, tmp_path / "back")


@pytest.mark.parametrize("what", ["ends", "beyond", "counts", "names", "shape"])
def test_files_that_do_not_fit_each_other_are_refused(tmp_path: Path, what: str) -> None:
    folder = tmp_path / "out.pack"
    packed(photos(tmp_path / "in"), folder)
    ends = np.asarray({"ends": [9, 3], "beyond": [3, 1 << 40], "counts": [3]}.get(what, [3, 9]), "<u8")
    blocks = {
        "paths": np.zeros(9, "u1"),
        "path_ends": ends,
        "data": np.zeros(9, "u1"),
        "data_ends": np.asarray([3, 9], "<u8"),
    }
    if what == "names":
        blocks["more"] = blocks.pop("data")
    if what == "shape":
        blocks["data"] = np.zeros((3, 3), "u1")
    shutil.rmtree(folder / "extras")
    (folder / "extras").mkdir()
    files = [
        write_array(folder / "extras" / f"{name}.npy", array.dtype.str, array.shape, [array])
        for name, array in sorted(blocks.items())
    ]
    sealed = replace(manifests.read(folder), extras=tuple(files)).sealed()
    (folder / manifests.NAME).write_bytes(sealed.to_bytes())
    with pytest.raises(CorruptPack):
        ExtraFiles(folder, manifests.read(folder))
    assert [*verification.problems(folder, level="quick")]
