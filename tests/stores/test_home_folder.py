"""`~` in the paths that users give: the home folder, in Python and on the command line, where no shell expands it."""

from pathlib import Path
from typing import Any

import pytest

import packer
from tests.support.command_line import called
from tests.support.source_trees import photos


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with a data set, a list and a pack; the current folder is another one."""
    place = tmp_path / "home"
    photos(place / "in", 4)
    keys = sorted(path.relative_to(place / "in").as_posix() for path in (place / "in").rglob("*.jpg"))
    (place / "list.txt").write_text("\n".join(keys[:2]))
    packer.convert(place / "in", place / "a.pack")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(place))
    return place


@pytest.mark.parametrize(
    "given", [{}, {"splits": {"train": "~/list.txt"}}, {"splits": ["train=~/list.txt"]}, {"classes_from": "~/a.pack"}]
)
def test_python_takes_the_home_folder(home: Path, given: dict[str, Any]) -> None:
    packer.convert("~/in", "~/b.pack", **given)
    assert len(packer.open("~/b.pack")) == (2 if "splits" in given else 4)
    assert (home / "b.pack").is_dir()
    packer.verify("~/b.pack", source=Path("~/in"))
    packer.extract("~/b.pack", "~/out")
    assert (home / "out").is_dir()
    assert not list(Path.cwd().iterdir())


def test_options_take_the_home_folder(home: Path) -> None:
    done = called("convert", "~/in", "~/b.pack", "--split=train=~/list.txt", "--classes-from=~/a.pack")
    assert done.exit_code == 0, done.output
    assert called("verify", "~/b.pack", "--source=~/in").exit_code == 0
    assert not list(Path.cwd().iterdir())


def test_a_name_that_is_no_user_is_a_name(home: Path) -> None:
    packer.convert("~/in", "~no-such-user.pack")
    assert (Path.cwd() / "~no-such-user.pack").is_dir()
