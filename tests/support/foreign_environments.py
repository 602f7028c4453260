"""Environments of other libraries, made by scripts/foreign: a test asks one of them what it reads in a file."""

import subprocess
from pathlib import Path

import pytest

_MADE = Path(__file__).resolve().parents[2] / ".foreign"


def said_by(name: str, program: str, *words: object) -> str:
    """What a Python program prints in the environment of that name; the test is skipped where there is none.

    words: sys.argv[1:] of the program. Raises AssertionError with what it wrote to stderr where it fails.
    """
    inside = _MADE / name / "bin/python"
    if not (_MADE / name / "complete").exists():
        pytest.skip(f"no environment of {name}: scripts/foreign {name} makes it")
    done = subprocess.run([inside, "-c", program, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
