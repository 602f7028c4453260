"""Doctor: each thing that is wrong is one line with its fix; nothing wrong is exit code 0."""

import json
import os
import resource
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from packer.images.backends import strict_jpeg
from packer.system.machine_limits import Machine
from packer.tools import doctor
from packer.tools.doctor import PACKAGES, Finding, findings
from tests.support.child_processes import child
from tests.support.command_line import called, run_here
from tests.support.machine_files import GB, made_up

ROOT = Path(__file__).parents[2]


def test_the_versions_that_it_wants_are_those_of_setup_cfg() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = [line.split() for line in config["options"]["install_requires"].split("\n") if line]
    floors = {words[0]: words[2].rstrip(",") for words in lines}
    jpeg = {"PyTurboJPEG", "simplejpeg"}  # either does: what it says of the decoder
    assert {name: least for name, (_, least) in PACKAGES.items()} == {
        name: floor for name, floor in floors.items() if name not in jpeg
    }


@pytest.mark.jpeg
def test_a_machine_in_order_has_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = os.statvfs_result((4096, 4096, 1 << 22, 1 << 22, 1 << 22, 1 << 22, 1 << 22, 1 << 22, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: free)
    monkeypatch.setattr(doctor, "gpu", lambda devices: Finding("GPU", "none"))
    monkeypatch.setattr(doctor, "usable_cores", lambda cgroup: 8)
    found = list(findings(made_up(tmp_path / "m")))
    assert [finding for finding in found if finding.problem] == []
    names = [finding.name for finding in found]
    assert names[:2] == ["packer", "numpy"]
    assert names[names.index("PyYAML") + 1] == "HDF5"
    assert names[-5:] == ["decoder", "cores", "memory", "shared memory", "open files"]


def test_the_command_lists_problems_with_fixes_and_exits_2_then(monkeypatch: pytest.MonkeyPatch) -> None:
    sound, broken = Finding("cores", "2 usable"), Finding("decoder", "none", "no library works", "pip install x")
    monkeypatch.setattr(doctor, "findings", lambda machine: iter([sound]))
    good = called("doctor")
    assert (good.exit_code, good.output) == (0, "cores           2 usable\nok\n")
    assert json.loads(called("doctor", "--json").output)["ok"] is True
    monkeypatch.setattr(doctor, "findings", lambda machine: iter([sound, broken]))
    bad = called("doctor")
    assert "decoder: no library works; pip install x\n" in bad.stderr
    assert str(bad.exception) == "problems found: 1"
    assert getattr(bad.exception, "exit_code", None) == 2
    data = json.loads(called("doctor", "--json").stdout)
    assert (data["ok"], data["findings"][1]["fix"]) == (False, "pip install x")


@pytest.mark.jpeg
def test_it_runs_here() -> None:
    done = run_here("doctor")
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    for name in ("decoder", "cores", "shared memory"):
        assert f"\n{name}" in done.stdout


@pytest.mark.parametrize("module", ["numpy", *(pytest.param(each, marks=pytest.mark.full) for each in ("cv2", "lmdb"))])
def test_without_a_package_it_still_runs_and_says_how_to_get_it(module: str) -> None:
    """In a fresh interpreter, in which the package cannot be found."""
    code = (
        "import importlib.util, sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {module!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "original = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *a: None if name == {module!r} else original(name, *a)\n"
        "from packer.cli import run; sys.argv = ['packer', 'doctor']; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    name = {"cv2": "opencv-python"}.get(module, module)
    assert f"{name}: packer needs the package '{module}': pip install " in done.stderr


def test_a_library_that_a_package_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: str, needed_by: str) -> Any:
        raise ImportError("libGL.so.1: cannot open shared object file")

    monkeypatch.setattr(doctor, "import_or_explain", broken)
    found = doctor.package("opencv-python")
    assert found.problem == "libGL.so.1: cannot open shared object file"
    assert "opencv-python" in found.fix


def test_an_old_version_and_two_opencvs_are_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", lambda name: "2.5.1+cu121")
    found = doctor.package("torch")
    assert (found.problem, found.fix) == ("version 2.5.1+cu121, expected at least 2.6", "pip install -U 'torch>=2.6'")
    monkeypatch.setattr(doctor, "version", lambda name: "2.10.0")
    assert doctor.package("torch").problem == ""
    assert list(doctor.opencvs(["opencv-python"])) == []
    (both,) = doctor.opencvs(["opencv-python", "opencv-python-headless"])
    assert "overwrite each other's files" in both.problem
    assert both.fix.startswith("pip uninstall opencv-python opencv-python-headless")


@pytest.mark.jpeg
def test_the_decoder_is_the_first_library_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    usable = [found for found in strict_jpeg.attempts() if not isinstance(found, str)]
    assert usable
    monkeypatch.setattr(strict_jpeg, "attempts", lambda: iter(["no libturbojpeg.so.0", usable[-1]]))
    second = doctor.decoder()
    assert second.found.startswith(usable[-1].name)
    assert second.problem == ""
    monkeypatch.setattr(strict_jpeg, "attempts", lambda: iter(["no this", "no that"]))
    none = doctor.decoder()
    assert (none.problem, none.fix) == ("no JPEG library works: no this; no that", "pip install simplejpeg")


def test_an_hdf5_with_known_holes_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a distribution builds a new h5py with its old HDF5."""
    calls = [SimpleNamespace(version=SimpleNamespace(hdf5_version="1.14.6"))]
    monkeypatch.setattr(doctor, "import_or_explain", lambda module, needed_by: calls[0])
    (old,) = doctor.hdf5()
    assert old.problem.startswith("h5py calls HDF5 1.14.6, expected at least 2.0: ")
    assert old.fix == "pip install --force-reinstall --only-binary h5py 'h5py>=3.16'"
    calls[0] = SimpleNamespace(version=SimpleNamespace(hdf5_version="2.1.0-2"))
    assert list(doctor.hdf5()) == [Finding("HDF5", "2.1.0-2")]


def test_a_gpu_that_torch_does_not_see_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blind = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setattr(doctor, "import_or_explain", lambda module, needed_by: blind)
    assert doctor.gpu(tmp_path) == Finding("GPU", "none")
    (tmp_path / "nvidiactl").write_bytes(b"")
    assert "torch" in doctor.gpu(tmp_path).problem
    cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2, get_device_name=lambda number: "H200")
    monkeypatch.setattr(doctor, "import_or_explain", lambda module, needed_by: SimpleNamespace(cuda=cuda))
    assert doctor.gpu(tmp_path) == Finding("GPU", "2 x H200")


def test_one_core_of_many_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    few = doctor.cores(made_up(tmp_path / "few", files={"cpu.max": "400000 100000"}))
    assert few == Finding("cores", few.found)
    one = doctor.cores(made_up(tmp_path / "one", files={"cpu.max": "90000 100000"}))
    assert one.problem
    assert "--cpus-per-task" in one.fix
    assert "affinity 16, cgroup quota 0.9" in one.found


def test_little_memory_is_a_problem(tmp_path: Path) -> None:
    assert doctor.memory(made_up(tmp_path / "a", total=8 * GB, available=GB)).problem == ""
    assert "less than 5 %" in doctor.memory(made_up(tmp_path / "b", total=8 * GB, available=GB // 4)).problem
    files = {"memory.max": "1000", "memory.current": "999"}
    assert "cgroup" in doctor.memory(made_up(tmp_path / "c", files=files)).problem
    assert doctor.memory(Machine(tmp_path, tmp_path, tmp_path)).found == "not reported by the system"


def test_small_shared_memory_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [16384]  # Docker's 64 MB

    def statvfs(path: Path) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, blocks[0], blocks[0], blocks[0], 99, 99, 99, 0, 255))

    monkeypatch.setattr(os, "statvfs", statvfs)
    small = doctor.shared_memory(made_up(tmp_path / "small"))
    assert "0.1 GB are free" in small.problem
    assert "--shm-size" in small.fix
    blocks[0] = 1 << 20
    assert doctor.shared_memory(made_up(tmp_path / "large")).problem == ""
    blocks[0] = 0  # a tmpfs without a size
    assert doctor.shared_memory(made_up(tmp_path / "any")).problem == ""
    disk = made_up(tmp_path / "disk", kind="ext4")
    assert doctor.shared_memory(disk).fix == f"mount -t tmpfs tmpfs {disk.shared_memory}"


def test_few_open_files_are_a_problem() -> None:
    def lowered() -> list[str]:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        found = doctor.open_files()
        return [found.problem, found.fix]

    problem, fix = child(lowered).value
    assert problem.startswith("256 at once are few")
    assert fix.startswith("ulimit -n 1024")
