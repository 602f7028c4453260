"""extract: the original tree comes back byte for byte; nothing lies about its bytes, nothing lands elsewhere."""

import io
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import packer
from packer import sources
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import CorruptPack, CorruptRecord, InvalidRequest, PackerError, PackExists, StorageError
from packer.files.folder_handle import FolderHandle
from packer.files.safe_paths import Collisions, components, folded
from packer.files.tree_writer import TreeWriter
from packer.files.work_folder import ANYTHING, work_folder
from packer.inspect.extraction import extract
from packer.schema import Field, Schema
from packer.sources.base import Source
from tests.support import built_packs, source_trees
from tests.support.command_line import called, run_here
from tests.support.conversions import packed
from tests.support.source_trees import tree

SCHEMA = Schema(
    (
        Field("key", "text", "text"),
        Field("blob", "bytes", "encoded"),
        Field("files", "json", "json", hidden=True),
    )
)


def files_pack(folder: Path, files: Mapping[str, bytes]) -> Path:
    """A pack whose samples say that they were these files."""
    records = [
        {
            "key": b"%d" % number,
            "blob": data,
            "files": json.dumps({"blob": path}, ensure_ascii=False).encode("utf-8", "surrogateescape"),
        }
        for number, (path, data) in enumerate(files.items())
    ]
    built_packs.make_pack(folder, records, schema=SCHEMA)
    return folder


# ---- the tree comes back


def values_of(source: Source, back: dict[bytes, bytes]) -> tuple[dict[bytes, bytes], int]:
    """What the records hold, by the paths that it gets, and how many of them are arrays.

    Of an array the file that came back is taken, once it is seen to hold the same values.
    """
    found, arrays = {}, 0
    for index in range(len(source)):
        for field, path in source[index]["files"].items():
            value = source.value(index, field) if source.holds_records else source.read_file(path)
            if isinstance(value, np.ndarray):
                arrays += 1
                data = back[path.encode()]
                kind = source.schema[field].kind
                stored = np.load(io.BytesIO(data)) if path.endswith(".npy") else packer.images.decode(data, kind)
                assert np.array_equal(np.squeeze(stored), np.squeeze(value), equal_nan=stored.dtype.kind == "f"), path
                value = data
            found[path.encode()] = value.encode() if isinstance(value, str) else value
    return found, arrays


@pytest.mark.one_in(10)
@pytest.mark.parametrize("kind", source_trees.BUILDERS)
def test_what_was_kept_comes_back_byte_for_byte(tmp_path: Path, kind: str) -> None:
    root = source_trees.BUILDERS[kind](tmp_path / "in")
    packed(root, tmp_path / "out.pack", kind=kind, part_bytes=20_000)
    found = extract(tmp_path / "out.pack", tmp_path / "back")
    original, back = tree(root), tree(tmp_path / "back")
    made = sources.load(kind).Source
    arrays = 0
    if made.holds_records:
        values, arrays = values_of(made(root), back)
        original = values | {name.encode(): original[name.encode()] for name in made(root).extras}
    assert back
    assert back.items() <= original.items()
    left = {"cornell": {f"pcd{number}.txt".encode() for number in ("0100", "0101", "0200", "1034")}}
    left["jacquard"] = {b".DS_Store"}
    # values are read from its label files, masks and descriptions, which are not kept
    left["grasp-anything"] = {os.path.basename(path) for path in original if path.endswith((b".pt", b".npy", b".pkl"))}
    assert {os.path.basename(path) for path in original.keys() - back.keys()} == left.get(kind, set())
    assert (found.files, found.exact, found.reencoded) == (len(back), len(back) - arrays, arrays)
    assert found.bytes == sum(map(len, back.values()))
    assert not found.skipped
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "in", "out.pack"]


