"""Environments of other libraries, made by scripts/foreign: a test asks one of them what it reads in a file."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_MADE = _ROOT / ".foreign"
_ON_CPU = {"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true"}

# The compiled half of torchvision's wheels needs the torch that they were built with. Without it, torchvision misses
# two operators as soon as a program imports it. No transform of the tests runs them.
TORCHVISION_OPERATORS = """
import importlib.util
from pathlib import Path
import torch

if (torchvision_spec := importlib.util.find_spec("torchvision")) is not None:
    try:
        for library in Path(torchvision_spec.origin).parent.glob("_C*.so"):
            torch.ops.load_library(library)
    except OSError:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def said_by(name: str, program: str, *words: object, folder: Path | None = None, libraries: Sequence[str] = ()) -> str:
    """Return what a Python program prints in the environment `name`. Without the environment, the test is skipped.

    Args:
        name: Name of the environment.
        program: The code.
        words: sys.argv[1:] of the program.
        folder: Working folder of the program. It imports packer from this checkout and uses the CPU.
        libraries: Modules that the program imports. If the environment is absent, but these modules are installed next
            to packer, the program runs there.

    Raises:
        AssertionError: The program failed, with the text of stderr.
    """
    inside = _MADE / name / "bin/python"
    if not (_MADE / name / "complete").exists():
        missing = [library for library in libraries if importlib.util.find_spec(library) is None]
        if missing or not libraries:
            also = f", and {', '.join(missing)} not installed" if missing else ""
            pytest.skip(f"no environment of {name}{also}: scripts/foreign {name} makes it")
        inside = Path(sys.executable)
    environment = None if folder is None else {**os.environ, **_ON_CPU, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        [inside, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
