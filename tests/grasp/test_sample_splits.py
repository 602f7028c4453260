"""Splits of grasp data sets: the reference's cuts, folds by image and by object, lists."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.source_spec import SourceSpec
from packer.errors import BadInput, InvalidRequest, UnknownKey, WrongType
from packer.grasp import Fold, GraspDataset, ListSplit, NamedSplit, SliceSplit
from tests.support import grasp_folders, source_trees
from tests.support.conversions import packed


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return grasp_folders.packs(tmp_path_factory.mktemp("splits"))


def keys(path: Path, split: Any) -> list[str]:
    return list(GraspDataset(path, 20, split=split).keys())


def test_a_cut_is_that_of_the_reference_for_every_share(made: dict[str, Path]) -> None:
    every = keys(made["cornell"], None)
    for start, end, rotate in ((0.0, 0.9, 0.0), (0.9, 1.0, 0.0), (0.0, 0.5, 0.35), (0.5, 1.0, 0.35), (0.2, 0.2, 0.99)):
        rotated = every[int(6 * rotate) :] + every[: int(6 * rotate)]
        assert keys(made["cornell"], SliceSplit(start, end, rotate)) == rotated[int(6 * start) : int(6 * end)]


def test_items_and_places_follow_a_rotated_cut(made: dict[str, Path]) -> None:
    dataset = GraspDataset(made["cornell"], 20, split=SliceSplit(rotate=0.5))
    whole = GraspDataset(made["cornell"], 20)
    assert [dataset.index_of(key) for key in ("0103", "0105", "0100")] == [0, 2, 3]
    assert dataset.get_gtbb(0).tolist() == whole.get_gtbb(3).tolist()
    assert dataset[4][2] == 4
    assert dataset.column("object_id").tolist() == [7, 7, 9, 3, 3, 7]


@pytest.mark.parametrize("by", ["image", "object"])
@pytest.mark.parametrize("name", ["cornell", "jacquard"])
def test_every_sample_is_in_one_validation_fold_and_never_in_its_training(
    name: str, by: str, made: dict[str, Path]
) -> None:
    every = sorted(keys(made[name], None))
    seen = []
    for number in range(3):
        train, val = (keys(made[name], Fold(number, 3, part, by, seed=4)) for part in ("train", "val"))
        assert sorted(train + val) == every
        seen += val
    assert sorted(seen) == every


def test_all_views_of_an_object_are_in_one_fold(made: dict[str, Path]) -> None:
    for number in range(3):
        views = keys(made["jacquard"], Fold(number, 3, "val", "object"))
        assert len(views) == 2
        assert len({key.partition("_")[2] for key in views}) == 1
        objects = GraspDataset(made["cornell"], split=Fold(number, 3, "val", "object")).column("object_id")
        assert len(set(objects.tolist())) == 1


def test_folds_depend_on_the_seed_alone(made: dict[str, Path]) -> None:
    folds = [tuple(keys(made["cornell"], Fold(0, 3, "val", seed=seed))) for seed in range(6)]
    assert len(set(folds)) > 1
    assert folds == [tuple(keys(made["cornell"], Fold(0, 3, "val", seed=seed))) for seed in range(6)]


def test_a_list_names_keys_in_its_own_order(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("# mine\n0104\n\n 0101 \r\n")
    assert keys(made["cornell"], ListSplit(tmp_path / "list.txt")) == ["0104", "0101"]
    (tmp_path / "list.txt").write_text("0104\n0999\n")
    with pytest.raises(UnknownKey, match="list.txt: .*'0999'"):
        keys(made["cornell"], ListSplit(tmp_path / "list.txt"))


@pytest.mark.parametrize("protocol", [2, 4, None])
def test_names_of_a_text_or_of_a_pickled_list_are_those_in_the_packs_order(
    protocol: int | None, made: dict[str, Path], tmp_path: Path
) -> None:
    """Cornell's as the fork's lists have them, with the beginning of the file's name, or as keys."""
    names = ["pcd0104", "0101", "0104"]
    data = "\n".join(names).encode() if protocol is None else pickle.dumps(names, protocol)
    (tmp_path / "seen.obj").write_bytes(data)
    assert keys(made["cornell"], NamedSplit(tmp_path / "seen.obj")) == ["0101", "0104"]
    (tmp_path / "views.obj").write_bytes(pickle.dumps(["1_cc03", "0_aa01"], 4))
    assert keys(made["jacquard"], NamedSplit(tmp_path / "views.obj")) == ["0_aa01", "1_cc03"]


