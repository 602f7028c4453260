"""Interrupted conversions: the target is absent or whole, and the next run ends with the same bytes."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packer import formats
from packer.conversion import encode
from packer.conversion.convert import convert_source
from packer.conversion.options import ConversionOptions
from packer.conversion.plan import make_plan
from packer.conversion.publication import FolderPublication
from packer.conversion.work_folder_layout import NAMES
from packer.errors import CorruptPack, Interrupted, InvalidRequest, StorageError
from packer.files.work_folder import work_folder
from tests.support import source_trees
from tests.support.conversions import digest, opened
from tests.support.source_trees import photos


class StopAfter:
    def __init__(self, samples: int) -> None:
        self.left = samples

    def __call__(self, samples: int, size: int) -> None:
        self.left -= samples
        if self.left <= 0:
            raise Interrupted(signal.SIGTERM)


@pytest.mark.one_in(6)
@pytest.mark.parametrize("samples", [1, 20, 45, 60])
def test_finished_parts_are_not_built_again(tmp_path: Path, samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    root = photos(tmp_path / "in", 60, height=100, width=100)
    options = ConversionOptions(part_bytes=60_000)
    convert_source(opened(root), tmp_path / "clean.pack", options)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", options, progress=StopAfter(samples))
    assert not (tmp_path / "out.pack").exists()
    records = (tmp_path / ".out.pack.partial/done").iterdir()
    finished = sum(json.loads(record.read_bytes())["part"]["samples"] for record in records)
    encoded = []
    real = encode.SampleEncoder.__call__
    monkeypatch.setattr(
        encode.SampleEncoder, "__call__", lambda self, index: (encoded.append(index), real(self, index))[1]
    )
    summary = convert_source(opened(root), tmp_path / "out.pack", options)
    assert summary.resumed_samples == finished
    assert sorted(encoded) == list(range(finished, 60))
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


@pytest.mark.one_in(11)
@pytest.mark.parametrize("format", formats.names())
def test_changed_inputs_and_options_are_refused_until_restart(tmp_path: Path, format: str) -> None:
    root, options = photos(tmp_path / "in", 30), ConversionOptions(to=format, part_bytes=3000)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", options, progress=StopAfter(15))
    with pytest.raises(InvalidRequest, match="--restart"):
        convert_source(opened(root), tmp_path / "out.pack", replace(options, part_bytes=4000))
    path = root / "class0/0000.jpg"
    path.write_bytes(source_trees.image(99, suffix=".jpg", height=24, width=32))
    with pytest.raises(InvalidRequest, match="--restart"):
        convert_source(opened(root), tmp_path / "out.pack", options)
    convert_source(opened(root), tmp_path / "out.pack", options, restart=True)
    convert_source(opened(root), tmp_path / "clean.pack", options)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


def test_work_without_a_finished_part_is_not_worth_a_refusal(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 10)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", ConversionOptions(), progress=StopAfter(1))
    assert (tmp_path / ".out.pack.partial").exists()
    assert convert_source(opened(root), tmp_path / "out.pack", ConversionOptions(resize="8")).samples == 10


def test_a_damaged_record_and_a_lost_part_are_noticed(tmp_path: Path) -> None:
    root = photos(tmp_path / "in", 30)
    options = ConversionOptions(part_bytes=3000)
    convert_source(opened(root), tmp_path / "clean.pack", options)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", options, progress=StopAfter(25))
    partial = tmp_path / ".out.pack.partial"
    before = digest(partial)
    for file in (partial / "plan.json", partial / "done/part-00001.json"):
        text = file.read_bytes()
        for wrong in (text.replace(b"{", b"[", 1), b"[]\n" + text, text[:-7], b""):
            file.write_bytes(wrong)
            with pytest.raises(CorruptPack, match=rf"{file.name}: damaged: .*--restart"):
                convert_source(opened(root), tmp_path / "out.pack", options)
        file.write_bytes(text)
    assert digest(partial) == before
    os.truncate(partial / "pack/part-00000.lmdb", 4096)
    (partial / "pieces/part-00001.lmdb").unlink()
    convert_source(opened(root), tmp_path / "out.pack", options)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_with_its_code_and_the_work_is_kept(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    root = photos(tmp_path / "in", 80, height=200, width=300)
    command = [
        sys.executable,
        "-c",
        "from packer.cli import run; run()",
        "convert",
        str(root),
        str(tmp_path / "o.pack"),
    ]
    with subprocess.Popen(
        [*command, "--resize", "150", "--part-size", "25000", "--threads", "1"], stderr=subprocess.PIPE, text=True
    ) as child:
        while len(list((tmp_path / ".o.pack.partial").glob("done/*.json"))) < 2:
            assert child.poll() is None
            time.sleep(0.01)
        child.send_signal(number)
        _, text = child.communicate()
    assert child.returncode == code
    assert "same command" in text
    assert "Traceback" not in text
    assert not (tmp_path / "o.pack").exists()
    done = subprocess.run(
        [*command, "--resize", "150", "--part-size", "25000", "--json"], capture_output=True, check=True, text=True
    )
    assert json.loads(done.stdout)["resumed_samples"] > 0


def test_work_whose_pack_folder_became_the_target_is_taken_up(tmp_path: Path) -> None:
    """A kill right after the rename leaves records without their parts; then the user removes the target."""
    root, options = photos(tmp_path / "in", 30), ConversionOptions(part_bytes=3000)
    convert_source(opened(root), tmp_path / "clean.pack", options)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", options, progress=StopAfter(20))
    (tmp_path / ".out.pack.partial/pack").rename(tmp_path / "gone")
    convert_source(opened(root), tmp_path / "out.pack", options)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


@pytest.mark.parametrize("name", ["plan.json", "part-00001.json"])
def test_a_record_that_cannot_be_read_is_no_reason_to_throw_it_away(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, options = photos(tmp_path / "in", 30), ConversionOptions(part_bytes=3000)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", options, progress=StopAfter(20))
    before = digest(tmp_path / ".out.pack.partial")

    real = os.open

    def fail(path: object, *how: Any, **named: Any) -> int:
        if path == name:
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *how, **named)  # type: ignore[arg-type]

    with (
        monkeypatch.context() as patch,
        pytest.raises(StorageError, match=rf"{name}: .*Input/output error"),
    ):
        patch.setattr(os, "open", fail)
        convert_source(opened(root), tmp_path / "out.pack", options)
    assert digest(tmp_path / ".out.pack.partial") == before


def test_what_a_failed_part_took_is_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, options = photos(tmp_path / "in", 30), ConversionOptions(part_bytes=3000)
    convert_source(opened(root), tmp_path / "clean.pack", options)
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", options, progress=StopAfter(20))
    finished = len(os.listdir(tmp_path / ".out.pack.partial/done"))

    def fail(self: object) -> None:
        raise StorageError("part: cannot write: full")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="still needed"):
        patch.setattr("packer.formats.lmdb.Writer.finish", fail)
        convert_source(opened(root), tmp_path / "out.pack", options)
    assert len(os.listdir(tmp_path / ".out.pack.partial/pack")) == finished
    convert_source(opened(root), tmp_path / "out.pack", options)
    assert digest(tmp_path / "out.pack") == digest(tmp_path / "clean.pack")


def test_the_option_that_is_another_is_named(tmp_path: Path) -> None:
    root, options = photos(tmp_path / "in", 30), ConversionOptions(part_bytes=3000, codecs=(("image", "jpeg:90"),))
    with pytest.raises(Interrupted):
        convert_source(opened(root), tmp_path / "out.pack", options, progress=StopAfter(20))
    for other, text in (
        (replace(options, resize="16"), "--resize was not given, now 16;"),
        (replace(options, codecs=(("image", "jpeg:80"),)), "--codec was image=jpeg:90, now image=jpeg:80;"),
        (replace(options, part_bytes=4000, exif="rotate"), "--exif was ignore, now rotate; --part-size was 3000, now"),
    ):
        with pytest.raises(InvalidRequest, match=re.escape(text)):
            convert_source(opened(root), tmp_path / "out.pack", other)
    os.utime(next(root.rglob("*.jpg")), (1, 1))
    with pytest.raises(InvalidRequest, match="source changed; --restart"):
        convert_source(opened(root), tmp_path / "out.pack", options)
    before = digest(tmp_path / ".out.pack.partial")
    with work_folder(tmp_path / ".out.pack.partial", NAMES) as work:
        plan = make_plan(opened(root), options)
        publication = FolderPublication(plan, tmp_path / "out.pack", work)
        with pytest.raises(InvalidRequest, match="source changed"):
            publication.check(restart=False)
        publication.check(restart=True)
    assert digest(tmp_path / ".out.pack.partial") == before
