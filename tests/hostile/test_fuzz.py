"""What fuzzing found stays found: every seed and every kept input is given to its target; and the fuzzers do find."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from packer.errors import CorruptPack
from tests.fuzz import campaign, target
from tests.fuzz.minimising import minimised
from tests.fuzz.target import CORPUS, Disagreement, Target, judge, load, name_of, names
from tests.support.child_processes import child

ROOT = Path(__file__).parents[2]
MOST_CORPUS_BYTES = 400_000
FINDS = """
from packer.errors import CorruptPack, OutOfMemory
from tests.fuzz.target import Disagreement, refusable

class Acting(CorruptPack):
    def __str__(self):
        return "\\x1b[2J"

def check(data):
    if data[:1] == b"b":
        {guilt}

def seeds():
    yield b"a.c"

TOKENS = (b"b",)
"""


@pytest.mark.parametrize("name", names())
def test_no_seed_and_no_kept_input_is_a_finding(name: str) -> None:
    one = load(name)  # here, so that only one process loads its libraries

    def replay() -> list[str]:
        sizes = [len(data) for data in one.seeds()]
        assert sizes and max(sizes) <= one.most_bytes and all(one.tokens)
        return [found.report for data in one.inputs() if (found := judge(one, data)) is not None]

    outcome = child(replay, timeout_seconds=60)
    assert (outcome.kind, outcome.value) == ("value", []), outcome


def test_the_corpus_is_small_and_has_names_that_its_bytes_give() -> None:
    files = [path for path in CORPUS.glob("*/*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MOST_CORPUS_BYTES
    assert {path.parent.name for path in files} <= set(names())
    assert [path.name for path in files] == [name_of(path.read_bytes()) for path in files]


def planted(monkeypatch: pytest.MonkeyPatch, guilt: str) -> Target:
    """A target whose check does that to what begins with `b`."""
    module = ModuleType("tests.fuzz.targets.planted")
    exec(FINDS.format(guilt=guilt), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return load("planted")


@pytest.mark.parametrize(
    ("guilt", "kind"),
    [
        ("raise KeyError(data)", "exception"),
        ("raise Acting", "exception"),
        ("with refusable(): raise Acting", "exception"),
        ("raise Disagreement('other')", "disagreement"),
        ("raise MemoryError", "memory"),
        ("with refusable(): raise OutOfMemory('no')", "memory"),
    ],
)
def test_what_no_parser_may_do_is_a_finding(monkeypatch: pytest.MonkeyPatch, guilt: str, kind: str) -> None:
    one = planted(monkeypatch, guilt)
    assert judge(one, b"a.c") is None
    found = judge(one, b"b")
    assert found is not None and found.kind == kind


def test_an_input_that_takes_too_long_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "MOST_CPU_SECONDS", 0.05)
    found = judge(planted(monkeypatch, "while True: pass"), b"b")
    assert found is not None and found.kind == "time"


@pytest.mark.parametrize("guilt", ["raise CorruptPack('no')", "with refusable(): raise CorruptPack('no')"])
def test_a_refusal_is_none(monkeypatch: pytest.MonkeyPatch, guilt: str) -> None:
    assert judge(planted(monkeypatch, guilt), b"b") is None
    assert issubclass(Disagreement, AssertionError) and not issubclass(Disagreement, CorruptPack)


ENGINES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "atheris" and find_spec("atheris") is None,
            reason="atheris is not installed: scripts/install fuzz brings it",
        ),
    )
    for name in campaign.ENGINES
]


@pytest.fixture
def own_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for targets of a test, before which no other counts, in this process and in workers."""
    folder = tmp_path / "path" / "tests" / "fuzz"
    folder.mkdir(parents=True)
    for name in ("__init__.py", "support"):
        (folder.parent / name).symlink_to(ROOT / "tests" / name)
    for path in (ROOT / "tests" / "fuzz").glob("*.py"):
        (folder / path.name).symlink_to(path)
    (folder / "targets").mkdir()
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'path'}:{ROOT}")
    return folder / "targets"


@pytest.mark.full
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("guilt", "kind"),
    [
        pytest.param("raise KeyError(data)", "exception", id="raises"),
        pytest.param("import os; os.abort()", "end", id="ends"),
    ],
)
def test_an_engine_finds_what_is_planted(own_targets: Path, engine: str, guilt: str, kind: str) -> None:
    (own_targets / "planted.py").write_text('"""Planted."""\n' + FINDS.format(guilt=guilt))
    corpus = own_targets.parents[3] / "corpus"
    command = [sys.executable, "-m", "tests.fuzz", "planted", "--seconds", "2", "--engine", engine]
    command += ["--corpus", str(corpus)]
    for _ in range(10):  # on a busy machine two seconds may be a handful of inputs
        ended = subprocess.run(command, capture_output=True, text=True, cwd=own_targets.parents[3])
        if ended.returncode:
            break
    assert ended.returncode == 1, ended
    # where processor time is scarce, an input may take too long besides
    found = [path for path in (corpus / "planted" / "findings").glob(f"{kind}-*") if path.suffix != ".txt"]
    assert found and all(path.read_bytes()[:1] == b"b" for path in found)
    assert f"scripts/fuzz planted --input {found[0]}" in found[0].with_suffix(".txt").read_text()
    assert "planted" in ended.stdout and engine in ended.stdout


def test_kept_are_the_small_inputs_that_reach_further() -> None:
    one = load("exif")
    far = next(iter(one.seeds()))
    kept = minimised(one, [far, b"II", b"IIxx", b"", far + b"x"])
    assert kept == [b"II"]


def test_the_list_has_every_target_with_what_it_is() -> None:
    command, environment = [sys.executable, "-m", "tests.fuzz", "--list"], {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in ended.stdout.splitlines()] == names()
    assert all(len(line.split()) > 2 for line in ended.stdout.splitlines())
