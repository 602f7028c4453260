"""Real servers of object stores: what packer asks of them, packs from them and to them, and one that is killed."""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import packer
from packer.errors import InvalidRequest, ObjectChanged, StoreError
from packer.loading.loader import Loader
from packer.pack import manifest as manifests
from packer.stores.store import Store
from packer.stores.url import parse
from tests.support.command_line import called
from tests.support.store_servers import SERVERS, StoreServer

pytestmark = pytest.mark.foreign


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreServer]:
    """Each server in turn, its variables set."""
    folder = tmp_path / "server"
    (folder / "data").mkdir(parents=True)
    found = SERVERS[request.param](folder)
    for name, value in found.environment.items():
        monkeypatch.setenv(name, value)
    found.start()
    yield found
    found.kill()


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    assert called("synth", "folder", folder, "--samples", 120, "--size", "320x240").exit_code == 0
    return folder


def store(server: StoreServer, below: str) -> Store:
    return Store(parse(f"{server.url}/{below}"))


def put(server: StoreServer, folder: Path, below: str) -> None:
    """The files of a folder as objects."""
    place = store(server, below)
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place.write(path.relative_to(folder).as_posix(), path.read_bytes())


def test_objects_are_what_was_put(server: StoreServer, tmp_path: Path) -> None:
    place = store(server, "x")
    etag = place.write("a/1", b"one")
    assert place.read("a/1", most=3) == b"one"
    if server.keeps_ranges:
        assert place.read("a/1", start=1, most=1) == b"n"
    else:
        with pytest.raises(StoreError, match="non-partial"):
            place.read("a/1", start=1, most=1)
    state = place.state("a/1")
    assert state is not None and (state.bytes, state.etag) == (3, etag) and place.state("none") is None
    names = [f"list/{number:04d} é+" for number in range(1100)]
    for name in names:
        place.write(name, b"x")
    listed = list(place.objects("list"))
    assert [each.name for each in listed] == sorted(names)
    first = place.state(names[0])
    assert first is not None and listed[0].etag == first.etag
    place.write("a/1", b"two")
    with pytest.raises(ObjectChanged):
        place.read("a/1", most=3, etag=etag)
    place.remove("a/1")
    place.remove("a/1")
    assert place.state("a/1") is None


def test_a_large_object_comes_back(server: StoreServer, tmp_path: Path) -> None:
    place, path = store(server, "x"), tmp_path / "large"
    path.write_bytes(os.urandom(30 << 20))
    place.upload("large", path)
    back = os.open(tmp_path / "back", os.O_RDWR | os.O_CREAT)
    try:
        if not server.keeps_ranges:
            with pytest.raises(StoreError, match="non-partial"):
                place.fetch("large", back, bytes=30 << 20)
            return
        found = place.fetch("large", back, bytes=30 << 20)
    finally:
        os.close(back)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_of_many_that_create_one_wins(server: StoreServer) -> None:
    place = store(server, "x")
    assert place.keeps_conditions("probe") == server.keeps_conditions
    if not server.keeps_conditions:
        return
    won: list[int] = []

    def create(number: int) -> None:
        if place.create("claim", b"%d" % number):
            won.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and place.read("claim", most=9) == b"%d" % won[0]
    assert place.create("claim", b"%d" % won[0]) and not place.create("claim", b"another")


def test_a_pack_of_objects_is_that_of_the_files(server: StoreServer, photos: Path, tmp_path: Path) -> None:
    put(server, photos, "photos")
    packer.convert(photos, tmp_path / "here.pack", to="lmdb")
    packer.convert(f"{server.url}/photos", tmp_path / "there.pack", to="lmdb")
    found = [(tmp_path / name / manifests.NAME).read_bytes() for name in ("here.pack", "there.pack")]
    assert found[0] == found[1]
    result = called("verify", tmp_path / "there.pack", "--source", f"{server.url}/photos")
    assert result.exit_code == 0, result.stderr


def conversion(server: StoreServer, photos: Path, scratch: Path) -> list[str]:
    words = ["convert", photos, f"{server.url}/set.pack", "--to", "lmdb", "--part-size", "64k", "--scratch", scratch]
    return [sys.executable, "-m", "packer", *map(str, words)]


def test_a_pack_goes_there_and_a_killed_conversion_goes_on(server: StoreServer, photos: Path, tmp_path: Path) -> None:
    scratch, place = tmp_path / "scratch", store(server, "set.pack")
    scratch.mkdir()
    if not server.keeps_conditions:
        with pytest.raises(InvalidRequest, match="If-None-Match"):
            packer.convert(photos, f"{server.url}/set.pack", scratch=scratch)
        return
    running = subprocess.Popen(conversion(server, photos, scratch), stdout=subprocess.DEVNULL)
    while running.poll() is None and not any(each.name.startswith("part-") for each in place.objects()):
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()
    subprocess.run(conversion(server, photos, scratch), check=True, stdout=subprocess.DEVNULL)
    packer.convert(photos, tmp_path / "here.pack", to="lmdb", part_bytes=64 << 10)
    assert (
        place.read(manifests.NAME, most=manifests.MOST_BYTES) == (tmp_path / "here.pack" / manifests.NAME).read_bytes()
    )
    assert not list(place.objects(".partial"))
    assert packer.verify(f"{server.url}/set.pack").ok
    assert called("info", f"{server.url}/set.pack").exit_code == 0
    assert packer.extract(f"{server.url}/set.pack", tmp_path / "again").exact == 120


def test_an_epoch_outlives_the_server(server: StoreServer, photos: Path, tmp_path: Path) -> None:
    """Killed when some parts were fetched, started again after a while: every item is the local pack's."""
    local = tmp_path / "local.pack"
    packer.convert(photos, local, to="lmdb", part_bytes=64 << 10, order="shuffled")
    put(server, local, "set.pack")
    cache = tmp_path / "cache"
    cache.mkdir()
    wanted = packer.open(local)
    dataset = packer.open(f"{server.url}/set.pack", cache=cache, patience=120)
    found: dict[str, Any] = {}

    def back() -> None:
        time.sleep(2)
        server.start()

    starter = threading.Thread(target=back)
    with Loader(dataset, 8, shuffle="blocks", window=4, num_workers=2) as loader:
        for number, batch in enumerate(loader):
            found.update(zip(batch["key"], batch["image"], strict=True))
            if number == 1:
                server.kill()
                starter.start()
    starter.join()
    assert len(found) == len(wanted) == 120
    for index in range(len(wanted)):
        item = wanted[index]
        assert torch.equal(found[item["key"]], item["image"])
