"""The engine of many machines, over a cluster of one process: what is lost is tried again, what is there is kept."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packer import formats
from packer.conversion.convert import convert_source
from packer.conversion.engines import _cluster_engine
from packer.conversion.engines._cluster_engine import Cluster, ClusterEngine, Lost
from packer.conversion.engines.base import EngineOptions
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.remote_part import Outcome, Task, Workplace, build_remotely
from packer.errors import BadInputs, Interrupted, InvalidRequest, StorageError
from tests.support.conversions import digest, opened, packed
from tests.support.source_trees import photos

Fate = Callable[[Workplace, Task], Outcome | Lost]


class Here(Cluster):
    """Builds in this process, when it is waited for, the last that was submitted first."""

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.tasks: list[Task] = []
        self.most = 0

    def connect(self, place: Workplace) -> None:
        self.place = place

    def submit(self, task: Task) -> Any:
        self.tasks.append(task)
        return task

    def wait(self, handles: list[Any], seconds: float) -> tuple[dict[Any, Outcome | Lost], int]:
        self.most = max(self.most, len(handles))
        return {handles[-1]: self.fate(self.place, handles[-1])}, 2

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


@pytest.mark.one_in(6)
@pytest.mark.parametrize("scratch", [False, True])
@pytest.mark.parametrize("format", formats.names())
def test_the_pack_is_that_of_one_machine(tmp_path: Path, root: Path, format: str, scratch: bool) -> None:
    packed(root, tmp_path / "one", to=format, part_bytes=2000)
    engine = engine_of(lost_at(1, 2, 5), nodes_scratch=tmp_path / "disk" if scratch else None)
    (tmp_path / "disk").mkdir()
    options = ConversionOptions(to=format, part_bytes=2000, order="stored")
    convert_source(opened(root), tmp_path / "many", options, engine=engine)
    assert digest(tmp_path / "many") == digest(tmp_path / "one")
    assert sorted(os.listdir(tmp_path)) == ["disk", "in", "many", "one"]
    assert os.listdir(tmp_path / "disk") == []
    assert isinstance(engine.cluster, Here)
    assert engine.cluster.most <= 4  # twice what it builds at once


def test_a_part_that_is_lost_four_times_is_named_with_the_machines(tmp_path: Path, root: Path) -> None:
    def fate(place: Workplace, task: Task) -> Outcome | Lost:
        found = build_remotely(place, task)
        return Lost("WorkerCrashedError: out of memory") if task.number == 1 else found

    with pytest.raises(
        StorageError, match=r"part-00001\.lmdb: 4 tries to build it were lost: .*, process \d+: Worker"
    ) as error:
        convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine_of(fate))
    assert str(error.value).count("WorkerCrashedError") == 4
    summary = convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000))
    packed(root, tmp_path / "one", part_bytes=2000)
    assert digest(tmp_path / "a") == digest(tmp_path / "one")
    assert summary.resumed_samples >= 2


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
    other = replace(place, plan=replace(place.plan, fingerprint="other"))
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

    with pytest.raises(InvalidRequest, match=r"has numpy \d.*, here 9\.9: a pack could have other bytes"):
        convert_source(opened(root), tmp_path / "a", ConversionOptions(part_bytes=2000), engine=engine_of(fate))


def test_a_cluster_without_machines_is_waited_for_and_given_up(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cluster_engine, "_PATIENCE_SECONDS", 0.0)
    engine = engine_of()
    monkeypatch.setattr(engine.cluster, "wait", lambda handles, seconds: ({}, 0))
    with pytest.raises(StorageError, match="no machine was there to build parts"):
        convert_source(opened(root), tmp_path / "a", ConversionOptions(), engine=engine)