def test_sidecars_come_back_text_too(tmp_path: Path) -> None:
    files = {f"{name}{end}": data for name in "ab" for end, data in SIDECARS.items()}
    root = source_trees.write(tmp_path / "in", files)
    request = SourceSpec("auto", {}, ("depth=_d.tiff:depth", "note=.txt:text", "more=.json:json", "rest=.bin:bytes"))
    convert_source(request.open(root)[0], tmp_path / "out.pack", ConversionOptions())
    found = extract(tmp_path / "out.pack", tmp_path / "back")
    back, original = tree(tmp_path / "back"), tree(root)
    assert back.keys() == original.keys()
    assert {path for path in back if back[path] != original[path]} == {b"a.json", b"b.json"}
    assert (found.exact, found.reencoded, found.changed) == (8, 2, {"more": "json"})
    assert json.loads(back[b"a.json"]) == {"a": [1, 2]}


SIDECARS: dict[str, bytes | str] = {
    ".jpg": source_trees.image(1, suffix=".jpg"),
    "_d.tiff": source_trees.depth(1),
    ".txt": "\ufeffgrün\r\n",
    ".json": '{ "a": [1,2] }',
    ".bin": b"\x00\xff",
}

NAME = (
    st.binary(min_size=1, max_size=12).filter(lambda name: not set(name) & set(b"/\0"))
    | st.binary(min_size=255, max_size=255).map(lambda name: name.replace(b"/", b"x").replace(b"\0", b"\n"))
    | st.sampled_from([b"12:30:00.jpg", b"CON", b"nul.txt", b"a.", b" ", b"a\\b", b"...", b"\xff\xfe", b"new\nline"])
)
CONTENT = st.sampled_from([0, 1, 4095, 4096, 4097]).map(bytes) | st.binary(max_size=200)
TREES = st.dictionaries(st.lists(NAME, min_size=1, max_size=3).map(b"/".join), CONTENT, min_size=1, max_size=6)


@given(TREES)
def test_any_tree_comes_back_or_is_refused_as_a_whole(files: dict[bytes, bytes]) -> None:
    named = {path.decode("utf-8", "surrogateescape"): data for path, data in files.items()}
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        pack = files_pack(place / "pack", named)
        try:
            found = extract(pack, place / "back")
        except InvalidRequest:
            assert refusable(list(named)), named
            assert [path.name for path in place.iterdir()] == ["pack"]
        else:
            assert tree(place / "back") == files
            assert found.exact == len(files)


def refusable(paths: list[str]) -> bool:
    """Whether a tree has a reason to be refused, told without the code under test's classes."""
    if any(part in (".", "..") or "..\\" in part or "\\.." in part for path in paths for part in path.split("/")):
        return True
    if any(part[1:2] == ":" or part.startswith("\\\\") for path in paths for part in path.split("/")):
        return True
    every = [folded(path) for path in paths]
    above = {path[:at] for path in every for at, letter in enumerate(path) if letter == "/"}
    return len(set(every)) < len(every) or bool(above & set(every))


# ---- what was encoded anew does not lie


def test_a_resized_pack_gives_suffixes_that_fit_the_bytes(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "out.pack", resize="32", codecs=(("rgb", "jpeg:90"),))
    found = extract(tmp_path / "out.pack", tmp_path / "back")
    assert found.exact == 4  # the files of no sample
    assert found.changed == {"rgb": "jpeg:90", "depth": "raw"}
    back = tmp_path / "back/01"
    assert sorted(path.name for path in back.iterdir())[:2] == ["pcd0100d.npy", "pcd0100r.jpg"]
    dataset = LMDBDataset(tmp_path / "out.pack", output="numpy")
    assert np.array_equal(np.load(back / "pcd0100d.npy"), dataset[0]["depth"].reshape(32, -1))
    assert cv2.imread(str(back / "pcd0100r.jpg")).shape == (32, 42, 3)
    assert ("01/pcd0100cpos.txt", "field 'grasps_file' is not in the pack") in found.skipped
    done = called("extract", tmp_path / "out.pack", tmp_path / "more")
    count = [reason for _, reason in found.skipped].count("field 'grasps_file' is not in the pack")
    assert done.exit_code == 0
    assert f"{count} since field 'grasps_file' is not in the pack" in done.stdout.splitlines()[-1]


