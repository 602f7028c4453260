"""Interrupted conversions: the target is absent or whole, and the next run ends with the same bytes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trees
from converting import digest, opened, packed
from test_convert import photos

from packer.conversion import encoding
from packer.conversion.options import Options
from packer.conversion.run import convert
from packer.errors import CorruptPack, Interrupted, Refused
from packer.pack.verification import problems

_OPTIONS = {"resize": "64", "part_bytes": 100_000}
_CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from converting import packed
packed(Path(sys.argv[1]), Path(sys.argv[2]), **{options})
print("done", flush=True)
"""


def start(root: Path, target: Path) -> "subprocess.Popen[bytes]":
    """A conversion in a process of its own."""
    code = _CHILD.replace("{options}", repr(_OPTIONS))
    words = [sys.executable, "-c", code, str(root), str(target), str(Path(__file__).parent)]
    return subprocess.Popen(words, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE)


def kill_and_resume(tmp_path: Path, kills: int, seed: int) -> list[str]:
    """Kill conversions at random moments; returns what was at the target after each kill."""
    root = photos(tmp_path / "in", 60, height=150, width=200)
    packed(root, tmp_path / "clean.pack", **_OPTIONS)
    clean = digest(tmp_path / "clean.pack")
    started = time.monotonic()
    with start(root, tmp_path / "timed.pack") as child:
        child.wait()
    length = time.monotonic() - started
    moments = random.Random(seed)
    states = []
    for number in range(kills):
        target = tmp_path / f"out{number}.pack"
        with start(root, target) as child:
            time.sleep(moments.uniform(0.3, 1.1) * length)
            child.kill()
        if target.exists():
            states.append("complete")
        else:
            states.append("resumed" if any((tmp_path / f".{target.name}.partial/pieces").glob("*")) else "absent")
            packed(root, target, **_OPTIONS)
        assert digest(target) == clean
        assert not (tmp_path / f".{target.name}.partial").exists() or states[-1] == "complete"
    return states


def test_a_killed_conversion_leaves_nothing_or_all_and_is_continued(tmp_path: Path) -> None:
    states = kill_and_resume(tmp_path, 5, seed=1)
    assert len(states) == 5


@pytest.mark.full
def test_a_hundred_kills(tmp_path: Path) -> None:
    states = kill_and_resume(tmp_path, 100, seed=2)
    print({state: states.count(state) for state in sorted(set(states))})  # noqa: T201  the figure that is asked for
    assert len(states) == 100


class StopAfter:
    """A progress callback that interrupts after some samples."""

    def __init__(self, samples: int) -> None:
        self.left = samples

    def __call__(self, samples: int, size: int) -> None:
        self.left -= samples
        if self.left <= 0:
            raise Interrupted(signal.SIGTERM)


@pytest.mark.parametrize("samples", [1, 20, 45, 60])
def test_finished_parts_are_not_built_again(tmp_path: Path, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "in", 60, height=100, width=100)
    options = Options(part_bytes=60_000)
    convert(opened(root), tmp_path / "clean.pack", options)
    with pytest.raises(Interrupted):
        convert(opened(root), tmp_path / "out.pack", options, progress=StopAfter(samples))
    assert not (tmp_path / "out.pack").exists()
    journal = (tmp_path / ".out.pack.partial/journal").read_text().splitlines()
    finished = sum(json.loads(line)["part"]["samples"] for line in journal[1:])
    encoded = []
    real = encoding.Encoder.__call__
    monkeypatch.setattr(encoding.Encoder, "__call__", lambda self, index: (encoded.append(index), real(self, index))[1])
    summary = convert(opened(root), tmp_path / "out.pack", options)
    assert summary.resumed_samples == finished
    assert sorted(encoded) == list(range(finished, 60))
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


def test_changed_inputs_and_options_are_refused_until_restart(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 30)
    with pytest.raises(Interrupted):
        convert(opened(root), tmp_path / "out.pack", Options(part_bytes=3000), progress=StopAfter(15))
    with pytest.raises(Refused, match="--restart"):
        convert(opened(root), tmp_path / "out.pack", Options(part_bytes=4000))
    path = root / "class0/0000.jpg"
    path.write_bytes(trees.picture(99, suffix=".jpg", height=24, width=32))
    with pytest.raises(Refused, match="--restart"):
        convert(opened(root), tmp_path / "out.pack", Options(part_bytes=3000))
    convert(opened(root), tmp_path / "out.pack", Options(part_bytes=3000), existing="restart")
    packed(root, tmp_path / "clean.pack", part_bytes=3000)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


