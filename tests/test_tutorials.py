"""The notebooks of the tutorials follow their pages, run, and print what the pages show."""

import json
import math
import os
import re
import sys
from pathlib import Path

import pytest

from tests.support import warm_python
from tests.support.repository import ROOT, loaded

TUTORIALS = ROOT / "docs/tutorials"
# of the last loss, far above the loss of a trained network
_BOUNDS = {"classification": 0.65, "segmentation": 0.6, "detection": 2.0, "grasping": 3.0}
_BEGIN = """
import subprocess, sys, torch
torch.set_num_threads(1)  # threads only wait for each other here
sys.stdout.reconfigure(line_buffering=True)  # the output of commands comes between
def shell(line):
    subprocess.run(line, shell=True, check=True, stderr=subprocess.STDOUT)
"""
_MARK = "\x1e"


def test_the_notebooks_are_those_of_these_pages() -> None:
    wanted = loaded("scripts/docs.py").notebooks()
    stale = [path.name for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    assert not stale, f"run scripts/docs write: {stale}"
    assert set(TUTORIALS.glob("*.ipynb")) == set(wanted)
    assert {path.stem for path in wanted} == set(_BOUNDS)


def outputs(name: str, folder: Path) -> list[str]:
    """Run the cells of a notebook in order, as one program in a folder; what each prints."""
    cells = json.loads((TUTORIALS / f"{name}.ipynb").read_text())["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    codes = [re.sub(r"^!(.*)", lambda found: f"shell({found[1]!r})", code, flags=re.MULTILINE) for code in codes]
    program = f"\nprint({_MARK!r})\n".join([_BEGIN, *codes])
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # has `packer`
    environment = {**os.environ, "PATH": path}
    done = warm_python.run(program, capture=True, check=False, strict=True, folder=folder, environment=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split(f"{_MARK}\n")[1:]


def shown(page: str) -> list[str | None]:
    """The output that a page shows for each block of code: the block of text after it."""
    blocks = re.findall(r"^```(?:sh|python)\n.*?\n```$(?:\n\n^```text\n(.*?)\n```$)?", page, re.DOTALL | re.MULTILINE)
    return [text or None for text in blocks]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", sorted(_BOUNDS))
def test_a_tutorial_trains_and_prints_what_its_page_shows(name: str, tmp_path: Path) -> None:
    printed = outputs(name, tmp_path)
    wanted = shown((TUTORIALS / f"{name}.md").read_text())
    for text, output in zip(wanted, printed, strict=True):
        if text is not None:  # `...` is any text, and a number with a point is any such number
            pattern = re.sub(r"\d+\\\.\d+", r"\\d+\\.\\d+", re.escape(text)).replace(re.escape("..."), ".*")
            assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"{name} shows\n{text}\n\nand prints\n{output}"
    last = re.search(r"loss (\S+)$", printed[-1].strip())
    assert last is not None and math.isfinite(float(last[1]))
    assert float(last[1]) < _BOUNDS[name]
