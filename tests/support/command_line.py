"""The command line in a process of its own, and in this one."""

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from inspect import signature
from io import StringIO
from typing import Any

import pytest
from click.testing import CliRunner, Result

from packer import cli
from packer.cli import main
from tests.support import warm_python

_COMMAND = "from packer.cli import run; run()"


def run(*words: object) -> "subprocess.CompletedProcess[str]":
    """A packer command in a process of its own."""
    return warm_python.run(_COMMAND, *map(str, words), capture=True, check=False, torch=False)


def run_with_torch(*words: object) -> "subprocess.CompletedProcess[str]":
    """As `run`, in a process that has imported torch: for commands that use it."""
    return warm_python.run(_COMMAND, *map(str, words), capture=True, check=False)


def run_here(*words: object) -> "subprocess.CompletedProcess[str]":
    """As `run`, in this process: for many commands that are refused."""
    output, errors = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(errors):
        patch.setattr(sys, "argv", ["packer", *map(str, words)])
        code = cli._code()
    return subprocess.CompletedProcess(words, code, output.getvalue(), errors.getvalue())


def called(*words: object) -> Result:
    """A packer command in this process, without the outer error handling."""
    apart: dict[str, Any] = (
        {"mix_stderr": False} if "mix_stderr" in signature(CliRunner).parameters else {}
    )  # click 8.1
    return CliRunner(**apart).invoke(main, [str(word) for word in words])
