"""Packs at URLs: parts go there as they are finished, complete only with packer.json, whatever ends the run."""

import os
import shutil
import signal
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from packer import formats
from packer.conversion import store_publication
from packer.conversion.convert import convert
from packer.conversion.store_publication import StoreDelivery
from packer.errors import BadInputs, CorruptPack, Interrupted, InvalidRequest, PackExists, StorageError, StoreError
from packer.files.work_folder import WorkFolder
from packer.pack import manifest as manifests
from packer.stores.store import Store
from packer.stores.url import parse
from tests.support import source_trees
from tests.support.child_processes import forked
from tests.support.command_line import run_here
from tests.support.object_server import Fault, ObjectServer

URL = "s3://b/packs/photos.pack"
SUFFIX = formats.load("lmdb").SUFFIX


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of images."""
    for number in range(12):
        source_trees.write(tmp_path / "photos", {f"{number % 3}/{number}.png": source_trees.image(number)})
    (tmp_path / "scratch").mkdir()
    return tmp_path / "photos"


def stored(server: ObjectServer) -> dict[str, bytes]:
    """What is there below the pack's URL, by relative name."""
    front = "packs/photos.pack/"
    return {key.removeprefix(front): found.data for key, found in server.objects.items() if key.startswith(front)}


def files(folder: Path) -> dict[str, bytes]:
    """The files of a pack on disk, by relative name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("to", ["lmdb", "hdf5", "pth"])
def test_what_is_stored_is_the_pack_of_a_folder(
    tmp_path: Path, photos: Path, object_server: ObjectServer, to: str
) -> None:
    convert(photos, tmp_path / "local.pack", to=to, part_bytes=20_000)
    summary = convert(photos, URL, to=to, part_bytes=20_000, scratch=tmp_path / "scratch")
    assert stored(object_server) == files(tmp_path / "local.pack")
    assert summary.parts > 1
    assert summary.pack_id == manifests.read(tmp_path / "local.pack").pack_id
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not object_server.uploads
    last = [key for method, key in object_server.requests if method == "PUT" and ".partial" not in key][-1]
    assert last.endswith("/packer.json")


def test_a_pack_that_is_there_is_kept(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    convert(photos, URL, scratch=tmp_path / "scratch")
    before = stored(object_server)
    for again in (photos, photos / "0"):
        with pytest.raises(PackExists, match=r"s3://b/packs/photos\.pack: already there"):
            convert(again, URL, scratch=tmp_path / "scratch")
    with pytest.raises(InvalidRequest, match="--overwrite.*folders"):
        convert(photos, URL, scratch=tmp_path / "scratch", overwrite=True)
    assert stored(object_server) == before


@pytest.mark.parametrize(
    ("target", "options", "says"),
    [
        (URL, {}, "give --scratch"),
        (URL, {"scratch": "missing"}, "does not exist"),
        (URL, {"scratch": "scratch", "to": "bmp"}, "use --to lmdb"),
        ("s3://b", {"scratch": "scratch"}, "bucket"),
        ("https://host/x.pack", {"scratch": "scratch"}, "cannot be written"),
        ("out.pack", {"scratch": "scratch"}, "for a pack at a URL"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    tmp_path: Path,
    photos: Path,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    target: str,
    options: dict[str, str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequest, match=says):
        convert(photos, target, **options)  # type: ignore[arg-type]
    assert not object_server.objects
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_store_that_ignores_conditions_is_refused(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    object_server.ignores_conditions = True
    with pytest.raises(InvalidRequest, match=r"If-None-Match"):
        convert(photos, URL, scratch=tmp_path / "scratch")
    assert not object_server.objects


@pytest.mark.parametrize("kind", ["503", "lost"])
def test_an_answer_that_was_lost_changes_nothing(
    tmp_path: Path, photos: Path, object_server: ObjectServer, kind: str
) -> None:
    object_server.faults = [
        Fault(kind, "PUT", "/packer.json", times=1),
        Fault(kind, "PUT", "/plan.json", times=1),
        Fault(kind, "PUT", f"/part-00000{SUFFIX}", times=1),
    ]
    convert(photos, tmp_path / "local.pack")
    convert(photos, URL, scratch=tmp_path / "scratch")
    assert stored(object_server) == files(tmp_path / "local.pack")
    assert [fault.times for fault in object_server.faults] == [0, 0, 0]


def test_an_upload_that_fails_is_taken_up(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    object_server.faults = [Fault("403", "PUT", f"/part-00001{SUFFIX}")]
    with pytest.raises(StoreError, match=f"part-00001{SUFFIX}: upload: .*allowed"):
        convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    assert "packer.json" not in stored(object_server)
    object_server.faults = []
    object_server.requests.clear()
    summary = convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    assert 0 < summary.resumed_samples < 12
    assert object_server.count("PUT", f"photos.pack/part-00000{SUFFIX}") == 0
    assert object_server.count("PUT", f"photos.pack/part-00001{SUFFIX}") == 1
    convert(photos, tmp_path / "local.pack", part_bytes=20_000)
    assert stored(object_server) == files(tmp_path / "local.pack")


def test_the_rest_of_a_pack_that_fails_is_taken_up(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    """All parts are there, and what is put together of them is uploaded by the next run."""
    object_server.faults = [Fault("403", "PUT", "/keys.npy")]
    with pytest.raises(StoreError, match=r"index/keys\.npy: upload: .*allowed"):
        convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    assert "packer.json" not in stored(object_server)
    object_server.faults = []
    object_server.requests.clear()
    summary = convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    assert summary.resumed_samples == 12
    assert object_server.count("PUT", SUFFIX) == object_server.count("PUT", "/key_ends.npy") == 0
    convert(photos, tmp_path / "local.pack", part_bytes=20_000)
    assert stored(object_server) == files(tmp_path / "local.pack")


def test_parts_go_there_as_they_are_finished(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    """So that the scratch folder has room for a pack that it could not hold."""
    most = [0]

    def look() -> bool:
        most[0] = max(most[0], len(list((tmp_path / "scratch").rglob(f"pack/part-*{SUFFIX}"))))
        return False

    object_server.faults = [Fault("503", "PUT", chance=look)]
    summary = convert(photos, URL, part_bytes=2, scratch=tmp_path / "scratch")
    assert summary.parts == 12
    assert 0 < most[0] <= 4


def interrupted(photos: Path, server: ObjectServer, scratch: Path, **options: Any) -> set[str]:
    """Have a conversion end after some of its parts, which are named."""
    server.faults = [Fault("403", "PUT", f"/part-00003{SUFFIX}")]
    with pytest.raises(StoreError):
        convert(photos, URL, part_bytes=20_000, scratch=scratch, **options)
    server.faults = []
    server.requests.clear()
    front = ".partial/done/"
    return {name.removeprefix(front)[:10] for name in stored(server) if name.startswith(front)}


def test_another_machine_goes_on_after_what_is_there(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    """Its scratch folder is lost, too."""
    finished = interrupted(photos, object_server, tmp_path / "scratch")
    assert len(finished) >= 2
    (tmp_path / "other").mkdir()
    summary = convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "other")
    assert summary.resumed_samples == 2 * len(finished)
    assert not any(object_server.count("PUT", f"/{name}{SUFFIX}") for name in finished)
    convert(photos, tmp_path / "local.pack", part_bytes=20_000)
    assert stored(object_server) == files(tmp_path / "local.pack")


@pytest.mark.one_in(4)
@pytest.mark.parametrize("what", ["removed", "replaced", "entries", "record"])
def test_a_part_that_is_no_longer_there_is_built_again(
    tmp_path: Path, photos: Path, object_server: ObjectServer, what: str
) -> None:
    """A record or entries that are damaged are told, and --restart builds everything anew."""
    interrupted(photos, object_server, tmp_path / "scratch")
    shutil.rmtree(tmp_path / "scratch")
    (tmp_path / "scratch").mkdir()
    front = "packs/photos.pack"
    if what == "removed":
        del object_server.objects[f"{front}/part-00000{SUFFIX}"]
    elif what == "replaced":
        object_server.put(f"{front}/part-00000{SUFFIX}", b"other")
    else:
        place = f"pieces/part-00000{SUFFIX}" if what == "entries" else "done/part-00000.json"
        object_server.put(f"{front}/.partial/{place}", b"other")
        with pytest.raises(CorruptPack, match=f"{place}: damaged.*--restart"):
            convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch", restart=what in ("entries", "record"))
    convert(photos, tmp_path / "local.pack", part_bytes=20_000)
    assert stored(object_server) == files(tmp_path / "local.pack")


def test_a_part_that_is_removed_before_the_end_is_told(
    tmp_path: Path, photos: Path, object_server: ObjectServer
) -> None:
    def gone() -> bool:
        object_server.objects.pop(f"packs/photos.pack/part-00000{SUFFIX}", None)
        return False

    object_server.faults = [Fault("503", "PUT", "/done/part-00005.json", chance=gone)]
    with pytest.raises(StorageError, match=f"part-00000{SUFFIX}: removed.*--restart"):
        convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    assert "packer.json" not in stored(object_server)
    object_server.faults = []
    convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch", restart=True)
    convert(photos, tmp_path / "local.pack", part_bytes=20_000)
    assert stored(object_server) == files(tmp_path / "local.pack")


def test_restart_makes_way_for_another_plan(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    """Of one's own plan, that is, whose work lies in the scratch folder."""
    interrupted(photos, object_server, tmp_path / "scratch")
    (tmp_path / "other").mkdir()
    before = stored(object_server)
    for scratch in ("other", "scratch"):
        with pytest.raises(InvalidRequest):
            convert(photos, URL, resize=16, scratch=tmp_path / scratch)
    assert stored(object_server) == before
    with pytest.raises(InvalidRequest, match="another pack.*way"):
        convert(photos, URL, resize=16, scratch=tmp_path / "other", restart=True)
    convert(photos, URL, resize=16, scratch=tmp_path / "scratch", restart=True)
    convert(photos, tmp_path / "local.pack", resize=16)
    assert stored(object_server) == files(tmp_path / "local.pack")