def test_work_without_a_finished_part_is_not_worth_a_refusal(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 10)
    with pytest.raises(Interrupted):
        convert(opened(root), tmp_path / "out.pack", Options(), progress=StopAfter(1))
    assert (tmp_path / ".out.pack.partial").exists()
    assert convert(opened(root), tmp_path / "out.pack", Options(resize="8")).samples == 10


def test_a_limit_on_file_sizes_ends_with_exit_4_and_the_work_goes_on_later(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 60, height=100, width=100)
    command = f"{sys.executable} -m packer convert {root} {tmp_path / 'o.pack'} --part-size 100k"
    done = subprocess.run(["sh", "-c", f"ulimit -f 300; exec {command}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0  # no part is larger than 150 KiB
    packed(root, tmp_path / "one.pack", part_bytes=0)
    command = f"{sys.executable} -m packer convert {root} {tmp_path / 'p.pack'} --part-size 0"
    done = subprocess.run(["sh", "-c", f"ulimit -f 300; exec {command}"], capture_output=True, text=True, check=False)
    assert done.returncode == 4, done.stderr
    assert "bytes are still needed" in done.stderr
    assert not (tmp_path / "p.pack").exists()
    assert subprocess.run(command.split(), capture_output=True, check=False).returncode == 0
    parts = [(tmp_path / name / "part-00000.lmdb").read_bytes() for name in ("one.pack", "p.pack")]
    assert parts[0] == parts[1]


def test_a_cut_journal_line_does_not_count(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 30)
    options = Options(part_bytes=3000)
    with pytest.raises(Interrupted):
        convert(opened(root), tmp_path / "out.pack", options, progress=StopAfter(20))
    journal = tmp_path / ".out.pack.partial/journal"
    journal.write_bytes(journal.read_bytes()[:-7])
    convert(opened(root), tmp_path / "out.pack", options)
    convert(opened(root), tmp_path / "clean.pack", options)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")
    assert list(problems(tmp_path / "out.pack", depth="data")) == []


def test_a_damaged_journal_and_a_lost_part_are_noticed(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 30)
    options = Options(part_bytes=3000)
    convert(opened(root), tmp_path / "clean.pack", options)
    with pytest.raises(Interrupted):
        convert(opened(root), tmp_path / "out.pack", options, progress=StopAfter(25))
    partial = tmp_path / ".out.pack.partial"
    text = (partial / "journal").read_bytes()
    for wrong in (text.replace(b'"part"', b'"pert"'), text.replace(b"{", b"[", 3), b"[]\n" + text):
        (partial / "journal").write_bytes(wrong)
        with pytest.raises(CorruptPack, match="--restart"):
            convert(opened(root), tmp_path / "out.pack", options)
    (partial / "journal").write_bytes(text)
    os.truncate(partial / "pack/part-00000.lmdb", 4096)
    (partial / "pieces/part-00001.lmdb").unlink()
    convert(opened(root), tmp_path / "out.pack", options)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


def test_one_of_many_converters_wins_and_the_others_are_told(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 40, height=300, width=400)
    command = [
        sys.executable,
        "-c",
        "from packer.cli import run; run()",
        "convert",
        str(root),
        str(tmp_path / "o.pack"),
    ]
    children = [
        subprocess.Popen([*command, "--resize", "200"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(4)
    ]
    codes = sorted(child.wait() for child in children)
    assert codes[0] == 0
    assert set(codes[1:]) <= {5, 2}  # locked; or it came when the winner had already published
    assert list(problems(tmp_path / "o.pack")) == []
    assert sorted(os.listdir(tmp_path)) == ["in", "o.pack"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_with_its_code_and_the_work_is_kept(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    root = photos(tmp_path / "in", 400, height=200, width=300)
    command = [
        sys.executable,
        "-c",
        "from packer.cli import run; run()",
        "convert",
        str(root),
        str(tmp_path / "o.pack"),
    ]
    with subprocess.Popen(
        [*command, "--resize", "150", "--part-size", "50000", "--threads", "1"], stderr=subprocess.PIPE, text=True
    ) as child:
        journal = tmp_path / ".o.pack.partial/journal"
        while not (journal.exists() and journal.read_bytes().count(b"\n") > 2):
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(number)
        _, text = child.communicate()
    assert child.returncode == code
    assert "same command" in text
    assert "Traceback" not in text
    assert not (tmp_path / "o.pack").exists()
    done = subprocess.run(
        [*command, "--resize", "150", "--part-size", "50000", "--json"], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout)["resumed_samples"] > 0
