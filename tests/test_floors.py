"""The oldest versions that packer admits: one list, in setup.cfg, which everything else that names them agrees with."""

import re
import sys
from configparser import ConfigParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from packer.tools import doctor

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "setup.cfg").read_text()
# what the floors that close holes are for: none may be lowered below it
NEEDED = {"lmdb": (2, 1, 1), "torch": (2, 6), "opencv-python": (4, 12), "h5py": (3, 16)}


def floors() -> dict[str, str]:
    """Of what packer needs where it is installed."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    return dict(re.findall(r"^([\w-]+) >= ([\d.]+)", config["options"]["install_requires"], re.MULTILINE))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def matrix() -> ModuleType:
    spec = spec_from_file_location("matrix", ROOT / "scripts/matrix.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["matrix"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_on_reliability_names_every_floor() -> None:
    page = (ROOT / "docs/reliability.md").read_text()
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+)(?:, below 2)? \| .+ \|$", page, re.MULTILINE)
    assert dict(rows) == floors()


def test_floors_that_close_holes_stay() -> None:
    for name, least in NEEDED.items():
        assert numbers(floors()[name]) >= least
    for hole in ("CVE-2019-16224", "CVE-2025-53644", "CVE-2025-32434", "CVE-2025-2153", "CVE-2024-29157"):
        assert hole in TEXT


def test_the_hdf5_that_is_tested_is_none_that_the_doctor_warns_of() -> None:
    (found,) = doctor.hdf5()
    assert found.problem == ""


def test_the_matrix_takes_its_floors_from_setup_cfg() -> None:
    made = matrix().floors()
    for name, floor in floors().items():
        assert f"{name}=={floor}" in made
    assert not any(">=" in line.partition(";")[0] for line in made)
    names = [re.split(r"[=;]", line)[0] for line in made]
    assert len(set(names)) == len(names)
    assert {"pytest", "hypothesis", "matplotlib", "mypy", "ruff"} <= set(names)


def test_the_matrix_finds_the_python_that_runs_this() -> None:
    found = matrix().interpreters()
    assert [each.version[:2] for each in found] == sorted({each.version[:2] for each in found})
    assert all(each.version >= (3, 10) for each in found)
