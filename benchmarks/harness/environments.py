"""One virtual environment per peer, with the versions of its NAME.txt; packer's own for peers without one."""

import hashlib
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import native

PEERS = Path(__file__).parents[1] / "peers"
# the headers of OpenCV that a peer compiles against; Debian's own name all its modules
_HEADERS = {
    "opencv2/opencv.hpp": "#include <opencv2/core.hpp>\n#include <opencv2/imgproc.hpp>\n",
    "opencv2/opencv_modules.hpp": "#define HAVE_OPENCV_CORE\n#define HAVE_OPENCV_IMGPROC\n",
}


class NotInstalled(Exception):
    """Why an environment cannot be made, in one line."""


@dataclass(frozen=True)
class Environment:
    """An interpreter and the variables of its processes; `lacks` says which C libraries could not be had."""

    python: Path
    variables: dict[str, str]
    lacks: str = ""


def requirements(name: str) -> Path:
    """The file with a peer's pinned versions; where it does not exist the peer runs in packer's own environment."""
    return PEERS / f"{name}.txt"


def make(name: str, peer: Any, folder: Path, *, pins: Path | None = None) -> Environment:
    """Make or reuse the environment of a peer under `folder`; raises NotInstalled. pins: of what is no peer."""
    pins = pins or requirements(name)
    if not pins.exists():
        return Environment(Path(sys.executable), dict(os.environ))
    place = folder / name
    libraries, lacks = _libraries(peer.SYSTEM, place / "native")
    variables = dict(os.environ)
    if libraries:
        before = [variables["LD_LIBRARY_PATH"]] if "LD_LIBRARY_PATH" in variables else []
        variables["LD_LIBRARY_PATH"] = ":".join([*map(str, libraries), *before])
    made = Environment(place / "bin" / "python", variables, lacks)
    stamp = place / f"installed-{hashlib.sha256(pins.read_bytes()).hexdigest()[:16]}"
    if not stamp.exists():
        _install(made, pins, place)
        stamp.touch()
    return made


def _libraries(packages: tuple[str, ...], folder: Path) -> tuple[list[Path], str]:
    if not packages:
        return [], ""
    try:
        return native.unpack(packages, folder), ""
    except native.NotAvailable as error:
        return [], str(error)


def _install(environment: Environment, pins: Path, place: Path) -> None:
    if not environment.python.exists():
        venv.create(place, with_pip=True)
    variables = environment.variables | _for_compilers(place / "native")
    pip = [str(environment.python), "-m", "pip", "install", "--disable-pip-version-check", "-r", str(pins)]
    done = subprocess.run(pip, env=variables, capture_output=True, text=True, check=False)
    (place / "install.log").write_text(done.stdout + done.stderr)
    if done.returncode:
        errors = [line.strip() for line in done.stderr.splitlines() if "rror" in line]
        text = (errors or ["pip failed"])[-1]
        raise NotInstalled(
            "; ".join(part for part in (text, environment.lacks, f"see {place / 'install.log'}") if part)
        )


def _for_compilers(folder: Path) -> dict[str, str]:
    """Variables with which a source package finds what was unpacked: pkg-config files that name our folders."""
    if not any(folder.glob("usr/include/opencv4")):
        return {}
    headers, files = folder / "headers", folder / "pkgconfig"
    for name, text in _HEADERS.items():
        (headers / name).parent.mkdir(parents=True, exist_ok=True)
        (headers / name).write_text(text)
    files.mkdir(exist_ok=True)
    includes = [headers, folder / "usr/include/opencv4", *folder.glob("usr/include/*/opencv4"), folder / "usr/include"]
    include = " ".join(f"-I{path}" for path in includes)
    (place,) = {path.parent for path in folder.glob("usr/lib/**/libopencv_core.so")}
    for name, names in {"opencv4": ("opencv_imgproc", "opencv_core"), "libturbojpeg": ("turbojpeg",)}.items():
        libraries = " ".join(f"-l{library}" for library in names)
        text = f"Name: {name}\nDescription: unpacked\nVersion: 0\nLibs: -L{place} {libraries}\nCflags: {include}\n"
        (files / f"{name}.pc").write_text(text)
    return {"PKG_CONFIG_PATH": str(files)}