def test_names_of_no_sample_are_an_error_or_passed_over(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "seen.txt").write_text("pcd0100\npcdb0011\n0999\n0100\n")
    with pytest.raises(UnknownKey, match=r"seen.txt: .*'pcdb0011' \(.*1 more: 'pcdb0011', '0999'\).*skip"):
        keys(made["cornell"], NamedSplit(tmp_path / "seen.txt"))
    assert keys(made["cornell"], NamedSplit(tmp_path / "seen.txt", missing="skip")) == ["0100"]
    with pytest.raises(InvalidRequest, match="none.* 4 .*'pcd0100'"):
        keys(made["jacquard"], NamedSplit(tmp_path / "seen.txt", missing="skip"))


def test_a_pickle_that_is_no_list_of_names_is_refused_and_nothing_in_it_runs(
    made: dict[str, Path], tmp_path: Path
) -> None:
    class Call:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "made"),)

    for value in ([Call()], {"0100"}, ["0100", 3], "0100", {"0100": 1}):
        (tmp_path / "seen.obj").write_bytes(pickle.dumps(value))
        with pytest.raises(BadInput, match=r"seen.obj: .*text file"):
            keys(made["cornell"], NamedSplit(tmp_path / "seen.obj"))
    assert not (tmp_path / "made").exists()


def test_a_cut_of_a_list_is_cut_as_the_whole(made: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "seen.txt").write_text("0105\n0100\n0103\n0102\n")
    seen = NamedSplit(tmp_path / "seen.txt")
    assert keys(made["cornell"], SliceSplit(0.0, 0.5, of=seen)) == ["0100", "0102"]
    assert keys(made["cornell"], SliceSplit(0.5, 1.0, rotate=0.25, of=seen)) == ["0105", "0100"]
    listed = ListSplit(tmp_path / "seen.txt")
    assert keys(made["cornell"], SliceSplit(0.0, 0.5, of=listed)) == ["0105", "0100"]
    with GraspDataset(made["cornell"], 20) as dataset:
        pack = dataset.sample_decoder().pack
        np.testing.assert_array_equal(SliceSplit(0.0, 0.5, of=seen).indices(pack), [0, 2])


def test_a_split_of_the_pack_goes_by_its_name(tmp_path: Path) -> None:
    root = grasp_folders.cornell(tmp_path / "set", 4)
    (tmp_path / "val.txt").write_text("0101\n0103\n")
    (tmp_path / "train.txt").write_text("0100\n0102\n")
    splits = tuple(f"{name}={tmp_path / name}.txt" for name in ("train", "val"))
    convert_source(SourceSpec(splits=splits).open(root)[0], tmp_path / "pack", ConversionOptions())
    assert keys(tmp_path / "pack", "val") == ["0101", "0103"]
    with pytest.raises(UnknownKey, match="'test'; .*train, val"):
        keys(tmp_path / "pack", "test")


def test_without_objects_no_fold_is_by_object(tmp_path: Path) -> None:
    root = grasp_folders.cornell(tmp_path / "set", 4)
    (root / "processedData/z.txt").unlink()
    packed(root, tmp_path / "pack")
    with pytest.raises(InvalidRequest, match=r"no field object_id.*z.txt"):
        keys(tmp_path / "pack", Fold(0, by="object"))
    source_trees.write(root, {"processedData/z.txt": "0100 3 Thing pcdb_0002\n"})
    packed(root, tmp_path / "other")
    with pytest.raises(InvalidRequest, match="3 samples.*no object"):
        keys(tmp_path / "other", Fold(0, by="object"))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: SliceSplit(0.5, 0.4),
        lambda: SliceSplit(rotate=2),
        lambda: Fold(5),
        lambda: Fold(0, 1),
        lambda: Fold(0, part="test"),
        lambda: Fold(0, by="category"),
        lambda: NamedSplit("seen.obj", missing="ask"),  # type: ignore[arg-type]
    ],
)
def test_splits_that_cannot_be_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="expected"):
        wrong()


def test_a_cut_of_what_is_no_split_is_refused() -> None:
    with pytest.raises(WrongType, match="split of packer.grasp"):
        SliceSplit(of="seen.obj")  # type: ignore[arg-type]
