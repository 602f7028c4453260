"""The public face: names, signatures and types."""

import dataclasses
import inspect
from operator import attrgetter
from pathlib import Path
from typing import Never, Unpack, get_origin

import pytest

import packer
from packer.conversion import source_spec
from packer.errors import InvalidRequest, PackExists
from packer.system.progress_callback import Progress
from tests.support.command_line import called
from tests.support.conversions import digest
from tests.support.source_trees import photos

NAMES = sorted(set(packer.__all__) - {"__version__"})
FORMATS = tuple(name for name in packer.datasets.__all__ if name.endswith("Dataset"))
CALLABLES = [name for name in NAMES if not inspect.ismodule(getattr(packer, name))]
OF_MODULES = (  # names of modules that have a section of their own
    "dali.source",
    "datasets.DetectionCollate",
    "grasp.GraspDataset",
    "loading.BackgroundIterator",
    "loading.CUDAPrefetcher",
)


def test_completion_shows_the_public_names_and_nothing_else() -> None:
    assert set(dir(packer)) == {*packer.__all__, "__doc__", "open"}
    assert "open" not in packer.__all__  # a star import keeps the builtin function
    for name in packer.__all__:
        assert getattr(packer, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = packer.nothing  # type: ignore[attr-defined]


def test_the_datasets_of_all_formats_have_one_signature() -> None:
    for name in FORMATS:
        assert inspect.signature(getattr(packer.datasets, name)) == inspect.signature(packer.datasets.PackDataset)


@pytest.mark.parametrize("name", [*CALLABLES, *OF_MODULES])
def test_no_public_signature_hides_its_parameters(name: str) -> None:
    parameters = inspect.signature(attrgetter(name)(packer)).parameters.values()
    kinds = {
        each.kind
        for each in parameters
        if get_origin(each.annotation) is not Unpack and each.annotation is not Never and each.name != "datasets"
    }
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}


def test_convert_makes_the_pack_that_the_command_makes(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 12)
    words = ("--resize", "40x30", "--codec", "image=jpeg:90", "--split", "train=0.5", "--split", "val=0.5")
    called("convert", root, tmp_path / "one.pack", "--to", "hdf5", *words, "--seed", "3")
    told: list[Progress] = []
    summary = packer.convert(
        str(root),
        str(tmp_path / "two.pack"),
        to="hdf5",
        resize=(30, 40),
        codecs={"image": "jpeg:90"},
        splits={"train": 0.5, "val": 0.5},
        seed=3,
        progress=told.append,
    )
    assert digest(tmp_path / "one.pack") == digest(tmp_path / "two.pack")
    assert (told[0].samples, told[-1].samples, told[-1].total, told[-1].bytes) == (0, 12, 12, summary.bytes_in)
    with pytest.raises(dataclasses.FrozenInstanceError):
        summary.samples = 3  # type: ignore[misc]
    with pytest.raises(PackExists):
        packer.convert(root, tmp_path / "two.pack", to="hdf5")


def test_convert_takes_a_source_object(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 6)
    notes: list[str] = []
    packer.convert(root, tmp_path / "one.pack", on_note=notes.append)
    assert notes[0].startswith(f"{root}: ")
    source, _ = source_spec.SourceSpec().open(root)
    packer.convert(source, tmp_path / "two.pack")
    assert digest(tmp_path / "one.pack") == digest(tmp_path / "two.pack")
    with pytest.raises(InvalidRequest, match="Source object"):
        packer.convert(source, tmp_path / "three.pack", folders="none")


def test_verify_and_extract_give_what_the_commands_tell(tmp_path: Path) -> None:
    root, pack = photos(tmp_path / "in", 6), tmp_path / "photos.pack"
    packer.convert(root, pack)
    sound = packer.verify(pack, source=root)
    assert sound.ok and sound.problems == ()
    told: list[Progress] = []
    written = packer.extract(str(pack), str(tmp_path / "again"), progress=told.append)
    assert (written.files, written.exact, told[-1].samples) == (6, 6, 6)
    assert digest(tmp_path / "again") == digest(root)
    part = next(pack.glob("part-*"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    seen: list[str] = []
    damaged = packer.verify(pack, on_problem=seen.append)
    assert not damaged.ok and list(damaged.problems) == seen != []
    with pytest.raises(InvalidRequest, match="level='deep'"):
        packer.verify(pack, level="deep")  # type: ignore[arg-type]
