"""The test run on every Python that packer is for: the oldest with the oldest libraries, the others with the pinned."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / ".matrix"
OLDEST = (3, 11)
LIBRARIES = ("torch", "numpy", "opencv-python", "h5py", "lmdb")
# their verdict differs from release to release, so they have one version everywhere; none of them is a floor of packer
TOOLS = ("mypy", "ruff", "types-PyYAML")
_REQUIREMENT = re.compile(r"^([\w.-]+) >= ([\w.]+)(?:, < [\w.]+)?(; .*)?$")


@dataclass(frozen=True)
class Interpreter:
    """A Python: its program and its version, such as (3, 12, 1)."""

    program: Path
    version: tuple[int, int, int]

    @property
    def name(self) -> str:
        return ".".join(map(str, self.version))

    @property
    def line(self) -> str:
        """Such as 3.12: of each line one release is tested."""
        return ".".join(map(str, self.version[:2]))


def requirements() -> dict[str, tuple[str, str]]:
    """Name -> oldest version and marker, of everything in setup.cfg that the tests need."""
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = config["options.extras_require"]
    found = {}
    for line in (config["options"]["install_requires"] + "\n" + extras["test"]).splitlines():
        if line and not line.startswith("#"):
            match = _REQUIREMENT.match(line)
            if match is None:
                raise SystemExit(f"setup.cfg: {line!r}: expected 'NAME >= VERSION[, < VERSION][; MARKER]'")
            found[match[1]] = (match[2], match[3] or "")
    return found


def floors() -> list[str]:
    """Lines of a constraints file: each library at the oldest version that setup.cfg admits, the tools as pinned."""
    lines = [f"{name}=={version}{marker}" for name, (version, marker) in requirements().items() if name not in TOOLS]
    return lines + [line for line in pins() if re.split(r"[=;]", line)[0] in TOOLS]


def pins() -> list[str]:
    """The lines of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def programs() -> Iterator[Path]:
    """Whatever may be a Python: on PATH, and among the versions that pyenv has made."""
    for folder in os.get_exec_path():
        yield from sorted(Path(folder).glob("python3.[0-9]*"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(pyenv.glob("versions/3.*/bin/python"))


def interpreters() -> list[Interpreter]:
    """The newest release of each line from 3.11 on, the oldest line first; CPython with its lock only."""
    ask = "import sys; print(sys.implementation.name, *sys.version_info[:3], sys.abiflags)"
    found: dict[str, Interpreter] = {}
    for program in programs():
        if not re.fullmatch(r"python(3\.\d+)?", program.name):
            continue  # python3.12-config and the like
        done = subprocess.run([program, "-c", ask], capture_output=True, text=True, check=False)
        words = done.stdout.split()
        if (
            done.returncode or words[0] != "cpython" or len(words) > 4
        ):  # a shim of a version that is not set, PyPy, 3.13t
            continue
        version = (int(words[1]), int(words[2]), int(words[3]))
        each = Interpreter(program, version)
        if version[:2] >= OLDEST and (each.line not in found or version > found[each.line].version):
            found[each.line] = each
    return [found[line] for line in sorted(found, key=lambda line: found[line].version)]


def environment(python: Interpreter, lines: list[str], kind: str) -> Path:
    """The python of an environment with these versions; one that is there already is used again."""
    folder = MADE / f"{python.name}-{kind}-{crc32(repr((requirements(), lines)).encode()):08x}"
    inside = folder / "bin/python"
    if (folder / "complete").exists():
        return inside
    for stale in MADE.glob(f"{python.name}-{kind}-*"):  # gigabytes each, where torch is a CUDA build
        shutil.rmtree(stale)
    folder.mkdir(parents=True)
    (folder / "versions.txt").write_text("".join(f"{line}\n" for line in lines))
    subprocess.run([python.program, "-m", "venv", folder], check=True)
    pip = [inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
    subprocess.run([*pip, "-c", folder / "versions.txt", "-e", f"{ROOT}[test]"], check=True)
    (folder / "complete").touch()
    return inside


def versions(inside: Path) -> str:
    """What is installed there of the libraries that packer stands on."""
    ask = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    done = subprocess.run([inside, "-c", ask, *LIBRARIES], capture_output=True, text=True, check=True)
    return ", ".join(map(" ".join, zip(LIBRARIES, done.stdout.split(), strict=True)))


def checked(inside: Path) -> str:
    """What is wrong with style or types; "" where nothing is. Types are those of the pinned libraries' stubs."""
    wrong = []
    for words in (["ruff", "format", "--check", "."], ["ruff", "check", "."], ["mypy"]):
        if subprocess.run([inside, "-m", *words], cwd=ROOT, check=False).returncode:
            wrong.append(words[0])
    return f", {' and '.join(dict.fromkeys(wrong))} failed" if wrong else ""


def tested(inside: Path, given: list[str]) -> tuple[bool, str]:
    """Whether every test passed, and pytest's closing line."""
    words = [inside, "-m", "pytest", "-n", "logical", "--maxprocesses", "8", "--dist", "worksteal", *given]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        last = ""
        for line in running.stdout:
            print(line, end="", flush=True)
            last = line.strip(" =\n") or last
    return running.returncode == 0, last


def options(words: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(prog="scripts/matrix", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say which Pythons are found, and run nothing")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--pins", action="store_true", help="the versions of constraints.txt on the oldest Python, too")
    kinds.add_argument("--floors", action="store_true", help="the oldest versions on every Python")
    parser.add_argument("python", nargs="*", help="such as 3.12; all that are found without one")
    return parser.parse_args(words)


def main() -> int:
    """Each Python in turn; 1 where one of them failed."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    args = options(words[:at])
    found = interpreters()
    unknown = set(args.python) - {each.line for each in found}
    if unknown or not found:
        raise SystemExit(f"Python {', '.join(sorted(unknown)) or '>= 3.11'}: not found on PATH, nor among pyenv's")
    lines, failed = [], False
    for python in found:
        if args.python and python.line not in args.python:
            continue
        oldest = args.floors or (python.version[:2] == OLDEST and not args.pins)
        kind = "floors" if oldest else "pins"
        if args.list:
            lines.append(f"{python.name}  {kind}  {python.program}")
            continue
        print(f"== Python {python.name}, {kind}", flush=True)
        inside = environment(python, floors() if oldest else pins(), kind)
        # types are promised for the stubs of the pinned libraries: older ones know less, or something else
        wrong = "" if oldest else checked(inside)
        passed, last = tested(inside, words[at + 1 :])
        failed = failed or not passed or bool(wrong)
        lines.append(f"{python.name}  {kind}  {last}{wrong}  ({versions(inside)})")
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
