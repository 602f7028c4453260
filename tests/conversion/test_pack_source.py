"""A pack as a source: what stays is copied bit for bit, what changes is encoded anew, and nothing is forgotten."""

import gc
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import packer
from packer.codecs import encoded, jpeg, raw
from packer.conversion.convert import ConversionSummary, convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.pack_source import PackSource
from packer.conversion.source_spec import SourceSpec
from packer.conversion.source_verification import Comparison
from packer.datasets.pack_dataset import LMDBDataset
from packer.errors import BadIndex, BadInputs, InvalidRequest
from packer.geometry import Resize, identity
from packer.inspect.extraction import extract
from packer.pack import manifest as manifests
from packer.pack.derived_pack import FolderRecipe
from packer.pack.index_rebuild import reindex
from packer.pack.verification import problems
from packer.sources._extend.source_wrapper import subset
from packer.sources.image_files.folder import Source
from tests.support import built_packs, source_trees
from tests.support.conversions import digest, opened
from tests.support.conversions import packed as convert_folder
from tests.support.source_trees import photos


def repacked(pack: Path, target: Path, *, threads: int = 2, **options: Any) -> ConversionSummary:
    """Convert a pack, as the command does."""
    source, _ = SourceSpec().open(pack)
    return convert_source(
        source, target, ConversionOptions(**options, source=SourceSpec().to_json(source)), threads=threads
    )


def fields(pack: Path) -> list[dict[str, Any]]:
    return manifests.read(pack).schema.to_json()


@pytest.mark.one_in(10)
@pytest.mark.parametrize("kind", source_trees.BUILDERS)
def test_every_value_is_copied(tmp_path: Path, kind: str) -> None:
    convert_folder(source_trees.BUILDERS[kind](tmp_path / "in"), tmp_path / "a.pack", kind=kind, part_bytes=2000)
    repacked(tmp_path / "a.pack", tmp_path / "b.pack", part_bytes=0)
    assert built_packs.values(tmp_path / "b.pack") == built_packs.values(tmp_path / "a.pack")
    before, after = manifests.read(tmp_path / "a.pack"), manifests.read(tmp_path / "b.pack")
    assert (after.schema, after.source, after.incomplete) == (before.schema, before.source, before.incomplete)
    assert len(after.parts) != len(before.parts)
    assert list(problems(tmp_path / "b.pack", level="full")) == []
    assert reindex(tmp_path / "b.pack") == []


@pytest.mark.one_in(21)
@pytest.mark.parametrize("change", [{}, {"resize": "32"}, {"resize": "32x20", "codecs": (("rgb", "jpeg:80"),)}])
@pytest.mark.parametrize("kind", source_trees.BUILDERS)
def test_a_pack_of_a_pack_is_the_pack_of_the_folder(tmp_path: Path, kind: str, change: dict[str, Any]) -> None:
    """By way of a pack of kept bytes, and directly: the same records."""
    change = change if kind in ("cornell", "jacquard") else {**change, "codecs": ()}
    root = source_trees.BUILDERS[kind](tmp_path / "in")
    convert_folder(root, tmp_path / "a.pack", kind=kind)
    repacked(tmp_path / "a.pack", tmp_path / "b.pack", **change)
    convert_folder(root, tmp_path / "direct.pack", kind=kind, **change)
    assert fields(tmp_path / "b.pack") == fields(tmp_path / "direct.pack")
    assert built_packs.values(tmp_path / "b.pack") == built_packs.values(tmp_path / "direct.pack")


def test_nothing_is_decoded_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert_folder(source_trees.cornell(tmp_path / "in"), tmp_path / "a.pack", codecs=(("rgb", "jpeg:90"),))

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("decoded")

    for module in (encoded, jpeg, raw):
        monkeypatch.setattr(module.Codec, "decode", fail)
    repacked(tmp_path / "a.pack", tmp_path / "b.pack")
    with pytest.raises(AssertionError, match="decoded"):
        repacked(tmp_path / "a.pack", tmp_path / "c.pack", codecs=(("rgb", "png"),))


def test_only_the_named_field_is_encoded_anew(tmp_path: Path) -> None:
    convert_folder(source_trees.cornell(tmp_path / "in"), tmp_path / "a.pack")
    repacked(tmp_path / "a.pack", tmp_path / "b.pack", codecs=(("rgb", "jpeg:90"), ("depth", "raw:float16")))
    for before, after in zip(
        built_packs.values(tmp_path / "a.pack"), built_packs.values(tmp_path / "b.pack"), strict=True
    ):
        assert {name for name in before if before[name] != after[name]} == {"rgb", "depth"}
    left, right = (LMDBDataset(tmp_path / name, output="numpy") for name in ("a.pack", "b.pack"))
    assert np.array_equal(right[0]["depth"], left[0]["depth"].astype(np.float16).astype(np.float32))


