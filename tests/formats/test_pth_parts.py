"""pth parts through the back door: torch loads them as tensors; the reader takes those that torch saved."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from packer.errors import CorruptPack
from packer.formats import _column_part
from packer.formats.pth import Reader
from packer.schema import Field, Schema
from tests.support import built_packs, warm_python
from tests.support.child_processes import child
from tests.support.hostile_pth import EVIL, HOSTILE, SCHEMA, changed


def test_fields_may_have_the_names_that_torch_and_the_layout_use(tmp_path: Path) -> None:
    names = ("packer", "cpu", "storage", "data", "offsets", "data_pkl", "collections")
    schema = Schema(
        tuple(Field(name, "number", "number", dtype="uint8", shape=()) for name in names)
        + (Field("x", "text", "text"),)
    )
    record = {name: bytes([at]) for at, name in enumerate(names)} | {"x": b"text"}
    built_packs.write_records(tmp_path / "a.pth", [record], "pth", schema)
    found = torch.load(tmp_path / "a.pth", weights_only=True, mmap=True)
    assert [int(found[name]) for name in names] == list(range(len(names)))
    assert built_packs.read_records(tmp_path / "a.pth", 1, "pth", schema) == [record]


WRITE = """
import sys
from pathlib import Path
from packer.codecs import described
from packer.formats.pth import Writer
from packer.schema import Field, Schema
names = [word.lower() for word in sys.argv[2:]] if len(sys.argv[1]) % 2 else ["cpu", "storage", "x"]
schema = described(Schema(tuple(Field(name, "number", "number", dtype="uint16", shape=()) for name in names)))
writer = Writer(Path(sys.argv[1]), schema, payload_bytes=0)
writer.write({name: b"ab" for name in names})
writer.finish()
"""


@pytest.mark.full
def test_the_bytes_depend_neither_on_process_nor_path_nor_on_who_made_the_names(tmp_path: Path) -> None:
    words = ("CPU", "STORAGE", "X")  # a.pth has names from the command line, bb.pth from the code
    command = [sys.executable, "-W", "error", "-c", WRITE, "a.pth", *words]
    path = os.pathsep.join(filter(None, sys.path))
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    warm_python.run(WRITE, "bb.pth", *words, folder=tmp_path, strict=True)
    assert (tmp_path / "a.pth").read_bytes() == (tmp_path / "bb.pth").read_bytes()


# ---- what the reader refuses


@pytest.mark.one_in(7)
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("what", HOSTILE)
def test_anything_but_the_layout_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "a.pth"
    HOSTILE[what](path)
    outcome = child(lambda: len(Reader(path, SCHEMA, samples=3)), timeout_seconds=20)
    assert (outcome.kind, outcome.error) == ("error", "CorruptPack"), outcome
    assert str(path) in outcome.message
    assert "\n" not in outcome.message
    assert len(outcome.message) < 1000


@pytest.mark.parametrize("what", ["a directory of 4 GiB", "a directory of 1 GiB in 64 bits"])
def test_a_huge_directory_is_refused_before_it_is_read(tmp_path: Path, what: str) -> None:
    HOSTILE[what](tmp_path / "a.pth")
    with pytest.raises(CorruptPack, match="zip directory.*[0-9]{10} bytes"):
        Reader(tmp_path / "a.pth", SCHEMA, samples=3)


def test_bytes_before_the_archive_are_refused(tmp_path: Path) -> None:
    changed()(tmp_path / "a.pth")
    (tmp_path / "a.pth").write_bytes(b"#!" + (tmp_path / "a.pth").read_bytes())
    with pytest.raises(CorruptPack, match="does not begin with the first entry"):
        Reader(tmp_path / "a.pth", SCHEMA, samples=3)


def test_the_hand_made_archives_are_read_when_nothing_is_wrong_with_them(tmp_path: Path) -> None:
    changed()(tmp_path / "a.pth")
    assert built_packs.read_records(tmp_path / "a.pth", 3, "pth") == built_packs.records(3)


READ = """
import sys, json
from pathlib import Path
from packer.codecs import described
from packer.formats.pth import Reader
from packer.schema import Schema
schema = described(Schema.from_json(json.loads(sys.argv[2])))
forms = [schema.stored_form(name) for name in schema.names]  # which imports the codecs
b"x".decode("cp437")  # zipfile decodes names with it, and an import would show
seen = []
names = ("pickle.find_class", "exec", "compile", "os.system", "subprocess.Popen", "import", "marshal.loads")
sys.addaudithook(lambda event, args: seen.append((event, str(args)[:80])) if event in names else None)
reader = Reader(Path(sys.argv[1]), schema, samples=3)
record = reader.read(2, schema.names)
print(seen, "torch" in sys.modules, bytes(record["key"]).decode())
"""


def test_nothing_is_unpickled_and_torch_is_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "a.pth"
    changed(**{"data.pkl": EVIL})(path)
    command = [sys.executable, "-c", READ, str(path), json.dumps(SCHEMA.to_json())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert done.stdout == "[] False sample-00002\n"
    assert os.listdir(tmp_path) == ["a.pth"]


def test_the_pickle_of_that_test_would_run_code(tmp_path: Path) -> None:
    code = f"import pickle; pickle.loads({EVIL!r})"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
    assert os.listdir(tmp_path) == ["evil"]


# ---- the disk


def test_a_finished_part_gives_the_space_of_its_spools_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, not when Python next looks for cycles, in which torch 2.6 leaves what it has saved."""
    monkeypatch.setattr(_column_part, "_MOST_BUFFERED", 300)
    gc.disable()
    try:
        built_packs.write_records(tmp_path / "a.pth", built_packs.records(20), "pth")
        held = [line for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]
    finally:
        gc.enable()
    assert held == []
