"""What `--from auto` decides, and says that it cannot."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from packer import sources
from packer.conversion.source_spec import SourceSpec
from packer.errors import InvalidRequest
from packer.sources import base, folder
from packer.sources._trees.file_tree import FileTree
from tests.support.source_trees import photos


class Annotated(base.Source):
    """A layout of annotations that takes every tree with pictures in classes for its own."""

    @classmethod
    def options(cls) -> tuple[str, ...]:
        return ("follow_links", "labels")

    @classmethod
    def recognise_tables(cls, tree: FileTree, names: Sequence[str]) -> str | None:
        return f"annotations: {len(names)} files" if tree.read(names[0]) else None


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Two sources that know the same trees, by name, and `folder`."""
    found = {"left": 50, "right": 20}

    def load(name: str) -> object:
        if name == "folder":
            return folder
        return SimpleNamespace(SPECIFICITY=found[name], Source=Annotated, recognise=lambda names: None)

    monkeypatch.setattr(sources, "names", lambda: ("folder", *found))
    monkeypatch.setattr(sources, "load", load)
    return found


def test_the_more_specific_of_two_is_taken(tmp_path: Path, ranks: dict[str, int]) -> None:
    assert sources.detect(photos(tmp_path / "data")) == ("left", "annotations: 12 files")
    ranks["right"] = 60
    assert sources.detect(tmp_path / "data")[0] == "right"


def test_two_of_one_rank_are_named_and_none_is_taken(tmp_path: Path, ranks: dict[str, int]) -> None:
    ranks["right"] = 50
    with pytest.raises(InvalidRequest) as caught:
        sources.detect(photos(tmp_path / "data"))
    assert str(caught.value) == (
        f"{tmp_path / 'data'}: cannot decide what it is; say which of these: "
        "--from left (annotations: 12 files); --from right (annotations: 12 files)"
    )


@pytest.mark.parametrize(
    "options", [SourceSpec(options={"classes": "none"}), SourceSpec(sidecars=("mask=_m.png:mask",))]
)
def test_what_the_user_asks_for_rules_layouts_out_that_do_not_have_it(
    tmp_path: Path, ranks: dict[str, int], options: SourceSpec
) -> None:
    root = photos(tmp_path / "data")
    names = [path.relative_to(root).as_posix() for path in root.rglob("*.jpg")]
    for name in names if options.sidecars else ():
        (root / name).with_name(Path(name).stem + "_m.png").write_bytes((root / name).read_bytes())
    assert options.open(root)[0].kind == "folder"
    assert sources.detect(root, given=["labels"])[0] == "left"


def test_one_of_records_is_ruled_out_by_nothing(tmp_path: Path, ranks: dict[str, int]) -> None:
    ranks.update(left=-1, right=-2)
    (tmp_path / "rows.txt").write_bytes(b"rows")
    assert sources.detect(tmp_path, given=["classes"])[0] == "left"