def test_chosen_fields_are_taken(tmp_path: Path) -> None:
    convert_folder(source_trees.cornell(tmp_path / "in"), tmp_path / "a.pack", resize="32")
    repacked(tmp_path / "a.pack", tmp_path / "b.pack", fields=("depth", "grasps"))
    assert [field["name"] for field in fields(tmp_path / "b.pack")] == [
        *("key", "depth", "grasps", "matrix", "source_size"),
    ]
    left, right = (LMDBDataset(tmp_path / name, output="numpy") for name in ("a.pack", "b.pack"))
    for index in range(4):
        assert np.array_equal(left[index]["grasps"], right[index]["grasps"])
        assert np.array_equal(left[index]["depth"], right[index]["depth"])


def test_two_resizes_are_one_matrix_from_the_source(tmp_path: Path) -> None:
    convert_folder(source_trees.cornell(tmp_path / "in"), tmp_path / "a.pack", resize="40")  # 48x64 -> 40x53
    repacked(tmp_path / "a.pack", tmp_path / "b.pack", resize="20x16")
    first = Resize.parse("40").view(48, 64)
    both = identity(48, 64).then(first).then(Resize.parse("20x16").view(40, 53))
    dataset = LMDBDataset(tmp_path / "b.pack", fields=("rgb", "grasps", "matrix", "source_size"), output="numpy")
    original = LMDBDataset(tmp_path / "a.pack", fields=("grasps", "matrix"), output="numpy")
    for index in range(4):
        sample = dataset[index]
        assert sample["rgb"].shape == (16, 20, 3)
        assert np.allclose(sample["matrix"], both.array, rtol=0, atol=1e-12)
        assert sample["source_size"].tolist() == [48, 64]
        step = Resize.parse("20x16").view(40, 53).array
        moved = original[index]["grasps"] @ step[:, :2].T + step[:, 2]
        assert np.allclose(sample["grasps"], moved, atol=1e-4)
    scale = both.array[[0, 1], [0, 1]]
    assert np.allclose(scale, [20 / 64, 16 / 48])
    assert list(problems(tmp_path / "b.pack", level="full")) == []


def test_a_pack_of_one_size_is_resized_to_another(tmp_path: Path) -> None:
    """Its schema has fixed shapes, which the new one must not keep."""
    convert_folder(photos(tmp_path / "in", 6), tmp_path / "a.pack", resize="16x12", codecs=(("image", "raw"),))
    repacked(tmp_path / "a.pack", tmp_path / "b.pack", resize="8x6")
    repacked(tmp_path / "a.pack", tmp_path / "c.pack", resize="9")
    assert fields(tmp_path / "b.pack")[1]["shape"] == [6, 8, 3]
    assert LMDBDataset(tmp_path / "b.pack", output="numpy")[0]["image"].shape == (6, 8, 3)
    assert LMDBDataset(tmp_path / "c.pack", output="numpy")[0]["image"].shape == (9, 12, 3)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("change", [{}, {"resize": "20"}])
def test_the_bytes_do_not_depend_on_threads(tmp_path: Path, change: dict[str, Any]) -> None:
    convert_folder(photos(tmp_path / "in", 70), tmp_path / "a.pack", part_bytes=40_000)
    for threads in (1, 2, 8):
        repacked(tmp_path / "a.pack", tmp_path / f"{threads}.pack", threads=threads, part_bytes=70_000, **change)
    assert len({digest(tmp_path / f"{threads}.pack") for threads in (1, 2, 8)}) == 1


