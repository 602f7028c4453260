"""Packs behind URLs, staged: fetched once, checked, taken up after a kill, listed and released by their URL."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import packer
from packer.copies.capacity import SpaceKept
from packer.copies.leased_folder import OwnedFolder
from packer.copies.staged_copies import copies
from packer.copies.stager import Hooks, Staged, StageOptions, stage
from packer.errors import CorruptPack, InvalidRequest, ObjectChanged, StorageError, StoreError
from packer.pack.verification import problems
from packer.stores.url import path_or_url
from packer.system.machine_limits import Machine
from tests.support.built_packs import make_pack, values
from tests.support.child_processes import forked
from tests.support.command_line import called
from tests.support.object_server import Fault, ObjectServer

URL = "s3://b/set/x.pack"
PARTS = 6


def staged(base: Path, **options: Any) -> Staged:
    return stage(path_or_url(URL), StageOptions(str(base), keep=SpaceKept(), **options), Hooks())


def requests(server: ObjectServer) -> dict[str, int]:
    """How often each file of the pack was fetched."""
    prefix = "set/x.pack/"
    return {key[len(prefix) :]: count for (name, key), count in server.requests.items() if name == "GET"}


def parts_elsewhere(base: Path, *copies: Path) -> list[str]:
    """Parts, whole or not, that lie in no copy."""
    return [str(path) for path in base.rglob("*part-0*") if path.parent not in copies]


def test_the_copy_is_the_pack_and_is_fetched_once(folder: Path, server: ObjectServer, base: Path) -> None:
    done = staged(base)
    assert (done.how, done.parts) == ("copied", PARTS)
    assert not list(problems(done.path)) and values(done.path) == values(folder)
    counts = {name: count for name, count in requests(server).items() if name != "packer.json"}
    assert set(counts.values()) == {1} and len(counts) >= PARTS + 2
    again = staged(base)
    assert (again.how, again.path) == ("there", done.path)
    assert {name: count for name, count in requests(server).items() if name != "packer.json"} == counts
    assert len(packer.open(done.path)) == 90


def test_the_command_lists_and_releases_it_by_its_url(server: ObjectServer, base: Path) -> None:
    result = called("stage", URL, "--to", base, "--leave-free", "0%")
    assert result.exit_code == 0, result.stderr
    copy = Path(result.stdout.strip())
    assert len(packer.open(copy)) == 90
    (listed,) = json.loads(called("stage", "--list", "--to", base, "--json").stdout)
    assert (listed["origin"], listed["whole"], listed["path"]) == (URL, True, str(copy))
    server.objects.clear()  # a store that is gone is not asked
    released = json.loads(called("stage", URL, "--release", "--to", base, "--json").stdout)
    assert released["released"] == 1 and not copy.exists()


def test_another_pack_at_the_url_takes_the_place_of_its_copy(server: ObjectServer, base: Path, tmp_path: Path) -> None:
    first = staged(base)
    make_pack(tmp_path / "other.pack", 40, format="pth", parts=2)
    server.objects.clear()
    server.put_folder(tmp_path / "other.pack", "set/x.pack/")
    second = staged(base)
    assert second.path != first.path and not first.path.exists()
    assert any("removed" in note for note in second.notes)
    assert len(list(copies(OwnedFolder.of(str(base), Machine())))) == 1


@pytest.mark.parametrize("kind", ["flip", "403", "gone", "replaced"])
def test_what_goes_wrong_is_told_and_nothing_stays(kind: str, server: ObjectServer, base: Path) -> None:
    errors: dict[str, Any] = {"flip": CorruptPack, "403": StoreError, "gone": CorruptPack, "replaced": ObjectChanged}
    if kind in ("flip", "403"):
        server.faults.append(Fault(kind, key="part-00003.pth"))
    else:
        del server.objects["set/x.pack/part-00003.pth"]
    if kind == "replaced":  # while it is fetched
        manifest = server.objects["set/x.pack/packer.json"].data

        def replaced() -> bool:
            server.put("set/x.pack/packer.json", manifest + b" ")
            return False

        server.faults.append(Fault("503", key="part-00000.pth", chance=replaced))
    with pytest.raises(errors[kind], match=r"s3://b/set/x\.pack"):
        staged(base)
    assert not list(copies(OwnedFolder.of(str(base), Machine())))
    assert not parts_elsewhere(base)
    if kind in ("flip", "403"):
        server.faults.clear()
        assert staged(base).how == "copied"


def test_a_killed_stager_is_gone_on_with(folder: Path, server: ObjectServer, base: Path) -> None:
    server.faults.append(Fault("stall", key="part-00004.pth"))
    pid = forked(lambda: staged(base))
    while not (server.count("GET", "part-00004.pth") and list(base.rglob("part-00000.pth"))):
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    server.faults.clear()
    server.stalled.set()
    done = staged(base)
    assert done.how == "copied" and not list(problems(done.path)) and values(done.path) == values(folder)
    assert requests(server)["part-00000.pth"] == 1
    assert not parts_elsewhere(base, done.path)


def test_what_needs_a_disk_is_refused(server: ObjectServer, base: Path) -> None:
    with pytest.raises(InvalidRequest, match="--parts"):
        staged(base, parts=(0,))
    for option, said in (("--warm", "--warm is for"), ("--as", "--as is for")):
        words = [option, "ycc420"] if option == "--as" else [option]
        result = called("stage", URL, "--to", base, *words)
        assert isinstance(result.exception, InvalidRequest) and said in str(result.exception)
    with pytest.raises(StorageError, match="leave-free"):
        stage(path_or_url(URL), StageOptions(str(base), keep=SpaceKept(bytes=1 << 60)), Hooks())
    assert not list(base.iterdir())
