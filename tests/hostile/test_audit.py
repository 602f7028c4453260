"""Nothing in a pack is ever run: many hostile packs, everything done to each, and the events that Python raised.

Each operation ends with a PackerError or a value, never with a signal, another exception or no end; no event of the
list in audited.py is raised after the imports, nothing is written outside the target, and no pack changes. Records
that are read are the sound ones where the pack may be read at all.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from packer import formats
from tests.support import (
    audit_program,
    built_packs,
    hostile_folders,
    hostile_foreign_parts,
    hostile_manifests,
    hostile_parts,
    hostile_values,
    source_trees,
)
from tests.support.child_processes import child
from tests.support.hostile_packs import Case, lay_out

MOST_SECONDS = 60.0  # for one operation on one pack of three samples
SOUND = [{name: value.hex() for name, value in record.items()} for record in built_packs.records(3)]


def corpus() -> list[Case]:
    """Every hostile pack."""
    modules = (hostile_parts, hostile_folders, hostile_foreign_parts, hostile_manifests, hostile_values)
    return [case for module in modules for case in module.cases()]


def warm_ups(names: Sequence[str]) -> list[Case]:
    """Sound packs and a refusal, so that everything is imported before events count."""
    found = [Case(f"sound {name}", lambda pack: None, name, "same") for name in names]
    jpeg = hostile_values.with_value("image", source_trees.image(1, suffix=".jpg"), format=formats.names()[0])
    found.append(Case("decoding", jpeg, "", "any"))  # the first JPEG lets ctypes look for libturbojpeg
    found += [Case("unknown format", hostile_manifests.MANIFESTS["format 'os'"])]
    found += [Case("no manifest", hostile_manifests.nothing)]  # all sources look at what is no pack, for a hint
    return found


def run(folders: Sequence[Path], *, warm: int) -> Iterator[dict[str, Any]]:
    """What the program says of each operation; where it ends early or stands still, that is said as well."""
    # -B: a module that is imported for the first time ever, such as a codec, would be written
    command = [sys.executable, "-B", "-X", "faulthandler", audit_program.__file__, str(warm), *map(str, folders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        last: dict[str, Any] = {}
        ended = False
        for line in lines(process):
            last = json.loads(line)
            ended = "end" in last
            if ended:
                yield last
        process.kill()
        errors = process.stderr.read() if process.stderr else ""
    if not ended or process.returncode not in (0, -9):
        yield {**last, "end": f"process ended with {process.returncode}", "message": errors[-2000:], "events": []}


def lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    """Lines as they come; ends where none comes for too long."""
    stream = process.stdout
    assert stream is not None
    rest = b""
    deadline = time.monotonic() + 2 * MOST_SECONDS
    while time.monotonic() < deadline:
        if not select.select([stream.fileno()], [], [], 1.0)[0]:
            continue
        block = os.read(stream.fileno(), 1 << 16)
        if not block:
            return
        *whole, rest = (rest + block).split(b"\n")
        deadline = time.monotonic() + MOST_SECONDS
        yield from (line.decode() for line in whole)


def check(root: Path, cases: list[Case], names: Sequence[str]) -> None:
    """Everything that must hold for these packs, and for sound ones of these formats."""
    first = warm_ups(names)
    places = list(lay_out(root, [*first, *cases]))
    known = {place.name: case for place, case in zip(places, [*first, *cases], strict=True)}
    faults, done = [], 0
    for found in run(places, warm=len(first)):
        case = known[found["place"]]
        done += 1
        for fault in faults_of(case, found):
            faults.append(f"{case.name}: {found['operation']}: {fault}")
    assert not faults, "\n".join(faults[:40])
    assert done == len(known) * len(audit_program.OPERATIONS)


def faults_of(case: Case, found: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one outcome."""
    yield from found["events"]
    if found["end"] == "crash" or found["end"].startswith("process"):
        yield f"{found['end']}: {found['message']}"
    if found["operation"] == "read" and case.expect != "any":
        if (found["end"] == "value") != (case.expect == "same"):
            yield f"expected {case.expect}, found {found['end']}: {found.get('message')}"
        if found["end"] == "value" and found["value"] != SOUND:
            yield "other records than those that were packed"