def test_skipped_and_incomplete_samples_stay_listed(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    (root / "10/pcd1034r.png").write_bytes(b"")
    convert_folder(root, tmp_path / "a.pack", on_error="skip")
    before = manifests.read(tmp_path / "a.pack")
    assert before.skipped
    assert before.incomplete
    repacked(tmp_path / "a.pack", tmp_path / "b.pack")
    repacked(tmp_path / "b.pack", tmp_path / "c.pack", resize="24")
    for name in ("b.pack", "c.pack"):
        after = manifests.read(tmp_path / name)
        assert (after.skipped, after.incomplete, after.source) == (before.skipped, before.incomplete, before.source)
    asked = manifests.read(tmp_path / "c.pack").options
    assert asked["resize"] == "24"
    assert asked["source"]["kind"] == "pack"
    assert asked["source"]["options"]["source"]["pack_id"] == before.pack_id
    lines = list(Comparison(tmp_path / "c.pack", root).problems())
    assert lines == []


def test_what_was_kept_is_extracted_from_a_pack_of_a_pack(tmp_path: Path) -> None:
    convert_folder(photos(tmp_path / "in", 6), tmp_path / "a.pack")
    repacked(tmp_path / "a.pack", tmp_path / "b.pack")
    repacked(tmp_path / "a.pack", tmp_path / "small.pack", resize="12")
    repacked(tmp_path / "small.pack", tmp_path / "copy.pack")
    assert extract(tmp_path / "b.pack", tmp_path / "back").exact == 6
    assert digest(tmp_path / "back") == digest(tmp_path / "in")
    assert extract(tmp_path / "copy.pack", tmp_path / "less").exact == 0


# ---- damage and refusals


def test_damaged_values_are_listed_all_or_skipped(tmp_path: Path) -> None:
    samples = [built_packs.record(number, blob=b"<blob of sample %d>" % number * 3) for number in range(9)]
    built_packs.make_pack(tmp_path / "a.pack", samples, parts=3)
    for sample in (2, 7):
        path = tmp_path / f"a.pack/part-{sample // 3:05d}.lmdb"
        built_packs.flip(path, path.read_bytes().index(b"<blob of sample %d>" % sample))
    with pytest.raises(BadInputs, match="2 of 9") as caught:
        repacked(tmp_path / "a.pack", tmp_path / "b.pack")
    assert "sample 2, key 'sample-00002', field 'blob'" in str(caught.value)
    assert not (tmp_path / "b.pack").exists()
    summary = repacked(tmp_path / "a.pack", tmp_path / "b.pack", on_error="skip")
    assert [key for key, _ in summary.skipped] == ["sample-00002", "sample-00007"]
    assert str(tmp_path) not in (tmp_path / "b.pack/packer.json").read_text()
    assert list(problems(tmp_path / "b.pack")) == []


def test_what_needs_the_original_files_is_refused(tmp_path: Path) -> None:
    convert_folder(photos(tmp_path / "in", 4), tmp_path / "a.pack", codecs=(("image", "jpeg:90"),))
    target = tmp_path / "b.pack"
    with pytest.raises(InvalidRequest, match="--exif rotate"):
        repacked(tmp_path / "a.pack", target, exif="rotate")
    with pytest.raises(InvalidRequest, match="file's bytes"):
        repacked(tmp_path / "a.pack", target, codecs=(("image", "encoded"),))
    with pytest.raises(InvalidRequest, match="--sidecar: .*original"):
        SourceSpec(sidecars=("depth=_d.tiff:depth",)).open(tmp_path / "a.pack")
    with pytest.raises(InvalidRequest, match="--folders: .*original"):
        SourceSpec(options={"folders": "none"}).open(tmp_path / "a.pack")
    with pytest.raises(InvalidRequest, match="source itself"):
        repacked(tmp_path / "a.pack", tmp_path / "a.pack")
    with pytest.raises(InvalidRequest, match="inside the source"):
        repacked(tmp_path / "a.pack", tmp_path / "a.pack" / "b.pack")
    with pytest.raises(InvalidRequest, match="not a pack"):
        SourceSpec("pack").open(tmp_path / "in")


def test_an_unfinished_copy_goes_on_and_refuses_another_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    convert_folder(photos(tmp_path / "in", 30), tmp_path / "a.pack", part_bytes=20_000)
    repacked(tmp_path / "a.pack", tmp_path / "whole.pack", part_bytes=30_000)
    real = PackSource.values

    def fail(self: PackSource, index: int, names: Any) -> dict[str, bytes]:
        if index == 25:
            raise RuntimeError("planted")
        return real(self, index, names)

    with monkeypatch.context() as patch:
        patch.setattr(PackSource, "values", fail)
        with pytest.raises(RuntimeError, match="planted"):
            repacked(tmp_path / "a.pack", tmp_path / "b.pack", part_bytes=30_000)
    convert_folder(photos(tmp_path / "other", 31), tmp_path / "other.pack")
    for source in (PackSource(FolderRecipe(tmp_path / "other.pack")), opened(tmp_path / "in")):
        asked = ConversionOptions(
            part_bytes=30_000, source=SourceSpec().to_json(PackSource(FolderRecipe(tmp_path / "a.pack")))
        )
        with pytest.raises(InvalidRequest, match="source changed"):
            convert_source(source, tmp_path / "b.pack", asked)
    summary = repacked(tmp_path / "a.pack", tmp_path / "b.pack", part_bytes=30_000)
    assert summary.resumed_samples > 0
    assert digest(tmp_path / "b.pack") == digest(tmp_path / "whole.pack")


# ---- as a source


def test_a_pack_is_recognized_before_what_its_files_look_like(tmp_path: Path) -> None:
    convert_folder(photos(tmp_path / "in", 4), tmp_path / "a.pack")
    source_trees.write(tmp_path / "a.pack", {"stray.png": source_trees.image(1)})
    source, found = SourceSpec().open(tmp_path / "a.pack")
    assert source.kind == "pack"
    assert found == "pack of 4 samples, format lmdb"
    assert SourceSpec("folder").open(tmp_path / "a.pack")[0].kind == "folder"


def test_it_gives_the_samples_of_the_folder(tmp_path: Path) -> None:
    root = source_trees.cornell(tmp_path / "in")
    convert_folder(root, tmp_path / "a.pack", codecs=(("depth", "raw"),))
    folder, source = opened(root), PackSource(FolderRecipe(tmp_path / "a.pack"))
    copy = pickle.loads(pickle.dumps(source))
    assert len(pickle.dumps(source)) < 1000
    for index in range(len(folder)):
        expected = folder[index]
        for found in (source[index], copy[index]):
            assert found["rgb"] == expected["rgb"]
            assert found["depth"].shape == (48, 64)
            assert np.array_equal(found["grasps"], expected["grasps"])
            assert found["files"] == expected["files"]
        assert source.key(index) == folder.key(index)
        assert source.entry(index).files == ("part-00000.lmdb",)
        assert source.missing(index) == folder.missing(index)
    assert int(source.provenance().sizes.sum()) <= (tmp_path / "a.pack/part-00000.lmdb").stat().st_size


@pytest.mark.parametrize("options", [{}, {"resize": 12}, {"codecs": {"image": "png"}, "resize": 12}])
def test_a_conversion_closes_the_pack_it_reads_without_the_garbage_collector(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    convert_folder(photos(tmp_path / "in", 6), tmp_path / "a.pack")
    gc.collect()
    gc.disable()
    try:
        packer.convert(tmp_path / "a.pack", tmp_path / "b.pack", **options)
        files = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
        maps = Path("/proc/self/maps").read_text()
    finally:
        gc.enable()
    assert [path for path in files if path.startswith(str(tmp_path))] == []
    assert str(tmp_path) not in maps


@pytest.mark.parametrize("kind", ["folder", "pack"])
def test_a_subset_is_the_samples_of_its_rows_in_their_order(tmp_path: Path, kind: str) -> None:
    whole = opened(source_trees.image_folder(tmp_path / "in"))
    if kind == "pack":
        convert_folder(tmp_path / "in", tmp_path / "a.pack")
        whole = opened(tmp_path / "a.pack")
    few = subset(whole, [3, 0])
    assert [few.key(index) for index in range(len(few))] == [whole.key(3), whole.key(0)]
    assert [few[0]["image"], few[1]["image"]] == [whole[3]["image"], whole[0]["image"]]
    assert [few.entry(index) for index in (0, 1)] == [whole.entry(3), whole.entry(0)]
    with pytest.raises(BadIndex):
        few.key(2)
    convert_source(few, tmp_path / "few.pack", ConversionOptions())
    assert list(LMDBDataset(tmp_path / "few.pack").keys()) == [whole.key(3), whole.key(0)]
    again = pickle.loads(pickle.dumps(few))
    assert again.key(0) == whole.key(3)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"task": "keypoints"},
            r"is a pack; --task",
        ),
        ({"roles": ["a={stem}.png:image"], "splits": {"a": 1}}, r"is a pack; --role, --split"),
        ({"kind": "coco"}, r"a\.pack: is a pack, which --from coco does not read: leave --from out, or give"),
        ({"kind": "folder"}, r"a\.pack: is a pack, which --from folder does not read"),
    ],
)
def test_what_is_for_original_data_is_refused_of_a_pack(tmp_path: Path, arguments: dict[str, Any], said: str) -> None:
    convert_folder(photos(tmp_path / "in"), tmp_path / "a.pack")
    with pytest.raises(InvalidRequest, match=said):
        packer.convert(tmp_path / "a.pack", tmp_path / "b.pack", **arguments)


def test_what_is_said_of_a_folder_is_refused_of_a_source_object(tmp_path: Path) -> None:
    root = photos(tmp_path / "in")
    calls: dict[str, dict[str, Any]] = {
        "--folders": {"folders": "none"},
        "--from": {"kind": "folder"},
        "--sidecar": {"sidecars": ["a=.txt:text"]},
    }
    for flag, arguments in calls.items():
        with pytest.raises(InvalidRequest, match=f"in: {flag}: .*Source object"):
            packer.convert(Source(root), tmp_path / "b.pack", **arguments)
    with pytest.raises(InvalidRequest, match="Source: .*class"):
        packer.convert(Source, tmp_path / "b.pack")  # type: ignore[arg-type]
