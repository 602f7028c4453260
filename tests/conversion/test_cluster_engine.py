"""The engine of many machines, over a cluster of one process: what is lost is tried again, what is there is kept."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import h5py
import pytest

from packer import formats
from packer.conversion import engines
from packer.conversion.build_part import FinishedPart
from packer.conversion.convert import ConversionSummary, convert, convert_source
from packer.conversion.engines import _cluster_engine
from packer.conversion.engines._cluster_engine import (
    Cluster,
    ClusterEngine,
    Lost,
    Outcome,
    Task,
    Workplace,
    build_remotely,
)
from packer.conversion.engines.base import EngineOptions
from packer.conversion.machine_versions import library_versions
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.publication import FolderDelivery, FolderPublication
from packer.errors import BadInputs, Interrupted, InvalidRequest, StorageError
from packer.files import work_folder
from tests.support.conversions import digest, opened, packed
from tests.support.object_server import Fault, ObjectServer
from tests.support.source_trees import photos
from tests.support.stored_files import ended, in_processes

Fate = Callable[[Workplace, Task], Outcome | Lost]


class Here(Cluster):
    """Builds in this process, when it is waited for, the last that was submitted first."""

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.tasks: list[Task] = []
        self.dropped: list[Task] = []
        self.most = 0

    def connect(self, place: Workplace) -> None:
        self.place = place

    def submit(self, task: Task) -> Any:
        self.tasks.append(task)
        return task

    def wait(self, handles: list[Any], seconds: float) -> tuple[dict[Any, Outcome | Lost], int]:
        self.most = max(self.most, len(handles))
        return {handles[-1]: self.fate(self.place, handles[-1])}, 2

    def drop(self, handle: Any) -> None:
        self.dropped.append(handle)

    def close(self) -> None:
        self.place = None  # type: ignore[assignment]


def engine_of(fate: Fate = build_remotely, **options: Any) -> ClusterEngine:
    """The engine over that cluster."""
    engine = ClusterEngine(EngineOptions(**options))
    engine.cluster = Here(fate)
    return engine


def lost_at(*turns: int) -> Fate:
    """Every try is real, but these ones, whose part is complete or not even begun, are lost."""
    count = iter(range(1000))

    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        turn = next(count)
        if turn % 2 == 0:
            found = build_remotely(place, task)
        return Lost("NodeDiedError: gone") if turn in turns else found if turn % 2 == 0 else build_remotely(place, task)

    return fate


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return photos(tmp_path / "in", 16)


@pytest.mark.one_in(24)
@pytest.mark.parametrize("scratch", [False, True])
@pytest.mark.parametrize("format", formats.names())
def test_the_pack_is_that_of_one_machine(tmp_path: Path, root: Path, format: str, scratch: bool) -> None:
    packed(root, tmp_path / "one", to=format, part_bytes=2000)
    engine = engine_of(lost_at(1, 2, 5), worker_scratch=tmp_path / "disk" if scratch else None)
    (tmp_path / "disk").mkdir()
    options = ConversionOptions(to=format, part_bytes=2000, order="stored")
    convert_source(opened(root), tmp_path / "many", options, engine=engine)
    assert digest(tmp_path / "many") == digest(tmp_path / "one")
    assert sorted(os.listdir(tmp_path)) == ["disk", "in", "many", "one"]
    assert os.listdir(tmp_path / "disk") == []
    assert isinstance(engine.cluster, Here)
    assert engine.cluster.most <= 4  # twice what it builds at once


def unfinished(place: Workplace, task: Task) -> None:
    """A try that is killed before its record is written."""
    assert build_remotely(place, task).finished
    assert isinstance(place.delivery, FolderDelivery)
    (place.delivery.work / "attempts" / task.attempt / "record.json").unlink()


def test_a_part_that_is_lost_four_times_is_named_with_the_machines(tmp_path: Path, root: Path) -> None:
    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        if task.number != 1:
            return build_remotely(place, task)
        unfinished(place, task)
        return Lost("WorkerCrashedError: out of memory")

    with pytest.raises(StorageError, match=r"part-00001\.lmdb: 4 attempts.*process \d+: Worker") as error:
        convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine_of(fate))
    assert str(error.value).count("WorkerCrashedError") == 4
    summary = convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000))
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")
    assert summary.resumed_samples >= 2


def test_a_part_that_was_complete_when_its_machine_was_lost_is_not_built_again(tmp_path: Path, root: Path) -> None:
    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        assert build_remotely(place, task).finished
        return Lost("NodeDiedError: gone")

    engine = engine_of(fate)
    summary = convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine)
    assert isinstance(engine.cluster, Here)
    assert len(engine.cluster.tasks) == summary.parts
    assert summary.notes == ()
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")


def test_a_machine_whose_disk_fails_does_not_end_the_conversion(tmp_path: Path, root: Path) -> None:
    """Its scratch folder may be full where another machine's is not."""
    turns = iter(range(1000))

    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        if next(turns) in (0, 3):
            return Outcome("n7", False, [], ("StorageError", "n7: /disk/x: write: no space left on device"))
        return build_remotely(place, task)

    summary = convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine_of(fate))
    assert [note.partition(": part-")[0] for note in summary.notes] == [
        "attempts were lost and their parts built again"
    ]
    assert "n7: /disk/x: write: no space left on device; and 1 more" in summary.notes[0]
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")


