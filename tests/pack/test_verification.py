"""verify: every kind of damage is listed, several at once, with key and field; nothing on disk changes."""

import hashlib
import json
import math
import os
import re
import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison, psnr_db
from packer.errors import CorruptPack, InvalidRequest
from packer.files import digest as digests
from packer.pack import manifest as manifests
from packer.pack.reader import Pack
from packer.pack.verification import LEVELS, Subset, problems
from scripts import make_golden
from tests.support import built_packs, layout_trees, source_trees
from tests.support.child_processes import child
from tests.support.command_line import run_here
from tests.support.conversions import packed
from tests.support.source_trees import photos


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pack of 9 samples in 3 parts, each blob once in its part."""
    samples = [built_packs.record(number, blob=b"<blob of sample %d>" % number * 3) for number in range(9)]
    built_packs.make_pack(tmp_path / "pack", samples, parts=3)
    return tmp_path / "pack"


def flip_value(folder: Path, sample: int, text: bytes) -> None:
    """Flip the first byte of a value in the part that holds it."""
    path = folder / f"part-{sample // 3:05d}.lmdb"
    built_packs.flip(path, path.read_bytes().index(text))


def flip_blob(folder: Path, sample: int) -> None:
    flip_value(folder, sample, b"<blob of sample %d>" % sample)


def found(folder: Path, level: str = "default") -> list[str]:
    """All problems, found in a child, with a look at the disk before and after."""
    before = built_packs.snapshot(folder)
    outcome = child(lambda: list(problems(folder, level=level)))
    assert outcome.kind == "value", outcome
    assert built_packs.snapshot(folder) == before
    lines: list[str] = outcome.value
    assert all("\n" not in line and str(folder) in line for line in lines)
    return lines


@pytest.mark.parametrize("level", LEVELS)
def test_a_sound_pack_has_no_problems(folder: Path, level: str) -> None:
    assert found(folder, level) == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("parts", [0, 1, 2])
def test_a_pack_without_samples_has_no_problems(tmp_path: Path, level: str, parts: int) -> None:
    built_packs.make_pack(tmp_path / "empty", 0, parts=parts)
    assert found(tmp_path / "empty", level) == []


def test_an_unknown_level_and_what_is_no_pack_are_refused(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match="level='deep': .*quick"):
        list(problems(folder, level="deep"))
    with pytest.raises(InvalidRequest, match="not a pack"):
        list(problems(folder.parent))


def test_a_pack_that_can_only_be_read_is_verified(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert found(folder, "full") == []
    finally:
        for path in (folder, folder / "index"):
            path.chmod(0o755)


# ---- one damage at a time

Damage = Callable[[Path], object]
QUICK: dict[str, tuple[Damage, list[str]]] = {
    "a cut part": (
        lambda folder: os.truncate(folder / "part-00001.lmdb", 5000),
        [r"part-00001\.lmdb: part is cut.*expected \d+ bytes, found 5000"],
    ),
    "an empty part": (lambda folder: os.truncate(folder / "part-00001.lmdb", 0), [r"part-00001\.lmdb: .*found 0"]),
    "a missing part": (
        lambda folder: (folder / "part-00001.lmdb").unlink(),
        [r"part-00001\.lmdb: part is missing"],
    ),
    "an unknown file": (
        lambda folder: (folder / "notes.txt").write_bytes(b"x"),
        [r"notes\.txt: unknown file"],
    ),
    "an unknown file in the index": (
        lambda folder: (folder / "index" / "more.npy").write_bytes(b"x"),
        [r"index/more\.npy: unknown file"],
    ),
    "an unknown folder": (lambda folder: (folder / "more").mkdir(), [r"more: unknown file"]),
    "a flipped index file": (
        lambda folder: built_packs.flip(folder / "index" / "crc32.npy", 130),
        [r"index/crc32\.npy: damaged: its sha256"],
    ),
    "a cut index file": (
        lambda folder: os.truncate(folder / "index" / "keys.npy", 130),
        [r"index/keys\.npy: cut or changed: 130 bytes, expected \d+"],
    ),
    "two missing index files": (
        lambda folder: [(folder / "index" / name).unlink() for name in ("keys.npy", "crc32.npy")],
        [r"index/crc32\.npy: missing", r"index/keys\.npy: missing"],
    ),
    "a flipped manifest": (lambda folder: built_packs.flip(folder / "packer.json", 40), [r"packer\.json: damaged"]),
    "a cut manifest": (lambda folder: os.truncate(folder / "packer.json", 40), [r"packer\.json: damaged"]),
    "a part that is a link": (
        lambda folder: [
            (folder / "part-00001.lmdb").rename(folder.parent / "away"),
            (folder / "part-00001.lmdb").symlink_to(folder.parent / "away"),
        ],
        [r"part-00001\.lmdb: expected a file, found a link"],
    ),
    "an index file that is a FIFO": (
        lambda folder: [(folder / "index" / "keys.npy").unlink(), os.mkfifo(folder / "index" / "keys.npy")],
        [r"index/keys\.npy: expected a file"],
    ),
}


def matches(lines: list[str], patterns: list[str]) -> bool:
    """Whether each line fits its pattern, none too many."""
    return len(lines) == len(patterns) and all(map(re.search, patterns, lines))


@pytest.mark.one_in(8)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("what", QUICK)
def test_damage_to_names_sizes_or_index_is_found_at_every_level(folder: Path, what: str, level: str) -> None:
    damage, patterns = QUICK[what]
    damage(folder)
    lines = found(folder, level)
    assert matches(lines, patterns), lines


def test_a_flipped_value_is_named_by_part_sample_key_and_field(folder: Path) -> None:
    flip_blob(folder, 4)
    assert found(folder, "quick") == []
    for level in ("default", "full"):
        lines = found(folder, level)
        assert matches(
            lines,
            [
                r"part-00001\.lmdb: damaged part: its sha256",
                r"part-00001\.lmdb \(sample 4, key 'sample-00004', field 'blob'\): damaged record: crc32 [0-9a-f]{8}, ",
            ],
        ), lines


def test_a_flipped_byte_outside_all_values_is_found_by_the_hash_of_the_part(folder: Path) -> None:
    part = folder / "part-00002.lmdb"
    built_packs.flip(
        part, part.stat().st_size - 4096 + 20
    )  # in a page, but in no value: two bytes of padding or pointers
    lines = found(folder)
    assert lines
    assert re.search(r"part-00002\.lmdb: damaged part", lines[0])


def test_a_value_that_cannot_be_read_is_named(folder: Path) -> None:
    flip_value(folder, 1, (1 * 4 + 1).to_bytes(8, "big"))  # the key of the record in the tree
    lines = found(folder)
    assert re.search(r"part-00000\.lmdb: damaged part", lines[0])
    assert any(re.search(r"\(sample 1, key 'sample-00001', field 'blob'\): cannot be read: ", line) for line in lines)


def test_a_value_that_does_not_decode_is_found_only_when_values_are_decoded(tmp_path: Path) -> None:
    samples = built_packs.records(4)
    samples[2] = {**samples[2], "key": b"ok"}
    built_packs.make_pack(tmp_path / "pack", samples)
    manifest = manifests.read(tmp_path / "pack")
    fields = tuple(
        replace(field, kind="json", codec="json") if field.name == "blob" else field for field in built_packs.SCHEMA
    )
    other = replace(manifest, schema=manifests.Schema(fields)).sealed()
    (tmp_path / "pack" / manifests.NAME).write_bytes(other.to_bytes())
    assert found(tmp_path / "pack") == []
    lines = found(tmp_path / "pack", "full")
    assert [re.search(r"sample (\d)", line)[1] for line in lines] == ["0", "1", "2", "3"]  # type: ignore[index]
    assert all(re.search(r"field 'blob'\): does not decode: ", line) for line in lines)


# ---- several at once


@pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.full), 2])
def test_a_column_that_contradicts_a_value_is_found_when_values_are_read(tmp_path: Path, version: int) -> None:
    """The hashes fit: another program wrote the pack, or packer has a fault."""
    shutil.copytree(make_golden.GOLDEN / ("lmdb" if version == 1 else "version-2"), tmp_path / "golden")
    folder = tmp_path / "golden/pack"
    manifest = manifests.read(folder)
    kinds = ("number-", "values-", "size-", "count-")
    columns = [file for file in manifest.index if file.name.startswith(kinds)]
    for file in columns:
        path = folder / "index" / file.name
        built_packs.flip(path, file.bytes - 1, 1)
        raw = path.read_bytes()
        wrong = replace(file, crc32=zlib.crc32(raw), sha256=hashlib.sha256(raw).hexdigest())
        index = tuple(wrong if each == file else each for each in manifest.index)
        (folder / manifests.NAME).write_bytes(replace(manifest, index=index).sealed().to_bytes())
        assert found(folder) == []
        (line,) = found(folder, "full")
        field = file.name.partition("-")[2].removesuffix(".npy")
        assert f"(sample 2, key 'two', field {field!r}): index/{file.name}" in line
        built_packs.flip(path, file.bytes - 1, 1)
    assert {file.name.partition("-")[0] for file in columns} == {"number"} | (
        {"values", "size", "count"} if version == 2 else set()
    )


def test_all_damage_is_listed_in_one_run(folder: Path) -> None:
    flip_blob(folder, 0)
    flip_blob(folder, 7)
    flip_blob(folder, 8)
    (folder / "part-00001.lmdb").unlink()
    (folder / "stray").write_bytes(b"")
    lines = found(folder)
    assert matches(
        lines,
        [
            "stray: unknown file",
            r"part-00000\.lmdb: damaged part",
            r"part-00000\.lmdb \(sample 0, .*'blob'\): damaged record",
            r"part-00001\.lmdb: part is missing",
            r"part-00002\.lmdb: damaged part",
            r"part-00002\.lmdb \(sample 7, .*'blob'\): damaged record",
            r"part-00002\.lmdb \(sample 8, .*'blob'\): damaged record",
        ],
    ), lines


def test_damaged_parts_are_named_also_where_the_index_is_damaged(folder: Path) -> None:
    built_packs.flip(folder / "index" / "keys.npy", 130)
    built_packs.flip(folder / "index" / "crc32.npy", 130)
    flip_blob(folder, 4)
    lines = found(folder)
    assert matches(
        lines,
        [r"crc32\.npy: damaged", r"keys\.npy: damaged", r"part-00001\.lmdb: damaged part"],
    ), lines


def test_an_index_that_does_not_fit_is_a_problem_though_its_hashes_do(folder: Path) -> None:
    manifest = manifests.read(folder)
    other = replace(manifest, index=manifest.index[:-1]).sealed()
    (folder / manifests.NAME).write_bytes(other.to_bytes())
    lines = found(folder)
    assert matches(lines, [r"number-pair\.npy: unknown file", r"index: index files do not fit the schema"]), lines


# ---- a pack in use


@pytest.mark.one_in(3)
@pytest.mark.parametrize("level", LEVELS)
def test_a_pack_that_this_process_is_reading_is_verified(folder: Path, level: str) -> None:
    pack = Pack(folder)
    for index in range(9):
        with pack.record(index, ("key",)):
            pass
    assert list(problems(folder, level=level)) == []
    flip_blob(folder, 4)
    assert len(list(problems(folder, level=level))) == (0 if level == "quick" else 2)
    with pack.record(3, ("key",)) as record:
        assert bytes(record["key"]) == b"sample-00003"
    pack.close()


def test_a_disk_that_fails_to_read_is_a_problem_and_the_rest_is_still_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = digests.open_file

    def fail(path: Path) -> object:
        if path.name == "part-00000.lmdb":
            raise CorruptPack(f"{path}: cannot read: Input/output error")
        return real(path)

    flip_blob(folder, 8)
    monkeypatch.setattr(digests, "open_file", fail)
    lines = list(problems(folder))
    assert matches(lines, [r"part-00000\.lmdb: cannot read", r"part-00002\.lmdb: damaged part", r"sample 8"]), lines


@pytest.mark.one_in(2)
@pytest.mark.parametrize("places", [3, pytest.param(12, marks=pytest.mark.full)])
@pytest.mark.parametrize("what", ["flip", "cut"])
def test_a_copy_with_any_changed_byte_is_found(tmp_path: Path, what: str, places: int) -> None:
    built_packs.make_pack(tmp_path / "pack", 4, parts=1)
    files = [path for path in sorted((tmp_path / "pack").rglob("*")) if path.is_file()]
    for path in files:
        size = path.stat().st_size
        for at in range(0, size, max(1, size // places)):
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "pack", copy)
            target = copy / path.relative_to(tmp_path / "pack")
            if what == "flip":
                built_packs.flip(target, at, 1 << (at % 8))
            else:
                os.truncate(target, at)
            outcome = child(lambda copy=copy: next(problems(copy), None))
            assert outcome.kind == "value", (path, at, outcome)
            assert outcome.value, (path, at)
            assert path.name in outcome.value
            shutil.rmtree(copy)


# ---- a subset, and an expected digest


@pytest.mark.one_in(4)
@pytest.mark.parametrize("level", ["default", "full"])
@pytest.mark.parametrize("of", [1, 3, *(pytest.param(of, marks=pytest.mark.full) for of in (2, 4, 20))])
def test_all_subsets_together_find_what_the_whole_finds(folder: Path, of: int, level: str) -> None:
    for sample in (0, 4, 8):
        flip_blob(folder, sample)
    part = folder / "part-00002.lmdb"
    built_packs.flip(part, part.stat().st_size - 4096 + 20)
    every = [line for number in range(of) for line in problems(folder, level=level, subset=Subset(number + 1, of))]
    assert set(every) == set(problems(folder, level=level))


def test_a_subset_looks_at_its_parts_and_samples_only(folder: Path) -> None:
    flip_blob(folder, 4)  # in part 1
    for number, expected in ((1, []), (2, ["damaged part", "sample 4"]), (3, [])):
        lines = list(problems(folder, subset=Subset(number, 3)))
        assert matches(lines, expected), (number, lines)
    lines = list(problems(folder, subset=Subset(1, 4)))  # sample 4, but not part 1
    assert matches(lines, ["sample 4"]), lines


def test_a_subset_is_written_as_two_numbers_and_not_for_a_quick_look(folder: Path) -> None:
    assert Subset.parse("3/10") == Subset(3, 10)
    assert [number for number in range(25) if number in Subset(3, 10)] == [2, 12, 22]
    for text in ("0/3", "4/3", "1", "1/0", "-1/2", "a/b", "1/2/3", ""):
        with pytest.raises(InvalidRequest, match="expected N/M"):
            Subset.parse(text)
    with pytest.raises(InvalidRequest, match="no subset"):
        list(problems(folder, level="quick", subset=Subset(1, 2)))


def test_another_pack_than_expected_is_a_problem(folder: Path) -> None:
    right = "sha256:" + hashlib.sha256((folder / "packer.json").read_bytes()).hexdigest()
    assert list(problems(folder, expect=right)) == []
    assert list(problems(folder, expect="sha256:" + right[7:].upper())) == []
    lines = list(problems(folder, expect="sha256:" + "0" * 64))
    assert matches(lines, [r"packer\.json: another pack than expected"]), lines
    for text in ("0" * 64, "sha256:", "sha256:12", "md5:" + "0" * 64):
        with pytest.raises(InvalidRequest, match="64 hex"):
            list(problems(folder, expect=text))
    built_packs.flip(folder / "packer.json", 40)
    assert len(list(problems(folder, expect=right))) == 2


# ---- the original files


def compared(pack: Path, root: Path, **options: Subset) -> tuple[list[str], Comparison]:
    """The problems beside the original files, and what was found on the way."""
    comparison = Comparison(pack, root, **options)
    before = built_packs.snapshot(pack)
    lines = list(comparison.problems())
    assert built_packs.snapshot(pack) == before
    return lines, comparison


RECORDS = sorted(set(source_trees.BUILDERS) - set(layout_trees.builders()))


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", RECORDS)
def test_a_pack_equals_the_files_it_was_made_of(tmp_path: Path, kind: str) -> None:
    root = source_trees.BUILDERS[kind](tmp_path / "in")
    packed(root, tmp_path / "out.pack", kind=kind)
    lines, comparison = compared(tmp_path / "out.pack", root)
    assert lines == []
    # files of samples with what is made of them, and others
    counts = {"cornell": 16 + 4 * 4 + 4, "folder": 6 + 6 + 1, "jacquard": 19 + 13 + 1}
    counts |= {"image2lmdb": 12 + 1, "basicsr-lmdb": 3, "npy": 6 + 1}
    # and labels and numbers of the records
    counts |= {"tfrecord": 12 + 12 + 1, "recordio": 4 + 4 + 1, "webdataset": 12 + 4 + 1, "caffe-lmdb": 3 + 3 + 1}
    counts |= {"efficient-lmdb": 12 + 12, "tensorpack-lmdb": 24 + 12}
    counts |= {"hdf5": 14 + 21 + 1, "n5": 5 + 5 + 1, "npz": 10 + 5 + 1}
    assert comparison.compared == counts[kind]
    assert comparison.worst == {}
    assert comparison.not_compared == {}


def test_every_changed_missing_and_further_file_is_listed(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    packed(root, tmp_path / "out.pack")
    built_packs.flip(root / "class0/0000.jpg", 200)
    (root / "class1/0001.jpg").unlink()
    (root / "class2/0002.jpg").write_bytes(b"")
    (root / "class2/more.jpg").write_bytes(b"x")
    lines, _ = compared(tmp_path / "out.pack", root)
    assert matches(
        lines,
        [
            r"0000\.jpg: .*sample 0.*: differs: the file has \d+ bytes",
            r"0001\.jpg.*the source has no such sample",
            r"0002\.jpg: .*empty",
            r"sample 'class2/more\.jpg' is not in the pack",
        ],
    ), lines
    lines, _ = compared(tmp_path / "out.pack", root, subset=Subset(1, 6))
    assert len(lines) == 2


def test_skipped_samples_are_no_further_ones(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    (root / "class0/0000.jpg").write_bytes(b"")
    packed(root, tmp_path / "out.pack", on_error="skip")
    assert compared(tmp_path / "out.pack", root)[0] == []


def test_sidecars_are_compared_and_are_no_further_samples(tmp_path: Path) -> None:
    files = {f"{name}{end}": data for name in "ab" for end, data in SIDECARS.items()}
    root = source_trees.write(tmp_path / "in", files)
    request = SourceSpec("auto", {}, ("mask=_m.png:mask", "note=.txt:text", "more=.json:json"))
    source = request.open(root)[0]
    convert_source(source, tmp_path / "out.pack", ConversionOptions(source=request.to_json(source)))
    assert compared(tmp_path / "out.pack", root)[0] == []
    (root / "a.json").write_text('{"a":2}')
    (root / "b.json").write_text("{")
    (root / "b_m.png").write_bytes(source_trees.mask(3))
    lines, _ = compared(tmp_path / "out.pack", root)
    assert matches(sorted(lines), ["a.json.*differs", "b.json.*json"]), lines
    (root / "b.json").write_text('{ "a": 1 }')
    assert matches(compared(tmp_path / "out.pack", root)[0], ["a.json.*differs", "b_m.png.*differs"])


SIDECARS: dict[str, bytes | str] = {
    ".jpg": source_trees.image(1, suffix=".jpg"),
    "_m.png": source_trees.mask(1),
    ".txt": "grün",
    ".json": '{ "a": 1 }',
}


def test_lossless_pixels_are_compared_exactly(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "out.pack", codecs=(("rgb", "raw"), ("depth", "raw")))
    lines, comparison = compared(tmp_path / "out.pack", root)
    assert (lines, comparison.worst) == ([], {})
    (root / "01/pcd0100r.png").write_bytes(source_trees.image(9))
    (root / "01/pcd0101d.tiff").write_bytes(source_trees.depth(9, height=40))
    lines, _ = compared(tmp_path / "out.pack", root)
    assert matches(lines, ["pcd0100r.*other pixels", r"pcd0101d.*shape \(40, 64\), the pack \(48, 64\)"]), lines


@pytest.mark.parametrize("options", [{"codecs": (("rgb", "jpeg:95"), ("depth", "raw:float16"))}, {"resize": "32"}])
def test_lossy_and_moved_pixels_may_differ_a_little(tmp_path: Path, options: dict[str, Any]) -> None:
    """Pixels of another version of a library: all are a little brighter than those that are encoded here."""
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "out.pack", **options)
    lines, comparison = compared(tmp_path / "out.pack", root)
    assert (lines, comparison.worst, comparison.not_compared) == ([], {}, {})
    original = (root / "02/pcd0200r.png").read_bytes()
    image = cv2.imdecode(np.frombuffer(original, np.uint8), cv2.IMREAD_COLOR)
    (root / "02/pcd0200r.png").write_bytes(source_trees.encoded(".png", np.minimum(image, 254) + 1))
    lines, comparison = compared(tmp_path / "out.pack", root)
    assert lines == []
    assert (comparison.worst["rgb"].key, 40 < comparison.worst["rgb"].psnr_db < 55) == ("0200", True)
    (root / "02/pcd0200r.png").write_bytes(source_trees.image(9))
    lines, comparison = compared(tmp_path / "out.pack", root)
    assert matches(lines, ["pcd0200r.png.*PSNR"]), lines


def test_psnr_is_what_the_formula_says() -> None:
    black, gray = np.zeros((4, 4), np.uint8), np.full((4, 4), 16, np.uint8)
    assert psnr_db(black, gray) == pytest.approx(20 * math.log10(255 / 16))
    assert psnr_db(black, black) == math.inf
    depth = np.array([[2.0, np.nan]], np.float32)
    assert psnr_db(depth, np.array([[1.0, 5.0]], np.float32)) == pytest.approx(20 * math.log10(2))
    assert psnr_db(depth * np.nan, depth) == math.inf


def test_the_command_compares_expects_and_samples(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    packed(root, tmp_path / "out.pack", codecs=(("rgb", "jpeg:95"),))
    pack = tmp_path / "out.pack"
    digest = hashlib.sha256((pack / "packer.json").read_bytes()).hexdigest()
    done = run_here("verify", pack, "--source", root, "--expect", f"sha256:{digest}", "--subset", "1/2")
    assert done.returncode == 0, done.stderr
    assert "worst" not in done.stdout
    assert run_here("verify", pack, "--expect", "sha256:" + "0" * 64).returncode == 3
    for words in (
        ("--subset", "3/2"),
        ("--expect", "12"),
        ("--source", tmp_path / "no"),
        ("--level", "quick", "--subset", "1/2"),
    ):
        assert run_here("verify", pack, *words).returncode == 2
    image = cv2.imread(str(root / "02/pcd0200r.png"))
    (root / "02/pcd0200r.png").write_bytes(source_trees.encoded(".png", np.minimum(image, 254) + 1))
    done = run_here("verify", pack, "--source", root)
    assert re.search(r"field rgb: worst PSNR \d+\.\d dB \(sample 2, key '0200'\)", done.stdout), done.stderr
    (root / "02/pcd0200cpos.txt").write_text("")
    bad = run_here("verify", pack, "--source", root, "--json")
    assert bad.returncode == 3
    first, second = json.loads(bad.stdout)["problems"]
    assert "field 'grasps'" in first and "pcd0200cpos.txt" in second
    assert "rgb" in json.loads(bad.stdout)["worst"]
