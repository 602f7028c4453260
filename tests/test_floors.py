"""The oldest versions that packer admits: one list, in setup.cfg, which everything else that names them agrees with."""

import re
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from packer import registry
from packer.tools import doctor
from tests.support.repository import ROOT, loaded

TEXT = (ROOT / "setup.cfg").read_text()
CONFIG = ConfigParser()
CONFIG.read_string(TEXT)
FOLDERS = ("packer", "tests", "docs", "scripts", "benchmarks", "examples", ".ci")
# what the floors that close holes are for: none may be lowered below it
NEEDED = {"lmdb": (2, 1, 1), "torch": (2, 6), "opencv-python": (4, 12), "h5py": (3, 16)}


def floors() -> dict[str, str]:
    """Of what packer needs where it is installed."""
    return dict(re.findall(r"^([\w-]+) >= ([\d.]+)", CONFIG["options"]["install_requires"], re.MULTILINE))


def optional() -> set[str]:
    """What the extras that users install add, as pip takes it."""
    extras = {
        name: lines for name, lines in CONFIG["options.extras_require"].items() if name not in ("docs", "test", "fuzz")
    }
    return {line.replace(" ", "") for lines in extras.values() for line in lines.splitlines() if line}


def pages() -> dict[Path, str]:
    """Every text file that is part of the repository, by its path."""
    paths = [path for path in ROOT.iterdir() if path.is_file() and path.name != ".git"]
    paths += [
        path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc"
    ]
    texts = {}
    for path in paths:
        with suppress(UnicodeDecodeError):  # an image or a pack
            texts[path] = path.read_text()
    return texts


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def matrix() -> ModuleType:
    return loaded("scripts/matrix.py")


def test_the_page_on_reliability_names_every_floor() -> None:
    page = (ROOT / "docs/dev/reliability.md").read_text()
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+)(?:, below 2)? \| .+ \|$", page, re.MULTILINE)
    assert dict(rows) == floors()


def test_floors_that_close_holes_stay() -> None:
    for name, least in NEEDED.items():
        assert numbers(floors()[name]) >= least
    for hole in ("CVE-2019-16224", "CVE-2025-53644", "CVE-2025-32434", "CVE-2025-2153", "CVE-2024-29157"):
        assert hole in TEXT


def test_pinned_versions_are_within_the_floors() -> None:
    pinned = dict(re.findall(r"^([\w-]+)==([\d.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert all(numbers(pinned[name]) >= numbers(floor) for name, floor in floors().items())
    assert "PyTurboJPEG >= 1.8.2, < 2" in CONFIG["options"]["install_requires"]


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
    assert all(each.version >= (3, 11) for each in found)


def test_a_message_about_a_missing_package_names_the_version_of_setup_cfg() -> None:
    named = {text.strip('"') for texts in registry._REQUIREMENTS.values() for text in texts.split()}
    assert optional() - named == {"google-crc32c>=1.8"}  # TFRecord is read without it
    required = CONFIG["options"]["install_requires"].replace(" ", "").split()
    admitted = {re.split(r"[<>]", text)[0]: text for text in (*optional(), *required)}
    for text in named:
        name = re.split(r"[<>]", text)[0]
        assert text == admitted.get(name, name)


def test_every_page_installs_the_versions_of_setup_cfg() -> None:
    admitted = optional() | {f"{name}>={least}" for name, least in floors().items()}
    for path, text in pages().items():
        if path.suffix == ".md":
            assert set(re.findall(r'(?:pip install|and)\s`?"([^"\s]+>=[\d.]+)"', text)) <= admitted, path


def test_no_message_and_no_page_installs_packer_from_an_index() -> None:
    """There the name is another project's."""
    by_name = re.compile(r"\b(?:pipx? install|uv add|uvx)\s[^`;#\n]*(?<![\w./-])packer(?![\w./-])|packer\[[a-z]+\]")
    for line in ("pip install -U packer", "uvx packer", "needs pip install 'packer[all]'"):
        assert by_name.search(line)
    for line in ("pip install . # packer", "pip install /packer", 'pip install ".[pil]"'):
        assert not by_name.search(line)
    here = Path(__file__)
    assert [path for path, text in pages().items() if path != here and by_name.search(text)] == []
