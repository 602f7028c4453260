"""Tables, the machine, and the figures of benchmarks."""

import numpy as np
import pytest

from benchmarks.base import interleaved, ratio, spread
from packer.system.parallel import usable_cores
from packer.tools.measured_workload import worker_counts
from packer.tools.report import machine, table


def test_runs_take_turns_after_one_round_that_does_not_count() -> None:
    order: list[str] = []
    values = iter(range(100))

    def run(name: str) -> float:
        order.append(name)
        return float(next(values))

    found = interleaved({"a": lambda: run("a"), "b": lambda: run("b")}, rounds=2)
    assert order == ["a", "b"] * 3
    assert found == {"a": [2, 4], "b": [3, 5]}
    assert ratio(found, "b", "a") == np.median([3 / 2, 5 / 4])
    assert spread([3.0, 1.0, 2.0], "ms", 1) == "2.0 ms  (1.0 - 3.0)"


def test_a_table_aligns_its_columns() -> None:
    assert table(("", "n"), [("long name", "1"), ("x", "100")]) == [
        "             n",
        "long name    1",
        "x          100",
    ]


def test_the_machine_is_described() -> None:
    found = machine()
    assert found["cores"] == usable_cores()
    assert {"cpu", "python", "torch", "lmdb"} <= set(found)


def test_the_default_numbers_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packer.tools.measured_workload.usable_cores", lambda: 6)
    assert worker_counts() == (0, 1, 2, 4, 6)