def test_a_try_that_hangs_is_given_up(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun, others end, and it never does: its part is built by another try, and what it leaves is removed."""
    monkeypatch.setattr(_cluster_engine, "_LEAST_LIMIT_SECONDS", 0.0)
    monkeypatch.setattr(_cluster_engine, "_LIMIT", 2.0)
    engine, hung = engine_of(), list[Task]()
    cluster = engine.cluster
    assert isinstance(cluster, Here)

    def wait(handles: list[Any], seconds: float) -> tuple[dict[Any, Outcome | Lost], int]:
        if not hung:
            hung.append(handles[0])
            unfinished(cluster.place, hung[0])
            return {}, 2
        able = [handle for handle in handles if handle is not hung[0]]
        return {handle: build_remotely(cluster.place, handle) for handle in able[-1:]}, 2

    monkeypatch.setattr(cluster, "wait", wait)
    summary = convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine)
    assert cluster.dropped == hung
    assert "not done after" in summary.notes[0]
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")
    assert sorted(os.listdir(tmp_path)) == ["a", "in", "one"]


def test_what_another_machine_wrote_is_waited_for_until_it_is_seen(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS shows a machine for a while what it knew before."""
    real, unseen = FolderPublication.adopt, [None] * 2

    def adopt(self: FolderPublication, attempt: str) -> FinishedPart | None:
        return unseen.pop() if unseen else real(self, attempt)

    monkeypatch.setattr(FolderPublication, "adopt", adopt)
    convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine_of())
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")
    monkeypatch.setattr(_cluster_engine, "_SEEN_SECONDS", 0.0)
    monkeypatch.setattr(FolderPublication, "adopt", lambda self, attempt: None)
    with pytest.raises(StorageError, match=r"attempts/part-0000\d-\w+: .*visible"):
        convert_source(opened(root), tmp_path / "b", ConversionOptions(part_bytes=2000), engine=engine_of())


def test_tries_of_one_machine_at_once_do_not_hold_each_other_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each looks for what killed ones have left, and so takes hold of another's folder for a moment."""
    real = work_folder._flock
    monkeypatch.setattr(work_folder, "_flock", lambda *given: (time.sleep(random.random() / 200), real(*given)))

    def build(number: int) -> None:
        for turn in range(10):
            with _cluster_engine._scratch_folder(tmp_path, f"part-{number:05d}-{turn:032x}") as scratch:
                scratch.make_folder("pack").close()
                assert (scratch.inside / "pack").is_dir()

    assert ended(in_processes(6, build)) == [0] * 6
    assert list(tmp_path.iterdir()) == []


def test_what_others_left_on_a_machines_disk_is_let_be(tmp_path: Path, root: Path) -> None:
    """A folder of that name that packer did not make there: a copy, or another user's."""
    left = tmp_path / "disk/.packer-part-00000-0123"
    left.mkdir(parents=True)
    (left / "notes.txt").write_text("mine")
    engine = engine_of(worker_scratch=tmp_path / "disk")
    convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine)
    assert [path.name for path in left.iterdir()] == ["notes.txt"]


def test_what_a_killed_driver_had_built_is_taken_up(tmp_path: Path, root: Path) -> None:
    """The workers end their parts after the driver: their tries are complete, and nobody has moved them yet."""
    left: list[Task] = []

    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        if len(left) == 3:
            raise Interrupted(signal.SIGTERM)
        assert build_remotely(place, task).finished
        left.append(task)
        return Outcome("here", False, [])  # as if it had never been heard of

    options = ConversionOptions(part_bytes=2000)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "a", options, engine=engine_of(fate))
    plan = make_plan(opened(root), options)
    half = tmp_path / ".a.partial/attempts" / left[0].attempt
    (half / "pack" / plan.part_name(left[0].number)).rename(
        tmp_path / ".a.partial/pack" / plan.part_name(left[0].number)
    )
    (tmp_path / f".a.partial/done/part-{left[1].number:05d}.json.new").write_bytes(b'{"par')  # killed as it wrote that
    summary = convert_source(opened(root), tmp_path / "a", options)
    assert summary.resumed_samples == sum(len(plan.parts[task.number]) for task in left)
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")


