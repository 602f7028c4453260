"""Engines by name: what is there, and what is refused before anything is read."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import packer
from packer.conversion import engines
from packer.conversion.engines.base import EngineOptions
from packer.errors import InvalidRequest, MissingPackage


def test_engines_are_found_by_listing_and_ray_is_not_imported() -> None:
    assert engines.names() == ("local", "ray")
    assert engines.load("local").Engine(EngineOptions()).options.threads is None
    assert "ray" not in sys.modules


@pytest.mark.parametrize("options", [{"ray_address": "auto"}, {"worker_scratch": "/tmp"}], ids=str)
def test_options_of_a_cluster_are_refused_without_one(tmp_path: Path, options: dict[str, str]) -> None:
    name = next(iter(options)).replace("_", "-")
    with pytest.raises(InvalidRequest, match=f"--{name} .*several machines"):
        packer.convert(tmp_path, tmp_path / "a.pack", **options)  # type: ignore[arg-type]


def test_an_unknown_engine_and_one_that_is_not_installed_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="unknown engine 'rey'.*'ray'"):
        packer.convert(tmp_path, tmp_path / "a.pack", engine="rey")
    if find_spec("ray") is None:
        with pytest.raises(MissingPackage, match="engine 'ray'.*pip install"):
            packer.convert(tmp_path, tmp_path / "a.pack", engine="ray")