def test_a_kept_suffix_that_fits_is_not_changed(tmp_path: Path) -> None:
    root = source_trees.write(
        tmp_path / "in", {"a.JPEG": source_trees.image(1, suffix=".jpg"), "b.bmp": source_trees.image(2)}
    )
    packed(root, tmp_path / "out.pack", codecs=(("image", "jpeg:90"),))
    extract(tmp_path / "out.pack", tmp_path / "back")
    assert sorted(tree(tmp_path / "back")) == [b"a.JPEG", b"b.jpg"]


def test_kept_by_codec_but_moved_is_not_exact(tmp_path: Path) -> None:
    root = source_trees.write(
        tmp_path / "in", {"a.jpg": source_trees.image(1, suffix=".jpg"), "b.png": source_trees.image(2)}
    )
    packed(root, tmp_path / "out.pack", resize="16", codecs=(("image", "encoded"),))
    found = extract(tmp_path / "out.pack", tmp_path / "back")
    assert (found.exact, found.reencoded, found.changed) == (0, 2, {"image": "encoded"})
    assert extract(tmp_path / "out.pack", tmp_path / "none", only_exact=True).files == 0


def test_only_exact_leaves_out_what_was_encoded_anew(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "out.pack", codecs=(("depth", "raw"),))
    found = extract(tmp_path / "out.pack", tmp_path / "back", only_exact=True)
    assert tree(tmp_path / "back").items() <= tree(root).items()
    assert not [path for path in tree(tmp_path / "back") if b"d." in path]
    assert len(found.skipped) == 4
    assert found.reencoded == 0


