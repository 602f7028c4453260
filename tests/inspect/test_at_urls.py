"""Packs at URLs: extract, stats and view give what they give of the pack in a folder, and leave nothing behind."""

import json
from pathlib import Path

import pytest

import packer
from packer.copies.remote_pack import read_once
from packer.errors import CorruptPack, InvalidRequest, ObjectChanged, StoreError
from packer.inspect.contact_sheet import SheetRequest, make_sheet
from packer.inspect.png_sheet import draw_png
from packer.inspect.statistics_scan import StatisticsScan
from packer.stores.url import path_or_url
from tests.support import source_trees
from tests.support.command_line import called
from tests.support.conversions import packed
from tests.support.object_server import Fault, ObjectServer

URL = "s3://b/set/x.pack"
PARTS = 12


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images in class folders, and a file of no sample."""
    folder = tmp_path_factory.mktemp("source") / "photos"
    files = {f"{'ab'[number % 2]}/{number:02d}.png": source_trees.image(number) for number in range(36)}
    return source_trees.write(folder, {**files, "notes.txt": b"kept"})


@pytest.fixture(scope="module")
def folder(source: Path) -> Path:
    """The pack of it, three samples a part."""
    folder = source.parent / "x.pack"
    size = sum(path.stat().st_size for path in source.rglob("*.png"))
    packed(source, folder, to="lmdb", part_bytes=size // PARTS)
    return folder


@pytest.fixture
def server(folder: Path, object_server: ObjectServer) -> ObjectServer:
    object_server.put_folder(folder, "set/x.pack/")
    return object_server


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


def fetched(server: ObjectServer) -> dict[str, int]:
    found = {key.rpartition("/")[2]: count for (name, key), count in server.requests.items() if name == "GET"}
    return {name: count for name, count in found.items() if name.startswith("part-")}


def test_extract_gives_the_source_back(source: Path, server: ObjectServer, scratch: Path, tmp_path: Path) -> None:
    assert called("extract", URL, tmp_path / "again", "--scratch", scratch).exit_code == 0
    assert source_trees.tree(tmp_path / "again") == source_trees.tree(source)
    assert set(fetched(server).values()) == {1}
    assert not list(scratch.iterdir())
    found = packer.extract(URL, tmp_path / "once more")
    assert (found.exact, found.files) == (37, 37)


def test_ls_is_that_of_the_folder(folder: Path, server: ObjectServer) -> None:
    words = ("--where", "label == 'a' and '1' in key", "--sort", "key", "--desc")
    result = called("ls", URL, *words)
    assert result.exit_code == 0
    assert result.stdout == called("ls", folder, *words).stdout != ""
    assert not fetched(server)


def test_stats_are_those_of_the_folder(folder: Path, server: ObjectServer, scratch: Path) -> None:
    result = called("stats", URL, "--json", "--scratch", scratch)
    assert result.exit_code == 0
    wanted = StatisticsScan(folder, threads=2).result | {"pack": URL, "subset": "1/1"}
    assert json.loads(result.stdout) == json.loads(json.dumps(wanted))
    assert set(fetched(server).values()) == {1} and len(fetched(server)) >= PARTS
    assert not list(scratch.iterdir())


def test_a_view_fetches_the_parts_of_its_samples_alone(folder: Path, server: ObjectServer, tmp_path: Path) -> None:
    chosen = SheetRequest(count=2)
    assert draw_png(make_sheet(path_or_url(URL), chosen)) == draw_png(make_sheet(folder, chosen))
    assert set(fetched(server).values()) == {1} and len(fetched(server)) == 2
    output = tmp_path / "sheet.html"
    assert called("view", URL, "-n", 2, "-o", output).exit_code == 0
    assert "x.pack: 2 of 36 samples" in output.read_text()


def test_few_parts_are_on_the_disk_at_a_time(server: ObjectServer, scratch: Path) -> None:
    most = 0
    with read_once(path_or_url(URL), scratch=scratch) as pack:
        for index in range(len(pack)):
            with pack.record(index, pack.schema.names):
                most = max(most, len(list(scratch.rglob("part-*"))))
    assert 1 <= most <= 5
    assert len(fetched(server)) >= PARTS
    assert not list(scratch.iterdir())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", ["flip", "403", "gone"])
def test_what_goes_wrong_is_one_error_and_leaves_nothing(
    kind: str, folder: Path, server: ObjectServer, scratch: Path, tmp_path: Path
) -> None:
    target = tmp_path / "again"
    part = "set/x.pack/part-00007.lmdb"
    if kind == "gone":
        del server.objects[part]
    else:
        server.faults.append(Fault(kind, key="part-00007.lmdb"))
    wanted = {"flip": CorruptPack, "403": StoreError, "gone": CorruptPack}
    with pytest.raises(wanted[kind], match=r"s3://b/set/x\.pack"):
        packer.extract(URL, target, scratch=scratch)
    assert not target.exists() and not list(tmp_path.glob(".again*"))
    assert not list(scratch.iterdir())


def test_a_pack_that_is_replaced_meanwhile_is_told(server: ObjectServer, scratch: Path) -> None:
    with (
        pytest.raises(ObjectChanged, match="replaced"),
        read_once(path_or_url(URL), scratch=scratch, in_order=False) as pack,
    ):
        for key in [key for key in server.objects if "/part-" in key]:
            del server.objects[key]
        server.put("set/x.pack/packer.json", b"{}")
        with pack.record(0, pack.schema.names):
            pass
    assert not list(scratch.iterdir())


def test_a_scratch_folder_is_for_urls_and_is_there(folder: Path, server: ObjectServer, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="--scratch"), read_once(folder, scratch=tmp_path):
        pass
    missing = tmp_path / "missing"
    with pytest.raises(InvalidRequest, match="does not exist"), read_once(path_or_url(URL), scratch=missing):
        pass