def test_another_machine_with_other_versions_is_refused(
    tmp_path: Path, photos: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(photos, object_server, tmp_path / "scratch")
    real = store_publication.library_versions
    monkeypatch.setattr(
        store_publication, "library_versions", lambda *, pixels: {**real(pixels=pixels), "numpy": "9.9"}
    )
    with pytest.raises(InvalidRequest, match=r"same plan.*numpy \d.*, here 9\.9"):
        convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")


def test_what_lies_there_already_is_never_written_over(
    tmp_path: Path, photos: Path, object_server: ObjectServer
) -> None:
    object_server.put(f"packs/photos.pack/part-00000{SUFFIX}", b"mine")
    with pytest.raises(InvalidRequest, match=f"part-00000{SUFFIX} .*already"):
        convert(photos, URL, scratch=tmp_path / "scratch")
    assert stored(object_server) == {f"part-00000{SUFFIX}": b"mine"}


def test_nothing_is_left_of_a_conversion_that_cannot_go_on(
    tmp_path: Path, photos: Path, object_server: ObjectServer
) -> None:
    (photos / "2/11.png").write_bytes(b"\x89PNG")
    object_server.put("packs/photos.pack/inner.pack/packer.json", b"{}")  # another pack, whoever put it there
    object_server.put("packs/photos.pack/.partial/plan.json", b"{}")
    with pytest.raises(InvalidRequest, match="on its way"):
        convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    object_server.objects.clear()
    put = Fault("503", "PUT", "/part-00000.json", chance=lambda: object_server.put(inner, b"{}") is not None)
    inner = "packs/photos.pack/inner.pack/packer.json"
    object_server.faults = [put]
    with pytest.raises(BadInputs, match=r"11\.png"):
        convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    assert stored(object_server) == {"inner.pack/packer.json": b"{}"}
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_process_that_is_late_leaves_nothing(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    """Whoever still works on a part of a pack that is published by now."""
    convert(photos, URL, scratch=tmp_path / "scratch")
    before = stored(object_server)
    late = StoreDelivery(Store(parse(URL)), "f", {})
    for error, says in ((PackExists, "another machine has put a pack there"), (StorageError, "was removed")):
        with pytest.raises(error, match=says), late.begun("part-00000-" + "0" * 32, "n7"):
            pass
        late.remove()
        assert stored(object_server) == before
        object_server.objects.clear()
        before = {}


def test_what_is_there_when_a_run_was_killed_at_its_very_end_is_cleared(
    tmp_path: Path, photos: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pack is there, and nothing of it below `.partial`; only the scratch folder is not empty yet."""
    real = WorkFolder.clear

    def clear(self: WorkFolder) -> None:
        if object_server.objects.get("packs/photos.pack/packer.json"):
            raise Interrupted(signal.SIGTERM)
        real(self)

    monkeypatch.setattr(WorkFolder, "clear", clear)
    with pytest.raises(Interrupted):
        convert(photos, URL, scratch=tmp_path / "scratch")
    monkeypatch.undo()
    for name, value in object_server.environment.items():
        monkeypatch.setenv(name, value)
    before = stored(object_server)
    assert list((tmp_path / "scratch").iterdir())
    convert(photos, URL, scratch=tmp_path / "scratch")
    assert list((tmp_path / "scratch").iterdir()) == []
    assert stored(object_server) == before


def ended_at(monkeypatch: pytest.MonkeyPatch, call: int) -> list[str]:
    """End the conversion before its store's `call`-th call from packer.json on; returns the calls, as they are made."""
    calls: list[str] = []
    real = Store._asked

    def asked(self: Store, operation: str, name: str, *args: Any, **options: Any) -> Any:
        if calls or (operation, name) == ("create", "packer.json"):
            calls.append(f"{operation} {name}")
            if len(calls) > call:
                raise Interrupted(signal.SIGTERM)
        return real(self, operation, name, *args, **options)

    monkeypatch.setattr(Store, "_asked", asked)
    return calls


@pytest.mark.one_in(4)
@pytest.mark.parametrize("scratch", ["kept", "lost"])
@pytest.mark.parametrize("options", [{}, {"restart": True}])
def test_a_run_that_ends_at_any_call_behind_the_manifest_is_ended_by_the_next_one(
    tmp_path: Path,
    photos: Path,
    object_server: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    scratch: str,
    options: dict[str, bool],
) -> None:
    convert(photos, tmp_path / "local.pack")
    expected = files(tmp_path / "local.pack")
    call, ends = 0, False
    while not ends:
        object_server.objects.clear()
        with monkeypatch.context() as patched:
            calls = ended_at(patched, call)
            try:
                convert(photos, URL, scratch=tmp_path / "scratch")
                ends = True
            except Interrupted:
                call += 1
        if scratch == "lost":
            shutil.rmtree(tmp_path / "scratch")
            (tmp_path / "scratch").mkdir()
        with suppress(PackExists) if ends else nullcontext():
            summary = convert(photos, URL, scratch=tmp_path / "scratch", **options)
            assert summary.pack_id == manifests.read(tmp_path / "local.pack").pack_id
        assert stored(object_server) == expected, calls
        assert list((tmp_path / "scratch").iterdir()) == []
    assert call > 4  # the manifest, a listing, and what it lists


def test_another_conversion_removes_what_is_left_behind_a_manifest(
    tmp_path: Path, photos: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        ended_at(patched, 2)
        with pytest.raises(Interrupted):
            convert(photos, URL, scratch=tmp_path / "scratch")
    assert any(name.startswith(".partial/") for name in stored(object_server))
    assert run_here("verify", URL).returncode == 0
    with pytest.raises(PackExists, match="already there"):
        convert(photos / "0", URL, scratch=tmp_path / "scratch")
    convert(photos, tmp_path / "local.pack")
    assert stored(object_server) == files(tmp_path / "local.pack")
    assert list((tmp_path / "scratch").iterdir()) == []


def test_of_two_machines_with_one_plan_both_end_well(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    errors: list[BaseException] = []

    def run(name: str) -> None:
        (tmp_path / name).mkdir()
        try:
            convert(photos, URL, scratch=tmp_path / name)
        except PackExists as error:  # the other one was done before this one began
            errors.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) <= 1
    convert(photos, tmp_path / "local.pack")
    assert {name: data for name, data in stored(object_server).items() if ".partial" not in name} == files(
        tmp_path / "local.pack"
    )


@pytest.mark.one_in(2)
@pytest.mark.parametrize("moment", [pytest.param(at, marks=[pytest.mark.full] if at % 10 else []) for at in range(20)])
def test_a_kill_loses_nothing(tmp_path: Path, photos: Path, object_server: ObjectServer, moment: int) -> None:
    """At 20 moments that are spread over the requests of a run."""
    convert(photos, tmp_path / "local.pack", part_bytes=20_000)
    expected = files(tmp_path / "local.pack")
    reached = threading.Event()
    count = 2 + 2 * moment
    seen = iter(range(count))
    object_server.delay_seconds = 0.01

    def is_there() -> bool:
        if next(seen, None) is None:
            reached.set()
        return False

    object_server.faults = [Fault("503", method, chance=is_there) for method in ("PUT", "GET", "HEAD", "POST")]
    running = forked(lambda: convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch"))
    until = time.monotonic() + 60
    while not reached.wait(0.01) and os.waitpid(running, os.WNOHANG) == (0, 0):  # where it does not end before
        assert time.monotonic() < until
    with suppress(ProcessLookupError, ChildProcessError):
        os.kill(running, signal.SIGKILL)
        os.waitpid(running, 0)
    time.sleep(0.1)  # requests that were under way
    object_server.faults, object_server.delay_seconds = [], 0.0
    there = stored(object_server)
    if "packer.json" in there:  # complete, or it would not be there
        assert {name: there[name] for name in expected} == expected
    try:
        convert(photos, URL, part_bytes=20_000, scratch=tmp_path / "scratch")
    except PackExists:  # it was done, but for the scratch folder
        assert "packer.json" in there
    after = stored(object_server)
    assert {name: data for name, data in after.items() if not name.startswith(".partial/probe")} == expected
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_run_that_was_killed_behind_the_manifest_cleans_up(
    tmp_path: Path, photos: Path, object_server: ObjectServer
) -> None:
    object_server.faults = [Fault("403", "POST", "")]  # what removes objects
    with pytest.raises(StoreError, match="remove: not allowed"):
        convert(photos, URL, scratch=tmp_path / "scratch")
    # the probe is removed first: nothing has been built then, and the pack is not there
    assert "packer.json" not in stored(object_server)
    object_server.faults = []
    convert(photos, URL, scratch=tmp_path / "scratch")
    assert not any(name.startswith(".partial") for name in stored(object_server) if "probe" not in name)


def test_the_command_takes_urls(tmp_path: Path, photos: Path, object_server: ObjectServer) -> None:
    object_server.put_folder(photos, "photos/")
    convert(photos, tmp_path / "local.pack")
    ended = run_here("convert", "s3://b/photos", URL, "--scratch", str(tmp_path / "scratch"))
    assert ended.returncode == 0, ended.stderr
    assert "packer.open('s3://b/packs/photos.pack', cache=" in ended.stdout
    assert stored(object_server) == files(tmp_path / "local.pack")
    assert run_here("convert", "s3://b/photos", URL).returncode == 2