def test_tries_of_another_plan_and_unfinished_ones_are_removed(tmp_path: Path, root: Path) -> None:
    places: list[tuple[Workplace, Task]] = []

    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        places.append((place, task))
        if len(places) == 3:
            raise Interrupted(signal.SIGTERM)
        return build_remotely(place, task)

    options = ConversionOptions(part_bytes=2000)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "a", options, engine=engine_of(fate))
    place, task = places[-1]
    assert isinstance(place.delivery, FolderDelivery)
    other = replace(place, delivery=replace(place.delivery, fingerprint="other"))
    (tmp_path / ".a.partial/attempts" / task.attempt).mkdir()
    assert build_remotely(other, task).failure == ("StorageError", build_remotely(other, task).failure[1])  # type: ignore[index]
    convert_source(opened(root), tmp_path / "a", options)
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")
    late = build_remotely(place, task)  # a zombie: the work folder is gone
    assert (late.finished, late.failure is not None) == (False, True)
    assert sorted(os.listdir(tmp_path)) == ["a", "in", "one"]


def test_bad_samples_are_named_in_the_order_of_the_source(tmp_path: Path, root: Path) -> None:
    for path in sorted(root.rglob("*.jpg"))[3::4]:
        path.write_bytes(path.read_bytes()[:40])
    reasons = []
    for engine in (None, engine_of()):
        with pytest.raises(BadInputs) as error:
            convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine)
        reasons.append(error.value.reasons)
    assert reasons[0] == reasons[1]
    assert len(reasons[0]) == 4
    left_out = ConversionOptions(part_bytes=2000, on_error="skip")
    convert_source(opened(root), tmp_path / "one", left_out)
    convert_source(opened(root), tmp_path / "many", left_out, engine=engine_of())
    assert digest(tmp_path / "many") == digest(tmp_path / "one")


def test_other_versions_are_refused_on_the_machine_that_has_them(tmp_path: Path, root: Path) -> None:
    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        return build_remotely(replace(place, versions={**place.versions, "numpy": "9.9"}), task)

    with pytest.raises(InvalidRequest, match=r"numpy \d.*, here 9\.9"):
        convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine_of(fate))


def test_a_machine_that_computes_other_pixels_is_refused(tmp_path: Path, root: Path) -> None:
    """OpenCV computes with what the processor has; where bytes are kept, nobody computes any."""
    seen = list[bool]()

    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        seen.append("pixels" in place.versions)
        other = {name: "0" if name == "pixels" else said for name, said in place.versions.items()}
        return build_remotely(replace(place, versions=other), task)

    convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine_of(fate))
    assert set(seen) == {False}
    small = ConversionOptions(part_bytes=2000, resize="20")
    with pytest.raises(InvalidRequest, match="pixels [0-9a-f]{8}, here 0"):
        convert_source(opened(root), tmp_path / "b", small, engine=engine_of(fate))


def test_versions_are_those_of_the_libraries() -> None:
    found = library_versions(pixels=True)
    assert {"packer", "Python", "machine", "numpy", "torch", "OpenCV", "LMDB", "HDF5", "h5py", "JPEG"} <= set(found)
    assert found["OpenCV"] == cv2.__version__
    assert found["HDF5"] == h5py.version.hdf5_version
    assert found == library_versions(pixels=True)


URL = "s3://b/many.pack"


@pytest.fixture
def to_store(
    tmp_path: Path, root: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[ConversionSummary, ClusterEngine]]:
    """Converts `root` to `URL` on that cluster, whose machines do not see the folder that the conversion works in."""
    for name in ("disk", "scratch"):
        (tmp_path / name).mkdir()

    load = engines.load

    def convert_there(fate: Fate = build_remotely, **options: Any) -> tuple[ConversionSummary, ClusterEngine]:
        made: list[ClusterEngine] = []

        def engine(asked: EngineOptions) -> ClusterEngine:
            made.append(ClusterEngine(asked))
            made[0].cluster = Here(fate)
            return made[0]

        module = SimpleNamespace(Engine=engine)
        monkeypatch.setattr(engines, "load", lambda name: module if name == "ray" else load(name))
        given = {"part_bytes": 2000, "worker_scratch": tmp_path / "disk", "scratch": tmp_path / "scratch", **options}
        summary = convert(root, URL, engine="ray", **given)
        return summary, made[0]

    return convert_there


def stored(server: ObjectServer) -> dict[str, bytes]:
    """What lies below the URL."""
    return {key.removeprefix("many.pack/"): found.data for key, found in server.objects.items()}