def test_two_files_that_would_get_one_name_are_refused(tmp_path: Path) -> None:
    others = {f"{number}.png": source_trees.image(number) for number in range(3)}
    files = {"a.jpg": source_trees.image(1, suffix=".jpg"), "a.png": source_trees.image(2), **others}
    root = source_trees.write(tmp_path / "in", files)
    packed(root, tmp_path / "out.pack", codecs=(("image", "raw"),))
    with pytest.raises(InvalidRequest, match=r"'a\.npy' collides"):
        extract(tmp_path / "out.pack", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_pack_that_does_not_say_its_files_is_refused(tmp_path: Path) -> None:
    packed(source_trees.cornell(tmp_path / "in"), tmp_path / "out.pack", fields=("rgb",))
    with pytest.raises(InvalidRequest, match="no field 'files'"):
        extract(tmp_path / "out.pack", tmp_path / "back")


def test_what_lies_in_other_pixels_than_moved_images_is_named(tmp_path: Path) -> None:
    files = {
        name: data
        for n in range(2)
        for name, data in (
            (f"{n}.jpg", source_trees.image(n)),
            (f"{n}_b.txt", b"1 2 9 8\n"),
            (f"{n}.json", b"[1, 2]"),
        )
    }
    root = source_trees.write(tmp_path / "in", {**files, "boxes.xml": b"<box>"})
    sidecars = {"boxes": "_b.txt:boxes", "meta": ".json:json"}
    for resize in (None, 16):
        pack = tmp_path / f"{resize}.pack"
        packer.convert(root, pack, folders="none", sidecars=sidecars, resize=resize)
        found = extract(pack, tmp_path / f"{resize}")
        wanted = (("boxes", "meta"), 1) if resize else ((), 0)
        assert (tuple(sorted(found.unmoved)), found.unmoved_extras) == wanted
    lines = called("extract", tmp_path / "16.pack", tmp_path / "told").stderr
    assert "field boxes, field meta, 1 files without a sample: in the pixels of the source" in lines
    without = extract(tmp_path / "16.pack", tmp_path / "exact", only_exact=True)  # no image, beside which they lie
    assert (without.unmoved, without.unmoved_extras) == ((), 0)


# ---- damage


def damaged(tmp_path: Path) -> Path:
    """A pack with one value flipped."""
    pack = files_pack(tmp_path / "pack", {f"{number}.bin": b"<content %d>" % number for number in range(6)})
    part = pack / "part-00001.lmdb"
    built_packs.flip(part, part.read_bytes().index(b"<content 4>"))
    return pack


def test_the_first_damaged_value_ends_the_run_and_leaves_nothing(tmp_path: Path) -> None:
    pack = damaged(tmp_path)
    with pytest.raises(CorruptRecord, match="'4', field 'blob'"):
        extract(pack, tmp_path / "back")
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


def test_a_damaged_list_of_files_leaves_out_its_sample(tmp_path: Path) -> None:
    pack = files_pack(tmp_path / "pack", {f"{number}.bin": b"x" for number in range(4)})
    part = pack / "part-00000.lmdb"
    built_packs.flip(part, part.read_bytes().index(b'{"blob"'))
    with pytest.raises(CorruptRecord, match="field 'files'"):
        extract(pack, tmp_path / "back")
    found = extract(pack, tmp_path / "back", skip_bad=True)
    assert (found.files, len(found.damaged)) == (3, 1)


def test_a_list_of_files_that_is_none_is_damage(tmp_path: Path) -> None:
    records = [{"key": b"a", "blob": b"", "files": b'{"blob":1}'}]
    built_packs.make_pack(tmp_path / "pack", records, schema=SCHEMA, parts=1)
    with pytest.raises(CorruptRecord, match="path for each"):
        extract(tmp_path / "pack", tmp_path / "back")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = files_pack(tmp_path / "pack", {f"{number}.bin": b"x" for number in range(4)})
    real = TreeWriter.write

    def fail(self: TreeWriter, names: tuple[bytes, ...], data: bytes) -> None:
        if names == (b"2.bin",):
            raise StorageError("planted")
        real(self, names, data)

    monkeypatch.setattr(TreeWriter, "write", fail)
    with pytest.raises(StorageError, match="planted"):
        extract(pack, tmp_path / "back")
    assert [path.name for path in tmp_path.iterdir()] == ["pack"]


# ---- where it goes


def test_a_target_that_exists_is_refused(tmp_path: Path) -> None:
    pack = files_pack(tmp_path / "pack", {"a": b""})
    (tmp_path / "back").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("back", "link"):
        with pytest.raises(PackExists, match="exists"):
            extract(pack, tmp_path / name)
    with pytest.raises(InvalidRequest, match="inside the pack"):
        extract(pack, pack / "back")
    with pytest.raises(InvalidRequest, match="parent"):
        extract(pack, tmp_path / "no" / "back")
    assert list((tmp_path / "back").iterdir()) == []


def test_what_a_killed_run_left_is_swept_away(tmp_path: Path) -> None:
    pack = files_pack(tmp_path / "pack", {"a": b"new"})
    with work_folder(tmp_path / ".back.extract", {ANYTHING: ANYTHING}) as work:
        source_trees.write(work.path / "tree", {"a": b"old", "b": b"old"})
    extract(pack, tmp_path / "back")
    assert tree(tmp_path / "back") == {b"a": b"new"}
    assert not (tmp_path / ".back.extract").exists()


@pytest.mark.parametrize(
    "paths",
    [
        ["a", "a"],
        ["A.jpg", "a.JPG"],
        ["ü/x", "u\u0308/X"],
        ["straße", "STRASSE"],
        ["a", "a/b"],
        ["a/b", "A"],
        ["x/y/z", "X/y"],
    ],
)
def test_collisions_are_found_before_anything_is_written(paths: list[str]) -> None:
    for order in (paths, paths[::-1]):
        seen = Collisions()
        assert [seen.add(path) for path in order] == [None, order[0]]


def test_paths_that_share_folders_do_not_collide() -> None:
    seen = Collisions()
    assert not any(map(seen.add, ["a/b", "a/c", "a/d/e", "a/d/f", "ab", "b"]))


HOSTILE = (
    *("", ".", "..", "/", "/etc/passwd", "../canary", "a/../../canary", "a//b", "a/", "./a", "a/./b", "a\0b"),
    *("C:", "C:/x", "c:\\x", "\\\\host\\share\\x", "..\\canary", "a\\..\\..\\canary", "a\\..", "x" * 256, "\ud800"),
    "/".join(["y" * 250] * 17),
)


@pytest.mark.parametrize("path", HOSTILE)
def test_a_name_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        components(path)


def test_all_unsafe_names_are_listed(tmp_path: Path) -> None:
    pack = files_pack(tmp_path / "pack", {"../x": b"", "ok": b"", "/y": b"", "OK": b""})
    with pytest.raises(InvalidRequest, match="3 file names") as caught:
        extract(pack, tmp_path / "back")
    for text in ("'../x'", "'/y'", "'OK' collides with 'ok'"):
        assert text in str(caught.value)


PIECE = st.sampled_from(["..", ".", "", "/", "\\", "C:", "a", "A", "canary", "\0", "\n", " ", "ü", "\udcff", "x" * 250])
ADVERSARIAL = st.lists(PIECE, max_size=8).map("".join) | st.lists(PIECE, max_size=8).map("/".join) | st.text(max_size=9)


@given(st.lists(ADVERSARIAL, min_size=1, max_size=1))
def test_adversarial_names_stay_inside(paths: list[str]) -> None:
    """Whatever the names, nothing around the target is made, changed or removed."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        canaries = {"canary": b"1", "above/canary": b"2", "above/around/canary": b"3"}
        source_trees.write(place, canaries)
        around = place / "above/around"
        records = {path: b"evil" for path in paths if _encodes(path)}
        pack = files_pack(place / "pack", records)
        before = built_packs.snapshot(place / "pack")
        try:
            extract(pack, around / "back")
        except PackerError:
            assert not (around / "back").exists()
        else:
            assert set(tree(around / "back").values()) <= {b"evil"}
            shutil.rmtree(around / "back")
        assert built_packs.snapshot(place / "pack") == before
        shutil.rmtree(place / "pack")
        assert tree(place) == {name.encode(): data for name, data in canaries.items()}


def _encodes(path: str) -> bool:
    try:
        return bool(path.encode("utf-8", "surrogateescape") or True)
    except UnicodeEncodeError:
        return False


def test_a_folder_swapped_for_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    with FolderHandle.at(tmp_path) as above, TreeWriter.inside(above, "tree") as new:
        new.write((b"a", b"1"), b"x")
        (tmp_path / "tree/a").rename(tmp_path / "tree/b")
        (tmp_path / "tree/a").symlink_to(outside)
        (tmp_path / "tree/c").symlink_to(outside / "file")
        for names in ((b"a", b"2"), (b"c",), (b"b", b"1")):
            with pytest.raises(StorageError, match="cannot write"):
                new.write(names, b"x")
    assert list(outside.iterdir()) == []
    assert (tmp_path / "tree/b/1").read_bytes() == b"x"


# ---- the command


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    root = source_trees.image_folder(tmp_path / "in")
    packed(root, tmp_path / "out.pack")
    done = run_here("extract", tmp_path / "out.pack", tmp_path / "back")
    assert (done.returncode, done.stderr) == (0, "")
    assert "7 files written" in done.stdout
    assert "7 exact, 0 re-encoded; 0 skipped" in done.stdout
    assert run_here("extract", tmp_path / "out.pack", tmp_path / "back").returncode == 2
    found = json.loads(run_here("extract", tmp_path / "out.pack", tmp_path / "more", "--json").stdout)
    assert (found["files"], found["exact"], found["damaged"]) == (7, 7, [])


def test_the_command_exits_3_for_damage_and_lists_what_it_left_out(tmp_path: Path) -> None:
    pack = damaged(tmp_path)
    assert run_here("extract", pack, tmp_path / "back").returncode == 3
    assert not (tmp_path / "back").exists()
    done = run_here("extract", pack, tmp_path / "back", "--skip-bad")
    assert done.returncode == 3
    assert "sample 4" in done.stderr
    assert "5 files written" in done.stdout
    assert len(tree(tmp_path / "back")) == 5


def test_a_part_that_is_cut_is_no_matter_of_single_values(tmp_path: Path) -> None:
    pack = damaged(tmp_path)
    os.truncate(pack / "part-00000.lmdb", 4096)
    with pytest.raises(CorruptPack, match="part is cut"):
        extract(pack, tmp_path / "back", skip_bad=True)
