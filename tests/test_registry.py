"""Registry: files of a folder are members; nothing is imported before it is used."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from packer import registry as registries
from packer.errors import InvalidRequest, MissingPackage
from packer.registry import Registry, check_installed, import_or_explain


@pytest.fixture
def members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry over a package `zoo` made here, with members cat and dog."""
    folder = tmp_path / "zoo"
    folder.mkdir()
    (folder / "feeding").mkdir()
    (folder / "feeding/__init__.py").write_text("NAME = 'feeding'\n")
    for name in ("__init__", "base", "cat", "dog"):
        (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    (folder / "notes.txt").write_text("no module")
    (folder / "hungry.py").write_text("import no_such_package_anywhere\n")
    (folder / "broken.py").write_text("import zoo.no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield Registry("zoo", str(folder), "animal")
    for name in [name for name in sys.modules if name.partition(".")[0] == "zoo"]:
        del sys.modules[name]


def offer(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> None:
    """Pretend that other packages offer these."""

    def entry_points(group: str) -> Any:
        return [point for point in points if point.group == group]

    monkeypatch.setattr(registries, "_entry_points", entry_points)


def test_names_are_the_files_without_base_and_folders(members: Registry) -> None:
    assert members.names() == ("broken", "cat", "dog", "hungry")


def test_listing_names_imports_nothing(members: Registry) -> None:
    members.names()
    assert not [name for name in sys.modules if name.partition(".")[0] == "zoo"]


def test_a_file_dropped_into_the_folder_is_a_member(members: Registry, tmp_path: Path) -> None:
    (tmp_path / "zoo" / "emu.py").write_text("NAME = 'emu'\n")
    assert "emu" in members.names()
    assert members.load("emu").NAME == "emu"


def test_a_member_is_loaded_by_name(members: Registry) -> None:
    assert members.load("cat").NAME == "cat"


@pytest.mark.parametrize("name", ["", "base", "__init__", "feeding", "../cat", "cat.dog", "zoo/cat", "cat\0", "lion"])
def test_what_is_no_member_is_refused(members: Registry, name: str) -> None:
    with pytest.raises(InvalidRequest, match="unknown animal"):
        members.load(name)


def test_a_slip_of_the_pen_is_answered_with_the_nearest_name(members: Registry) -> None:
    with pytest.raises(InvalidRequest, match="'dgo'; did you mean 'dog'"):
        members.load("dgo")


def test_a_missing_package_is_named_with_the_command_that_installs_it(members: Registry) -> None:
    with pytest.raises(MissingPackage, match="animal 'hungry' .*pip install no_such_package"):
        members.load("hungry")


def test_an_import_that_fails_inside_an_installed_package_is_not_called_missing(members: Registry) -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        members.load("broken")
    assert not isinstance(caught.value, MissingPackage)


def test_the_distribution_is_named_where_it_differs_from_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registries._REQUIREMENTS, "no_such_package_anywhere", "its-distribution")
    with pytest.raises(MissingPackage, match="pip install its-distribution"):
        import_or_explain("no_such_package_anywhere.part", "this test")


def test_a_package_is_missed_without_importing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed("this", "this test")
    assert "this" not in sys.modules
    monkeypatch.setattr(registries.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r'pip install "obstore>='):
        check_installed("obstore", "this test")


def test_another_package_adds_a_member(members: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, EntryPoint("lion", "json", "zoo"), EntryPoint("tiger", "json", "park"))
    assert "lion" in members.names()
    assert "tiger" not in members.names()
    assert members.load("lion").__name__ == "json"


def test_a_file_wins_over_another_package(members: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, EntryPoint("cat", "json", "zoo"))
    assert members.load("cat").NAME == "cat"


def test_two_packages_with_one_name_are_refused(members: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, EntryPoint("lion", "json", "zoo"), EntryPoint("lion", "csv", "zoo"))
    with pytest.raises(InvalidRequest, match="several packages.*csv, json"):
        members.load("lion")


def test_one_entry_seen_twice_on_the_path_is_one(members: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, EntryPoint("lion", "json", "zoo"), EntryPoint("lion", "json", "zoo"))
    assert members.load("lion").__name__ == "json"


def test_a_file_of_two_words_is_typed_with_a_hyphen(members: Registry, tmp_path: Path) -> None:
    (tmp_path / "zoo/polar_bear.py").write_text("NAME = 'bear'\n")
    assert "polar-bear" in members.names()
    assert "polar_bear" not in members.names()
    assert members.load("polar-bear").NAME == "bear"
    with pytest.raises(InvalidRequest, match="did you mean.*'polar-bear'"):
        members.check("polar_bear")
    for name in ("-polar-bear", "polar--bear", "-", "../cat", "polar-bear/"):
        with pytest.raises(InvalidRequest, match="unknown animal"):
            members.check(name)


# ---- what other packages offer, without importlib.metadata where they offer nothing


@pytest.mark.parametrize("kind", ["dist-info", "egg-info"])
def test_an_installed_package_is_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / f"lions-1.0.{kind}"
    package.mkdir()
    (package / ("METADATA" if kind == "dist-info" else "PKG-INFO")).write_text("Name: lions\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[park]\ntiger = csv\n\n[zoo]\nlion = json\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert [(point.name, point.module) for point in registries._entry_points("zoo")] == [("lion", "json")]
    assert [point.name for point in registries._entry_points("park")] == ["tiger"]
    assert not registries._entry_points("zoo.of.nobody")


def test_where_nothing_is_offered_importlib_metadata_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "importlib.metadata", None)  # importing it would raise
    assert registries._entry_points("zoo.of.nobody") == ()


def test_importlib_metadata_is_asked_where_only_it_can_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Finder:
        """Brings packages of its own, as the importlib-metadata of PyPI does."""

        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> None:
            return None

        @staticmethod
        def find_distributions(context: Any = None) -> list[Any]:
            return []

    assert not registries._may_be_offered("zoo.of.nobody")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "meta_path", [*sys.meta_path, Finder])
        assert registries._may_be_offered("zoo.of.nobody")
    (tmp_path / "packed.zip").write_bytes(b"PK")
    (tmp_path / "old.egg-info").write_text("Name: old\n")  # a file, as distutils left it
    monkeypatch.syspath_prepend(tmp_path)
    assert not registries._may_be_offered("zoo.of.nobody")
    monkeypatch.syspath_prepend(tmp_path / "packed.zip")
    assert registries._may_be_offered("zoo.of.nobody")