def files(pack: Path) -> dict[str, bytes]:
    """The files of a pack."""
    return {str(path.relative_to(pack)): path.read_bytes() for path in pack.rglob("*") if path.is_file()}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("format", ["lmdb", "hdf5", "pth"])
def test_machines_upload_their_parts_and_share_no_folder(
    tmp_path: Path, root: Path, object_server: ObjectServer, to_store: Any, format: str
) -> None:
    convert(root, tmp_path / "one", to=format, part_bytes=2000)
    summary, engine = to_store(lost_at(1, 2, 5), to=format)
    assert stored(object_server) == files(tmp_path / "one")
    assert (summary.parts, engine.cluster.most) == (len(list((tmp_path / "one").glob("part-*"))), 4)
    assert len(engine.cluster.tasks) == summary.parts + 2  # of the three that were lost one was complete
    assert os.listdir(tmp_path / "disk") == os.listdir(tmp_path / "scratch") == []
    assert "attempts were lost" in summary.notes[-1]


@pytest.mark.full
def test_what_a_killed_driver_had_stored_is_taken_up_by_another(
    tmp_path: Path, root: Path, object_server: ObjectServer, to_store: Any
) -> None:
    """Its scratch folder is lost with it."""
    built: list[Task] = []

    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        if len(built) == 3:
            raise Interrupted(signal.SIGTERM)
        assert build_remotely(place, task).finished
        built.append(task)
        return Outcome("here", False, [])  # as if it had never been heard of

    with pytest.raises(Interrupted):
        to_store(fate)
    shutil.rmtree(tmp_path / "scratch")
    (tmp_path / "scratch").mkdir()
    summary, engine = to_store()
    assert {task.number for task in engine.cluster.tasks}.isdisjoint(task.number for task in built)
    assert summary.resumed_samples > 0
    convert(root, tmp_path / "one", part_bytes=2000)
    assert stored(object_server) == files(tmp_path / "one")


@pytest.mark.full
def test_a_machine_that_cannot_reach_the_store_does_not_end_the_conversion(
    tmp_path: Path, root: Path, object_server: ObjectServer, to_store: Any
) -> None:
    """Another one may; where none can, the error names machine and URL."""
    object_server.faults = [Fault("403", "PUT", f"many.pack/part-00001{formats.load('lmdb').SUFFIX}", times=3)]
    summary, _ = to_store()
    assert "not allowed" in summary.notes[-1]
    assert "and 2 more" in summary.notes[-1]
    convert(root, tmp_path / "one", part_bytes=2000)
    assert stored(object_server) == files(tmp_path / "one")
    object_server.objects.clear()
    object_server.faults = [Fault("403", "PUT", f"many.pack/part-00001{formats.load('lmdb').SUFFIX}")]
    with pytest.raises(StorageError, match=rf"4 attempts.*process \d+: .*{URL}/part-00001"):
        to_store()


@pytest.mark.full
def test_a_late_machine_leaves_nothing_in_a_published_pack(
    root: Path, object_server: ObjectServer, to_store: Any
) -> None:
    places: list[tuple[Workplace, Task]] = []

    begun: list[int] = []

    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        places.append((place, task))
        begun.append(sum("/.partial/attempts/" in key for key in object_server.objects))
        return build_remotely(place, task)

    to_store(fate)
    assert set(begun) == {0}  # a try that has ended is not listed every second by the one who waits for others
    before = stored(object_server)
    late = build_remotely(*places[0])
    assert late.failure is not None
    assert late.failure[0] == "PackExists"
    assert stored(object_server) == before


def test_bad_samples_on_machines_leave_nothing_in_the_store(
    root: Path, object_server: ObjectServer, to_store: Any
) -> None:
    for path in sorted(root.rglob("*.jpg"))[3::4]:
        path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(BadInputs) as error:
        to_store()
    assert len(error.value.reasons) == 4
    assert stored(object_server) == {}


def test_a_pack_at_a_url_needs_a_folder_on_each_machine(root: Path, object_server: ObjectServer, to_store: Any) -> None:
    with pytest.raises(InvalidRequest, match="give --worker-scratch"):
        to_store(worker_scratch=None)
    assert not object_server.requests


def test_a_cluster_without_machines_is_waited_for_and_given_up(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cluster_engine, "_PATIENCE_SECONDS", 0.0)
    engine = engine_of()
    monkeypatch.setattr(engine.cluster, "wait", lambda handles, seconds: ({}, 0))
    with pytest.raises(StorageError, match="no machine"):
        convert_source(opened(root), tmp_path / "a", ConversionOptions(), engine=engine)