def test_hostile_packs_run_nothing(tmp_path: Path) -> None:
    """One pack; all are for the full run."""
    (case, *_) = corpus()
    check(tmp_path, [case], [case.base])


@pytest.mark.full
@pytest.mark.parametrize("number", range(12))
def test_the_other_hostile_packs_run_nothing(tmp_path: Path, number: int) -> None:
    check(tmp_path, corpus()[number::12], formats.names())


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    names = [case.name for case in corpus()]
    assert len(names) >= 100
    assert len(set(names)) == len(names)


# ---- that the watch sees what it is for


def opened_for_writing(pack: Path, work: Path) -> None:
    (work.parent / "planted").write_text("x")


PLANTED: dict[str, Callable[[Path, Path], Any]] = {
    "pickle.find_class": lambda pack, work: __import__("pickle").loads(b"cos\ngetpid\n."),
    "os.system": lambda pack, work: os.system("true"),
    "subprocess.Popen": lambda pack, work: subprocess.run(["true"], check=True),
    "socket.": lambda pack, work: __import__("socket").socket().close(),
    "ctypes.dlopen": lambda pack, work: __import__("ctypes").CDLL("libc.so.6"),
    "compile": lambda pack, work: compile("1", str(pack / "a.py"), "eval"),
    "exec": lambda pack, work: eval("1"),
    "open": opened_for_writing,
    "open ": lambda pack, work: (work.parent / "secret").read_bytes(),
    "os.remove": lambda pack, work: os.remove(work.parent / "secret"),
    "os.mkdir": lambda pack, work: os.mkdir(work / "../made"),
    "urllib.Request": lambda pack, work: __import__("urllib.request").request.urlopen("http://127.0.0.1:9"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("event", PLANTED)
def test_a_planted_event_is_seen(event: str, tmp_path: Path) -> None:
    (place,) = lay_out(tmp_path, [Case("sound", lambda pack: None)])
    (place / "work").mkdir()

    def planted() -> list[str]:
        watch = audit_program.Watch()
        sys.addaudithook(watch)  # stays for ever: so this is a child
        watch.ready = True
        return list(audit_program.attempt(PLANTED[event], place, watch)["events"])

    outcome = child(planted)
    assert any(found.startswith(event) for found in outcome.value), outcome


def test_an_import_from_a_pack_is_seen(tmp_path: Path) -> None:
    (place,) = lay_out(tmp_path, [Case("sound", lambda pack: None)])
    (place / "work").mkdir()
    (place / "pack/planted_module.py").write_text("x = 1\n")

    def planted() -> list[str]:
        sys.path.insert(0, str(place / "pack"))
        watch = audit_program.Watch()
        sys.addaudithook(watch)
        watch.ready = True
        return list(audit_program.attempt(lambda pack, work: __import__("planted_module"), place, watch)["events"])

    assert any("planted_module" in found for found in child(planted).value)


def test_a_changed_pack_is_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (place,) = lay_out(tmp_path, [Case("sound", lambda pack: None)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(audit_program.tempfile, "tempdir", None)
    audit_program.examine(place, audit_program.Watch(), {"touch": lambda pack, work: (pack / "packer.json").touch()})
    assert "changed: " in capsys.readouterr().out


def test_a_signal_and_a_hang_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    monkeypatch.setattr(audit_program, "__file__", str(program))
    program.write_text('import os\nprint(\'{"place": "000"}\', flush=True)\nos.abort()\n')
    assert [found["end"] for found in run([], warm=0)] == ["process ended with -6"]
    monkeypatch.setattr(sys.modules[__name__], "MOST_SECONDS", 0.5)
    program.write_text('import time\nprint(\'{"place": "000"}\', flush=True)\ntime.sleep(99)\n')
    assert [found["end"] for found in run([], warm=0)] == ["process ended with -9"]
