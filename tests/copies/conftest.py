"""Fixtures that the tests of copies share."""

from pathlib import Path

import pytest

from tests.support.built_packs import make_pack
from tests.support.object_server import ObjectServer


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder for copies."""
    folder = tmp_path / "base"
    folder.mkdir()
    return folder


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A local pack of six parts."""
    make_pack(tmp_path / "x.pack", 90, format=getattr(request, "param", "pth"), parts=6)
    return tmp_path / "x.pack"


@pytest.fixture
def server(folder: Path, object_server: ObjectServer) -> ObjectServer:
    """A server that has the pack at s3://b/set/x.pack."""
    object_server.put_folder(folder, "set/x.pack/")
    return object_server
